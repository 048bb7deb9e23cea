"""Intervals, tests, and variances between questions, seeds and probes. Pure: NumPy and SciPy.

`differences` are [seeds, items]: for one seed and one test question, policy A's mean correctness
over that question's samples minus policy B's. A question is one cluster of samples.
"""

from collections.abc import Sequence
from math import exp, inf, log, nan, sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import stdtrit

LEVEL = 0.05
EXACT = 14  # items up to which all 2^14 sign patterns are tried
FEWEST_CELLS = 8  # of a straight line; the interval of fewer says nothing
BLOCK = 2_000_000  # random numbers in memory at once
SMALLEST = 1e-100  # lower bound of reported p values; stdtrit overflows at 1e-300
ZERO_WIDTH = 1e-12  # half widths below count as zero


VarianceComponent = tuple[
    float, int
]  # a component of a mean's variance, and its degrees of freedom


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


class MeanSquares(NamedTuple):
    """Two-way analysis of variance of differences [seeds, items], one value per combination.

    Expected values of the components: rest + items · seed, rest + seeds · item, rest.
    """

    seed: float
    item: float
    rest: float
    seeds: int
    items: int

    @property
    def seed_part(self) -> float:
        """Variance of the mean due to seeds (and the residual)."""
        return self.seed / (self.seeds * self.items)

    @property
    def item_part(self) -> float:
        """Variance of the mean due to items, beyond `seed_part`."""
        return max(0.0, self.item - self.rest) / (self.seeds * self.items)


class Variances(NamedTuple):
    """Components of one difference: between seeds, between items, and residual (with sampling)."""

    seed: float
    item: float
    rest: float

    def expected(self, seeds: int, items: int) -> MeanSquares:
        """Expected mean squares of a grid of that size."""
        if seeds == 1:
            return MeanSquares(0.0, self.item + self.rest, 0.0, 1, items)
        by_seed, by_item = self.rest + items * self.seed, self.rest + seeds * self.item
        return MeanSquares(by_seed, by_item, self.rest, seeds, items)


class SeedSpread(NamedTuple):
    """Variance of one policy's result (a share) between training seeds, from `cells` cells."""

    variance: float
    df: int
    cells: int


class Effect(NamedTuple):
    """A mean difference, its 95 % interval, and the matching p value."""

    mean: float
    low: float
    high: float
    p: float


class RSquared(NamedTuple):
    """Share of variance explained by a straight line, with its interval."""

    value: float
    low: float
    high: float
    cells: int


def mean_squares(differences: np.ndarray) -> MeanSquares:
    """Mean squares of [seeds, items]; with one seed, all variance is attributed to items."""
    seeds, items = differences.shape
    by_seed, by_item = differences.mean(axis=1), differences.mean(axis=0)
    seed = items * float(by_seed.var(ddof=1)) if seeds > 1 else 0.0
    item = seeds * float(by_item.var(ddof=1)) if items > 1 else 0.0
    if seeds == 1 or items == 1:
        return MeanSquares(seed, item, 0.0, seeds, items)
    left = differences - by_seed[:, None] - by_item[None, :] + differences.mean()
    rest = float((left**2).sum()) / ((seeds - 1) * (items - 1))
    return MeanSquares(seed, item, rest, seeds, items)


def variances(squares: MeanSquares) -> Variances:
    """Estimated components, none below zero; with one seed, the seed component is zero."""
    seed = max(0.0, squares.seed - squares.rest) / squares.items
    item = max(0.0, squares.item - squares.rest) / squares.seeds
    return Variances(seed if squares.seeds > 1 else 0.0, item, squares.rest)


def half_width(squares: MeanSquares, level: float = LEVEL) -> float:
    """Half the interval of the mean; with one seed only items count."""
    return _half_width(_parts(squares), level)


def _parts(squares: MeanSquares) -> tuple[VarianceComponent, VarianceComponent]:
    return (squares.seed_part, squares.seeds - 1), (squares.item_part, squares.items - 1)


