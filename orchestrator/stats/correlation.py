"""R² of a straight line through the means of policies. Pure: NumPy and SciPy."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from orchestrator.stats.inference import ALPHA

FEWEST_POINTS = 8  # of a straight line; the interval for fewer is meaningless
SMALLEST_BLOCK = 4  # least points for the standard error of a correlation


class RSquared(NamedTuple):
    """Share of variance explained by a straight line, with its interval, from blocks of points."""

    value: float
    low: float
    high: float
    points: int
    blocks: int = 1


def r_squared(*blocks: np.ndarray, level: float = ALPHA) -> RSquared:
    """R² of straight lines within blocks of points [points, 2], with Fisher's interval.

    The points of a block are independent, for example policies of one model. Blocks may differ in
    level and scale, and may have the same policies. Each block has its own correlation r; atanh r
    has a standard error of 1/√(n − 3) (Fisher 1921). R² is computed from their mean weighted by n −
    3. Its standard error is the weighted mean of the blocks' errors, so that it is not smaller than
    one block's if all blocks deviate together. If the interval of r contains zero, the interval of
    R² begins at zero.

    Blocks with fewer than four points, or with (nearly) constant x or y, are ignored. With fewer
    than eight remaining points, the value is nan and the interval [0, 1].
    """
    large = [block for block in blocks if len(block) >= SMALLEST_BLOCK]
    points = sum(map(len, large))
    fitted = [each for each in large if each.var(axis=0).min() * len(each) >= 1e-18]
    if points < FEWEST_POINTS or sum(map(len, fitted)) < FEWEST_POINTS:
        return RSquared(nan, 0.0, 1.0, points, len(large))
    r = np.clip([np.corrcoef(each.T)[0, 1] for each in fitted], -1 + 1e-15, 1 - 1e-15)
    weights = np.array([len(each) - 3.0 for each in fitted])
    mean = float(weights @ np.arctanh(r) / weights.sum())
    half = float(-ndtri(level / 2) * np.sqrt(weights).sum() / weights.sum())
    low, high = np.tanh(mean - half) ** 2, np.tanh(mean + half) ** 2
    nearest = 0.0 if abs(mean) <= half else min(low, high)
    ends = float(nearest), float(max(low, high))
    return RSquared(float(np.tanh(mean) ** 2), *ends, sum(map(len, fitted)), len(fitted))


def independent_points(
    policies: Sequence[Mapping[str, tuple[float, float]]],
) -> list[tuple[float, float]]:
    """One point for each set of prompts: the mean over its training runs.

    policies: for each, training run -> its point. Policies that share a run (both chose the same
    prompts, and only one was trained) have one point.
    """
    sets: list[dict[str, tuple[float, float]]] = []
    for runs in policies:
        shared = [each for each in sets if not runs.keys().isdisjoint(each)]
        joined = dict(runs)
        for each in shared:
            joined |= each
        sets = [*(each for each in sets if each not in shared), joined]
    return [tuple(np.mean([*runs.values()], axis=0).tolist()) for runs in sets]
