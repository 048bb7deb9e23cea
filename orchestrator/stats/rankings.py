"""The similarity of two rankings of the same prompts, overall and in the hardest tenth. Pure.

Prompts with the same pair of values are counted together. Pass rates of K samples have few pairs,
so that thousands of resamples of a million prompts take no longer than of a thousand.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.plugins.streams import generator
from orchestrator.stats.inference import ALPHA, Interval

Floats = npt.NDArray[np.float64]

RESAMPLES = 1_000  # the ends of a 95 % interval then rest on 25 draws each
MOST = 10_000  # pairs that are resampled; for more, an even share, with a wider interval
BLOCK = 2_000_000  # numbers of a block of resamples


class RankPair(NamedTuple):
    """Two rankings of their shared `prompts`, with 95 % intervals for other prompts of the kind.

    correlation: Spearman's; nan if all values of a side are equal. shared: the expected share of
    the hardest tenth (lowest values, at least one prompt) that is in both, with ties broken at
    random. own: the same for each side with itself and new ties, which is the expected maximum.
    """

    prompts: int
    correlation: float
    correlation_interval: Interval
    shared: float
    shared_interval: Interval
    own: tuple[float, float]


class _Pairs(NamedTuple):
    """Distinct pairs of values, sorted by the first, then the second one, and their frequencies.

    first, second: [pairs], the position of each value among the distinct ones; weights: [pairs].
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    weights: Floats

    @classmethod
    def of(cls, a: Floats, b: Floats) -> "_Pairs":
        # Rates are ratios of counts: equal ones must tie, regardless of their computation.
        first, second = (np.unique(x.round(12), return_inverse=True)[1] for x in (a, b))
        base = int(second.max(initial=0)) + 1
        pairs, times = np.unique(first * base + second, return_counts=True)
        return cls(pairs // base, pairs % base, times.astype(float))

    @property
    def estimates(self) -> list[float]:
        """The statistics of all prompts."""
        return [float(value) for value in self.statistics(self.weights[None, :])[0]]

    def statistics(self, weights: Floats) -> Floats:
        """[resamples, 4] of weights [resamples, pairs]: correlation, shared, own of each side."""
        size = max(1, round(float(self.weights.sum()) / 10))
        scores, chances, own, variances = [], [], [], []
        for level in (self.first, self.second):
            order = np.argsort(level, kind="stable")
            starts = np.flatnonzero(np.diff(level[order], prepend=-1))
            times = np.add.reduceat(weights[:, order], starts, axis=1)  # of each distinct value
            end = np.cumsum(times, axis=1)
            rank = end - times / 2 - end[:, -1:] / 2  # mid-ranks minus their mean
            with np.errstate(divide="ignore", invalid="ignore"):
                chance = np.clip((size - end + times) / times, 0.0, 1.0)
            chance = np.where(times > 0, chance, 0.0)
            own.append((times * chance**2).sum(axis=1) / size)
            variances.append((times * rank**2).sum(axis=1))
            scores.append(rank[:, level])
            chances.append(chance[:, level])
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = (weights * scores[0] * scores[1]).sum(axis=1) / np.sqrt(
                variances[0] * variances[1]
            )
        shared = (weights * chances[0] * chances[1]).sum(axis=1) / size
        return np.stack([correlation, shared, *own], axis=1)


def rank_agreement(a: Floats, b: Floats) -> tuple[float, float]:
    """`rank_correlation` and `hardest_overlap` at once."""
    correlation, overlap, *_ = _Pairs.of(a, b).estimates
    return correlation, overlap


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's: Pearson's correlation of the ranks; equal values have their mean rank.

    nan for fewer than two values, or if all values of a side are equal.
    """
    return _Pairs.of(a, b).estimates[0] if len(a) > 1 else float("nan")


def hardest_overlap(a: Floats, b: Floats) -> float:
    """The expected share of the tenth with the lowest values that both sides have.

    A tenth has at least one prompt. Ties at its end are broken at random, separately for each side.
    """
    return _Pairs.of(a, b).estimates[1]


def compare_rankings(a: Floats, b: Floats, resamples: int = RESAMPLES) -> RankPair:
    """Two rankings of the same prompts, [prompts] each, nan if a value is unknown.

    Intervals are percentiles of `resamples` draws of the prompts with replacement.
    """
    known = ~np.isnan(a) & ~np.isnan(b)
    a, b = a[known], b[known]
    unknown = Interval(float("nan"), float("nan"))
    if len(a) < 2:
        return RankPair(len(a), unknown.low, unknown, unknown.low, unknown, (unknown.low,) * 2)
    pairs, rng = _Pairs.of(a, b), generator("resampled rankings")
    correlation, shared, *own = pairs.estimates
    if len(pairs.weights) > MOST:
        step = -(-len(a) // MOST)
        pairs = _Pairs.of(a[::step], b[::step])
    count, chances = int(pairs.weights.sum()), pairs.weights / pairs.weights.sum()
    drawn = []
    at_once = max(1, BLOCK // len(chances))
    for start in range(0, resamples, at_once):
        times = rng.multinomial(count, chances, size=min(at_once, resamples - start))
        drawn.append(pairs.statistics(times.astype(float)))
    values = np.concatenate(drawn)
    intervals = [_interval(values[:, place]) for place in (0, 1)]
    return RankPair(len(a), correlation, intervals[0], shared, intervals[1], (own[0], own[1]))


def _interval(values: Floats) -> Interval:
    """The 95 % percentile interval; nan without defined values."""
    defined = values[np.isfinite(values)]
    if not len(defined):
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(defined, [ALPHA / 2, 1 - ALPHA / 2])
    return Interval(float(low), float(high))
