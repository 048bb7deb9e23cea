"""Learnable percentage from recorded groups."""

import pyarrow as pa
import pytest

from orchestrator.learnability import (
    GroupRecorder,
    count_groups,
    is_live,
    learnable_pct,
    live_share,
    training_metrics,
)
from orchestrator.schema import GROUPS


def groups(*rows: tuple[int, list[float | None]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"update": u, "prompt_id": "p", "rewards": r, "tier": "", "outcomes": [], "tokens": []}
            for u, r in rows
        ],
        schema=GROUPS,
    )


def test_one_group_per_update_is_the_papers_formula() -> None:
    table = groups((1, [0, 1]), (2, [1, 1]), (3, [0, 0]), (4, [1, 0]))
    assert learnable_pct(table) == 50.0


def test_several_groups_count_by_their_share_of_the_update() -> None:
    table = groups((1, [0, 1]), (1, [1, 1]), (2, [0, 1]), (2, [1, 0]))
    assert live_share(table) == {1: 0.5, 2: 1.0}
    assert learnable_pct(table) == 75.0


def test_a_mark_that_failed_is_neither_right_nor_wrong() -> None:
    assert not is_live([None, 1.0])
    assert not is_live([None, None])
    assert is_live([None, 0.0, 1.0])
    counts = count_groups(groups((1, [0, 1]), (1, [1, None]), (1, [0, 0]), (1, [None, None])))
    assert counts._asdict() == {"live": 1, "all_right": 1, "all_wrong": 1, "unmarked": 1}


def test_the_curve_gives_each_update_and_the_mean_so_far() -> None:
    metrics = training_metrics(groups((1, [0, 1]), (2, [0, 0]), (3, [1, 1]), (4, [0, None])))
    assert [m["train/live_pct"] for m in metrics.values()] == [100, 0, 0, 0]
    assert [round(m["train/learnable_pct"], 6) for m in metrics.values()] == [
        100,
        50,
        33.333333,
        25,
    ]
    assert [m["train/accuracy"] for m in metrics.values()] == [0.5, 0, 1, 0]


def completion(prompt: str, reward: float) -> dict:
    return {"prompt_id": prompt, "tier": "3", "reward": reward, "outcome": "wrong", "tokens": 5}


def test_the_recorder_cuts_generations_into_groups_and_refuses_mixed_ones() -> None:
    recorder = GroupRecorder()
    recorder.add(1, [completion("a", 0.0), completion("a", 1.0), *[completion("b", 0.0)] * 2], 2)
    assert recorder.table()["prompt_id"].to_pylist() == ["a", "b"]
    assert GroupRecorder(recorder.table().to_pylist()).table() == recorder.table()
    with pytest.raises(RuntimeError, match="one group holds"):
        recorder.add(2, [completion("a", 0.0), completion("b", 0.0)], 2)
