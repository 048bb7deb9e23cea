"""Policies that know nothing of difficulty: the control, and no selection at all."""

import numpy as np
import pyarrow as pa

from policies.arrays import Floats
from policies.base import Needs, Ties
from policies.parsed import BuiltIn


class Uniform(BuiltIn):
    """All eligible rows alike, in the order of the lottery."""

    def score(self, difficulty: pa.Table) -> Floats:
        """The same for every row."""
        return np.zeros(difficulty.num_rows)


class Random(Uniform):
    """Uniform without replacement: the control that every other policy must beat."""

    name = "random"
    needs: Needs = "nothing"

    def ties(self, difficulty: pa.Table, chosen: np.ndarray) -> Ties | None:
        """None: chance decides everything here, and that is the point."""
        return None


class Full(Random):
    """Every prompt, whatever the budget: training on the whole pool, as a reference."""

    name = "full"
    whole = True

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        """All eligible rows in a random order; `size` is not looked at."""
        return self.pick(difficulty, max(1, self.capacity(difficulty)), rng)
