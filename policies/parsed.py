"""`require: parsed`, an option of every built-in policy: leave out failures that are no answers."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.arrays import Bools, Floats
from policies.base import PolicyError, ScorePolicy
from policies.columns import numbers


@dataclass(kw_only=True)
class Requiring:
    """The option `require`.

    `parsed` keeps a prompt when at least half of its failures are real answers: wrong answers
    against wrong, unparsed and truncated ones. A prompt without failures stays, and samples whose
    marking failed are no failures. Without it "hard" may mean "did not finish within the limit".
    """

    require: str | None = None

    def __post_init__(self) -> None:
        if self.require not in (None, "parsed"):
            raise PolicyError(
                f"require: {self.require!r} is unknown: write parsed, or leave it out"
            )

    def required(self, difficulty: pa.Table, asker: str) -> Bools:
        """One truth value per row: does it have what is required?"""
        if self.require is None:
            return np.ones(difficulty.num_rows, dtype=bool)
        wrong = _counts(difficulty, "wrong", asker)
        other = _counts(difficulty, "unparsed", asker)
        other += _counts(difficulty, "truncated", asker)
        return wrong >= other


def _counts(difficulty: pa.Table, name: str, asker: str) -> Floats:
    """Counts of an outcome; null counts as none."""
    return np.nan_to_num(numbers(difficulty, name, asker))


@dataclass(kw_only=True)
class BuiltIn(Requiring, ScorePolicy):
    """A policy of the house: scores, and the option `require`. Its fields are its options."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.require:
            self.needs = "all"
            self.wider = f"{self.wider}, or leave out require: {self.require}"

    def eligible(self, difficulty: pa.Table) -> Bools:
        """Rows that have what is required and that the policy's own rule allows."""
        return self.required(difficulty, self.title) & self.allowed(difficulty)

    def allowed(self, difficulty: pa.Table) -> Bools:
        """One truth value per row: the policy's own rule."""
        return np.ones(difficulty.num_rows, dtype=bool)
