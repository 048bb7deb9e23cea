"""Two rankings of the same prompts: rank correlation and shared hardest tenth, with intervals."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from orchestrator.stats.rankings import (
    MOST,
    compare_rankings,
    hardest_overlap,
    rank_correlation,
)

Pair = tuple[np.ndarray, np.ndarray]


def rates(prompts: int, seed: int = 0, levels: int = 5, noise: float = 0.3) -> Pair:
    """Two noisy measurements of the same difficulties, in levels from 0 to 1."""
    rng = np.random.default_rng(seed)
    true = rng.random(prompts)
    a, b = (np.clip(true + noise * rng.normal(size=prompts), 0, 1) for _ in range(2))
    return np.round(a * levels) / levels, np.round(b * levels) / levels


def tenth(values: np.ndarray, rng: np.random.Generator) -> set[int]:
    order = np.lexsort((rng.random(len(values)), values))
    return {*order[: max(1, round(len(values) / 10))].tolist()}


@pytest.mark.parametrize("prompts", [7, 43, 200])
def test_estimates_are_those_of_all_prompts_with_ties_at_random(prompts: int) -> None:
    a, b = rates(prompts)
    pair = compare_rankings(a, b)
    assert pair.prompts == prompts
    assert pair.correlation == pytest.approx(spearmanr(a, b).statistic)
    assert pair.correlation == rank_correlation(a, b) and pair.shared == hardest_overlap(a, b)
    rng = np.random.default_rng(1)
    size = max(1, round(prompts / 10))
    sides = ((a, b), (a, a), (b, b))
    drawn = [
        np.mean([len(tenth(x, rng) & tenth(y, rng)) / size for _ in range(3000)]) for x, y in sides
    ]
    assert (pair.shared, *pair.own) == pytest.approx(drawn, abs=0.04)


def test_intervals_are_those_of_prompts_that_are_drawn_again() -> None:
    a, b = rates(120)
    pair, rng = compare_rankings(a, b, resamples=4000), np.random.default_rng(2)
    drawn = []
    for _ in range(2000):
        rows = rng.integers(0, len(a), len(a))
        drawn.append([spearmanr(a[rows], b[rows]).statistic, hardest_overlap(a[rows], b[rows])])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert [*pair.correlation_interval] == pytest.approx([low[0], high[0]], abs=0.02)
    assert [*pair.shared_interval] == pytest.approx([low[1], high[1]], abs=0.05)
    assert compare_rankings(a, b) == compare_rankings(a, b), "the same each time"


def test_prompts_that_one_side_does_not_know_are_left_out() -> None:
    a, b = rates(60)
    unknown_a, unknown_b = a.copy(), b.copy()
    unknown_a[:10], unknown_b[50:] = np.nan, np.nan
    assert compare_rankings(unknown_a, unknown_b) == compare_rankings(a[10:50], b[10:50])
    nothing = compare_rankings(np.full(5, np.nan), b[:5])
    assert nothing.prompts == 0 and np.isnan([nothing.correlation, *nothing.shared_interval]).all()
    equal = compare_rankings(np.ones(30), np.arange(30.0))
    assert np.isnan(equal.correlation) and np.isnan(equal.correlation_interval).all()
    assert equal.shared == pytest.approx(0.1) and equal.own == pytest.approx((0.1, 1.0))


def test_a_large_pool_has_exact_estimates_and_an_interval_of_a_share_of_its_prompts() -> None:
    a, b = rates(3 * MOST, levels=10**9)
    pair = compare_rankings(a, b, resamples=100)
    assert pair.correlation == pytest.approx(spearmanr(a, b).statistic)
    low, high = pair.correlation_interval
    assert low < pair.correlation < high and high - low < 0.05
    few, levels = compare_rankings(*rates(3 * MOST), resamples=100), rates(300)
    assert np.ptp(few.correlation_interval) < np.ptp(compare_rankings(*levels).correlation_interval)
