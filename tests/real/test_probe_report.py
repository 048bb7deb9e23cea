"""The report of a probe: its page, its summary, and commands that select the same subsets."""

import html
import json
import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from factories import sample_row, small_plan, store_samples
from probe_report_cases import Row, draw, file_plan, mixed, probed, tiers, with_grid

from orchestrator.cli.main import main
from orchestrator.difficulty.probe_table import CellTables, difficulty_of
from orchestrator.difficulty.remedies import FORM
from orchestrator.pipeline.probes import difficulty_lines
from orchestrator.pipeline.run import Run
from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import analyse
from orchestrator.report.html_pages import page_html
from orchestrator.report.probe_analysis import PoolAnalysis
from orchestrator.report.render import save_report, terminal_probe
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.pool import MAX_PARTS, advice, part_table, probe_report
from orchestrator.report.sentences import ties_text
from orchestrator.selection.stored import store_subset
from orchestrator.storage.store import Store
from policies import Ties
from tasks import Prompt
from tasks.prompt_table import PromptTable


def only_pool(plan: Plan, store: Store) -> PoolAnalysis:
    (pool,) = probe_report(plan, store).pools
    return pool


def _train(plan: Plan) -> PromptTable:
    return plan.pool(plan.cells[0].probe).train


def test_what_the_pool_shows(tmp_path: Path) -> None:
    def sample(prompt: Prompt, i: int) -> Row:
        if int(prompt.prompt_id, 16) // 5 % 5:
            return mixed(prompt, i)
        return {"outcome": "wrong", "extracted": "(Z)"}  # what is never solved

    plan, store = probed(tmp_path, sample)
    pool = only_pool(plan, store)
    rows = pool.table.to_pylist()
    assert pool.complete and pool.drawn == pool.expected == 160
    assert [rows[i]["successes"] for i in pool.unsolved] == [0] * len(pool.unsolved) != []
    assert all(rows[i]["truncated"] == 4 - rows[i]["successes"] for i in pool.unfinished)
    suspects = {s.prompt_id for s in pool.disputed.candidates}
    outvoted = {r["prompt_id"] for r in rows if r["wrong"] == 4}
    assert suspects == outvoted == {row["prompt_id"] for row in rows if row["suspected"]} != set()
    assert pool.disputed.by_mistake < 2 and 0.5 < pool.disputed.precision <= 1
    assert pool.disputed.title in page_html(probe_report(plan, store))
    outcomes = {name: [e.answer.outcome for e in es] for name, es in pool.examples.items() if es}
    assert outcomes.pop("agreed") == ["wrong"] * min(5, len(suspects))
    assert outcomes == {name: [name] * 3 for name in outcomes}
    assert set(outcomes) == {"correct", "wrong", "unparsed", "truncated"}


def test_examples_are_the_first_by_id_which_depends_on_nothing(tmp_path: Path) -> None:
    def sample(prompt: Prompt, i: int) -> Row:
        row = mixed(prompt, i)
        return row | {"extracted": "(Y)"} if row["extracted"] == "(Z)" and i == 0 else row

    plan, store = probed(tmp_path, sample)
    pool = only_pool(plan, store)
    by_id = sorted(_train(plan), key=lambda prompt: prompt.prompt_id)
    numbers = {prompt.prompt_id: n for n, prompt in enumerate(_train(plan))}
    drawn = {p.prompt_id: [sample(p, i) for i in range(4)] for p in by_id}
    for outcome in ("correct", "wrong", "unparsed", "truncated"):
        expected = []
        for prompt in by_id:
            rows = drawn[prompt.prompt_id]
            if outcome in (kinds := [row["outcome"] for row in rows]) and len(expected) < 3:
                first = kinds.index(outcome)
                text = f"text {numbers[prompt.prompt_id]}-{first}"
                extracted = rows[first]["extracted"]
                expected.append((prompt, first, extracted, (text, outcome, None)))
        assert pool.examples[outcome] == expected
    assert pool.examples["error"] == []
    suspects = [s.prompt_id for s in pool.disputed.candidates]
    assert {s.answer for s in pool.disputed.candidates} == {"(Z)"}
    agreed = [(e.prompt.prompt_id, e.sample, e.extracted) for e in pool.examples["agreed"]]
    assert agreed == [(i, 1, "(Z)") for i in suspects] != []
    assert pool.prompt(suspects[0]) == pool.examples["agreed"][0].prompt


