"""The interface of a policy: it selects `size` rows of a difficulty table, with a seed."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from policies.arrays import Bools, Floats, Rows
from policies.ranking import lowest, tie_breakers

# (difficulty table, size, generator) -> row numbers, best first
Policy = Callable[[pa.Table, int, np.random.Generator], np.ndarray]

# What a row's rank depends on: nothing in its samples, the first sample's outcome, its pass rate,
# the pass rates of all rows, or anything else, such as its counts.
Needs = Literal["nothing", "first", "pass_rate", "pass_rates", "all"]


class PolicyError(ValueError):
    """The policy does not exist, has invalid options or cannot fill the subset."""


class Ties(NamedTuple):
    """Prompts whose score equals that of the last selected one: in the pool, and in the subset."""

    pool: int
    chosen: int


def check_size(difficulty: pa.Table, size: int) -> None:
    """Raise PolicyError unless a subset of `size` distinct rows exists."""
    if not 0 < size <= difficulty.num_rows:
        raise PolicyError(
            f"a subset of {size} prompts exceeds the pool of {difficulty.num_rows}: "
            f"write a budget between 1 and {difficulty.num_rows}"
        )


def checked_rows(chosen: Any, policy: str, size: int, pool: int) -> Rows:
    """The row numbers a policy returned. PolicyError unless they are a subset of that size."""
    rows = np.asarray(chosen)
    whole = rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer)
    if not whole or len(rows) != size or len(np.unique(rows)) != size:
        raise PolicyError(
            f"policy {policy!r} must return {size} distinct row numbers, and returned {rows.size} "
            f"values ({len(np.unique(rows))} distinct): return a NumPy array of integers"
        )
    if rows.min() < 0 or rows.max() >= pool:
        raise PolicyError(f"policy {policy!r} returned a row outside 0…{pool - 1}")
    return rows


class SubsetPolicy(ABC):
    """Selects from the whole table, or from those rows that others have left `free`."""

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        """Row numbers of the subset, best first. PolicyError if it cannot be filled."""
        check_size(difficulty, size)
        return self.pick(difficulty, size, rng)

    @abstractmethod
    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """Row numbers, best first, of rows that are `free` (one boolean per row; None: all)."""


class ScorePolicy(SubsetPolicy):
    """Selects the rows with the lowest scores; ties are broken at random.

    A custom policy implements `score`, and `eligible` if some rows must not be selected. It may
    narrow `needs` if a row's score and eligibility depend only on that row's own first outcome,
    pass rate or tier: probing can then stop early and still select the same subset. With
    "pass_rates", for scores that depend on all pass rates, it implements `score_bounds`, too.
    """

    name: str = ""
    """The name in messages; the class's name if empty."""
    needs: Needs = "all"
    """What a row's rank depends on."""
    whole: bool = False
    """Selects every eligible row, whatever the size."""
    wider: str = "another policy"
    """What to change if too few rows are eligible, besides a smaller budget."""

    @abstractmethod
    def score(self, difficulty: pa.Table) -> np.ndarray:
        """One number per row; the lowest are selected. nan (unknown pass rate) comes last."""

    def score_bounds(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Lowest and highest score of each row where each pass rate lies from `low` to `high`.

        nan: a row without a pass rate. Rows without one yet, from 0 to 1, may end without.
        """
        raise NotImplementedError(f"{self.title} has needs 'pass_rates': write score_bounds")

    def eligible(self, difficulty: pa.Table) -> Bools:
        """One boolean per row: whether it may be selected. By default, every row."""
        return np.ones(difficulty.num_rows, dtype=bool)

    def capacity(self, difficulty: pa.Table) -> int:
        """The number of eligible rows: the largest subset that can be filled."""
        return int(np.count_nonzero(self.eligible(difficulty)))

    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """The eligible and free rows with the lowest scores."""
        ranks = tie_breakers(difficulty.num_rows, rng)
        open_rows = self._per_row(self.eligible(difficulty), difficulty, "eligibilities")
        open_rows = open_rows if free is None else open_rows & free
        if (have := int(np.count_nonzero(open_rows))) < size:
            raise PolicyError(self.shortage(difficulty, have, size, free is not None))
        score = self._per_row(self.score(difficulty), difficulty, "scores")
        return lowest(score, ranks, open_rows, size)

    def ties(self, difficulty: pa.Table, chosen: np.ndarray) -> Ties | None:
        """Eligible rows that tie at the cutoff: in the pool, and among the selected ones."""
        score = self.score(difficulty)
        cutoff = score[chosen[-1]]
        at_cutoff = np.isnan(score) if np.isnan(cutoff) else score == cutoff
        at_cutoff &= self.eligible(difficulty)
        return Ties(int(at_cutoff.sum()), int(at_cutoff[chosen].sum()))

    def holds(self, difficulty: pa.Table) -> str:
        """What makes a row eligible; in messages after "N of M prompts"."""
        return "that it may select"

    def shortage(self, difficulty: pa.Table, have: int, size: int, shared: bool) -> str:
        """The message for a subset that cannot be filled."""
        left = " among the remaining ones" if shared else ""
        return (
            f"{self.title} has {have} of {size} prompts {self.holds(difficulty)}{left}: "
            f"write a smaller budget or {self.wider}"
        )

    @property
    def title(self) -> str:
        """The name in messages."""
        return self.name or type(self).__name__

    def _per_row(self, values: np.ndarray, difficulty: pa.Table, what: str) -> np.ndarray:
        """The values of a policy, which may be a custom one, checked for their length."""
        if np.shape(values) != (difficulty.num_rows,):
            raise PolicyError(
                f"{self.title} returned {what} of shape {np.shape(values)} for "
                f"{difficulty.num_rows} rows: return a NumPy array with one value per row"
            )
        return np.asarray(values)
