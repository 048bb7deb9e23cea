"""Accuracy, pass@k, and what may be said of a gain."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluation import accuracy, evaluation_metrics, pass_at_k
from orchestrator.report.statistics import paired_gain


@given(n=st.integers(1, 8), data=st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_hit(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_refuses_what_has_no_meaning() -> None:
    for n, c, k in ((4, 5, 1), (4, -1, 1), (4, 1, 0), (4, 1, 5)):
        with pytest.raises(ValueError, match="pass_at_k needs"):
            pass_at_k(n, c, k)


def evaluation(outcomes: dict[str, list[str]]) -> pa.Table:
    rows = [
        {"prompt_id": i, "tier": i[0], "outcome": o, "tokens": 3}
        for i, os in outcomes.items()
        for o in os
    ]
    return pa.Table.from_pylist(rows)


def test_accuracy_is_the_mean_over_prompts_and_leaves_errors_out() -> None:
    table = evaluation({"a": ["correct", "error"], "b": ["wrong"] * 4, "c": ["error"]})
    assert accuracy(table) == 0.5


def test_metrics_hold_tiers_outcomes_and_pass_at_k() -> None:
    table = evaluation({"3x": ["correct", "wrong"], "5x": ["truncated", "wrong"]})
    metrics = evaluation_metrics(table)
    assert metrics["eval/accuracy"] == 0.25
    assert metrics["eval/pass_at_2"] == 0.5
    assert metrics["eval/truncated"] == 0.25
    assert (metrics["tier/3/accuracy"], metrics["tier/5/accuracy"]) == (0.5, 0.0)
    assert "eval/pass_at_4" not in metrics


def test_an_interval_holds_the_gain_repeats_and_narrows() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.random(400), rng.random(400) + 0.1
    wide, narrow = paired_gain(before[:50], after[:50]), paired_gain(before, after)
    assert narrow.low < (after - before).mean() < narrow.high
    assert narrow == paired_gain(before, after)
    assert narrow.high - narrow.low < wide.high - wide.low
    assert paired_gain(before, before + 0.25) == pytest.approx((0.25, 0.25))
    with pytest.raises(ValueError, match="equal lengths"):
        paired_gain(before, after[:3])
