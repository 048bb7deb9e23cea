"""How large a difference a grid can find, before it runs and after. Pure: NumPy and SciPy.

It asks of the interval that the report uses (`report.statistics.half_width`): how large must a
true difference be for that interval to leave out zero in 80 % of all sweeps?
"""

from collections.abc import Callable
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, stdtrit

from orchestrator.report.statistics import LEVEL, Variances

POWER = 0.8
# Assumed of test questions where nothing is measured yet.
ACCURACY = 0.5  # the worst case
BETWEEN = 0.6  # share of an answer's variance that lies between questions
AGREEMENT = 0.8  # correlation of two policies' pass rates over questions
SEED_POINTS = 1.0  # standard deviation of a policy's accuracy between training seeds
MOST_SEEDS, MOST_ITEMS = 1_000, 10_000_000
MANY, FEW = np.polynomial.legendre.leggauss(64), np.polynomial.legendre.leggauss(16)


class Needed(NamedTuple):
    """Seeds at today's items, or items at today's seeds; None where no number would do."""

    seeds: int | None
    items: int | None


def minimum_detectable(
    items: int,
    seeds: int = 1,
    samples_per_item: int = 1,
    *,
    accuracy: float = ACCURACY,
    between: float = BETWEEN,
    agreement: float = AGREEMENT,
    seed_points: float = SEED_POINTS,
) -> float:
    """Smallest true difference of two policies, in points, found with power 80 % at level 5 %.

    Two-sided, paired by question and seed. One seed: the difference of those two runs, whatever
    other seeds would do. At most 100: then the grid can tell nothing apart.
    Raises ValueError on counts under one and on shares outside [0, 1].
    """
    if min(items, seeds, samples_per_item) < 1:
        raise ValueError("items, seeds and samples_per_item are 1 or more")
    if not all(0 <= share <= 1 for share in (accuracy, between, agreement)):
        raise ValueError("accuracy, between and agreement are shares from 0 to 1")
    of_one = 2 * accuracy * (1 - accuracy)
    parts = Variances(
        seed=2 * (seed_points / 100) ** 2,
        item=of_one * between * (1 - agreement),
        rest=of_one * (1 - between) / samples_per_item,
    )
    return min(100.0, 100 * detectable(parts, seeds, items))


def resolution(
    dataset: str, items: int, seeds: int = 1, samples_per_item: int = 1, **assumed: float
) -> str:
    """The line of `decile plan`; takes what `minimum_detectable` takes."""
    points = minimum_detectable(items, seeds, samples_per_item, **assumed)
    if points >= 100:
        return f"{dataset} cannot tell any two policies apart ({_grid(items, seeds)})"
    size = f"{points:.0f}" if points >= 10 else f"{points:.1f}"
    says = f"{dataset} cannot resolve less than {size} points ({_grid(items, seeds)})"
    return says + ("; one seed says nothing of other seeds" if seeds == 1 else "")


def _grid(items: int, seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds > 1)} × {items:,} question{'s' * (items > 1)}"


def detectable(parts: Variances, seeds: int, items: int) -> float:
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
    )
    spread = sqrt(variance)

    def lacks(size: float) -> float:
        found = ndtr((size - ends) / spread) + ndtr((-size - ends) / spread)
        return float(weights @ found) - POWER

    return float(brentq(lacks, 0, 2 * float(ends.max()) + 10 * spread, xtol=1e-9 * spread))


def _ends(*parts: tuple[float, int]) -> tuple[np.ndarray, np.ndarray]:
    """Half widths that may turn up, and the probability of each: parts are (variance, df)."""
    total, weighted, weight = np.zeros(1), np.zeros(1), np.ones(1)
    for variance, df in parts:
        if variance > 0 and df > 0:
            x, w = MANY if df < 30 else FEW  # with many degrees of freedom little varies
            drawn = variance * chdtri(df, (1 - x) / 2) / df
            quantile = -float(stdtrit(df, LEVEL / 2))
            total = np.add.outer(total, drawn).ravel()
            weighted = np.add.outer(weighted, quantile * drawn).ravel()
            weight = np.multiply.outer(weight, w / 2).ravel()
    return weighted / np.sqrt(total), weight


def needed(parts: Variances, effect: float, seeds: int, items: int) -> Needed:
    """Seeds, or items, with which a true difference of `effect` would be found with power 80 %.

    `parts` are estimates, so the numbers are rough. One seed does not say how much seeds differ, so
    no number of seeds can be given, nor of items from one item. None, too, beyond 1,000 seeds and
    ten million items.
    """
    size = abs(effect)
    if size == 0 or not np.isfinite(size):
        return Needed(None, None)
    more_seeds = more_items = None
    if seeds > 1:
        more_seeds = _least(lambda n: detectable(parts, n, items) <= size, seeds, MOST_SEEDS)
    if items > 1:
        more_items = _least(lambda n: detectable(parts, seeds, n) <= size, items, MOST_ITEMS)
    return Needed(more_seeds, more_items)


def _least(enough: Callable[[int], bool], low: int, most: int) -> int | None:
    """The smallest number from `low` to `most` that is enough; None where `most` is not."""
    if not enough(most):
        return None
    high = most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
