"""Learnable percentage from recorded groups."""

from collections import Counter
from math import isnan

import numpy as np
import pyarrow as pa
import pytest
from factories import group_row, marked_rollout
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.evaluation.groups import (
    GroupRecorder,
    GroupShares,
    group_shares,
    learnable_pct,
    tallies_by,
    total,
    training_metrics,
)
from orchestrator.evaluation.liveness import is_live, kind_of
from orchestrator.storage.schema import GROUPS


def row(update: int, tier: str, completions: list[tuple[str, int]]) -> dict:
    """A group of a tier, from the (outcome, tokens) of each completion."""
    outcomes = [o for o, _ in completions]
    row: dict = group_row(update, outcomes, tier=tier, tokens=0)
    other = ["wrong" if o == "correct" else o for o in outcomes]
    return row | {"tokens": [t for _, t in completions], "other_outcomes": other}


def table_of(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=GROUPS)


def groups(*rows: tuple[int, list[float | None]]) -> pa.Table:
    """Groups of these updates and rewards."""
    outcomes = {None: "error", 0: "wrong", 1: "correct"}
    return table_of([group_row(u, [outcomes[r] for r in rewards]) for u, rewards in rows])


def test_a_failed_mark_is_neither_correct_nor_wrong() -> None:
    assert not is_live([None, 1.0])
    assert not is_live([None, None])
    assert is_live([None, 0.0, 1.0])
    kinds = [kind_of(rewards) for rewards in ([0, 1], [1, None], [0, 0], [None, None])]
    assert kinds == ["live", "all_right", "all_wrong", "unmarked"]


def test_the_curve_gives_each_update_and_the_mean_so_far() -> None:
    rows = [(1, [0, 1]), (2, [0, 0]), (3, [1, 1]), (4, [0, None]), (5, [None, None])]
    metrics = training_metrics(groups(*rows)).values()
    assert [m["train/live_pct"] for m in metrics] == [100, 0, 0, 0, 0]
    means = [m["train/learnable_pct"] for m in metrics]
    assert means == pytest.approx([100, 50, 100 / 3, 25, 20])
    assert [m.get("train/accuracy") for m in metrics] == [0.5, 0, 1, 0, None]


def test_the_recorder_cuts_generations_into_groups_and_refuses_mixed_ones() -> None:
    recorder = GroupRecorder()
    a, b = marked_rollout("wrong", 0.0, "a"), marked_rollout("wrong", 0.0, "b")
    recorder.add(1, [a, a._replace(reward=1.0), b, b], 2)
    assert recorder.table()["prompt_id"].to_pylist() == ["a", "b"]
    assert GroupRecorder(recorder.table().to_pylist()).table() == recorder.table()
    with pytest.raises(RuntimeError, match="one group holds"):
        recorder.add(2, [a, b], 2)


REWARDS = st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=5)


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=6), min_size=1))
def test_one_group_per_update_counts_updates_with_spread_rewards(
    rewards: list[list[float]],
) -> None:
    table = groups(*enumerate(rewards, 1))
    expected = 100 / len(rewards) * sum(float(np.std(r)) > 0 for r in rewards)
    assert learnable_pct(table) == pytest.approx(expected)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 4), REWARDS), min_size=1, max_size=20))
def test_every_group_is_of_one_kind_and_the_last_mean_is_the_result(
    rows: list[tuple[int, list[float | None]]],
) -> None:
    table = groups(*rows)
    kinds = Counter(map(kind_of, table["rewards"].to_pylist()))
    assert kinds.total() == len(rows)
    assert kinds["live"] == sum(is_live(r) for _, r in rows)
    metrics = training_metrics(table)
    assert [*metrics] == sorted(metrics), "whatever the order of rows"
    last = metrics[max(metrics)]["train/learnable_pct"]
    assert last == pytest.approx(learnable_pct(table))


def test_each_update_has_the_same_weight_for_any_number_of_groups() -> None:
    table = groups((1, [0, 1]), (2, [0, 0]), (2, [1, 1]), (2, [0, 0]), (2, [1, 0]))
    assert {u: s.live for u, s in group_shares(table).items()} == {1: 1.0, 2: 0.25}
    assert learnable_pct(table) == 62.5


def test_without_updates_there_is_no_percentage() -> None:
    assert isnan(learnable_pct(groups()))
    assert training_metrics(groups()) == {}


