"""Marked samples -> difficulty."""

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.difficulty import difficulty, pass_rate_histogram
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
