"""How large a difference a grid can find, before it runs and after. Pure: NumPy and SciPy.

Power refers to the interval that the report uses (`stats.inference.difference_effect`): how large
must a true difference be for that interval to exclude zero in 80 % of all sweeps?
"""

from collections.abc import Callable
from functools import cache
from math import ceil, inf, log, log2, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, stdtrit

from orchestrator.plugins.counts import counted
from orchestrator.stats.inference import LEVEL, VarianceComponent, Variances, welch_df

POWER = 0.8
COLLAPSING = 1 / 3  # share of the seeds of a policy that collapses
# Assumptions about test questions before anything has been measured.
ACCURACY = 0.5  # the worst case
BETWEEN = 0.6  # share of an answer's variance that lies between questions
AGREEMENT = 0.8  # correlation of two policies' pass rates over questions
SEED_POINTS = 1.0  # standard deviation of a policy's accuracy between training seeds
MOST_SEEDS, MOST_ITEMS, MOST_TIMES = 1_000, 10_000_000, 1_000
Nodes = tuple[np.ndarray, np.ndarray]
SEED_NODES, ITEM_NODES = (np.polynomial.legendre.leggauss(n) for n in (24, 12))  # each side's seeds


class Grid(NamedTuple):
    """Seeds of each policy and items, tested at `level`.

    df: the degrees of freedom of each policy's variance between seeds; 0 where it is unknown, None:
    those of its `seeds`.
    """

    seeds: int
    items: int
    level: float = LEVEL
    df: float | None = None

    @property
    def seed_df(self) -> float:
        """Degrees of freedom of one policy's variance between seeds."""
        return self.seeds - 1 if self.df is None else self.df

    def of_size(self, seeds: int, items: int) -> "Grid":
        """With more seeds or items."""
        return self._replace(seeds=seeds, items=items, df=self.seed_df + seeds - self.seeds)

    def parts(self, variances: Variances) -> tuple[VarianceComponent, VarianceComponent]:
        """Of the variance of a difference of two means: one policy's seeds (half), and items.

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

    None where no number is enough, or where the data do not determine it.
    """

    seeds: int | None
    items: int | None
    both: tuple[int, int] | None


@cache
def minimum_detectable(
    items: int,
    seeds: int = 1,
    samples_per_item: int = 1,
    *,
    level: float = LEVEL,
) -> float:
    """Smallest true difference of two policies, in points, that is detected with 80 % power.

    Two-sided at `level`, paired by question. With one seed it refers to the difference of those two
    runs, by the exact test that the verdict uses. 100 means that the grid can detect nothing.
    Example: AIME's 15 questions, one sample each: 48 points; an observed difference under 40 (six
    questions) can never be significant.
    """

    def variances(size: float) -> Variances:
        """With the two policies at ACCURACY ± half of `size`."""
        per_answer = max(0.0, 2 * ACCURACY * (1 - ACCURACY) - size**2 / 2)
        # The effect differs between questions, because spread pass rates cannot all rise equally.
        # With beta-distributed pass rates its variance is about BETWEEN · size².
        item = per_answer * BETWEEN * (1 - AGREEMENT) + BETWEEN * size**2
        rest = per_answer * (1 - BETWEEN) / samples_per_item
        return Variances(2 * (SEED_POINTS / 100) ** 2, item, rest)

    if seeds == 1 and items < fewest(level):
        return 100.0
    most = 1.0
    if seeds == 1:  # more samples per question never detect less than one does
        one = 2 * ACCURACY * (1 - ACCURACY)  # the variance of a difference of independent answers
        most = _by_mcnemar(one * (1 - BETWEEN * AGREEMENT), one, items, level)
    if seeds == 1 and samples_per_item == 1:
        return 100 * most
    size = 0.0
    for _ in range(50):  # fixed point: the variances depend on the size
        grid = Grid(seeds, items, level)
        previous, size = size, min(most, detectable(variances(size), grid))
        if abs(size - previous) < 1e-6:
            break
    return 100 * size


def fewest(level: float = LEVEL) -> int:
    """Fewest questions that must differ, all in one direction, for an exact test to be significant.

    McNemar's test and the permutation of n questions give a two-sided p of at least 2 · ½ⁿ:
    .0625 for five of them (33 points of AIME's 15), .031 for six (40 points).
    """
    return ceil(1 - log2(level))


def _by_mcnemar(noise: float, independent: float, items: int, level: float) -> float:
    """The difference, 0 to 1, that McNemar's exact test detects with 80 % power (answers 0 or 1).

    `noise` is the variance of one question's difference without an effect, which is the share of
    questions that differ; `independent` is the same for two policies that answer independently. An
    effect of d adds d² to the share, up to that of independent policies (a large effect leaves
    little to disagree on). Needs at least `fewest` items.
    """
    from scipy.stats import binom  # takes half a second to import

    differ = np.arange(items + 1)
    critical = binom.isf(level / 2, differ, 0.5)

    def excess_power(size: float) -> float:
        share = min(noise + size**2, independent + size**2 / 2)
        share = min(1.0, max(share, size))
        to_one_side = (share + size) / (2 * share)
        power = binom.pmf(differ, items, share) @ binom.sf(critical, differ, to_one_side)
        return float(power) - POWER

    return float(brentq(excess_power, 1e-9, 1, xtol=1e-6))


