"""Imports of `rllm eval` runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from exchange_files import OBJECTS, RIGHT, TASK, WRONG, noted, outcomes, rllm_run

from orchestrator.optional.exchange.exports import prompts_of
from orchestrator.optional.exchange.imports import import_probe, write_import
from tasks import TaskError


def rllm_item(idx: int, attempt: int, right: bool, /, **more: Any) -> dict:
    item = {"idx": idx, "attempt": attempt, "task_id": f"t{idx}", "reward": float(right)}
    return item | {"is_correct": right, "error": None, "termination_reason": "env_done"} | more


def episode(folder: Path, index: int, question: str, answer: str, text: str, **more: Any) -> None:
    chat = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
    content = {
        "id": f"t:{index}",
        "task": {"id": "t", "instruction": question, "metadata": {"ground_truth": answer}},
        "trajectories": [{"name": "agent", "steps": [{"chat_completions": chat}]}],
        "eval_idx": index,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"episode_{index:06d}_t.json").write_text(json.dumps(content | more))


def test_rllm_results_alone_are_rates_by_task(tmp_path: Path) -> None:
    items = [
        rllm_item(0, 0, True),
        rllm_item(0, 1, False, error="timeout"),
        rllm_item(1, 0, False),
        rllm_item(1, 1, False),
        rllm_item(2, 0, False, error="x", task_id=None),
    ]
    probe = import_probe(rllm_run(tmp_path / "run", items), None, TASK)
    assert probe.layout == "rllm" and probe.difficulty is not None
    columns = ["prompt_id", "n", "successes", "pass_rate", "error", "scorable"]
    assert [tuple(row.values()) for row in probe.difficulty.select(columns).to_pylist()] == [
        ("t0", 2, 1, 1.0, 1, 1),
        ("t1", 2, 0, 0.0, 0, 2),
    ]
    assert noted(probe, "episodes/") and noted(probe, "^2 prompts ")
    write_import(probe, tmp_path / "out.parquet")
    assert prompts_of(tmp_path / "out.parquet") == []


def test_rllm_ids_of_the_pool_become_its_prompts(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    items = [rllm_item(0, 0, True, task_id=pool[3].prompt_id)]
    probe = import_probe(rllm_run(tmp_path / "run", items), "rllm", OBJECTS, pool=pool)
    assert probe.prompts == (pool[3],)


@pytest.mark.parametrize("folder", ["episodes", "results/episodes"])
def test_rllm_episodes_are_marked_again(tmp_path: Path, folder: str) -> None:
    run = rllm_run(
        tmp_path / "run",
        [
            rllm_item(0, 0, True),
            rllm_item(0, 1, True),
            rllm_item(1, 0, False, termination_reason="max_response_length_exceeded"),
            rllm_item(1, 1, False, error="proxy"),
            rllm_item(2, 0, True),
        ],
    )
    for index, text in enumerate([RIGHT, WRONG]):
        episode(run / folder, index, "2+2", "4", text)
    episode(run / folder, 2, "1+1", "2", "so")
    outputs = {"trajectories": [{"steps": [{"output": "so"}]}]}
    episode(run / folder, 3, "1+1", "2", "", **outputs)
    probe = import_probe(run / "results.json", None, TASK)
    assert outcomes(probe) == ["correct", "wrong", "truncated", "error"]
    assert noted(probe, "1 item dropped: .*item 4") and noted(probe, "2 of 3 .1 ")


def test_an_invalid_rllm_run_is_refused(tmp_path: Path) -> None:
    run = rllm_run(tmp_path / "run", [{"is_correct": True}])
    with pytest.raises(TaskError, match="invalid items"):
        import_probe(run, None, TASK)
    rllm_run(run, [rllm_item(0, 0, True, idx=None)])
    episode(run / "episodes", 0, "2+2", "4", RIGHT)
    with pytest.raises(TaskError, match="item 0: idx is null"):
        import_probe(run, None, TASK)
    rllm_run(run, [rllm_item(0, 0, True)])
    (run / "episodes" / "episode_000000_t.json").write_text("{")
    with pytest.raises(TaskError, match="run/episodes/episode_000000_t.json: invalid JSON"):
        import_probe(run, None, TASK)