def test_a_policy_has_a_command_where_a_table_will_be_written(tmp_path: Path) -> None:
    plan = with_grid(tmp_path, ["hard", "some", "dynamic"])
    store = Store(str(tmp_path / "runs"))
    draw(plan, store, mixed)
    hard, some, dynamic = probe_report(plan, store, tmp_path / "it's a page.html").pools[0].policies
    start, *rest = shlex.split(hard.command)
    table = rest[2]
    assert Path(table).parent == tmp_path and Path(table).name.startswith("it's a page-")
    out = table.replace(".parquet", "-hard.parquet")
    assert (start, rest[:2], rest[3:]) == (
        "decile",
        ["select", "--probe"],
        ["--policy", "hard", "--budget", "8", "--seed", "0", "--out", out],
    )
    options = ['require="parsed"', "low=0.0", "high=0.8"]
    assert shlex.split(some.command)[4:] == [
        *["--policy", "band"],
        *(word for option in options for word in ("--option", option)),
        *["--budget", "8", "--seed", "0", "--out", table.replace(".parquet", "-some.parquet")],
    ]
    assert dynamic.command == "" and "during training" in dynamic.note and dynamic.summary
    assert dynamic.summary.size == 40, "the whole pool"
    pool = only_pool(plan, store)
    assert [p.command for p in pool.policies] == [""] * 3
    assert hard.summary and pool.reliability
    assert (pool.group_size, pool.samples, pool.stops_early) == (4, 4, False)


def test_the_summary_fits_a_terminal_and_the_page_has_every_part(tmp_path: Path) -> None:
    """Test questions, whose samples are in the same folder, are on neither."""
    plan, store = probed(tmp_path)
    spec = plan.cells[0].probe
    before = probe_report(plan, store, Path("probe-small.html"))
    test_set = plan.pool(spec).test
    rows = [sample_row(prompt.prompt_id, 0) for prompt in test_set]
    store_samples(store, spec.model_copy(update={"split": "test"}), rows)
    report = probe_report(plan, store, Path("probe-small.html"))
    text = terminal_probe(report, 80)
    lines = [line for line in text.split("\n") if "decile select" not in line]
    assert max(map(len, lines)) <= 80
    assert "decile select --probe probe-small-" in " ".join(text.split())
    html = page_html(report)
    anchors = re.findall('<section id="(.*?)"', html)
    names = ("difficulty", "policies", "unsolved", "gold", "prompts", "completions")
    assert anchors == [f"{name}-0" for name in names]
    assert html == page_html(before)


def test_a_stopped_probe_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path), Store(str(tmp_path / "runs"))
    assert probe_report(plan, store, tmp_path / "p.html").pools == ()
    _, files = save_report(plan, store, tmp_path / "p.html")
    assert files == [tmp_path / "p.html"]
    draw(plan, store, mixed, prompts=10, samples=2)
    report = probe_report(plan, store, tmp_path / "p.html")
    [pool] = report.pools
    assert (pool.complete, pool.drawn, pool.expected) == (False, 20, 160)
    assert "decile select" not in page_html(report)
    save_report(plan, store, tmp_path / "p.html")
    assert not [*tmp_path.glob("*.parquet")]
    page = sweep_page(analyse(plan, store))  # decile report
    assert {"difficulty-0", "completions-0"} <= {section.anchor for section in page.sections}


@pytest.mark.parametrize("outcome", ["unparsed", "truncated", "error", "correct"])
def test_pools_with_a_single_outcome(tmp_path: Path, outcome: str) -> None:
    plan, store = probed(tmp_path, lambda prompt, i: {"outcome": outcome, "extracted": None})
    report = probe_report(plan, store, tmp_path / "p.html")
    (pool,) = report.pools
    assert pool.disputed.candidates == []
    assert page_html(report).count("</section>") == 5 - (outcome in ("correct", "error"))
    expected = 40 if outcome in ("unparsed", "truncated") else 0
    assert len(pool.unsolved) == expected
    assert len(pool.unfinished) == (40 if outcome == "truncated" else 0)


def test_a_policy_that_cannot_select_says_why(tmp_path: Path) -> None:
    plan = with_grid(tmp_path, ["hard", "hardest_nonzero"])
    store = Store(str(tmp_path / "runs"))
    draw(plan, store, lambda prompt, i: {})
    report = probe_report(plan, store, tmp_path / "p.html")
    hard, nonzero = report.pools[0].policies
    assert hard.summary and not nonzero.summary
    assert "has 0 of 8 prompts" in nonzero.note
    assert nonzero.note in terminal_probe(report)


