"""How large a difference a grid can find, before it runs and after. Pure: NumPy and SciPy.

It asks of the interval that the report uses (`report.statistics.half_width`): how large must a
true difference be for that interval to leave out zero in 80 % of all sweeps?
"""

from collections.abc import Callable
from math import ceil, inf, log2, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, stdtrit
from scipy.stats import binom

from orchestrator.stats.inference import LEVEL, Variances

POWER = 0.8
# Assumed of test questions where nothing is measured yet.
ACCURACY = 0.5  # the worst case
BETWEEN = 0.6  # share of an answer's variance that lies between questions
AGREEMENT = 0.8  # correlation of two policies' pass rates over questions
SEED_POINTS = 1.0  # standard deviation of a policy's accuracy between training seeds
MOST_SEEDS, MOST_ITEMS, MOST_TIMES = 1_000, 10_000_000, 1_000
MANY, FEW = np.polynomial.legendre.leggauss(64), np.polynomial.legendre.leggauss(16)


class Needed(NamedTuple):
    """Seeds at today's items, items at today's seeds, or (seeds, items) grown together.

    None where no number would do, or where the data do not say.
    """

    seeds: int | None
    items: int | None
    both: tuple[int, int] | None


def minimum_detectable(
    items: int,
    seeds: int = 1,
    samples_per_item: int = 1,
    *,
    accuracy: float = ACCURACY,
    between: float = BETWEEN,
    agreement: float = AGREEMENT,
    seed_points: float = SEED_POINTS,
    level: float = LEVEL,
) -> float:
    """Smallest true difference of two policies, in points, found with power 80 % at a level (5 %).

    Two-sided, paired by question and seed. One seed: the difference of those two runs, whatever
    other seeds would do, by the exact test that its verdict uses. At most 100: then the grid can
    tell nothing apart. AIME's 15 questions, one sample each: 48 points; an observed difference
    under 40, six questions, could never be told from zero.
    Raises ValueError on counts under one and on shares outside [0, 1].
    """
    if min(items, seeds, samples_per_item) < 1:
        raise ValueError("items, seeds and samples_per_item are 1 or more")
    if not all(0 <= share <= 1 for share in (accuracy, between, agreement)):
        raise ValueError("accuracy, between and agreement are shares from 0 to 1")

    def parts(size: float) -> Variances:
        """Around `accuracy`, half of `size` to each side."""
        of_one = max(0.0, 2 * accuracy * (1 - accuracy) - size**2 / 2)
        # The effect is not the same on every question: pass rates that are spread cannot all rise
        # alike. In a beta distribution they do by amounts whose variance is about between · size².
        item = of_one * between * (1 - agreement) + between * size**2
        return Variances(
            2 * (seed_points / 100) ** 2, item, of_one * (1 - between) / samples_per_item
        )

    if seeds == 1 and items < fewest(level):
        return 100.0
    if seeds == 1 and samples_per_item == 1:
        return 100 * _by_mcnemar(parts(0).item + parts(0).rest, items, level)
    size = 0.0
    for _ in range(50):  # variances depend on the size that they decide
        before, size = size, min(1.0, detectable(parts(size), seeds, items, level))
        if abs(size - before) < 1e-6:
            break
    return 100 * size


def fewest(level: float = LEVEL) -> int:
    """Questions that must differ, all to one side, before an exact test of one seed can find it.

    McNemar's test and the permutation of n questions give a two-sided p of 2 · ½ⁿ at the least:
    .0625 for five of them (33 points of AIME's 15), .031 for six (40 points).
    """
    return ceil(1 - log2(level))


def _by_mcnemar(noise: float, items: int, level: float) -> float:
    """The difference, 0 to 1, that McNemar's exact test finds in 80 % where answers are 0 or 1.

    `noise` is the variance of one question's difference without an effect: the share of questions
    that differ. An effect of d adds d² to them. Takes `fewest` items or more.
    """
    differ = np.arange(items + 1)
    critical = binom.isf(level / 2, differ, 0.5)

    def lacks(size: float) -> float:
        share = min(1.0, max(noise + size**2, size))
        to_one_side = (share + size) / (2 * share)
        found = binom.pmf(differ, items, share) @ binom.sf(critical, differ, to_one_side)
        return float(found) - POWER

    return float(brentq(lacks, 1e-9, 1, xtol=1e-6))


