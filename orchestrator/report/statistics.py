"""What may be said of numbers. Pure: NumPy only."""

from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


def paired_gain(before: np.ndarray, after: np.ndarray, resamples: int = 4000) -> Interval:
    """95 % percentile bootstrap interval of mean(after − before) over test questions.

    Both are [questions], the mean correctness of each question's samples: a question is one
    cluster, so its samples never count as independent. Raises ValueError on unequal lengths.
    """
    if before.shape != after.shape:
        raise ValueError(f"pairs need equal lengths, not {before.shape} and {after.shape}")
    difference = after - before
    rng = np.random.default_rng(0)  # the same data give the same interval
    count = len(difference)
    means = np.empty(resamples)
    for start in range(0, resamples, 500):
        rows = rng.integers(0, count, size=(min(500, resamples - start), count))
        means[start : start + len(rows)] = difference[rows].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(low), float(high))