def test_disputed_golds_that_are_not_suspected_are_listed_with_the_reason(tmp_path: Path) -> None:
    plan = with_grid(tmp_path, ["hard", "trusted"])
    store = Store(str(tmp_path / "runs"))
    first = {prompt.prompt_id for prompt in plan.pool(plan.cells[0].probe).train[:14]}
    nothing = {"outcome": "unparsed", "extracted": None}
    draw(plan, store, lambda prompt, i: {} if prompt.prompt_id in first else nothing)
    report = probe_report(plan, store, tmp_path / "p.html")
    [hard, trusted] = report.pools[0].policies
    assert hard.summary and hard.summary.suspected == 0 and trusted.summary
    assert trusted.summary.size == hard.summary.size and "suspected" in trusted.note
    for text in (terminal_probe(report), page_html(report)):
        assert "14 prompts" in text and trusted.note in text
        assert "DISPUTED GOLD ANSWERS" in text.upper() and "4 of 4 completions answer" in text
    run, spec = Run.of(plan, store), plan.cells[0].probe
    folder = run.folder(spec)
    tables = [(spec, CellTables(folder.outcomes(), folder))]
    lines = [*difficulty_lines(plan.cells, store, tables)]
    warnings = [line.removeprefix("warning: trusted: ") for line in lines if "trusted" in line]
    assert warnings and all(warning in trusted.note for warning in warnings)
    other = tmp_path / "none"
    plan, store = probed(other, lambda prompt, i: nothing)
    assert "isputed" not in terminal_probe(probe_report(plan, store))


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("wrong", "8 of the 8 prompts of hard"),
        ("unparsed", FORM),
        ("truncated", "max_completion_length (32)"),
        ("correct", "(0 %)"),
    ],
)
def test_a_probe_ends_with_what_to_do_next(tmp_path: Path, outcome: str, words: str) -> None:
    """Where hard takes what is never solved, and where answers are not read."""
    plan = with_grid(tmp_path, ["hard", "learnable", "random"])
    store = Store(str(tmp_path / "runs"))
    rows = [prompt.prompt_id for prompt in plan.pool(plan.cells[0].probe).train]
    failing = set() if outcome == "correct" else {*rows[:12]}
    right = {"outcome": "correct"}
    draw(
        plan,
        store,
        lambda prompt, i: (
            {"outcome": outcome, "extracted": str(i)}
            if prompt.prompt_id in failing or not i
            else right
        ),
    )
    report = probe_report(plan, store, tmp_path / "p.html")
    [pool] = report.pools
    assert words in advice(pool) and "\n" not in advice(pool)
    assert ("out with exclude: unsolved" in advice(pool)) == (outcome == "wrong")
    assert " ".join(terminal_probe(report).split()).count(advice(pool)) == 1
    assert advice(pool)[1:] in html.unescape(page_html(report))


def test_no_policy_is_named_best_where_all_are_equal(tmp_path: Path) -> None:
    plan = with_grid(tmp_path, ["hard", "easy", "random"])
    store = Store(str(tmp_path / "runs"))
    draw(plan, store, lambda _prompt, i: {"outcome": "wrong", "extracted": str(i)})
    [pool] = probe_report(plan, store, tmp_path / "p.html").pools
    assert "all policies have equally many groups" in advice(pool)
    assert "exclude: unsolved" not in advice(pool), "it would leave no prompt"


@pytest.mark.parametrize(
    ("pool", "chosen", "shown"), [(20, 20, "–"), (20, 6, "6 of 20"), (1, 1, "–")]
)
def test_ties_that_are_all_chosen_are_no_chance(pool: int, chosen: int, shown: str) -> None:
    assert ties_text(pool=pool, chosen=chosen) == ties_text(*Ties(pool, chosen)) == shown


def test_small_tiers_share_a_line() -> None:
    assert part_table(tiers(1), "tier").body == []
    assert len(part_table(tiers(MAX_PARTS), "tier").body) == MAX_PARTS
    body = part_table(tiers(MAX_PARTS + 5), "tier").body
    assert [name for name, _, _ in body][-1] == "6 smaller tiers"
    assert len(body) == MAX_PARTS and sum(count for _, count, _ in body) == 200
    assert all(sum(shares) == pytest.approx(1) for _, _, shares in body)


def test_a_pool_of_one_prompt(tmp_path: Path) -> None:
    plan = file_plan(tmp_path, [{"question": "1+1?", "answer": "2", "tier": ""}])
    store = Store(str(tmp_path / "runs"))
    draw(plan, store, lambda prompt, i: {"extracted": "3"})
    report = probe_report(plan, store, tmp_path / "p.html")
    assert "suspected" in terminal_probe(report)
    assert "gold answer 2, 4 of 4 completions answer 3" in terminal_probe(report)
    assert "never solved: 1 prompt (100.0 %)" in terminal_probe(report)
    page_html(report)


