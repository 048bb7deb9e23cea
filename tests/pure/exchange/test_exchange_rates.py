"""Imports of solve rates: Big-Math, Skywork, verl, DAPO, and tables of one's own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from exchange_files import TASK, imported, noted, rates, refusal, select, written
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.difficulty.proportions import wilson
from orchestrator.optional.exchange.columns import counted_successes
from orchestrator.optional.exchange.exports import prompts_of
from orchestrator.optional.exchange.imports import import_file, import_probe, write_import
from orchestrator.optional.exchange.records import Hints
from orchestrator.planning.score_file import rated_table
from orchestrator.plugins.counts import counted_label
from orchestrator.plugins.difficulty_table import DIFFICULTY
from orchestrator.selection.candidates import probed_history
from orchestrator.selection.from_samples import select_samples
from orchestrator.selection.subsets import SubsetRequest, policy_entry
from orchestrator.selection.subsets import select as build_subset
from policies import PolicyError
from tasks.sources.texts import ANSWERS, INSTRUCTIONS


def test_solve_rates_are_noted_and_unknown_columns_stay_absent(tmp_path: Path) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "solve_rate": 0.25, "n": 8},
        {"question": "1+1", "answer": "2", "solve_rate": "7/8"},
        {"question": "1+2", "answer": "3", "solve_rate": 0.33, "n": 8},
        {"question": "1+3", "answer": "4", "solve_rate": None},
    ]
    probe = imported(tmp_path, rows, TASK)
    assert probe.layout == "solve-rates" and probe.samples is None
    assert rates(probe) == {"2+2": 0.25, "1+1": 0.875, "1+2": 0.33}
    table = probe.difficulty
    assert table is not None and set(table.column_names) < set(DIFFICULTY.names)
    assert not {"wrong", "unparsed", "truncated", "error", "first"} & set(table.column_names)
    assert all(table.schema.field(n).type == DIFFICULTY.field(n).type for n in table.column_names)
    questions = {p.prompt_id: p.question for p in probe.prompts}
    rows = {questions[row["prompt_id"]]: row for row in table.to_pylist()}
    assert (rows["1+1"]["n"], rows["1+1"]["successes"]) == (8, 7)
    assert (rows["1+2"]["n"], rows["1+2"]["successes"]) == (8, None)
    low, high = wilson(np.array([2, 3]), np.array([8, 8]))
    assert low[0] < rows["1+2"]["low"] < low[1] and high[0] < rows["1+2"]["high"] < high[1]
    assert (rows["2+2"]["low"], rows["2+2"]["high"]) == pytest.approx((low[0], high[0]))
    assert noted(probe, "^1 row dropped: .*line 4") and noted(probe, "^solve rates only")


def test_counts_give_a_rate_and_hints_the_rest(tmp_path: Path) -> None:
    row = {"problem": "2+2", "answer": "4"}
    probe = imported(tmp_path, [row | {"samples": 8.0, "num_correct": 2}], TASK)
    assert rates(probe) == {"2+2": 0.25}
    probe = imported(tmp_path, [row | {"mine": 0.5}], TASK, hints=Hints(rate="mine", samples=4))
    assert probe.difficulty is not None
    assert probe.difficulty.select(["n", "successes"]).to_pylist() == [{"n": 4, "successes": 2}]


def test_a_repeated_prompt_keeps_its_first_rate(tmp_path: Path) -> None:
    row = {"question": "2+2", "answer": "4", "pass_rate": 0.5}
    rows = [row, row, row | {"pass_rate": 0.75}, row | {"answer": "5"}]
    probe = imported(tmp_path, rows, TASK)
    assert len(probe.prompts) == 2
    assert noted(probe, "^1 row dropped: .*line 2") and noted(probe, "^1 row dropped: .*line 3")
    assert noted(probe, "^1 question .*line 4")


@pytest.mark.parametrize("rate", [43.0, -0.1, True, "half", "yes", "0.5.1"])
def test_an_invalid_rate_is_refused(tmp_path: Path, rate: Any) -> None:
    message = refusal(tmp_path, [{"question": "2+2", "answer": "4", "solve_rate": rate}], TASK)
    assert "in.jsonl:1: invalid solve rate" in message and "from 0 to 1" in message


def test_several_rate_columns_need_a_hint(tmp_path: Path) -> None:
    names = ("solve_rate_qwen_r1_distill_1b", "solve_rate_qwen_r1_distill_7b")
    row = {"question": "2+2", "answer": "4", names[0]: 0.1, names[1]: 0.9}
    assert f"--rate {names[0]}" in refusal(tmp_path, [row], TASK)
    assert rates(imported(tmp_path, [row], TASK, hints=Hints(rate=names[1]))) == {"2+2": 0.9}


def test_big_math_solve_rates_are_read(tmp_path: Path) -> None:
    row = {"source": "orca_math", "domain": ["Algebra"]}
    rows = [
        row | {"problem": "2+2", "answer": "4", "llama8b_solve_rate": 0.15625},
        row | {"problem": "1+1", "answer": "2", "llama8b_solve_rate": None},
    ]
    probe = imported(tmp_path, rows, TASK)
    assert probe.layout == "big-math" and rates(probe) == {"2+2": 0.15625}
    assert probe.difficulty is not None
    (row,) = probe.difficulty.to_pylist()
    assert (row["n"], row["successes"], row["scorable"]) == (64, 10, 64)
    assert row["low"] < 0.15625 < row["high"] and 0 < row["learnability"] < 1
    assert rates(imported(tmp_path, rows, TASK, layout="solve-rates")) == {"2+2": 0.15625}


def verl_row(question: str, answer: str, /, **extra: Any) -> dict:
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": question}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b", **extra},
    }


def skywork_row(question: str, answers: Any, **failures: Any) -> dict:
    models = {name.replace("_", "-"): count for name, count in failures.items()}
    return verl_row(question, json.dumps(answers), model_difficulty=models)


def test_skywork_counts_failures_of_sixteen(tmp_path: Path) -> None:
    rows = [
        skywork_row("2+2", ["4", "4.0"], small=16, large=0),
        skywork_row("1+1", ["2"], small=4, large=None),
        skywork_row("code", {"inputs": ["1"]}, small=1, large=1),
    ]
    probe = imported(tmp_path, rows, TASK, hints=Hints(model="small"))
    assert probe.layout == "skywork" and rates(probe) == {"2+2": 0.0, "1+1": 0.75}
    assert {p.answer for p in probe.prompts} == {"4", "2"}
    assert "1 row dropped: no answer (line 3)" in probe.notes
    assert noted(probe, f"^{counted_label(1, ANSWERS)} .line 1")
    assert rates(imported(tmp_path, rows, TASK, hints=Hints(model="large"))) == {"2+2": 1.0}
    assert "one of small, large" in refusal(tmp_path, rows, TASK)
    assert "'x'" in refusal(tmp_path, rows, TASK, hints=Hints(model="x"))
    rows[0]["extra_info"]["model_difficulty"]["small"] = 17
    message = refusal(tmp_path, rows, TASK, hints=Hints(model="small"))
    assert "in.jsonl:1: 17 failures of 16" in message


def test_one_model_needs_no_hint_and_the_pool_alone_can_be_read(tmp_path: Path) -> None:
    rows = [skywork_row("2+2", ["4"], only=8)]
    assert rates(imported(tmp_path, rows, TASK)) == {"2+2": 0.5}
    pool = imported(tmp_path, rows, TASK, layout="dapo")
    assert pool.kind == "prompts" and pool.prompts[0].answer == "4"
    words = [skywork_row("2+2", ["four"], only=8)]
    assert "marker file/4/lenient/number " in refusal(tmp_path, words, TASK, layout="dapo")


@pytest.mark.parametrize("kind", ["in.jsonl", "in.parquet"])
def test_dapo_is_a_pool_without_rates_and_its_instructions_are_removed(
    tmp_path: Path, kind: str
) -> None:
    wording = (
        "Solve the following math problem step by step. The last line of your response should be "
        "of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
        '\n\nWhat is\n\n2+2?\n\nRemember to put your answer on its own line after "Answer:".'
    )
    file = written(tmp_path, [verl_row(wording, "4"), verl_row("1+1", "2")], kind)
    probe = import_probe(file, None, TASK)
    assert (probe.layout, probe.kind) == ("verl", "prompts")
    assert [p.question for p in probe.prompts] == ["What is\n\n2+2?", "1+1"]
    assert noted(probe, f"^{counted_label(1, INSTRUCTIONS)}") and noted(probe, "^no solve rates")
    write_import(probe, tmp_path / "pool.parquet")
    assert pq.read_table(tmp_path / "pool.parquet").num_rows == 2
    assert prompts_of(tmp_path / "pool.parquet") == list(probe.prompts)


def test_verl_reads_question_and_rate_of_extra_info(tmp_path: Path) -> None:
    row = verl_row("2+2 Think!", "4", question="2+2", answer="… #### 4", pass_rate=0.5)
    assert rates(imported(tmp_path, [row], TASK)) == {"2+2": 0.5}
    row["reward_model"]["ground_truth"] = ["4"]
    assert imported(tmp_path, [row], TASK).prompts[0].answer == "4"


@pytest.mark.parametrize(("samples", "digits"), [(8, 17), (3, 2), (64, 1)])
def test_every_rate_has_a_learnability(tmp_path: Path, samples: int, digits: int) -> None:
    """Also where it is rounded, or no share of its samples: the middle is the most learnable."""
    rows = [
        {"question": f"{n}+1", "answer": str(n + 1), "solve_rate": round(n / 7, digits)}
        for n in range(8)
    ]
    out = tmp_path / "probe.parquet"
    import_file(written(tmp_path, rows), TASK, out, hints=Hints(samples=samples))
    table = pq.read_table(out)
    assert table["learnability"].null_count == 0
    chosen = pq.read_table(select(out, "learnable", "2"))["prompt_id"].to_pylist()
    questions = {p.prompt_id: p.question for p in prompts_of(out)}
    assert {questions[name] for name in chosen} == {"3+1", "4+1"}
    subset = pq.read_table(select(out, "full", "8")).sort_by("prompt_id")
    history = probed_history(subset, seed=0, updates=1, group_size=8)
    expected = subset["pass_rate"].to_numpy() * samples
    assert np.abs(history.successes - expected).max() <= 0.5 + 1e-9


@example((199, 201))  # 0.9900, which is written 0.99
@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_rounded_rate_gives_its_count_or_none(counts: tuple[int, int]) -> None:
    right, n = counts
    assert counted_successes(right / n, n) == right
    for digits in (1, 2, 3, 4):
        assert counted_successes(round(right / n, digits), n) in (None, right) or n >= 10**digits
    rate = round(right / n, 4)
    assert counted_successes(rate, n) == right or len(repr(rate)) < len("0.1234")
    assert counted_successes(float(np.float32(right / n)), n) == right


def test_a_policy_refuses_prompts_that_lack_what_it_ranks_by(tmp_path: Path) -> None:
    rows = [
        {"question": f"{n}+1", "answer": str(n + 1), "solve_rate": n / 8, "n": 8 if n < 6 else None}
        for n in range(9)
    ]
    out = tmp_path / "probe.parquet"
    import_file(written(tmp_path, rows), TASK, out)
    rated = rated_table(out, pq.read_table(out))
    for policy, options in (("learnable", {}), ("mixture", {"shares": {"learnable": 1.0}})):
        with pytest.raises(PolicyError, match="null for 3 of 9 prompts"):
            build_subset(rated, SubsetRequest(policy_entry(policy, options), 2))
    for policy, options in (("middle", {}), ("band", {"low": 0.7, "high": 1.0})):
        assert build_subset(rated, SubsetRequest(policy_entry(policy, options), 2))


@pytest.mark.parametrize("kind", ["completions", "counts", "rates"])
@pytest.mark.parametrize("right", [False, True])
def test_a_pool_in_which_nothing_can_be_learnt_is_warned_of(
    tmp_path: Path, kind: str, right: bool
) -> None:
    values = {
        "completions": {"completions": [r"\boxed{4}" if right else r"\boxed{5}"] * 4},
        "counts": {"num_correct": 4 * right, "num_samples": 4},
        "rates": {"solve_rate": float(right)},
    }
    rows = [{"question": f"2+{n}-{n}+2", "answer": "4", **values[kind]} for n in range(30)]
    out = tmp_path / "probe.parquet"
    summary = import_file(written(tmp_path, rows), TASK, out)
    start = "only 0 of 30 prompts "
    assert sum(note.startswith(start) for note in summary["notes"]) == 1
    why = select_samples([out], policy_entry("hard", {}), "6", 0, tmp_path / "subset.parquet")
    assert sum(note.startswith(start) for note in why["notes"]) == 1
