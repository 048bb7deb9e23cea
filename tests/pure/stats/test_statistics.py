"""Intervals of gains, of differences over seeds and questions, and multiple testing."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.interval_coverage import World, coverage
from benchmarks.seed_scatter import named, rejections
from orchestrator.stats.correlation import r_squared
from orchestrator.stats.inference import (
    ALPHA,
    _half_width,
    difference_effect,
    holm,
    mcnemar_p,
    mean_effect,
    mean_squares,
    permutation_p,
    seed_spread,
)

# ---- seeds and items together

DIFFERENCES = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(2, 12)),
    elements=st.integers(-4, 4).map(lambda k: k / 4),
)


def drawn(seeds: int, items: int, key: int = 0) -> np.ndarray:
    rng = np.random.default_rng(key)
    return (
        rng.normal(0, 0.03, (seeds, 1))
        + rng.normal(0.05, 0.2, (1, items))
        + rng.normal(0, 0.3, (seeds, items))
    )


def test_one_seed_is_the_t_test_over_questions() -> None:
    values = drawn(1, 40)
    other = scipy.stats.ttest_1samp(values[0], 0)
    result, ends = mean_effect(values), other.confidence_interval(0.95)
    assert result == pytest.approx((values.mean(), ends.low, ends.high, other.pvalue), abs=1e-9)


def test_questions_that_agree_leave_the_t_test_over_seeds() -> None:
    values = np.repeat(np.array([[0.1], [0.3], [0.25]]), 20, axis=1)
    other = scipy.stats.ttest_1samp(values[:, 0], 0)
    result, ends = mean_effect(values), other.confidence_interval(0.95)
    assert result == pytest.approx((values.mean(), ends.low, ends.high, other.pvalue), abs=1e-9)


@pytest.mark.parametrize(("seeds", "items"), [(2, 7), (3, 40), (5, 15)])
def test_mean_squares_agree_with_least_squares(seeds: int, items: int) -> None:
    """Residual sums of nested linear models, solved with dummy columns."""
    values = drawn(seeds, items)
    s, i = np.indices(values.shape).reshape(2, -1)
    dummies = {"s": np.eye(seeds)[s], "i": np.eye(items)[i], "1": np.ones((seeds * items, 1))}

    def left(names: str) -> float:
        x, y = np.hstack([dummies[n] for n in names]), values.ravel()
        return float(((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2).sum())

    result = mean_squares(values)
    assert result.rest == pytest.approx(left("si") / ((seeds - 1) * (items - 1)), abs=1e-9)
    assert result.seed == pytest.approx((left("i") - left("si")) / (seeds - 1), abs=1e-9)
    assert result.item == pytest.approx((left("s") - left("si")) / (items - 1), abs=1e-9)


@pytest.mark.parametrize(("seeds", "items"), [(2, 7), (3, 40), (5, 1319)])
def test_p_is_the_level_whose_interval_ends_at_zero(seeds: int, items: int) -> None:
    values = drawn(seeds, items)
    result, (seed, item, rest) = mean_effect(values), mean_squares(values)
    parts = [(seed / values.size, seeds - 1), (max(0, item - rest) / values.size, items - 1)]
    assert _half_width(parts, result.p) == pytest.approx(abs(result.mean), abs=1e-9)
    assert _half_width(parts, ALPHA) == pytest.approx(result.high - result.mean, abs=1e-12)


# Seeds of equal means, and items that the rest hides.
HIDDEN = np.array([[0.0, 0.25, 1.0, 0.5, 1.0], [0.75, 0.0, 0.0, 1.0, 1.0]])


@settings(max_examples=100)
@given(DIFFERENCES)
@example(HIDDEN)
def test_effects_mirror_and_their_p_agrees_with_their_interval(values: np.ndarray) -> None:
    forth, back = mean_effect(values), mean_effect(-values)
    assert forth.low <= forth.mean <= forth.high
    assert 0 <= forth.p <= 1
    assert back == pytest.approx((-forth.mean, -forth.high, -forth.low, forth.p))
    if mean_squares(values).seed + mean_squares(values).item > 1e-9:
        assert (forth.p < 0.05) == (forth.low > 0 or forth.high < 0)


@settings(max_examples=50)
@given(DIFFERENCES, st.randoms(use_true_random=False))
def test_the_order_of_seeds_and_questions_does_not_matter(values: np.ndarray, random: Any) -> None:
    seeds, items = (random.sample(range(n), n) for n in values.shape)
    assert mean_effect(values[seeds][:, items]) == pytest.approx(mean_effect(values))


def test_one_run_at_one_question_has_an_infinite_interval() -> None:
    assert mean_effect(np.array([[0.5]])) == (0.5, -np.inf, np.inf, 1.0)


def test_questions_that_never_differed_still_have_an_interval() -> None:
    result = mean_effect(np.zeros((1, 15)))
    assert (result.mean, result.p) == (0, 1)
    assert result.high == pytest.approx(scipy.stats.binomtest(0, 15).proportion_ci().high)


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((0, 3)), np.array([[np.nan, 1.0]])])
def test_an_array_that_is_not_seeds_by_items_is_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_effect(values)


# ---- tests of one family


@settings(max_examples=60)
@given(st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.5, 1.0]), min_size=2, max_size=10))
def test_the_permutation_test_agrees_with_scipy(values: list[float]) -> None:
    result = permutation_p(np.array(values))
    pairs = (np.array(values), np.zeros(len(values)))
    other = scipy.stats.permutation_test(
        pairs,
        lambda a, b, axis: np.sum(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert result == pytest.approx(other.pvalue, abs=1e-9)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_sampled_test_does_not_depend_on_the_order_of_questions_or_seeds(seeds: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.choice([-1.0, -0.2, 0.0, 0.3, 0.7], (seeds, 80), p=[0.2, 0.2, 0.2, 0.2, 0.2])
    p = permutation_p(values)
    for _ in range(5):
        other = values[rng.permutation(seeds)][:, rng.permutation(80)]
        assert permutation_p(other) == p and permutation_p(-other) == p
    assert 0.001 < p < 1


def test_many_questions_use_a_sampled_test_close_to_the_exact_one() -> None:
    values = np.random.default_rng(0).choice([-1.0, 1.0], 60, p=[0.35, 0.65])
    exact = scipy.stats.binomtest(int((values > 0).sum()), 60).pvalue
    assert permutation_p(values) == pytest.approx(exact, abs=0.01)
    assert permutation_p(np.ones(100)) == 1 / 10_000


@settings(max_examples=60)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 5))
def test_mcnemar_is_the_exact_binomial_test(only_a: int, only_b: int, both: int) -> None:
    a = np.array([1] * only_a + [0] * only_b + [1] * both)
    b = np.array([0] * only_a + [1] * only_b + [1] * both)
    n = only_a + only_b
    other = scipy.stats.binomtest(only_a, n).pvalue if n else 1.0
    assert mcnemar_p(a, b) == pytest.approx(other, abs=1e-9)


def test_mcnemar_of_few_questions_is_their_permutation() -> None:
    a, b = np.array([1, 1, 1, 1, 1, 0, 1, 0]), np.array([0, 0, 0, 0, 0, 1, 1, 0])
    assert mcnemar_p(a, b) == pytest.approx(permutation_p(a - b))


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_agrees_with_its_definition(p_values: list[float]) -> None:
    """Adjusted p: the smallest level at which Holm's steps reject that test."""
    m = len(p_values)
    for p, result in zip(p_values, holm(p_values), strict=True):
        before = sorted(q for q in p_values if q <= p)
        steps = [(m - k) * q for k, q in enumerate(before)]
        assert result == pytest.approx(min(1.0, max(steps)))