def _half_width(parts: Sequence[VarianceComponent], level: float = LEVEL) -> float:
    """The standard error times Cochran's quantile.

    The quantile is the mean of the parts' t quantiles, weighted by their variances (Cochran and Cox
    1950): exact where only one part is positive, slightly conservative otherwise.
    """
    weighted = sum(-v * float(stdtrit(df, level / 2)) for v, df in parts if v > 0)
    total = sum(v for v, _ in parts)
    return weighted / sqrt(total) if total > 0 else 0.0


def mean_effect(differences: np.ndarray, spread: SeedSpread | None = None) -> Effect:
    """Mean of differences [seeds, items] with an interval for new seeds and new items.

    With one seed it covers new items under that seed only, unless the spread of both policies'
    results between seeds is known from other cells; with one item, new seeds only; with one of both
    the interval is infinite. Where all seeds have the same mean and the residual hides the item
    variance, items alone count. Where no two items differ, the interval is that of the share of
    items that may still differ: 1 − .025^(1/items) to each side.
    Raises ValueError unless all values are finite.
    """
    if differences.ndim != 2 or not differences.size or not np.isfinite(differences).all():
        raise ValueError(f"expected finite differences [seeds, items], got {differences.shape}")
    mean, squares = float(differences.mean()), mean_squares(differences)
    parts = _parts(squares)
    if squares.seeds == 1 and spread is not None:  # seeds of both policies vary independently
        parts = (2 * spread.variance, spread.df), parts[1]
    elif squares.seeds * squares.items == 1:
        return Effect(mean, -inf, inf, 1.0)
    if _half_width(parts) < ZERO_WIDTH:
        parts = _parts(squares._replace(rest=0.0))
    half = _half_width(parts)
    if half < ZERO_WIDTH:
        half = 1 - (LEVEL / 2) ** (1 / squares.items)
        return Effect(mean, mean - half, mean + half, permutation_p(differences))
    return Effect(mean, mean - half, mean + half, _p(abs(mean), parts))


def _p(size: float, parts: Sequence[VarianceComponent]) -> float:
    """The level at which the interval of `_half_width` just touches zero."""
    positive = [part for part in parts if part[0] > 0]
    if len(positive) == 1:
        [(variance, df)] = positive
        return float(2 * stats.t.sf(size / sqrt(variance), df))
    if _half_width(parts, SMALLEST) <= size:
        return SMALLEST
    return exp(brentq(lambda x: _half_width(parts, exp(x)) - size, log(SMALLEST), 0.0, xtol=1e-12))


