"""A marker gives the same marks wherever it runs: a Ray actor, a Ray Data worker, a TRL reward.

Verifiers with time limits by signals return nothing, or kill their host, in all of these.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from factories import trl_columns

from tasks import Answer, Prompt, get_task

pytestmark = pytest.mark.cluster

ANSWERS = [
    Answer(r"\boxed{4i+8}", "8+4i"),
    Answer(r"\boxed{0.5}", r"\frac{1}{2}"),
    Answer(r"\boxed{9^{9^{9^{9}}}}", "1"),
    Answer(r"\boxed{x+1}", "x+2"),
    Answer("no idea", "1", truncated=True),
]
OUTCOMES = ["correct", "correct", "error", "wrong", "truncated"]


def outcomes(answers: list[Answer]) -> list[str]:
    return [mark.outcome for mark in get_task("math").mark_all(answers)]


def test_expressions_are_marked_in_this_process() -> None:
    assert outcomes(ANSWERS) == OUTCOMES


def test_expressions_are_marked_in_a_threaded_ray_actor(local_ray: Path) -> None:
    import ray

    class Marker:
        def mark(self) -> list[str]:
            return [m.outcome for m in get_task("math").mark_all(ANSWERS)]

    actor = ray.remote(num_cpus=0.5, max_concurrency=2)(Marker).remote()
    assert ray.get([actor.mark.remote() for _ in range(2)]) == [OUTCOMES] * 2


def test_expressions_are_marked_in_a_ray_data_worker(local_ray: Path) -> None:
    import ray.data

    def mark(batch: pa.Table) -> pa.Table:
        answers = [Answer(**row) for row in batch.to_pylist()]
        outcomes = [m.outcome for m in get_task("math").mark_all(answers)]
        return pa.table({"outcome": outcomes})

    rows = pa.Table.from_pylist([answer._asdict() for answer in ANSWERS])
    marked = ray.data.from_arrow(rows).map_batches(mark, batch_size=None, batch_format="pyarrow")
    assert [row["outcome"] for row in marked.take_all()] == OUTCOMES


def test_expressions_are_marked_in_a_trl_reward_function(tmp_path) -> None:
    from types import SimpleNamespace

    from factories import small_plan

    from orchestrator.training.record import CellRecord
    from orchestrator.training.rollouts import marker, reward_function

    cell = small_plan(tmp_path).cells[0]
    record = CellRecord()
    reward = reward_function(cell, marker(cell, get_task("math"), [0]), record.groups)
    rewards = reward(
        completions=[[{"role": "assistant", "content": a.completion}] for a in ANSWERS[:4]],
        completion_ids=[[1, 0]] * 4,
        **trl_columns([Prompt("p", "", a.answer, "1") for a in ANSWERS[:4]]),
        trainer_state=SimpleNamespace(global_step=0),
    )
    [group] = record.groups.rows
    assert group["outcomes"] == OUTCOMES[:4]
    assert group["rewards"] == [1.0, 1.0, None, 0.0]
    assert group["other_outcomes"] == ["wrong", "wrong", "wrong", "wrong"]
    assert rewards == [1.0, 1.0, pytest.approx(2 / 3), 0.0], "an error is null, never 0"
