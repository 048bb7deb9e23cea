"""Learnable percentage from recorded groups."""

from math import isnan

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.learnability import (
    GroupRecorder,
    count_groups,
    is_live,
    learnable_pct,
    live_share,
    training_metrics,
)
from orchestrator.schema import GROUPS


def outcomes(rewards: list[float | None]) -> list[str]:
    return ["error" if r is None else "correct" if r else "wrong" for r in rewards]


def groups(*rows: tuple[int, list[float | None]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                **{"update": u, "prompt_id": "p", "rewards": r, "tier": "", "tokens": []},
                **{"outcomes": outcomes(r), "other_outcomes": outcomes(r)},
            }
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
    return {
        "prompt_id": prompt,
        "tier": "3",
        "reward": reward,
        "outcome": "wrong",
        "other_outcome": "wrong",
        "tokens": 5,
    }


def test_the_recorder_cuts_generations_into_groups_and_refuses_mixed_ones() -> None:
    recorder = GroupRecorder()
    recorder.add(1, [completion("a", 0.0), completion("a", 1.0), *[completion("b", 0.0)] * 2], 2)
    assert recorder.table()["prompt_id"].to_pylist() == ["a", "b"]
    assert GroupRecorder(recorder.table().to_pylist()).table() == recorder.table()
    with pytest.raises(RuntimeError, match="one group holds"):
        recorder.add(2, [completion("a", 0.0), completion("b", 0.0)], 2)


REWARDS = st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=6), min_size=1))
def test_one_group_per_update_counts_the_spread_ones(rewards: list[list[float]]) -> None:
    table = groups(*enumerate(rewards, 1))
    expected = 100 / len(rewards) * sum(float(np.std(r)) > 0 for r in rewards)
    assert learnable_pct(table) == pytest.approx(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), REWARDS), min_size=1, max_size=20))
def test_every_group_is_of_one_kind_and_the_last_mean_is_the_result(
    rows: list[tuple[int, list[float | None]]],
) -> None:
    table = groups(*rows)
    assert sum(count_groups(table)) == len(rows)
    assert count_groups(table).live == sum(is_live(r) for _, r in rows)
    metrics = training_metrics(table)
    last = metrics[max(metrics)]["train/learnable_pct"]
    assert last == pytest.approx(learnable_pct(table))


def test_an_update_weighs_the_same_whatever_its_number_of_groups() -> None:
    table = groups((1, [0, 1]), (2, [0, 0]), (2, [1, 1]), (2, [0, 0]))
    assert learnable_pct(table) == 50.0


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [(2, [0.0, 0.0]), (1, [0.0, 1.0]), (3, [1.0, 1.0]), (1, [1.0, 1.0])]
    assert list(training_metrics(groups(*rows)).items()) == list(
        training_metrics(groups(*sorted(rows))).items()
    )


def test_without_updates_there_is_no_percentage() -> None:
    assert isnan(learnable_pct(groups()))
    assert training_metrics(groups()) == {}
    assert sum(count_groups(groups())) == 0


def test_the_recorder_keeps_order_outcomes_and_null_rewards() -> None:
    recorder = GroupRecorder()
    failed = completion("a", 0.0) | {"reward": None, "outcome": "error", "tokens": 7}
    recorder.add(3, [completion("a", 1.0), failed], 2)
    recorder.add(4, [completion("a", 0.0), completion("a", 1.0)], 2)
    first, second = recorder.table().to_pylist()
    assert first == {
        **{"update": 3, "prompt_id": "a", "tier": "3", "rewards": [1.0, None]},
        **{"outcomes": ["wrong", "error"], "other_outcomes": ["wrong"] * 2, "tokens": [5, 7]},
    }
    assert (second["update"], second["rewards"]) == (4, [0.0, 1.0])


def test_an_update_without_marks_has_no_accuracy() -> None:
    recorder = GroupRecorder()
    unmarked = completion("a", 0.0) | {"reward": None, "outcome": "error", "tokens": 1}
    recorder.add(1, [unmarked, unmarked], 2)
    assert "train/accuracy" not in training_metrics(recorder.table())[1]
