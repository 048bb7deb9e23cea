"""Intervals, tests, and variances between questions and seeds. Pure: NumPy and SciPy.

Values are [runs, items]: the mean correctness over a question's samples, for one run (training
seed) and one test question. A question is one cluster of samples.
"""

from collections.abc import Mapping, Sequence
from math import exp, inf, isfinite, log, nan, sqrt
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, stdtr, stdtrit

from orchestrator.plugins.streams import generator

ALPHA = 0.05  # of an interval or a test, two-sided: the convention of the field
EXACT = 14  # most items with all 2^14 sign patterns tried
BLOCK = 2_000_000  # random numbers in memory at once
SMALLEST = 1e-100  # lower bound of reported p values; stdtrit overflows at 1e-300
WITHIN_GROUPS = 0.05  # correlation of a group's items, for the degrees of freedom
LARGEST = 1e150  # quantile of t, so that its square is finite
ZERO_WIDTH = 1e-12  # smaller half widths count as zero


Floats = TypeVar("Floats", float, np.ndarray)
# a component of a mean's variance, and its degrees of freedom
VarianceComponent = tuple[float, float]


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


class MeanSquares(NamedTuple):
    """Two-way analysis of variance of differences [seeds, items], one value per combination.

    Expected values: rest + items · seed, rest + seeds · item, rest.
    """

    seed: float
    item: float
    rest: float


class Variances(NamedTuple):
    """Components of a difference of two runs: seeds, items, and residual (with sampling)."""

    seed: float
    item: float
    rest: float


class SeedSpread(NamedTuple):
    """Variance of one policy's result (a share) between training seeds, from `cells` runs."""

    variance: float
    df: float
    cells: int


class Effect(NamedTuple):
    """A mean difference, its interval (95 % unless a level is given), and the matching p value."""

    mean: float
    low: float
    high: float
    p: float

    def within(self, least: float, most: float) -> "Effect":
        """The effect cut off at the possible values; an infinite interval does not change."""
        if not isfinite(self.low):
            return self
        mean, low, high = (min(max(value, least), most) for value in self[:3])
        return Effect(mean, low, high, self.p)


def mean_squares(differences: np.ndarray) -> MeanSquares:
    """Mean squares of [seeds, items]; with one seed, all variance is attributed to items."""
    seeds, items = differences.shape
    by_seed, by_item = differences.mean(axis=1), differences.mean(axis=0)
    seed = items * float(by_seed.var(ddof=1)) if seeds > 1 else 0.0
    item = seeds * float(by_item.var(ddof=1)) if items > 1 else 0.0
    if seeds == 1 or items == 1:
        return MeanSquares(seed, item, 0.0)
    left = differences - by_seed[:, None] - by_item[None, :] + differences.mean()
    rest = float((left**2).sum()) / ((seeds - 1) * (items - 1))
    return MeanSquares(seed, item, rest)


class Available(NamedTuple):
    """Scores [runs, items] of the items with a score in some run; missing ones are filled."""

    items: list[str]
    values: np.ndarray

    def of(self, items: Sequence[str]) -> np.ndarray:
        """[runs, items]: the columns of some of the items."""
        columns = {i: n for n, i in enumerate(self.items)}
        return self.values[:, [columns[i] for i in items]]


def available(runs: Sequence[Mapping[str, float]]) -> Available:
    """The scores of runs (item -> score; nan or no entry if missing), items sorted.

    A missing score is filled with the least-squares fit of a run effect and an item effect. The
    mean over runs and items then does not depend on which scores are missing, and the similarity of
    runs is not overestimated. If run effects are not determined, because some runs do not share
    items even indirectly, only the items of all runs are used.
    """
    scored = [{i for i, value in run.items() if value == value} for run in runs]
    items = sorted(set.union(*scored))
    values = np.array([[run.get(i, nan) for i in items] for run in runs], float)
    known = np.isfinite(values)
    if known.all():
        return Available(items, values)
    counts = known.sum(axis=0)  # runs of each item
    present = np.where(known, values, 0.0)
    above = np.where(known, values - present.sum(axis=0) / counts, 0.0).sum(axis=1)
    # The normal equations of the run effects, with item effects eliminated: [runs, runs].
    normal = np.diag(known.sum(axis=1).astype(float)) - (known / counts) @ known.T
    # The rank is runs − 1 if items connect all runs: only differences of effects are known.
    if np.linalg.matrix_rank(normal, tol=1e-9 * len(items), hermitian=True) < len(runs) - 1:
        whole = known.all(axis=0)
        return Available(
            [i for i, kept in zip(items, whole, strict=True) if kept], values[:, whole]
        )
    of_runs = np.linalg.lstsq(normal, above)[0][:, None]
    of_items = np.where(known, values - of_runs, 0.0).sum(axis=0) / counts
    return Available(items, np.where(known, values, of_runs + of_items))


def group_codes(items: Sequence[str], groups: Mapping[str, str]) -> np.ndarray | None:
    """The group of each item as a number from 0; None if no two items share a group.

    An item that is missing in `groups`, or has the group "", is a group of its own.
    """
    names = [(group, "") if (group := groups.get(i)) else ("", i) for i in items]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return None if len(numbers) == len(items) else np.array([numbers[name] for name in names])


