"""Marked samples -> difficulty."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.difficulty import difficulty, pass_rate_histogram, wilson
from orchestrator.schema import DIFFICULTY
from tasks import OUTCOMES


def samples(outcomes: dict[str, list[str]]) -> pa.Table:
    rows = [{"prompt_id": i, "outcome": o} for i, os in outcomes.items() for o in os]
    return pa.Table.from_pylist(rows)


def test_counts_rates_and_intervals() -> None:
    table = difficulty(
        samples({"b": ["wrong"] * 5, "a": ["correct"] * 5 + ["unparsed"] * 3 + ["truncated"] * 2}),
        {"a": "3"},
    ).to_pylist()
    assert [row["prompt_id"] for row in table] == ["a", "b"]
    assert table[0] | {"low": 0, "high": 0} == {
        **{"prompt_id": "a", "tier": "3", "n": 10, "successes": 5, "pass_rate": 0.5, "wrong": 0},
        **{"unparsed": 3, "truncated": 2, "error": 0, "low": 0, "high": 0},
    }
    assert table[0]["low"] == pytest.approx(0.2366, abs=1e-4)
    assert table[0]["high"] == pytest.approx(0.7634, abs=1e-4)
    assert table[1]["low"] == 0
    assert table[1]["high"] == pytest.approx(0.4345, abs=1e-4)


def test_an_error_is_no_wrong_answer() -> None:
    table = difficulty(samples({"a": ["correct", "error"], "b": ["error", "error"]})).to_pylist()
    assert table[0]["pass_rate"] == 1.0
    assert table[1]["pass_rate"] is None
    assert table[1]["error"] == table[1]["n"] == 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(OUTCOMES)), min_size=1))
def test_row_order_does_not_matter(rows: list[tuple[str, str]]) -> None:
    def table(order: list[tuple[str, str]]) -> pa.Table:
        return difficulty(pa.Table.from_pylist([{"prompt_id": i, "outcome": o} for i, o in order]))

    shuffled = rows[:]
    random.Random(0).shuffle(shuffled)
    assert table(rows) == table(shuffled)
    assert sum(table(rows)["n"].to_pylist()) == len(rows)


def test_the_histogram_counts_prompts() -> None:
    table = difficulty(samples({"a": ["correct"] * 4, "b": ["wrong"] * 4, "c": ["wrong"] * 4}))
    assert pass_rate_histogram(table, 4).tolist() == [2, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 5, 0.0, 0.4345),
        (5, 5, 0.5655, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 10, 0.0179, 0.4042),
        (0, 1, 0.0, 0.7935),
        (500, 1000, 0.4691, 0.5309),
    ],
)
def test_the_interval_agrees_with_published_values(
    successes: int, n: int, low: float, high: float
) -> None:
    found = wilson(np.array([successes]), np.array([n]))
    assert [bound.item() for bound in found] == pytest.approx([low, high], abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 200), data=st.data())
def test_the_interval_holds_the_rate_mirrors_and_narrows(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    low, high = (bound.item() for bound in wilson(np.array([c]), np.array([n])))
    assert 0 <= low <= c / n + 1e-12 and c / n - 1e-12 <= high <= 1
    mirrored = wilson(np.array([n - c]), np.array([n]))
    assert [bound.item() for bound in mirrored] == pytest.approx([1 - high, 1 - low])
    more = wilson(np.array([4 * c]), np.array([4 * n]))
    assert (more[1] - more[0]).item() < high - low


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(OUTCOMES)), min_size=1))
def test_every_sample_is_counted_once_under_its_outcome(rows: list[tuple[str, str]]) -> None:
    table = difficulty(pa.Table.from_pylist([{"prompt_id": i, "outcome": o} for i, o in rows]))
    assert table.schema.equals(DIFFICULTY)
    for row in table.to_pylist():
        mine = [outcome for prompt, outcome in rows if prompt == row["prompt_id"]]
        assert row["n"] == len(mine)
        assert row["successes"] == mine.count("correct")
        for outcome in OUTCOMES[1:]:
            assert row[outcome] == mine.count(outcome)
        judged = len(mine) - mine.count("error")
        assert row["pass_rate"] == (mine.count("correct") / judged if judged else None)


def test_only_errors_give_no_interval_either() -> None:
    [row] = difficulty(samples({"a": ["error"] * 3})).to_pylist()
    assert (row["pass_rate"], row["low"], row["high"]) == (None, None, None)
    assert row["successes"] == 0


def test_an_error_narrows_nothing() -> None:
    plain, noisy = difficulty(
        samples({"a": ["correct", "wrong"], "b": ["correct", "wrong", "error", "error"]})
    ).to_pylist()
    assert [noisy[key] for key in ("pass_rate", "low", "high")] == [
        plain[key] for key in ("pass_rate", "low", "high")
    ]


def test_a_tier_that_is_not_known_is_empty() -> None:
    table = difficulty(samples({"a": ["wrong"], "b": ["wrong"]}), {"a": "7"})
    assert table["tier"].to_pylist() == ["7", ""]


def test_the_histogram_leaves_unknown_rates_out() -> None:
    table = difficulty(samples({"a": ["error"], "b": ["correct"]}))
    assert pass_rate_histogram(table, 2).tolist() == [0, 0, 1]
