"""Shares of a whole as counts, once or repeatedly."""

from copy import deepcopy

import numpy as np
import numpy.typing as npt

SLACK = 0.005  # allowed difference of shares from the sum 1, such as for three of 0.333


def largest_remainder(exact: npt.ArrayLike, size: int) -> list[int]:
    """Counts that sum to `size`, from exact values: largest remainder method, ties in order."""
    rounded = np.round(np.asarray(exact, dtype=float), 9)
    counts = np.floor(rounded).astype(int)
    most = np.argsort(counts - rounded, kind="stable")
    counts[most[: size - int(counts.sum())]] += 1
    return [int(count) for count in counts]


def rounded_at_random(exact: npt.ArrayLike, size: int, rng: np.random.Generator) -> list[int]:
    """Counts that sum to `size`, from exact values with this sum, each rounded down or up.

    Each equals its exact value on average (systematic sampling of the remainders, with one draw).
    """
    rounded = np.round(np.asarray(exact, dtype=float), 9)
    counts = np.floor(rounded).astype(int)
    ends = np.floor(np.cumsum(rounded - counts).round(6) + rng.random()).astype(int)
    counts += np.diff(ends, prepend=0)
    assert counts.sum() == size, "the exact counts sum to it"
    return [int(count) for count in counts]


class Places:
    """Assigns places to shares one after another, in one order per run.

    The quota method (Balinski and Young, Fair Representation, 1982): among the shares with fewer
    places than due, the next place goes to the one with the earliest due place. With constant
    shares, each always has its due number of places, rounded down or up. Largest remainders of each
    update alone would round the same shares up forever.
    """

    def __init__(self, count: int) -> None:
        self._due, self._given = np.zeros(count), np.zeros(count, dtype=int)

    def give(self, shares: npt.NDArray[np.float64], places: int) -> npt.NDArray[np.int64]:
        """The numbers of the next places per share [count]; `shares` [count] are not all 0."""
        before = self._given.copy()
        step = shares / shares.sum()
        positive = step > 0
        for _ in range(places):
            self._due += step
            ahead = (self._given - self._due).round(9)
            with np.errstate(divide="ignore", invalid="ignore"):
                wait = np.where(positive & (ahead < 0), ((ahead + 1) / step).round(6), np.inf)
            first = int(np.argmin(wait))
            if wait[first] == np.inf:  # if shares change, all positive ones may be ahead
                first = int(np.argmin(np.where(positive, ahead, np.inf)))
            self._given[first] += 1
        return self._given - before

    def next(self, shares: npt.NDArray[np.float64], places: int) -> list[int]:
        """The result of `give`, without assigning the places."""
        return [int(count) for count in deepcopy(self).give(shares, places)]
