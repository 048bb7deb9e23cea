"""Difficulty profiles of NeMo-Gym and open-instruct, and tables of counts, in and out."""

import json
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exchange_files import (
    OBJECTS,
    RIGHT,
    TASK,
    WRONG,
    imported,
    noted,
    outcomes,
    rates,
    refusal,
    subset_of,
    written,
)

from orchestrator.cli.main import main
from orchestrator.optional.exchange.exports import LAYOUTS, export_subset
from orchestrator.optional.exchange.imports import import_probe
from orchestrator.optional.exchange.records import Hints
from tasks import TaskError, make_prompt


def task_input(number: int, **more: Any) -> dict:
    """A row of NeMo-Gym's data, as of resources_servers/math_with_judge (at 07d6b0d)."""
    messages = [{"role": "user", "content": f"{number}+{number}"}]
    return {
        "responses_create_params": {"input": messages},
        "expected_answer": str(2 * number),
    } | more


def rollout(number: int, index: int, text: str, reward: float | None, **more: Any) -> dict:
    """A line of rollouts.jsonl (rollout_collection.py and base_resources_server.py, 0.5.1)."""
    parts = [{"type": "output_text", "annotations": [], "text": text}]
    output = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "status": "completed", "content": parts},
    ]
    response = {"output": output, "status": "completed", "incomplete_details": None, "error": None}
    usage = {"input_tokens": 8, "output_tokens": 5 + index, "total_tokens": 13 + index}
    return {
        **task_input(number),
        "response": {**response, "usage": usage},
        "reward": reward,
        "_ng_task_index": number,
        "_ng_rollout_index": index,
        "agent_ref": {"type": "responses_api_agents", "name": "math_simple_agent"},
    } | more


def profile(number: int, rewards: list[Any], **more: Any) -> dict:
    """A line of *_reward_profiling.jsonl (RewardProfiler.profile_from_data, 0.5.1)."""
    known = [reward for reward in rewards if isinstance(reward, int | float)]
    values = [mean(known), max(known), min(known), median(known), stdev(known)]
    names = ("mean", "max", "min", "median", "std")
    infos = [
        {
            "rollout_id": f"{number}:{i}",
            "_ng_task_index": number,
            "_ng_rollout_index": i,
            "reward": r,
        }
        for i, r in enumerate(rewards)
    ]
    return {
        "_ng_task_index": number,
        **{f"{name}/reward": value for name, value in zip(names, values, strict=True)},
        "sample": task_input(number, agent_ref={"name": "math_simple_agent"}),
        "num_rollouts": len(rewards),
        "expected_num_rollouts": len(rewards),
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": infos,
    } | more


def test_rollouts_of_nemo_gym_are_completions(tmp_path: Path) -> None:
    cut = rollout(2, 1, "so", 0.0)
    cut["response"] |= {"incomplete_details": {"reason": "max_output_tokens"}}
    failed = rollout(2, 3, "", 0.0, _ng_failure_class="timeout")
    rows = [rollout(2, 0, RIGHT, 1.0), cut, rollout(2, 2, WRONG, 0.3), failed]
    probe = imported(tmp_path, rows, TASK)
    assert probe.layout == "nemo-gym"
    assert outcomes(probe) == ["correct", "truncated", "wrong", "error"]
    assert [(p.question, p.answer) for p in probe.prompts] == [("2+2", "4")]
    assert probe.samples is not None and probe.samples["tokens"].to_pylist() == [5, 6, 7, 8]
    assert any("agree on 2 of 2" in note for note in probe.notes)


def test_an_answer_that_rollouts_lack_is_that_of_the_materialized_inputs(tmp_path: Path) -> None:
    """As of resources_servers/reasoning_gym, whose verification returns no answer."""
    rows = [rollout(2, 0, RIGHT, 1.0), rollout(2, 1, WRONG, 0.0)]
    for row in rows:
        del row["expected_answer"]
    file = written(tmp_path, rows, "rollouts.jsonl")
    with pytest.raises(TaskError, match="2 rows dropped: no answer"):
        import_probe(file, None, TASK)
    inputs = [task_input(n, _ng_task_index=n, _ng_rollout_index=i) for n in (1, 2) for i in (0, 1)]
    for row in inputs:
        row["answer"] = row.pop("expected_answer")
    beside = written(tmp_path, inputs, "rollouts_materialized_inputs.jsonl")
    assert outcomes(import_probe(file, None, TASK)) == ["correct", "wrong"]
    pool = import_probe(beside, None, TASK)
    assert pool.kind == "prompts" and [p.answer for p in pool.prompts] == ["2", "4"]