def by_group(values: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """[runs, groups] from [runs, items], with the same mean of each run.

    groups: a number from 0 for each item. The mean over items is a ratio of sums over groups. A
    group's value is its deviation from its run's mean, times its size over the mean size (the
    linearized ratio estimator: Cochran 1977), with the correction of Bell and McCaffrey (2002),
    because a large group pulls the mean towards itself. For groups of equal sizes, values are plain
    means.
    """
    if groups is None:
        return values
    order = np.argsort(groups, kind="stable")
    # The start of each group in `order`.
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    mean = values.mean(axis=1, keepdims=True)
    sums = np.add.reduceat((values - mean)[:, order], starts, axis=1)  # [runs, groups]
    share, equal = np.bincount(groups) / len(groups), 1 / len(starts)
    if len(starts) > 1:
        sums = sums * np.sqrt((1 - equal) / (1 - share))
    return np.asarray(
        mean + (sums - sums.mean(axis=1, keepdims=True)) * (len(starts) / len(groups))
    )


def _group_df(items: int, groups: np.ndarray | None) -> float:
    """Degrees of freedom between groups, by Satterthwaite: fewer if some are much larger.

    It assumes a small correlation between the items of a group, which has no effect for equal
    groups.
    """
    if groups is None:
        return items - 1
    sizes = np.bincount(groups).astype(float)
    variances = sizes * (1 + WITHIN_GROUPS * (sizes - 1))
    return float(variances.sum() ** 2 / (variances**2).sum()) - 1


def _half_width(parts: Sequence[VarianceComponent], level: float) -> float:
    """The root of the sum of squares of the components' own t half widths (Banerjee 1960).

    Its coverage is at least nominal for every ratio of the variances and at every level, and exact
    if only one component is positive. Cochran's and Satterthwaite's quantiles are too small at
    strict levels (Holm's) if few seeds cause most of the variance.
    """
    # with less than one degree of freedom, quantiles overflow
    quantiles = ((v, min(LARGEST, -float(stdtrit(df, level / 2)))) for v, df in parts if v > 0)
    return sqrt(sum(v * quantile**2 for v, quantile in quantiles))


def mean_effect(
    values: np.ndarray, groups: np.ndarray | None = None, level: float = ALPHA
) -> Effect:
    """Mean of [seeds, items] with an interval for new seeds and new items, or groups of items.

    With one seed it covers new items with that seed only; with one item, or one group of `groups`
    (see `by_group`), it is infinite. Raises ValueError unless all values are finite.
    """
    _check(values)
    df = _group_df(values.shape[1], groups)
    values = by_group(values, groups)
    seeds, items = values.shape
    if items == 1:  # no information about other items
        return Effect(float(values.mean()), -inf, inf, 1.0)
    squares = mean_squares(values)
    by_seed = (squares.seed / values.size, seeds - 1)  # with the residual
    by_item = (max(0.0, squares.item - squares.rest) / values.size, df)
    alone = (squares.item / values.size, df)
    return _effect(values.mean(axis=0), [by_seed, by_item], [by_seed, alone], level)


def difference_effect(
    first: np.ndarray,
    second: np.ndarray,
    spreads: tuple[SeedSpread | None, SeedSpread | None],
    groups: np.ndarray | None = None,
    level: float = ALPHA,
) -> Effect:
    """Mean of `first` [runs, items] minus `second` [runs, items] with the same items.

    It is paired by item, but not by run: all runs of both sides count (Welch's test). spreads: for
    each side, the variance of one run's mean between seeds; None if unknown, and then the interval
    covers new items only. If it is 0, because runs have the same mean by chance, the side's
    residual is used. The variance of the items' differences excludes the residual, which is
    included in the variance of seeds; for two items it includes it. groups (see `by_group`): of
    items that are not independent. Raises ValueError unless all values are finite.
    """
    _check(first)
    _check(second)
    df = _group_df(first.shape[1], groups)
    first, second = by_group(first, groups), by_group(second, groups)
    items = first.shape[1]
    if groups is not None and items == 1:  # no information about other groups
        return Effect(float(first.mean() - second.mean()), -inf, inf, 1.0)
    parts = [
        ((spread.variance or residual(side) / items) / len(side), spread.df)
        for spread, side in zip(spreads, (first, second), strict=True)
        if spread is not None
    ]
    if len(parts) == 2:
        parts = between_seeds(*parts)
    by_item = first.mean(axis=0) - second.mean(axis=0)
    mean, item, rest = float(by_item.mean()), 0.0, 0.0
    if items == 1 and None in spreads:
        return Effect(mean, -inf, inf, 1.0)
    if items > 1:
        item = float(by_item.var(ddof=1))
    if items > 2:  # the variance of two is too uncertain for a subtraction
        rest = sum(residual(side) / len(side) for side in (first, second))
    alone = [*parts, (item / items, df)]
    return _effect(by_item, [*parts, (max(0.0, item - rest) / items, df)], alone, level)


def between_seeds(first: VarianceComponent, second: VarianceComponent) -> list[VarianceComponent]:
    """The components of the variance of two policies' means, each with its own seeds.

    Variances are not pooled between policies: hard prompts may scatter by 2 points and random ones
    by 7. With equal degrees of freedom the two are one component, as in Welch's test (`welch_df`).
    With unequal ones each has its own quantile (Banerjee 1960): if the policy with fewer seeds
    scatters more, Welch's test errs in up to 12 %.
    """
    (one, df), (two, other_df) = first, second
    if df != other_df or one + two == 0:
        return [first, second]
    return [(one + two, welch_df(one, two, df))]


def welch_df(one: Floats, two: Floats, df: float) -> Floats:
    """Degrees of freedom of the sum of two estimated variances with `df` each.

    Satterthwaite's are between df and 2 df. They are moved towards df by the share 1 / (df + 1),
    half the way for two seeds. Otherwise equal policies with scatters of 10 and 1 points differ in
    6.1 %.
    """
    extra: Floats = df * (2 * one * two) / (one**2 + two**2)
    return df + extra * df / (df + 1)


def residual(values: np.ndarray) -> float:
    """Residual mean square of [runs, items] beyond runs and items; 0 with one run or one item."""
    return mean_squares(values).rest


def _check(values: np.ndarray) -> None:
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise ValueError(f"expected finite values [seeds, items], got {values.shape}")


def _effect(
    by_item: np.ndarray,
    parts: Sequence[VarianceComponent],
    alone: Sequence[VarianceComponent],
    level: float,
) -> Effect:
    """The mean of items with its interval.

    alone: the components if the residual hides the variance between items and seeds do not differ;
    items then count with their residual. If no two items differ, the interval covers the share of
    items that may still differ, by up to a whole answer: 1 − .025^(1/items).
    """
    mean = float(by_item.mean())
    if _half_width(parts, level) < ZERO_WIDTH:
        parts = alone
    half = _half_width(parts, level)
    if half < ZERO_WIDTH:
        differ = 1 - (level / 2) ** (1 / len(by_item))
        low, high = mean - differ * (1 + mean), mean + differ * (1 - mean)
        return Effect(mean, low, high, permutation_p(by_item))
    return Effect(mean, mean - half, mean + half, _p(abs(mean), parts))


def _p(size: float, parts: Sequence[VarianceComponent]) -> float:
    """The level at which the interval of `_half_width` just touches zero."""
    positive = [part for part in parts if part[0] > 0]
    if len(positive) == 1:
        [(variance, df)] = positive
        return float(2 * stdtr(df, -size / sqrt(variance)))
    if _half_width(positive, SMALLEST) <= size:
        return SMALLEST
    return exp(
        brentq(lambda x: _half_width(positive, exp(x)) - size, log(SMALLEST), 0.0, xtol=1e-12)
    )


def permutation_p(
    differences: np.ndarray,
    resamples: int = 9999,
    groups: np.ndarray | None = None,
) -> float:
    """Two-sided p of a mean of zero, from flipping the signs of whole items, paired by item.

    Values are [seeds, items] or [items]. All seeds of an item have the same sign, and so do the
    items of a group in `groups`. The p is conditional on these seeds. For up to 14 differing items
    all patterns are tried; for more, `resamples` random ones plus the observed one (reproducible,
    and independent of the order of items).
    """
    values = np.atleast_2d(differences).mean(axis=0)
    if groups is not None:
        values = np.bincount(groups, weights=values)
    values = values[np.abs(values) > 1e-12]  # zeros have no sign
    sizes = np.sort(np.abs(values))
    # Slightly less, so that the observed pattern counts as extreme in any order of summation.
    observed, values = abs(values.sum()) - 1e-9 * sizes.sum(), sizes
    if len(values) <= EXACT:
        # [patterns, items] of 0 and 1: every number's binary digits.
        patterns = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ values) >= observed))
    rng, block, hits = generator("flipped signs"), max(1, BLOCK // len(values)), 0
    for start in range(0, resamples, block):
        size = (min(block, resamples - start), len(values))
        signs = rng.integers(0, 2, size=size, dtype=np.int8).astype(np.float64)
        # The sum with signs 2s − 1 is 2·(s @ values) − Σ values.
        hits += int((np.abs(2 * (signs @ values) - values.sum()) >= observed).sum())
    return (hits + 1) / (resamples + 1)


def mcnemar_p(a: np.ndarray, b: np.ndarray) -> float:
    """Exact two-sided McNemar test: are the questions that only one side solves split evenly?

    Both are [questions] of 0 and 1, one sample each.
    """
    only_a, only_b = int((a > b).sum()), int((b > a).sum())
    return min(1.0, 2 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each test, in the given order (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def seed_spread(results: Sequence[float]) -> SeedSpread | None:
    """The variance of one policy's results between its seeds; None with fewer than two results.

    A cell without any marked group has no learnable share: nan.
    """
    finite = [result for result in results if isfinite(result)]
    if len(finite) < 2:
        return None
    return SeedSpread(float(np.var(finite, ddof=1)), len(finite) - 1, len(finite))