def permutation_p(
    differences: np.ndarray, resamples: int = 9999, rng: np.random.Generator | None = None
) -> float:
    """Two-sided p of a mean of zero, from flipping the signs of whole items, paired by item.

    [seeds, items] or [items]; an item's seeds share one sign. It is conditional on these seeds.
    All patterns are tried for up to 14 items that differ; beyond, `resamples` random ones plus the
    observed one (reproducible by default).
    """
    values = np.atleast_2d(differences).mean(axis=0)
    values = values[np.abs(values) > 1e-12]  # zeros have no sign
    observed = abs(values.sum()) * (1 - 1e-9)
    if len(values) <= EXACT:
        patterns = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ values) >= observed))
    rng, block, hits = rng or np.random.default_rng(0), max(1, BLOCK // len(values)), 0
    for start in range(0, resamples, block):
        size = (min(block, resamples - start), len(values))
        signs = rng.integers(0, 2, size=size, dtype=np.int8).astype(np.float64)
        hits += int((np.abs(2 * (signs @ values) - values.sum()) >= observed).sum())
    return (hits + 1) / (resamples + 1)


def mcnemar_p(a: np.ndarray, b: np.ndarray) -> float:
    """Exact two-sided McNemar test: are the questions that only one side solves split evenly?

    Both are [questions] of 0 and 1, one sample each. Raises ValueError on other values or lengths.
    """
    if a.shape != b.shape or not (np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all()):
        raise ValueError("McNemar's test needs 0 or 1 for each question, in pairs")
    only_a, only_b = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
    few = stats.binom.cdf(min(only_a, only_b), only_a + only_b, 0.5)
    return min(1.0, 2 * float(few))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each test, in the given order (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def r_squared(x: np.ndarray, y: np.ndarray, resamples: int = 4000) -> RSquared:
    """R² of a straight line through cells, with a percentile bootstrap interval over cells.

    With fewer than eight cells, or where x or y is constant, the value is nan and the interval
    [0, 1]. Constant resamples are left out. Raises ValueError on unequal lengths.
    """
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"x and y need equal lengths, not {x.shape} and {y.shape}")
    rows = np.random.default_rng(0).integers(0, max(1, len(x)), size=(resamples, len(x)))
    if len(x) < FEWEST_CELLS or np.isnan(value := float(_squared(x, y))):
        return RSquared(nan, 0.0, 1.0, len(x))
    low, high = np.nanquantile(_squared(x[rows], y[rows]), [LEVEL / 2, 1 - LEVEL / 2])
    return RSquared(value, float(low), float(high), len(x))


def _squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared correlation over the last axis; nan where one side is (nearly) constant."""
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    xx, yy, xy = (x * x).sum(axis=-1), (y * y).sum(axis=-1), (x * y).sum(axis=-1)
    varies = (xx > 1e-18) & (yy > 1e-18)
    return np.asarray(np.where(varies, xy**2 / np.where(varies, xx * yy, 1.0), nan))


class ProbeVariance(NamedTuple):
    """Variance between probes, and between training seeds of one probe; p: of no former."""

    between: float
    between_interval: Interval
    within: float
    within_interval: Interval
    p: float
    probes: int
    results: int


def pooled_spread(results: Sequence[Sequence[float]]) -> SeedSpread | None:
    """The variance between training seeds, pooled over policies (the seeds of each: one list).

    None where it cannot be estimated: fewer than two degrees of freedom, or no difference at all.
    """
    groups = [np.array(values) for values in results if len(values) > 1]
    cells = sum(map(len, groups))
    df = cells - len(groups)
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in groups)
    return SeedSpread(squares / df, df, cells) if df >= 2 and squares > 0 else None


def variance_components(results: Sequence[np.ndarray]) -> ProbeVariance:
    """Variances from one array per probe: the results (e.g. in points) of its training seeds.

    One-way random effects: `between` is the variance that selecting by another probe adds, `within`
    that of another training seed (and of the evaluation's samples). Probes may have unequal numbers
    of seeds. Intervals: chi-squared for `within`, Williams (1962) for `between`. Raises ValueError
    with fewer than two probes, or where no probe has two seeds.
    """
    sizes = np.array([len(group) for group in results])
    probes, total = len(sizes), int(sizes.sum())
    if probes < 2 or total <= probes:
        raise ValueError(
            "needs at least two probes, and at least two training seeds of one of them"
        )
    means = np.array([group.mean() for group in results])
    grand, df = float(sizes @ means) / total, (probes - 1, total - probes)
    among = float(sizes @ (means - grand) ** 2)
    inside = float(sum(((group - group.mean()) ** 2).sum() for group in results))
    each = (total - float((sizes**2).sum()) / total) / df[0]  # effective seeds per probe
    within = inside / df[1]
    ratio = among / df[0] / within if within else (inf if among else 0.0)
    between = max(0.0, (among / df[0] - within) / each)
    ends_between = []  # Williams' interval
    for q in (1 - LEVEL / 2, LEVEL / 2):
        cut = 1 - float(stats.f.ppf(q, *df)) / ratio if ratio > 0 else 0.0
        ends_between.append(max(0.0, among / each * cut / float(stats.chi2.ppf(q, df[0]))))
    ends = (inside / float(stats.chi2.isf(q, df[1])) for q in (LEVEL / 2, 1 - LEVEL / 2))
    p = float(stats.f.sf(ratio, *df))
    intervals = Interval(*ends_between), Interval(*ends)
    return ProbeVariance(between, intervals[0], within, intervals[1], p, probes, total)
