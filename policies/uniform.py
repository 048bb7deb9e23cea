"""Policies that ignore difficulty: the control, and the whole pool."""

import numpy as np
import pyarrow as pa

from policies.base import BuiltIn, Floats, Needs, Ties


class Uniform(BuiltIn):
    """Uniform among the eligible rows."""

    def score(self, difficulty: pa.Table) -> Floats:
        """The same for every row."""
        return np.zeros(difficulty.num_rows)


class Random(Uniform):
    """Uniform without replacement: the control that other policies must beat."""

    name = "random"
    needs: Needs = "nothing"

    def ties(self, difficulty: pa.Table, chosen: np.ndarray) -> Ties | None:
        """None: the whole subset is random by design."""
        return None


class Full(Random):
    """Every prompt, regardless of the budget: training on the whole pool, as a reference."""

    name = "full"
    whole = True

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        """All eligible rows in random order; `size` is ignored."""
        return self.pick(difficulty, max(1, self.capacity(difficulty)), rng)