# ---- learnable % against gain

# Paper A, Tables 1 and 2: 24 cells (easy, middle, hard, random; per model and data).
LEARNABLE = [3.7, 24.5, 34.1, 19.0, 7.8, 18.9, 29.5, 18.4, 6.6, 23.3, 40.2, 21.5]
LEARNABLE += [9.0, 5.7, 14.4, 11.5, 2.3, 7.2, 13.5, 8.0, 14.2, 15.3, 19.1, 19.3]
GAIN = [3.49, 26.69, 34.19, 29.49, 8.26, 24.34, 39.42, 34.87, 14.94, 28.51, 37.30, 36.16]
GAIN += [0.80, -3.20, 13.60, -1.60, 3.20, 10.12, 22.40, 12.52, 29.60, 28.80, 32.80, 28.80]


def test_r_squared_agrees_with_the_papers_tables() -> None:
    result = r_squared(np.array([LEARNABLE, GAIN]).T)
    other = scipy.stats.linregress(LEARNABLE, GAIN).rvalue ** 2
    assert result.value == pytest.approx(other, abs=1e-9)
    assert round(result.value, 2) == 0.67
    assert 0.3 < result.low < 0.6 < 0.7 < result.high < 0.95
    assert result.points == 24


@pytest.mark.parametrize("y", [[1.0, 2.0, 4.0] * 2 + [3.0], [2.0] * 8, []])
def test_too_few_or_equal_cells_have_no_regression_line(y: list[float]) -> None:
    result = r_squared(np.array([np.arange(len(y)), y]).T)
    assert np.isnan(result.value) and (result.low, result.high) == (0, 1)


