"""Mutated files of every layout: imported, or refused in one line that names the file."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paths import LOGS

from orchestrator.cli.main import main

CASES = 600
USER = {"role": "user", "content": "2+2?"}
REPLY = {"role": "assistant", "content": "\\boxed{4}"}
DATA = {"data": {"prompt": "2+2", "answer": "4"}}
NODES = [{"message": REPLY, "sampled": True}]
REWARD = {"score": 1, "weight": 1}
ROWS: list[dict[str, Any]] = [
    {"question": "2+2", "answer": "4", "completions": ["4"], "truncated": [True], "tokens": [1]},
    {"problem": "2+2", "answer": "4", "solve_rate": 0.5, "n": 4, "successes": 2, "tier": "a"},
    {"prompt": [USER], "completion": [REPLY], "answer": "4", "info": '{"question": "2+2?"}'},
    {"messages": [USER, REPLY], "solution": "4", "choices": ["4"], "prompt_id": "ab"},
    {"context_messages": [USER], "label": "4"},
    {"prompt": [USER], "reward_model": {"ground_truth": "4"}, "extra_info": {"pass_rate": 0.5}},
    {
        "prompt": [USER],
        "reward_model": {"ground_truth": '["4"]'},
        "extra_info": {"model_difficulty": {"m": 4}},
    },
    {"prompt": [USER], "completion": [REPLY], "reward": 1.0, "answer": "4", "token_usage": {}},
    {"task": DATA, "nodes": NODES, "calls": [{"usage": {}}], "rewards": {"a": 1.0}, "errors": []},
    {"task": DATA, "traces": [{"nodes": NODES, "calls": [], "rewards": {"a": REWARD}}]},
    {
        "responses_create_params": {"input": [USER]},
        "expected_answer": "4",
        "response": {"output": [REPLY], "incomplete_details": None, "usage": {"output_tokens": 1}},
        "reward": 1.0,
        "_ng_task_index": 0,
    },
    {
        "mean/reward": 1.0,
        "sample": {"responses_create_params": {"input": [USER]}, "expected_answer": "4"},
        "rollout_infos": [{"reward": 1.0}, {"reward": 0}],
        "missing_num_rollouts": 0,
    },
    {"messages": [USER], "ground_truth": ["4"], "pass_count": 1, "num_samples": 2},
    *map(json.loads, (LOGS / "lm_eval_sums.jsonl").read_text().splitlines()),
    *map(json.loads, (LOGS / "verl_rollouts.jsonl").read_text().splitlines()),
    {"eval": {}, "samples": json.loads((LOGS / "inspect.json").read_text())["samples"][:1]},
    {"items": [{"idx": 0, "attempt": 0, "task_id": "t", "is_correct": True}], "attempts": 1},
]
BAD: list[Any] = [
    *(None, True, 7, -1, 1.5, float("nan"), float("inf"), 10**30, "", " ", "\0", "9" * 6000 + "/1"),
    *(
        [],
        [None],
        [[]],
        {},
        {"role": 1},
        [USER, {"role": "user"}],
        [{"content": 7}],
        {"a": {"b": 1}},
    ),
    *("{", "attachment://x", [{"from": "human", "value": {}}], [1, "a", {}]),
]
OPTIONS = [
    *[["--question", "messages"], ["--question", "a.b"], ["--answer", "completion"]],
    *[["--answer", "reward_model.ground_truth"], ["--completions", "messages"]],
    *[["--rate", "n"], ["--prompt-id", "tier"], ["--samples", "4"], ["--samples", "0"]],
    *[["--successes", "pass_count", "--samples", "num_samples"], ["--samples", "n"]],
    *[["--layout", name] for name in ("columns", "trl", "verl", "lm-eval", "inspect", "rllm")],
]


def paths(value: Any, path: tuple = ()) -> Iterator[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*path, key))


def mutated(row: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    row = copy.deepcopy(row)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        *outer, key = rng.choice(list(paths(row)) or [("new",)])
        target: Any = row
        for name in outer:
            target = target[name]
        if rng.random() < 0.2 and isinstance(target, dict):
            target.pop(key, None)
        else:
            target[key] = copy.deepcopy(rng.choice(BAD))
    return row


def mutated_file(folder: Path, rng: random.Random) -> Path:
    """A JSON lines, JSON or Parquet file, or its bytes with a part cut off or changed."""
    row = rng.choice(ROWS)
    rows = [mutated(row, rng) for _ in range(rng.randrange(1, 4))]
    name = "in.json" if "eval" in row else "results.json" if "items" in row else "in.jsonl"
    if name == "in.jsonl" and rng.random() < 0.15:
        try:
            pq.write_table(pa.Table.from_pylist(rows), folder / "in.parquet")
        except (pa.ArrowException, OverflowError, TypeError):
            pass  # Arrow has no type for such rows
        else:
            return folder / "in.parquet"
    data = bytearray("\n".join(map(json.dumps, rows[:1] if name != "in.jsonl" else rows)).encode())
    if rng.random() < 0.1:
        data = data[: rng.randrange(len(data) + 1)]
    elif rng.random() < 0.1:
        data[rng.randrange(len(data))] = rng.randrange(256)
    (folder / name).write_bytes(data)
    return folder / name


def test_mutated_files_are_imported_or_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(0)
    codes = []
    for _ in range(CASES):
        file = mutated_file(tmp_path, rng)
        options = [*rng.choice(OPTIONS)] if rng.random() < 0.3 else []
        task = rng.choice(["file", "gsm8k", "math"])
        out = str(tmp_path / "out.parquet")
        codes.append(main(["import", str(file), "--task", task, *options, "--out", out, "--force"]))
        error = capsys.readouterr().err
        if codes[-1] == 2:
            assert error.count("\n") == 1 and (file.name in error or "--samples" in error), error
    assert set(codes) == {0, 2} and codes.count(0) > CASES // 5
