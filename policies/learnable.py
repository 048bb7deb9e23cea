"""The policy that maximizes what GRPO learns from: groups whose rewards differ."""

import pyarrow as pa

from policies.arrays import Floats
from policies.columns import numbers
from policies.parsed import BuiltIn


class Learnable(BuiltIn):
    """Highest learnability first: groups most likely to contain correct and wrong answers.

    Learnability is the posterior mean of 1 - (1-p)^G - p^G for groups of G completions, a column of
    the difficulty table. The prior is fitted to the whole pool, so every sample is needed.
    """

    name = "learnable"

    def score(self, difficulty: pa.Table) -> Floats:
        """The learnability, negated; rounded, so that symmetric pass rates tie."""
        return -numbers(difficulty, "learnability", self.title).round(12)