def resolution(
    dataset: str,
    items: int,
    seeds: int = 1,
    samples_per_item: int = 1,
    comparisons: int = 1,
) -> str:
    """The line of `decile plan`; `comparisons`: of the report that share Holm's correction."""

    def in_points(points: float) -> str:
        return f"{points:.0f}" if points >= 10 else f"{points:.1f}"

    grid = f"{counted(seeds, 'seed')} × {counted(items, 'question')}"
    points = minimum_detectable(items, seeds, samples_per_item)
    if points >= 100:
        return f"no difference on {dataset} is detectable ({grid})"
    text = f"smallest detectable difference on {dataset}: {in_points(points)} points ({grid}"
    if comparisons > 1:
        strict = minimum_detectable(items, seeds, samples_per_item, level=LEVEL / comparisons)
        text += (
            f"; {in_points(strict)} after Holm's correction for "
            f"{counted(comparisons, 'comparison')}"
        )
    return text + ")" + ("; one seed cannot decide between policies" if seeds == 1 else "")


def collapse_seen(seeds: int) -> str:
    """The line of `decile plan` on a policy that ends below its base model in some seeds.

    A cell that does is found by itself (`report.compare.Family.collapsed`), so that one is enough.
    """
    missed = 1 - COLLAPSING
    enough = ceil(log(1 - POWER) / log(missed))
    return (
        "a policy that ends below the base model in a third of its seeds: seen with a probability "
        f"of {100 * (1 - missed**seeds):.0f} % ({counted(seeds, 'seed')}"
        + (f"; {100 * POWER:.0f} % needs {enough}" if seeds < enough else "")
        + ")"
    )


def detectable(variances: Variances, grid: Grid) -> float:
    """Smallest true mean difference, in the unit of the values, detected with 80 % power.

    The interval's width is random too: the power is averaged over the distribution of the variances
    that are estimated.
    """
    (of_one, _), (by_item, _) = parts = grid.parts(variances)
    variance = 2 * of_one + by_item
    if grid.items == 1 and not grid.seed_df:
        return inf
    if variance == 0:
        return 0.0
    half_widths, weights = _half_widths(*parts, grid.level)
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


def needed(variances: Variances, effect: float, grid: Grid) -> Needed:
    """Seeds, or items, or both, that detect a true difference of `effect` with 80 % power.

    `variances` are estimates, so the numbers are rough; `both` scales seeds and items by the same
    factor. Where the variance between seeds is unknown, no number of seeds is given (the same holds
    for one item), and where nothing varies, no number at all. None also beyond 1,000 seeds, ten
    million items, and 1,000 times both.
    """
    size = abs(effect)
    seeds, items, known = grid.seeds, grid.items, grid.seed_df > 0
    if size == 0 or not np.isfinite(size) or sum(variances) == 0:
        return Needed(None, None, None)

    def enough(seeds: int, items: int) -> bool:
        return detectable(variances, grid.of_size(seeds, items)) <= size

    more_seeds = more_items = times = None
    if known:
        more_seeds = _least(lambda n: enough(n, items), seeds, MOST_SEEDS)
    if items > 1:
        more_items = _least(lambda n: enough(seeds, n), items, MOST_ITEMS)
    if known and items > 1:
        times = _least(lambda n: enough(n * seeds, n * items), 1, MOST_TIMES)
    return Needed(more_seeds, more_items, (times * seeds, times * items) if times else None)


def needed_range(variances: Variances, effect: float, grid: Grid) -> tuple[Needed, Needed]:
    """The least and the most that may be needed, since effect and variances are estimates.

    At the ends of the 80 % intervals of the effect and of the variance between seeds (chi-squared).
    Where that of the effect contains zero, the most is unknown: None.
    """
    (of_one, one_df), (by_item, item_df) = grid.parts(variances)
    df = welch_df(of_one, of_one, one_df) if of_one else 0.0
    parts = ((2 * of_one, df), (by_item, item_df))
    half = sqrt(sum(v * float(stdtrit(d, 0.1)) ** 2 for v, d in parts if d > 0))
    ends = []
    for size, share in ((abs(effect) + half, 0.1), (max(0.0, abs(effect) - half), 0.9)):
        seed = variances.seed * (df / float(chdtri(df, share)) if df else 1.0)
        ends.append(needed(variances._replace(seed=seed), size, grid))
    return ends[0], ends[1]


def _least(enough: Callable[[int], bool], low: int, most: int) -> int | None:
    """The smallest sufficient number from `low` to `most`; None where `most` is not enough."""
    if not enough(most):
        return None
    high = most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
