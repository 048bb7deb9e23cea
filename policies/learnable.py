"""The policy that aims at what GRPO can use: groups whose rewards differ."""

import pyarrow as pa

from policies.arrays import Floats
from policies.columns import numbers
from policies.parsed import BuiltIn


class Learnable(BuiltIn):
    """Highest expected learnability first: groups most likely to hold both right and wrong.

    Learnability is the posterior mean of 1 - (1-p)^G - p^G for groups of G completions, a column of
    the difficulty table. It leans on the whole pool (its prior), so it needs every sample.
    """

    name = "learnable"

    def score(self, difficulty: pa.Table) -> Floats:
        """The learnability, negated; rounded, so that mirror images do tie."""
        return -numbers(difficulty, "learnability", self.title).round(12)
