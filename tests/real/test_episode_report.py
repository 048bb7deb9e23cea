"""Reports of episodes: turns by pass rate, before and after training, and examples to read."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from environments_cases import MODULE, call, file_of
from factories import cell_record, finished_sweep, small_plan
from probe_report_cases import probed
from scripted_model import Scripted, Turns, calls, counting

from orchestrator.evaluation.metrics import as_evaluation, evaluation_metrics
from orchestrator.planning.plan import Plan
from orchestrator.probing.probe_folder import write_part
from orchestrator.probing.samples import sample_and_mark
from orchestrator.report.analysis import analyse
from orchestrator.report.content import Page
from orchestrator.report.html_pages import page_html
from orchestrator.report.render import terminal_probe, terminal_report
from orchestrator.report.rows import AnswerText
from orchestrator.report.sample_blocks import Completions, Message
from orchestrator.report.sections.completions import MESSAGE_LIMIT, MESSAGES, card
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.pool import probe_report
from orchestrator.sampling.base import SamplingSettings
from orchestrator.selection.subsets import with_reason
from orchestrator.storage.schema import SAMPLES, SUBSET
from orchestrator.storage.store import Store
from orchestrator.training.record import finish
from tasks import Prompt

HOSTILE = "</p><script>alert(1)</script>\x1b[31m"


def turn(chat: str, sample: int) -> str:
    """Counts; sample 1 gives up, and sample 2 first calls what does not exist."""
    if sample == 1:
        return f"No. {HOSTILE[:29]}"
    if sample == 2 and "fly" not in chat:
        return calls(call("fly"), call("guess", number=0))
    return counting(chat, sample)


def plan_of(folder: Path, environment: str = "Guess", **columns: Any) -> Plan:
    """Ten prompts of each number from 0 to 5, which are the tiers."""
    rows = [
        {"prompt": f"Game {n}.", "number": n % 6, "level": f"L{n % 6}", **columns}
        for n in range(60)
    ]
    limits = {"seconds": 20.0, "memory": 0.5, "processes": 1}
    options = {"path": file_of(folder, rows), "tier": "level", "threshold": 0.3, "turns": 5}
    game = {"task": f"{MODULE}:{environment}", "options": {**options, "mark_limits": limits}}
    grid = {"model": ["stub"], "dataset": ["game"], "policy": ["middle", "random"]}
    return small_plan(folder, datasets={"game": game}, grid=grid, budget=4)


def played(plan: Plan, split: str, turns: Turns) -> pa.Table:
    """The samples of the probe of a split, by a scripted model."""
    [spec] = [probe for probe in plan.probes if probe.split == split]
    pool = plan.pool(spec)
    prompts = pool.train if split == "train" else pool.test
    settings = SamplingSettings(max_completion_length=700)
    requests = [(prompt, range(spec.settings.samples)) for prompt in prompts]
    return sample_and_mark(Scripted(turns), pool.task, requests, settings)


def probe_of(folder: Path, turns: Turns = turn, **options: Any) -> tuple[Plan, Store]:
    plan, store = plan_of(folder, **options), Store(str(folder / "runs"))
    [spec] = [probe for probe in plan.probes if probe.split == "train"]
    write_part(store, spec.key, "train", played(plan, "train", turns))
    return plan, store


def cards_of(page: Page) -> list[Completions]:
    return [b for s in page.sections for b in s.blocks if isinstance(b, Completions)]


def episode(messages: list[Any], **values: Any) -> dict[str, Any]:
    counted = {"turns": 1, "tool_calls": 1, "tool_errors": 0, "tool_tokens": 1}
    return {"messages": json.dumps(messages), **counted, "reward": 0.5, "failure": "", **values}


def test_turns_by_pass_rate_are_those_of_the_samples(tmp_path: Path) -> None:
    plan, store = probe_of(tmp_path)
    report = probe_report(plan, store, tmp_path / "p.html")
    [pool], table = report.pools, report.tables["turns_by_pass_rate"]
    rates = {row["prompt_id"]: row["pass_rate"] for row in pool.table.to_pylist()}
    by_rate: dict[float, list[Any]] = {}
    for row in played(plan, "train", turn).to_pylist():
        by_rate.setdefault(rates[row["prompt_id"]], []).append(row)
    names = {0.0: "0 %", 0.25: "≤ 25 %", 0.5: "≤ 50 %", 0.75: "≤ 75 %", 1.0: "100 %"}
    assert [line[0] for line in table.body] == [names[rate] for rate in sorted(by_rate)]
    for line, rate in zip(table.body, sorted(by_rate), strict=True):
        rows = by_rate[rate]
        total = {n: sum(r["episode"][n] for r in rows) for n in ("turns", "tool_calls")}
        errors = sum(r["episode"]["tool_errors"] for r in rows)
        truncated = sum(r["outcome"] == "truncated" for r in rows)
        assert line[1:] == (
            str(len(rows) // 4),
            *(f"{value / len(rows):.2f}" for value in total.values()),
            f"{100 * errors / total['tool_calls']:.1f}",
            f"{100 * truncated / len(rows):.1f}",
            "0.0",
        )
    lines = terminal_probe(report, 80).split("\n")
    assert all(len(line) <= 80 for line in lines[: lines.index(table.title) + 9])
    # A part that holds the same samples again changes nothing.
    [spec] = [probe for probe in plan.probes if probe.split == "train"]
    write_part(store, spec.key, "train", played(plan, "train", turn).slice(0, 30))
    assert probe_report(plan, store).tables["turns_by_pass_rate"] == table


def test_episodes_that_failed_before_their_first_turn(tmp_path: Path) -> None:
    plan, store = probe_of(tmp_path, environment="BadReset", number="raise")
    report = probe_report(plan, store)
    [line] = report.tables["turns_by_pass_rate"].body
    assert line[0] == "none" and line[2:] == ("0.00", "0.00", "–", "0.0", "100.0")
    [(_, outcome, chat)] = cards_of(report)[0].answers
    assert outcome == "error" and len(chat) == 1 and chat[0].failed
    assert chat[0].text.startswith("environment failed: KeyError@environments_of_users.py")
    assert chat[0].text.endswith("error, no reward, 0 turns, 0 tool calls")


PROMPT = Prompt("0" * 16, "Q", "", "")


def sweep_of(folder: Path) -> tuple[Plan, Store]:
    """Finished cells, whose model no longer gives up, and calls nothing that does not exist."""
    plan, store = plan_of(folder), Store(str(folder / "runs"))
    [spec] = [probe for probe in plan.probes if probe.split == "test"]
    tiers = plan.pool(spec).tiers("test")
    sides = [played(plan, "test", turns) for turns in (turn, counting)]
    for cell in plan.cells:
        chosen = plan.pool(cell.probe).train[: cell.size]
        rows = [{"rank": r, "prompt_id": p.prompt_id, "tier": p.tier} for r, p in enumerate(chosen)]
        subset = pa.Table.from_pylist(rows, schema=SUBSET)
        subset = with_reason(subset, {**cell.subset_identity, "ties": None})
        store.write_table(subset, "subsets", f"{cell.subset_key}.parquet")
        record = cell_record(plan, cell)
        record.evaluations = record.evaluations.slice(0, 0)
        for update, samples in zip((0, cell.updates), sides, strict=True):
            record.add_evaluation(as_evaluation(samples, update, tiers))
        finish(store, cell, record, {"trl": "0"})
    return plan, store


def test_one_prompt_of_each_pass_rate_is_shown_turn_by_turn(tmp_path: Path) -> None:
    plan, store = probe_of(tmp_path)
    report = probe_report(plan, store)
    cards = cards_of(report)
    bands = [re.match(r"Pass rate (.*): \d of 4 episodes correct.", c.about) for c in cards]
    table = report.tables["turns_by_pass_rate"]
    assert [band and band[1] for band in bands] == [line[0] for line in table.body]
    assert all(c.prompt[0].text.endswith(". Guess.") and len(c.prompt) == 1 for c in cards)
    answers = [answer for c in cards for answer in c.answers]
    assert {outcome for _, outcome, _ in answers} == {"correct", "wrong", "truncated"}
    for _, outcome, chat in answers:
        assert isinstance(chat, tuple) and [m.speaker for m in chat].count("end") == 1
        assert chat[-1].speaker == "end" and chat[-1].text.startswith(f"{outcome}, reward ")
    html = page_html(report)
    assert "<script>alert" not in html and "&lt;script&gt;" in html


def test_calls_answers_and_errors_are_labelled(tmp_path: Path) -> None:
    def script(chat: str, sample: int) -> str:
        return turn(chat, 2) if "Game" in chat else ""

    plan, store = probe_of(tmp_path, script)
    chat = cards_of(probe_report(plan, store))[0].answers[0][2]
    assert chat[:4] == (
        Message("assistant", "fly()\nguess(number=0)"),
        Message("tool fly error", "{'error': 'Tool fly not found.'}", failed=True),
        Message("tool guess", chat[2].text),
        Message("assistant", chat[3].text),
    )
    assert "1 answered" in chat[-1].text


def test_a_sweep_compares_turns_before_and_after(tmp_path: Path) -> None:
    plan, store = sweep_of(tmp_path)
    analysis = analyse(plan, store)
    page = sweep_page(analysis)
    table = page.tables["episodes_before_and_after_training"]
    base, middle, _ = table.body
    assert [line[1] for line in table.body] == ["base model", "middle", "random"]
    sides = [played(plan, "test", turns)["episode"].to_pylist() for turns in (turn, counting)]
    for column, name in ((3, "turns"), (4, "tool_calls")):
        means = [sum(e[name] for e in side) / len(side) for side in sides]
        after, difference = re.findall(r"[+−]?\d+\.\d\d", middle[column])[:2]
        assert (base[column], after) == tuple(f"{mean:.2f}" for mean in means)
        assert float(difference) == pytest.approx(means[1] - means[0], abs=0.0051)
    result = analysis.rows[0].result
    assert base[2] == f"{100 * result.accuracy_base:.1f}"
    assert middle[2].startswith(f"{100 * result.accuracy_final:.1f} (+")
    failed, made = (sum(e[n] for e in sides[0]) for n in ("tool_errors", "tool_calls"))
    assert base[5] == f"{100 * failed / made:.1f}" and middle[5] == f"0.0 (−{base[5]})"
    assert table.title in terminal_report(analysis, 100)
    test = sorted(plan.pool(plan.cells[0].baseline).test, key=lambda p: (p.tier, p.prompt_id))
    first = {prompt.tier: prompt.question for prompt in reversed(test)}
    shown = {c.about.partition(" From ")[0]: c.prompt[0].text for c in cards_of(page)}
    tiers = [tier for tier in sorted(first) if f"Tier {tier}." in shown]
    assert shown == {f"Tier {tier}.": f"{first[tier]} Guess." for tier in tiers}
    assert len(shown) == min(5, len(first)) > 1
    for each in cards_of(page):
        trained = [f"after training on {policy}, seed 0" for policy in ("middle", "random")]
        assert [name for name, *_ in each.answers] == ["before: base model", *trained]
        assert [chat[0].text for *_, chat in each.answers] == ["guess(number=0)"] * 3


def test_metrics_of_an_evaluation_of_episodes(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    samples = played(plan, "test", turn)
    tiers = dict.fromkeys(samples["prompt_id"].to_pylist(), "")
    metrics = evaluation_metrics(as_evaluation(samples, 1, tiers))
    episodes = samples["episode"].to_pylist()
    assert metrics["eval/turns"] == pytest.approx(sum(e["turns"] for e in episodes) / len(episodes))
    assert metrics["eval/tool_errors_pct"] > 0


def test_a_store_without_episodes_shows_the_text_of_all_turns(tmp_path: Path) -> None:
    plan, store = plan_of(tmp_path), Store(str(tmp_path / "runs"))
    [spec] = [probe for probe in plan.probes if probe.split == "train"]
    samples = played(plan, "train", counting)
    nothing = pa.nulls(samples.num_rows, SAMPLES.field("episode").type)
    bare = samples.set_column(samples.schema.get_field_index("episode"), "episode", nothing)
    write_part(store, spec.key, "train", bare)
    report = probe_report(plan, store)
    assert "turns_by_pass_rate" not in report.tables
    assert [s.title for s in report.sections][-1] == "Example completions"
    assert all(isinstance(text, str) for c in cards_of(report) for *_, text in c.answers)


def shown(messages: list[Any], **values: Any) -> tuple[Message, ...]:
    [(_, _, chat)] = card(
        PROMPT, [("s", AnswerText("", "wrong", episode(messages, **values)))]
    ).answers
    assert isinstance(chat, tuple)
    return chat


def test_messages_of_any_content_are_shown_and_long_ones_cut() -> None:
    user = {"role": "user", "content": "Q"}
    blocks = [{"type": "text", "text": "<b>"}]
    odd_calls = [{"function": {"name": "f", "arguments": "raw"}}, [1], {"name": "g"}]
    chat = shown(
        [
            user,
            {"role": "assistant", "content": None, "tool_calls": odd_calls},
            {"role": "tool", "name": "f", "content": blocks},
            {"role": "tool", "name": "g", "content": {"error": "é"}},
            {"role": "tool", "content": "x" * 1_000_000},
            {"role": "assistant", "reasoning_content": "hm", "content": "A"},
            {"role": "assistant"},
        ]
    )
    assert [m.text for m in chat[:3]] == ["f(raw)\n[1]\ng()", json.dumps(blocks), '{"error": "é"}']
    left_out = 1_000_000 - MESSAGE_LIMIT
    assert len(chat[3].text) < 700 and f"{left_out:,} characters left out" in chat[3].text
    end = "wrong, reward 0.5, 1 turn, 1 tool call"
    assert [m.text for m in chat[4:]] == ["hm\nA", "(empty)", end]
    assert not any(m.failed for m in chat)
    many = shown([user, *({"role": "assistant", "content": f"{n}"} for n in range(10_000))])
    assert len(many) == MESSAGES + 2 and Message("…", "9,976 messages left out") in many


def test_prompts_that_differ_are_shown_with_their_episodes() -> None:
    texts = ("one", "two")
    chats = [[{"role": "user", "content": t}, {"role": "assistant", "content": "A"}] for t in texts]
    block = card(PROMPT, [("s", AnswerText("", "wrong", episode(chat))) for chat in chats])
    assert not block.prompt
    assert [chat[0] for *_, chat in block.answers] == [Message("user", t) for t in texts]


def test_a_task_of_one_answer_has_nothing_about_episodes(tmp_path: Path) -> None:
    report = probe_report(*probed(tmp_path / "probe"))
    page = sweep_page(analyse(*finished_sweep(tmp_path / "sweep")))
    for each in (page_html(report), page_html(page), terminal_probe(report)):
        body = re.sub("<style>.*?</style>", "", each, flags=re.DOTALL)
        assert not re.search(r"episode|tool call|\bturns?\b", body, re.IGNORECASE)