def test_a_reward_profile_counts_rewards(tmp_path: Path) -> None:
    rows = [
        profile(1, [1.0, 0.0, 1, None]),
        profile(2, [0.0, 0.0], expected_num_rollouts=4, missing_num_rollouts=2),
    ]
    probe = imported(tmp_path, rows, TASK)
    assert probe.layout == "nemo-gym" and rates(probe) == {"1+1": 2 / 3, "2+2": 0.0}
    assert probe.difficulty is not None
    columns = probe.difficulty.select(["n", "successes", "error", "scorable"]).to_pylist()
    assert sorted(tuple(row.values()) for row in columns) == [(2, 0, 0, 2), (4, 2, 1, 3)]
    assert noted(probe, "^1 prompt .*missing.*line 2")


@pytest.mark.parametrize("reward", [0.5, 2, -1, "1", 1e-9])
def test_rewards_that_are_no_counts_are_refused(tmp_path: Path, reward: Any) -> None:
    rows = [profile(1, [1, 0]), profile(2, [1, 0, reward])]
    assert f"in.jsonl:2: the reward {reward!r} " in refusal(tmp_path, rows, TASK)


def test_a_profile_without_rewards_of_rollouts_is_refused(tmp_path: Path) -> None:
    """As NeMo-Gym wrote it before; a mean alone may be of any rewards."""
    row = profile(1, [1, 0])
    del row["rollout_infos"]
    assert "in.jsonl:1: no rollout_infos" in refusal(tmp_path, [row], TASK)
    names = {"question": "sample.responses_create_params.input", "answer": "sample.expected_answer"}
    hints = Hints(**names, rate="mean/reward", samples="num_rollouts")
    probe = imported(tmp_path, [row], TASK, hints=hints)
    assert probe.difficulty is not None and probe.layout == "columns"
    assert probe.difficulty.select(["n", "successes"]).to_pylist() == [{"n": 2, "successes": 1}]


def mapped(number: int, successes: int, bucket: int) -> dict:
    """A line of create_difficulty_map.py (open-instruct at dd99f97): the source's row, and more."""
    bounds = {"value": 0.5, "posterior_mean": 0.5, "posterior_lower_bound": 0.5}
    buckets = {"expected_quantile": bucket / 4, "bucket_index": bucket, "bucket_count": 5}
    return {
        "messages": [{"role": "user", "content": f"{number}+{number}"}],
        "ground_truth": [str(2 * number)],
        "dataset": ["math"],
        "extra_info": {"index": f"row-{number}", "split": "train"},
        "generator_model": "Qwen/Qwen3-4B-Base",
        "pass_count": successes,
        "num_samples": 16,
        "pass_rate": successes / 16,
        "difficulty": bounds | buckets,
    }


@pytest.mark.parametrize("rate", [True, False])
def test_a_difficulty_map_is_read_by_its_counts(tmp_path: Path, rate: bool) -> None:
    """Its buckets are not in the order of pass rates: 0 of 16 may be easier than 1 of 16."""
    rows = [mapped(1, 0, 2), mapped(2, 1, 4), mapped(3, 16, 0)]
    for row in rows if not rate else []:
        del row["pass_rate"]
    for layout in (None, "open-instruct"):
        probe = imported(tmp_path, rows, TASK, layout=layout)
        assert rates(probe) == {"1+1": 0.0, "2+2": 1 / 16, "3+3": 1.0}
        assert probe.difficulty is not None
        assert sorted(probe.difficulty["successes"].to_pylist()) == [0, 1, 16]
        assert {*probe.difficulty["n"].to_pylist()} == {16}


