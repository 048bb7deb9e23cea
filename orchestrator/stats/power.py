"""The differences that a design can detect, and the design for a difference. Pure: NumPy, SciPy.

Power refers to the interval of the report (`stats.inference.difference_effect`): how large must a
true difference be for this interval to exclude zero in 80 % of all sweeps?
"""

from collections.abc import Callable
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, stdtrit

from orchestrator.stats.inference import ALPHA, VarianceComponent, Variances, welch_df

POWER = 0.8  # the convention of the field
MOST_SEEDS, MOST_ITEMS, MOST_TIMES = 1_000, 10_000_000, 1_000
Nodes = tuple[np.ndarray, np.ndarray]
SEED_NODES, ITEM_NODES = (np.polynomial.legendre.leggauss(n) for n in (24, 12))  # each side's seeds


class Design(NamedTuple):
    """Seeds of each policy and items, tested at `level`.

    df: the degrees of freedom of each policy's variance between seeds; 0 if it is unknown, None for
    those of its `seeds`.
    """

    seeds: int
    items: int
    level: float = ALPHA
    df: float | None = None

    @property
    def seed_df(self) -> float:
        """Degrees of freedom of one policy's variance between seeds."""
        return self.seeds - 1 if self.df is None else self.df

    def of_size(self, seeds: int, items: int) -> "Design":
        """The design with other numbers of seeds and items."""
        return self._replace(seeds=seeds, items=items, df=self.seed_df + seeds - self.seeds)

    def parts(self, variances: Variances) -> tuple[VarianceComponent, VarianceComponent]:
        """Components of the variance of a difference of two means: one policy's seeds (half), and
        items.

        With one item, intervals are about this item.
        """
        seed, item, rest = variances
        if not self.seed_df:
            return (0.0, 0.0), ((item + rest) / self.items, self.items - 1)
        of_one = (seed + rest / self.items) / self.seeds / 2
        by_item = item / self.items if self.items > 1 else 0.0
        return (of_one, self.seed_df), (by_item, self.items - 1)


class Needed(NamedTuple):
    """Seeds at the current items, items at the current seeds, or (seeds, items) scaled together.

    None if no number is enough, or if the data do not determine it.
    """

    seeds: int | None
    items: int | None
    both: tuple[int, int] | None


def detectable(variances: Variances, design: Design) -> float:
    """Smallest true mean difference, in the unit of the values, detected with 80 % power.

    The interval's width is also random: the power is averaged over the distribution of the
    estimated variances.
    """
    (of_one, _), (by_item, _) = parts = design.parts(variances)
    variance = 2 * of_one + by_item
    if design.items == 1 and not design.seed_df:
        return inf
    if variance == 0:
        return 0.0
    half_widths, weights = _half_widths(*parts, design.level)
    error = sqrt(variance)

    def excess_power(size: float) -> float:
        power = ndtr((size - half_widths) / error) + ndtr((-size - half_widths) / error)
        return float(weights @ power) - POWER

    most = 2 * float(half_widths.max()) + 10 * error
    return float(brentq(excess_power, 0, most, xtol=1e-9 * error))


def _half_widths(
    of_one: VarianceComponent, by_item: VarianceComponent, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """The distribution of the interval's half width: values and weights."""
    squared, weight = np.zeros(1), np.ones(1)
    variance, df = of_one
    if variance > 0 and df > 0:
        drawn, w = _drawn(variance, df, SEED_NODES)
        one, two = drawn[:, None], drawn[None, :]
        squared = ((one + two) * stdtrit(welch_df(one, two, df), level / 2) ** 2).ravel()
        weight = np.multiply.outer(w, w).ravel()
    variance, df = by_item
    if variance > 0 and df > 0:
        drawn, w = _drawn(variance, df, ITEM_NODES)
        squared = np.add.outer(squared, float(stdtrit(df, level / 2)) ** 2 * drawn).ravel()
        weight = np.multiply.outer(weight, w).ravel()
    return np.sqrt(squared), weight


def _drawn(variance: float, df: float, nodes: Nodes) -> tuple[np.ndarray, np.ndarray]:
    """Estimates of a variance with these degrees of freedom, and their weights."""
    x, w = nodes
    return variance * chdtri(df, (1 - x) / 2) / df, w / 2


def needed(variances: Variances, effect: float, design: Design) -> Needed:
    """Seeds, or items, or both, that detect a true difference of `effect` with 80 % power.

    `variances` are estimates, so the numbers are rough; `both` scales seeds and items by the same
    factor. A number is None if the variance between seeds is unknown (for seeds), with one item
    (for items), if nothing varies, or beyond 1,000 seeds, ten million items, or 1,000 times both.
    """
    size = abs(effect)
    seeds, items, known = design.seeds, design.items, design.seed_df > 0
    if size == 0 or not np.isfinite(size) or sum(variances) == 0:
        return Needed(None, None, None)

    def enough(seeds: int, items: int) -> bool:
        return detectable(variances, design.of_size(seeds, items)) <= size

    more_seeds = more_items = times = None
    if known:
        more_seeds = _least(lambda n: enough(n, items), seeds, MOST_SEEDS)
    if items > 1:
        more_items = _least(lambda n: enough(seeds, n), items, MOST_ITEMS)
    if known and items > 1:
        times = _least(lambda n: enough(n * seeds, n * items), 1, MOST_TIMES)
    return Needed(more_seeds, more_items, (times * seeds, times * items) if times else None)


def needed_range(variances: Variances, effect: float, design: Design) -> tuple[Needed, Needed]:
    """The smallest and largest numbers that may be needed, since effect and variances are
    estimates.

    They are for the ends of the 80 % intervals of the effect and of the variance between seeds
    (chi-squared). If the interval of the effect contains zero, the largest is unknown: None.
    """
    (of_one, one_df), (by_item, item_df) = design.parts(variances)
    df = welch_df(of_one, of_one, one_df) if of_one else 0.0
    parts = ((2 * of_one, df), (by_item, item_df))
    half = sqrt(sum(v * float(stdtrit(d, 0.1)) ** 2 for v, d in parts if d > 0))
    ends = []
    for size, share in ((abs(effect) + half, 0.1), (max(0.0, abs(effect) - half), 0.9)):
        seed = variances.seed * (df / float(chdtri(df, share)) if df else 1.0)
        ends.append(needed(variances._replace(seed=seed), size, design))
    return ends[0], ends[1]


def _least(enough: Callable[[int], bool], low: int, most: int) -> int | None:
    """The smallest sufficient number from `low` to `most`; None if `most` is not enough."""
    if not enough(most):
        return None
    high = most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