@pytest.mark.parametrize("slope", [-0.1, 3.0])
def test_points_on_a_line_have_r_squared_1(slope: float) -> None:
    """Of the fewest points that have one."""
    result = r_squared(np.array([np.arange(8), slope * np.arange(8) + 1]).T)
    assert result[:3] == pytest.approx((1, 1, 1))


@pytest.mark.parametrize("flat", [np.zeros(8), 1 / 3 + 1e-10 * (-1.0) ** np.arange(8)])
def test_cells_that_differ_by_rounding_alone_have_no_regression_line(flat: np.ndarray) -> None:
    """With either side flat; their correlation would be that of the rounding."""
    for x, y in ((flat, np.arange(8.0)), (np.arange(8.0), flat), (flat, flat)):
        assert np.isnan(r_squared(np.array([x, y]).T).value)


def test_small_differences_between_cells_count() -> None:
    points = np.array([LEARNABLE, GAIN]).T
    scaled = r_squared(1e-6 * points + (-3, 5))
    assert scaled[:3] == pytest.approx(r_squared(points)[:3], abs=1e-6)


def test_the_interval_of_one_block_is_that_of_scipy() -> None:
    result = r_squared(np.array([LEARNABLE, GAIN]).T)
    low, high = scipy.stats.pearsonr(LEARNABLE, GAIN).confidence_interval()
    assert result[1:] == pytest.approx((low**2, high**2, 24, 1))


def test_blocks_are_correlated_within_and_further_ones_make_the_interval_no_narrower() -> None:
    one = np.random.default_rng(5).normal(size=(10, 2)).cumsum(axis=1)
    alone = r_squared(one)
    again = r_squared(one, 50 * one + (100, -30), one[:3] + (1000, 1000))
    assert again[:3] == pytest.approx(alone[:3]) and again[3:] == (20, 2)
    against = r_squared(one, one * (1, -1))
    assert against[:2] == pytest.approx((0, 0)), "one rises, the other falls"
    assert r_squared(one[:4], one[:3])[3:] == (4, 1), "too few"


# ---- simulated truth, in short; benchmarks/interval_coverage.py has it in full


@pytest.mark.parametrize("shift", [0.0, 0.4])
@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
def test_the_interval_covers_the_true_difference_in_95_of_100(seeds: int, shift: float) -> None:
    world = World(seeds, items=120, samples=4, seed_points=1.0, shift=shift)
    assert 0.925 <= coverage(world, 400) <= (0.985 if seeds != 2 else 1)


def test_policies_that_scatter_differently_are_rarely_reported_as_different() -> None:
    shares = rejections("10 times", 3, 400, items=120, samples=4)["different"]
    assert shares["report"] <= 0.06 and shares["bootstrap"] > 0.12


def test_each_collapsed_cell_is_named_and_few_others() -> None:
    sweeps, cells = named(0.15, 3, 200, items=120, samples=4)
    assert cells >= 0.98 and abs(sweeps - (1 - (2 / 3) ** 3)) <= 0.1
    assert named(None, 3, 200, items=120, samples=4)[0] <= 0.085


def test_one_seed_with_a_known_spread_covers_new_seeds() -> None:
    """Two identical policies whose accuracy varies by 3 points between seeds."""
    rng, sd, covered, naive = np.random.default_rng(5), 0.03, 0, 0
    for _ in range(400):
        a, b = rng.normal(0, sd, (2, 1, 1)) + rng.normal(0, 0.2, (2, 1, 100))
        stored = [seed_spread(results) for results in rng.normal(0, sd, (2, 5))]
        known = difference_effect(a, b, (stored[0], stored[1]))
        alone = difference_effect(a, b, (None, None))
        covered += known.low <= 0 <= known.high
        naive += alone.low <= 0 <= alone.high
        assert (known.p <= 0.05) == (not known.low <= 0 <= known.high)
    assert naive / 400 < 0.9 < 0.93 < covered / 400
