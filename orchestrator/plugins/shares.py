"""Shares of a whole as counts."""

import numpy as np
import numpy.typing as npt

SLACK = 0.005  # by which shares may miss the sum 1: three are written as 0.333


def largest_remainder(exact: npt.ArrayLike, size: int) -> list[int]:
    """Counts that sum to `size`, from `exact` ones: largest remainder method, ties in order."""
    rounded = np.round(np.asarray(exact, dtype=float), 9)
    counts = np.floor(rounded).astype(int)
    most = np.argsort(counts - rounded, kind="stable")
    counts[most[: size - int(counts.sum())]] += 1
    return [int(count) for count in counts]