def resolution(
    dataset: str, items: int, seeds: int = 1, samples_per_item: int = 1, comparisons: int = 1
) -> str:
    """The line of `decile plan`; `comparisons` of one report share Holm's correction."""
    points = minimum_detectable(items, seeds, samples_per_item)
    if points >= 100:
        return f"{dataset} cannot tell any two policies apart ({_grid(seeds, items)})"
    says = f"{dataset} cannot resolve less than {_size(points)} points ({_grid(seeds, items)}"
    if comparisons > 1:
        strict = minimum_detectable(items, seeds, samples_per_item, level=LEVEL / comparisons)
        says += f"; up to {_size(strict)} by Holm's correction over {comparisons:,} comparisons"
    return says + ")" + ("; one seed says nothing of other seeds" if seeds == 1 else "")


def _size(points: float) -> str:
    return f"{points:.0f}" if points >= 10 else f"{points:.1f}"


def _grid(seeds: int, items: int) -> str:
    return f"{seeds} seed{'s' * (seeds > 1)} × {items:,} question{'s' * (items > 1)}"


def detectable(parts: Variances, seeds: int, items: int, level: float = LEVEL) -> float:
    """Smallest true mean difference, in the unit of the values, that is found with power 80 %.

    The interval's width is itself drawn: the power is its mean over what the mean squares of such
    a grid may turn out to be.
    """
    squares = parts.expected(seeds, items)
    variance = squares.seed_part + squares.item_part
    if seeds * items == 1:
        return inf
    if variance == 0:
        return 0.0
    ends, weights = _ends(
        (squares.seed_part, seeds - 1),
        (squares.item_part, items - 1),
        level=level,
    )
    spread = sqrt(variance)

    def lacks(size: float) -> float:
        found = ndtr((size - ends) / spread) + ndtr((-size - ends) / spread)
        return float(weights @ found) - POWER

    return float(brentq(lacks, 0, 2 * float(ends.max()) + 10 * spread, xtol=1e-9 * spread))


def _ends(*parts: tuple[float, int], level: float) -> tuple[np.ndarray, np.ndarray]:
    """Half widths that may turn up, and the probability of each: parts are (variance, df)."""
    total, weighted, weight = np.zeros(1), np.zeros(1), np.ones(1)
    for variance, df in parts:
        if variance > 0 and df > 0:
            x, w = MANY if df < 30 else FEW  # with many degrees of freedom little varies
            drawn = variance * chdtri(df, (1 - x) / 2) / df
            quantile = -float(stdtrit(df, level / 2))
            total = np.add.outer(total, drawn).ravel()
            weighted = np.add.outer(weighted, quantile * drawn).ravel()
            weight = np.multiply.outer(weight, w / 2).ravel()
    return weighted / np.sqrt(total), weight


def needed(parts: Variances, effect: float, seeds: int, items: int, level: float = LEVEL) -> Needed:
    """Seeds, or items, or both, with which a true difference of `effect` is found (power 80 %).

    `parts` are estimates, so the numbers are rough; `both` grows seeds and items alike. One seed
    does not say how much seeds differ, so no number of seeds can be given, nor of items from one
    item. None, too, beyond 1,000 seeds, ten million items, and 1,000 times both.
    """
    size = abs(effect)
    if size == 0 or not np.isfinite(size):
        return Needed(None, None, None)

    def enough(seeds: int, items: int) -> bool:
        return detectable(parts, seeds, items, level) <= size

    more_seeds = more_items = times = None
    if seeds > 1:
        more_seeds = _least(lambda n: enough(n, items), seeds, MOST_SEEDS)
    if items > 1:
        more_items = _least(lambda n: enough(seeds, n), items, MOST_ITEMS)
    if seeds > 1 and items > 1:
        times = _least(lambda n: enough(n * seeds, n * items), 1, MOST_TIMES)
    return Needed(more_seeds, more_items, (times * seeds, times * items) if times else None)


def _least(enough: Callable[[int], bool], low: int, most: int) -> int | None:
    """The smallest number from `low` to `most` that is enough; None where `most` is not."""
    if not enough(most):
        return None
    high = most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