def test_the_recorder_keeps_order_outcomes_and_null_rewards() -> None:
    recorder = GroupRecorder()
    wrong, better = (marked_rollout("wrong", s, "a", tier="3", tokens=5) for s in (0.0, 1.0))
    failed = marked_rollout("error", None, "a", other_outcome="wrong", tokens=7)
    recorder.add(3, [better, failed], 2)
    recorder.add(4, [wrong, better], 2)
    first, second = recorder.table().to_pylist()
    assert first == {
        **{"update": 3, "prompt_id": "a", "tier": "3", "rewards": [1.0, None]},
        **{"outcomes": ["wrong", "error"], "other_outcomes": ["wrong"] * 2, "tokens": [5, 7]},
        **{"scores": [1.0, None], "components": [], "episodes": None},
    }
    assert (second["update"], second["rewards"]) == (4, [0.0, 1.0])


def test_an_update_is_split_into_percentages() -> None:
    rows = [
        row(1, "a", [("correct", 6), ("wrong", 2)]),
        row(1, "a", [("truncated", 9), ("wrong", 3)]),
        row(1, "a", [("unparsed", 5), ("wrong", 5)]),
        row(1, "a", [("correct", 5), ("correct", 5)]),
    ]
    rows[3]["other_outcomes"] = ["correct", "error"]  # each reading leaves out its own errors
    assert group_shares(table_of(rows))[1] == GroupShares(0.25, 0.25, 0.5, 0.25, 0.0)
    assert training_metrics(table_of(rows))[1] == {
        **{"train/learnable_pct": 25, "train/live_pct": 25, "train/all_right_pct": 25},
        **{"train/all_wrong_pct": 50, "train/truncated_pct": 25, "train/live_tokens_pct": 20},
        **{"train/accuracy": 3 / 8, "train/accuracy_other_reading": 1 / 7},
    }


def test_a_group_is_truncated_from_a_half_on_and_only_when_all_wrong() -> None:
    cut, wrong, right = ("truncated", 9), ("wrong", 1), ("correct", 1)
    assert group_shares(table_of([row(1, "a", [cut, cut, wrong, wrong])]))[1].truncated == 1
    assert group_shares(table_of([row(1, "a", [cut, wrong, wrong])]))[1].truncated == 0
    assert group_shares(table_of([row(1, "a", [cut, cut, right])]))[1].truncated == 0


OUTCOME = st.sampled_from(["correct", "wrong", "unparsed", "truncated", "error"])
ONE = st.tuples(
    st.integers(1, 4), st.sampled_from("ab"), st.lists(st.tuples(OUTCOME, st.integers(1, 9)))
)


@settings(max_examples=100)
@given(st.lists(ONE, max_size=12))
def test_group_shares_agree_with_a_plain_count(
    drawn: list[tuple[int, str, list[tuple[str, int]]]],
) -> None:
    rows = [row(*one) for one in drawn]
    table = table_of(rows)
    for column, by_value in (
        ("update", group_shares(table)),
        ("tier", group_shares(table, by="tier")),
    ):
        assert list(by_value) == sorted({r[column] for r in rows})
        for value, shares in by_value.items():
            own = [r for r in rows if r[column] == value]
            kinds = [kind_of(r["rewards"]) for r in own]
            cut = [
                r["outcomes"].count("truncated") >= len(r["outcomes"]) / 2
                for r, kind in zip(own, kinds, strict=True)
                if kind == "all_wrong"
            ]
            names = ("live", "all_right", "all_wrong", "unmarked")
            for name in names:
                assert getattr(shares, name) == pytest.approx(kinds.count(name) / len(own))
            assert shares.truncated == pytest.approx(sum(cut) / len(own))
            assert sum(getattr(shares, name) for name in names) == pytest.approx(1)


@settings(max_examples=100)
@given(st.lists(ONE, min_size=1, max_size=12))
def test_metrics_while_recording_agree_with_those_of_the_table(
    drawn: list[tuple[int, str, list[tuple[str, int]]]],
) -> None:
    rows = sorted((row(*one) for one in drawn), key=lambda r: r["update"])
    recorder, table = GroupRecorder(rows), table_of(rows)
    expected = training_metrics(table)
    for update, metrics in expected.items():
        assert recorder.metrics(update) == pytest.approx(metrics)
        own = table_of([r for r in rows if r["update"] == update])
        assert recorder.tallies[update] == total(tallies_by(own, "update").values())
    assert recorder.metrics(99) == {}
    assert total(recorder.tallies.values()) == total(tallies_by(table, "tier").values())
    assert recorder.seen.total() == len(rows)
