"""What a policy is: it picks `size` rows of a difficulty table, seeded."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from policies.arrays import Bools, Rows
from policies.ranking import lottery, lowest

# (difficulty table, size, generator) -> row numbers, best first
Policy = Callable[[pa.Table, int, np.random.Generator], np.ndarray]

# What of a row's samples decides where it stands: none of them, the first one's outcome, its pass
# rate; or anything else, such as its counts or the other rows.
Needs = Literal["nothing", "first", "pass_rate", "all"]


class PolicyError(ValueError):
    """The policy cannot be found, made, or fill the subset; the message says what to do."""


class Ties(NamedTuple):
    """How much of a subset chance decided: prompts whose score equals the last chosen one's."""

    pool: int
    chosen: int


def check_size(difficulty: pa.Table, size: int) -> None:
    """Raise PolicyError unless a subset of `size` distinct rows exists."""
    if not 0 < size <= difficulty.num_rows:
        raise PolicyError(
            f"a subset of {size} prompts cannot be taken from a pool of {difficulty.num_rows}: "
            f"write a budget between 1 and {difficulty.num_rows}"
        )


def checked_rows(chosen: Any, policy: str, size: int, pool: int) -> Rows:
    """The rows a policy chose, as integers; PolicyError unless they are a subset of that size."""
    rows = np.asarray(chosen)
    whole = rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer)
    if not whole or len(rows) != size or len(np.unique(rows)) != size:
        raise PolicyError(
            f"policy {policy!r} was asked for {size} distinct row numbers and gave {rows.size} "
            f"values, {len(np.unique(rows))} of them distinct: return a NumPy array of integers"
        )
    if rows.min() < 0 or rows.max() >= pool:
        raise PolicyError(f"policy {policy!r} gave a row outside 0…{pool - 1}")
    return rows


class ScorePolicy(ABC):
    """Takes the lowest scores first; equal scores in an order drawn from the generator.

    A policy of one's own writes `score`, and `eligible` where not every row may be taken. It may
    narrow `needs` when score and eligibility of a row follow from that row's own first outcome,
    pass rate or tier alone: probing can then stop early with the same subset.
    """

    name: str = ""
    """What messages call it; the class's name when empty."""
    needs: Needs = "all"
    """What of the samples decides membership."""
    whole: bool = False
    """Takes every eligible row, whatever the size."""
    wider: str = "another policy"
    """What helps when too few rows are eligible, besides a smaller budget."""

    @abstractmethod
    def score(self, difficulty: pa.Table) -> np.ndarray:
        """One number per row, lower is chosen first. nan (no pass rate known) comes last."""

    def eligible(self, difficulty: pa.Table) -> Bools:
        """One truth value per row: may it be chosen at all? All may, unless a policy says no."""
        return np.ones(difficulty.num_rows, dtype=bool)

    def capacity(self, difficulty: pa.Table) -> int:
        """The number of eligible rows: the largest subset that can be filled."""
        return int(np.count_nonzero(self.eligible(difficulty)))

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        """Row numbers of the subset, best first. PolicyError where it cannot be filled."""
        check_size(difficulty, size)
        return self.pick(difficulty, size, rng)

    def pick(
        self,
        difficulty: pa.Table,
        size: int,
        rng: np.random.Generator,
        free: Bools | None = None,
    ) -> Rows:
        """The best `size` of the eligible rows that are `free` (one truth value per row)."""
        numbers = lottery(difficulty.num_rows, rng)
        open_rows = self._per_row(self.eligible(difficulty), difficulty, "eligibilities")
        open_rows = open_rows if free is None else open_rows & free
        if (have := int(np.count_nonzero(open_rows))) < size:
            raise PolicyError(self.shortage(difficulty, have, size, free is not None))
        score = self._per_row(self.score(difficulty), difficulty, "scores")
        return lowest(score, numbers, open_rows, size)

    def ties(self, difficulty: pa.Table, chosen: np.ndarray) -> Ties | None:
        """Eligible rows that tie at the subset's edge: in the pool, and among those chosen."""
        score = self.score(difficulty)
        edge = score[chosen[-1]]
        at_edge = np.isnan(score) if np.isnan(edge) else score == edge
        at_edge &= self.eligible(difficulty)
        return Ties(int(at_edge.sum()), int(at_edge[chosen].sum()))

    def holds(self, difficulty: pa.Table) -> str:
        """What makes a row eligible, after "… of … prompts"."""
        return "it may take"

    def shortage(self, difficulty: pa.Table, have: int, size: int, shared: bool) -> str:
        """By how much the subset cannot be filled, and what to write."""
        left = " among those left" if shared else ""
        return (
            f"{self.title} has {have} of {size} prompts {self.holds(difficulty)}{left}: "
            f"write a smaller budget or {self.wider}"
        )

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.name or type(self).__name__

    def _per_row(self, values: np.ndarray, difficulty: pa.Table, what: str) -> np.ndarray:
        """The values of a policy of the user's own, checked for their length."""
        if np.shape(values) != (difficulty.num_rows,):
            raise PolicyError(
                f"{self.title} gave {what} of shape {np.shape(values)} for {difficulty.num_rows} "
                "rows: return a NumPy array with one value per row"
            )
        return np.asarray(values)