def test_counts_may_be_in_any_columns(tmp_path: Path) -> None:
    row = {"question": "2+2", "answer": "4", "solve_rate_a": 0.9, "solve_rate_b": 0.8}
    rows = [row | {"eval": {"solved": 3, "tries": 4}}]
    file, out = written(tmp_path, rows), tmp_path / "out.parquet"
    command = [
        "import",
        str(file),
        "--task",
        "file",
        "--option",
        "marker=number",
        "--out",
        str(out),
    ]
    for samples in ("eval.tries", "4"):
        counts = ["--successes", "eval.solved", "--samples", samples]
        assert main([*command, *counts, "--force"]) == 0
        [read] = pq.read_table(out).to_pylist()
        assert (read["n"], read["successes"], read["pass_rate"]) == (4, 3, 0.75)


@pytest.mark.parametrize(
    ("hints", "words"),
    [
        ({"successes": "solved"}, "in.jsonl:1: solved is 3"),
        ({"successes": "solved", "samples": 2}, "in.jsonl:1: 3 successes of 2 samples"),
        ({"successes": "solved", "samples": "question"}, "in.jsonl:1: invalid question"),
        ({"successes": "no", "samples": 4}, "--successes no: "),
        ({"rate": "solved", "samples": "no"}, "--samples no: "),
    ],
)
def test_counts_that_give_no_rate_are_refused(tmp_path: Path, hints: dict, words: str) -> None:
    row = {"question": "2+2", "answer": "4", "solved": 3}
    assert words in refusal(tmp_path, [row], TASK, hints=Hints(**hints))


@pytest.mark.parametrize("layout", [name for name, shape in LAYOUTS.items() if shape.counted])
def test_counts_come_back_from_an_export(tmp_path: Path, layout: str) -> None:
    prompts = [make_prompt("file", f"{n}+{n}", str(2 * n), "all") for n in range(5)]
    table = subset_of(prompts, [4, 1, 2, 3])
    # One with an error of its marker among 32 samples, one decided early, one never solved.
    counts = {"pass_rate": [4 / 31, 0.25, 0.0, 1.0], "n": [32, 8, 8, 1], "successes": [4, 4, 0, 1]}
    for name, values in counts.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(values, table.field(at).type))
    out = tmp_path / "out.jsonl"
    export_subset(table, prompts, TASK, layout, out)
    probe = import_probe(out, None, TASK)
    assert rates(probe) == {"4+4": 4 / 31, "1+1": 0.5, "2+2": 0.0, "3+3": 1.0}
    assert probe.difficulty is not None
    read = zip(*(probe.difficulty[name].to_pylist() for name in ("n", "successes")), strict=True)
    assert sorted(read) == [(1, 1), (8, 0), (8, 4), (31, 4)]
    rated = subset_of(prompts, [0, 1])  # the first without a rate
    with pytest.raises(TaskError, match=f"{layout} .* 1 of 2 prompts"):
        export_subset(rated, prompts, TASK, layout, tmp_path / "other.jsonl")


def test_an_exported_profile_is_that_of_nemo_gym(tmp_path: Path) -> None:
    prompts = [make_prompt("file", f"{n}+{n}", str(2 * n), "all") for n in range(4)]
    out = tmp_path / "out.jsonl"
    export_subset(subset_of(prompts, [3]), prompts, TASK, "nemo-gym", out)
    [row] = [json.loads(line) for line in out.read_text().splitlines()]
    expected = profile(0, [1.0] * 3 + [0.0] * 29)
    sample, theirs = row.pop("sample"), expected.pop("sample")
    assert row == expected
    assert theirs.keys() - sample.keys() == {"agent_ref"}  # which the user's configuration names
    assert sample["expected_answer"] == "6"
    assert sample["responses_create_params"] == {"input": TASK.messages("3+3")}


def test_open_instruct_finds_its_columns(tmp_path: Path) -> None:
    """Those of build_hf_dataset_row (dd99f97), which checks the rate by the counts, to 1e-8."""
    pool = OBJECTS.train()
    export_subset(subset_of(pool, [7]), pool, OBJECTS, "open-instruct", tmp_path / "o.parquet")
    [row] = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert (row["pass_count"], row["num_samples"], row["pass_rate"]) == (7, 32, 7 / 32)
    assert row["extra_info"] == {"index": pool[7].prompt_id}
    assert row["dataset"] == "decile/shuffled_objects" and row["ground_truth"] == pool[7].answer
    assert row["messages"] == OBJECTS.messages(pool[7].question)
