"""What a policy is: it picks `size` rows of a difficulty table, seeded."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

# (difficulty table, size, generator) -> row numbers, best first
Policy = Callable[[pa.Table, int, np.random.Generator], np.ndarray]


class PolicyError(ValueError):
    """The policy cannot be found or cannot fill the subset; the message says what to do."""


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


class ScorePolicy(ABC):
    """Takes the lowest scores first; equal scores in an order drawn from the generator."""

    @abstractmethod
    def score(self, difficulty: pa.Table) -> np.ndarray:
        """One number per row, lower is chosen first. nan (no pass rate known) comes last."""

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        """Row numbers of the subset, best first."""
        check_size(difficulty, size)
        lottery = rng.permutation(difficulty.num_rows)
        return np.lexsort((lottery, self.score(difficulty)))[:size]

    def ties(self, difficulty: pa.Table, chosen: np.ndarray) -> Ties:
        """Rows that tie at the subset's edge: in the whole pool, and among those chosen."""
        score = self.score(difficulty)
        edge = score[chosen[-1]]
        at_edge = np.isnan(score) if np.isnan(edge) else score == edge
        return Ties(int(at_edge.sum()), int(at_edge[chosen].sum()))


def pass_rates(difficulty: pa.Table) -> np.ndarray:
    """The pass rates as floats, nan where none is known."""
    return np.asarray(difficulty["pass_rate"].to_numpy(zero_copy_only=False), dtype=float)