GRID = ("hard", "easy", "middle", "random", "full", "base_wrong", "learnable", "some", "parts")
HOSTILE = (
    "<script>alert(1)</script></pre><b>",
    "\x00\x1b[31mred\x1b[0m\x07",
    "\u202eright to left \u2066",
    "مرحبا كم",
    "$x_{1$ {{ name }} {% if %}",
    "A" * 1_000_000,
)


@pytest.mark.parametrize("count_truncated", ["wrong", "exclude"])
def test_the_commands_select_the_subsets_of_the_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count_truncated: str
) -> None:
    plan = with_grid(tmp_path, (*GRID, "level"), count_truncated=count_truncated)
    store = Store(str(tmp_path / "runs"))
    draw(plan, store, mixed)
    save_report(plan, store, tmp_path / "it's a page.html")
    pool = probe_report(plan, store, tmp_path / "it's a page.html").pools[0]
    assert [p.policy for p in pool.policies] == [*GRID, "level"]
    outcomes = Run.of(plan, store).folder(pool.spec).outcomes()
    table = difficulty_of(plan, pool.spec, outcomes)
    for cell, outlook in zip(plan.cells, pool.policies, strict=True):
        program, *arguments = shlex.split(outlook.command)
        assert program == "decile" and main(arguments) == 0, outlook
        subset = pq.read_table(arguments[-1])
        reason = json.loads(subset.schema.metadata[b"decile"])
        assert reason["probe_key"] == pool.spec.key
        cells_subset = store_subset(store, cell, table)
        assert subset["prompt_id"].equals(cells_subset["prompt_id"]), cell.policy
        assert outlook.summary and outlook.summary.size == subset.num_rows


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:9]))
def test_hostile_texts_are_shown_as_text(tmp_path: Path, text: str) -> None:
    def sample(prompt: Prompt, i: int) -> Row:
        return {"completion": text, "extracted": text[:3000]}

    rows = [
        {"question": f"{text} {i}", "answer": "2", "tier": f"{text[:300]}{i % 2}"} for i in range(8)
    ]
    plan, store = file_plan(tmp_path, rows), Store(str(tmp_path / "runs"))
    draw(plan, store, sample)
    report = probe_report(plan, store, tmp_path / "p.html")
    html, summary = page_html(report), terminal_probe(report)
    assert len(report.pools[0].disputed.candidates) == 8
    assert html.count("<script") == 2 and "alert(1)</script" not in html, "the page's own two"
    assert "</pre><b>" not in html
    assert len(html) < 400_000
    for page in (html, summary):
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2066]", page)
    assert ("characters left out" in html) == (len(text) > 9999)
    assert (r"\u001b" in html) == ("\x1b" in text)


def test_forms_of_answers_that_no_completion_solves_are_told(tmp_path: Path) -> None:
    golds = [*map(str, range(8)), *(f"1/{i}" for i in range(2, 10)), "0.5", "1.5"]
    rows = [
        {"question": f"What is {i}?", "answer": gold, "tier": "a"} for i, gold in enumerate(golds)
    ]
    plan, store = file_plan(tmp_path, rows), Store(str(tmp_path / "runs"))

    def sample(prompt: Prompt, i: int) -> Row:
        return {"outcome": "correct"} if prompt.answer.isdigit() and i == 0 else {}

    draw(plan, store, sample)
    pool = only_pool(plan, store)
    assert pool.unsolved_forms == {"fractions": 8}  # of the decimals there are too few
    report = probe_report(plan, store)
    for text in (page_html(report), terminal_probe(report, 100)):
        words = " ".join(text.split())
        assert "fractions (8 prompts)" in words and "integers (" not in words


def test_json_has_the_numbers_of_a_pool_and_takes_no_look_at_results(tmp_path: Path) -> None:
    plan, store = probed(tmp_path)
    report, files = save_report(plan, store, tmp_path / "probe.html")
    [pool] = report.pools
    values = pool.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    rates = pool.table["pass_rate"].to_pylist()
    assert (values["never_solved"], values["always_solved"]) == (rates.count(0), rates.count(1))
    assert sum(values["outcomes"].values()) == values["drawn"]
    subsets = {each["policy"]: each["subset"]["size"] for each in values["policies"]}
    assert subsets == {each.policy: len(each.chosen) for each in pool.policies}
    assert all(file.exists() for file in files) and not store.names("looks")
