"""Missing scores: every score that is there counts, and none that is missing decides a verdict."""

import math

import numpy as np
import pytest
from factories import finished_sweep
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.report.compare import families
from orchestrator.report.rows import OWN, read_rows
from orchestrator.report.sections import tables
from orchestrator.report.sentences import pairing_caveats
from orchestrator.stats.comparison import Comparison, ItemScores, compare_policies
from orchestrator.stats.inference import available, mean_squares

IDS = [f"q{n}" for n in range(200)]


def arms(
    points: float, seeds: int, lost: tuple[float, float], of_wrong: tuple[float, float] = (0, 0)
) -> dict[str, dict[int, ItemScores]]:
    """Two arms so many points apart; shares of all and of the wrong answers miss their score."""
    rng = np.random.default_rng(3)
    rates = rng.beta(1, 1, 200)
    sides: dict[str, dict[int, ItemScores]] = {}
    for name, ahead, share, wrong in zip("ab", (points, 0), lost, of_wrong, strict=True):
        right = rng.random((seeds, 200)) < np.clip(rates + ahead / 100, 0, 1)
        gone = rng.random(right.shape) < share + wrong * ~right
        sides[name] = {
            n: ItemScores(IDS, run) for n, run in enumerate(np.where(gone, np.nan, right))
        }
    return sides


def compared(sides: dict[str, dict[int, ItemScores]]) -> Comparison:
    (comparison,) = compare_policies(sides)
    return comparison


def test_a_question_counts_where_some_run_has_its_score() -> None:
    whole, some = compared(arms(10, 10, (0, 0))), compared(arms(10, 10, (0.05, 0.05)))
    assert (some.items, some.left_out, some.verdict) == (200, 0, "a")
    assert some.effect == pytest.approx(whole.effect, abs=2)
    assert some.bounds[0] < some.low < some.high < some.bounds[1]
    assert some.missing == pytest.approx((0.05, 0.05), abs=0.02) and not some.misses_unlike
    assert whole.missing == (0, 0) and whole.bounds == (whole.low, whole.high)


def test_arms_that_miss_unlike_are_judged_by_the_bounds() -> None:
    """The wrong answers of one arm are lost: what is left of it is better."""
    c = compared(arms(0, 10, (0, 0), (0.5, 0)))
    assert c.effect > 5 and c.misses_unlike
    assert (c.low, c.high) == c.bounds and c.spans_zero and c.verdict == "inconclusive"
    [caveat] = pairing_caveats({"a": 10, "b": 10}, [c])
    assert "beyond chance" in caveat
    far = compared(arms(30, 10, (0, 0), (0.1, 0)))
    assert far.misses_unlike and far.verdict == "a", "whatever the missing scores are"


def test_a_verdict_that_missing_scores_could_change_has_a_caveat() -> None:
    c = compared(arms(10, 10, (0.2, 0.2)))
    assert c.verdict == "a" and not c.misses_unlike and c.bounds_span_zero
    assert any("verdict" in each for each in pairing_caveats({"a": 10}, [c]))


def test_samples_without_a_score_are_missing_too() -> None:
    run = ItemScores.of_counts({"a": (4, 1), "b": (2, 2), "c": (0, 0)}, 4)
    assert run.scores[:2].tolist() == [0.25, 1] and math.isnan(run.scores[2])
    assert run.low is not None and run.low.tolist() == [0.25, 0.5, 0]
    assert run.missing is not None and run.missing.tolist() == [0, 0.5, 1]


@settings(max_examples=60)
@given(st.integers(2, 6), st.integers(2, 20), st.floats(0, 0.6), st.integers(0, 99))
def test_filled_scores_are_the_fit_of_runs_and_items(
    seeds: int, items: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.random((seeds, 1)) + rng.random(items)  # without a residual, the fit is exact
    gone = rng.random(exact.shape) < share
    ids = [f"{n:02}" for n in range(items)]
    filled = available(
        [dict(zip(ids, run, strict=True)) for run in np.where(gone, np.nan, exact).tolist()]
    )
    columns = [ids.index(i) for i in filled.items]
    assert np.allclose(filled.values, exact[:, columns])
    if not gone.any():
        assert filled.items == ids and mean_squares(filled.values).rest < 1e-20


def test_runs_that_share_no_question_are_not_filled() -> None:
    assert available([{"a": 1.0, "b": 0.0}, {"c": 1.0}]).items == []
    linked = available([{"a": 1.0, "b": 0.0}, {"b": 1.0, "c": 1.0}])
    assert linked.values.tolist() == [[1, 0, pytest.approx(0)], [pytest.approx(2), 1, 1]]


def test_one_error_leaves_pass_at_8_of_all_other_questions(tmp_path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=(0, 1))
    rows = read_rows(store, plan.cells)
    k = tables.best_k(rows, OWN)
    counts = rows[0].counts[OWN]
    question, (n, c) = next(iter(counts[0].items()))
    counts[0][question] = (n - 1, min(c, n - 1))  # one sample has an error
    assert tables.best_k(rows, OWN) == k is not None and n == k
    [_, (name, value)] = tables.measures(rows, OWN)
    assert name.startswith(f"pass@{k} (up to 1 of ")
    change = tables.change([row for row in rows if row.cell.seed == 0][:1], OWN, value)
    assert change is not None and change.questions == len(counts[0]) - 1
    assert families(rows)[0].accuracy[0].items == len(counts[0])


@pytest.mark.parametrize("samples", [1, 3, 7, 10, 49])
def test_complete_scores_miss_nothing(samples: int) -> None:
    """By counts, and not by differences of means, which have rounding errors."""
    rng = np.random.default_rng(samples)
    sides = {
        arm: {
            s: ItemScores.of_counts(
                {i: (samples, rng.integers(samples + 1)) for i in IDS[:60]}, samples
            )
            for s in range(3)
        }
        for arm in "ab"
    }
    c = compared(sides)
    assert (c.missing, c.missing_p, c.bounds) == ((0, 0), 1, (c.low, c.high))
    run = sides["a"][0]
    assert run.low is not None and run.missing is not None and not run.missing.any()
