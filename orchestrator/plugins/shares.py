"""Shares of a whole as counts, once or again and again."""

from copy import deepcopy

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


def rounded_at_random(exact: npt.ArrayLike, size: int, rng: np.random.Generator) -> list[int]:
    """Counts that sum to `size`, from `exact` ones that do, each rounded down or up.

    Each is its exact value on average (systematic sampling of the remainders, with one draw).
    """
    rounded = np.round(np.asarray(exact, dtype=float), 9)
    counts = np.floor(rounded).astype(int)
    ends = np.floor(np.cumsum(rounded - counts).round(6) + rng.random()).astype(int)
    counts += np.diff(ends, prepend=0)
    assert counts.sum() == size, "the exact counts sum to it"
    return [int(count) for count in counts]


class Places:
    """Places that are given to some shares one after another, in one order for one run.

    The quota method (Balinski and Young, Fair Representation, 1982): of those that have fewer
    places than are due, the one whose next place is due first has it. With shares that stay the
    same, each has what is due of all places given, rounded down or up, at any time; largest
    remainders of each update by itself would round the same shares up for ever.
    """

    def __init__(self, count: int) -> None:
        self._due, self._given = np.zeros(count), np.zeros(count, dtype=int)

    def give(self, shares: npt.NDArray[np.float64], places: int) -> npt.NDArray[np.int64]:
        """How many of the next places each has [count]; `shares` [count] are not all 0."""
        before = self._given.copy()
        step = shares / shares.sum()
        positive = step > 0
        for _ in range(places):
            self._due += step
            ahead = (self._given - self._due).round(9)
            with np.errstate(divide="ignore", invalid="ignore"):
                wait = np.where(positive & (ahead < 0), ((ahead + 1) / step).round(6), np.inf)
            first = int(np.argmin(wait))
            if wait[first] == np.inf:  # where shares change, those with one may all be ahead
                first = int(np.argmin(np.where(positive, ahead, np.inf)))
            self._given[first] += 1
        return self._given - before

    def next(self, shares: npt.NDArray[np.float64], places: int) -> list[int]:
        """What `give` would return, without giving them."""
        return [int(count) for count in deepcopy(self).give(shares, places)]
