"""`require: parsed`, an option of every built-in policy: exclude prompts without real answers."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.arrays import Bools, Floats
from policies.base import PolicyError, ScorePolicy
from policies.columns import numbers


@dataclass(kw_only=True)
class Requiring:
    """The option `require`.

    `parsed` keeps a prompt if at least half of its failures are parsed answers, that is, `wrong`
    and not `unparsed` or `truncated`. Prompts without failures are kept. Marker errors do not
    count. Without it, "hard" may mean "did not finish within the token limit".
    """

    require: str | None = None

    def __post_init__(self) -> None:
        if self.require not in (None, "parsed"):
            raise PolicyError(f"unknown require: {self.require!r}: write parsed, or leave it out")

    def required(self, difficulty: pa.Table, policy: str) -> Bools:
        """One boolean per row: whether it meets the requirement."""
        if self.require is None:
            return np.ones(difficulty.num_rows, dtype=bool)
        wrong = _counts(difficulty, "wrong", policy)
        other = _counts(difficulty, "unparsed", policy)
        other += _counts(difficulty, "truncated", policy)
        return wrong >= other


def _counts(difficulty: pa.Table, name: str, policy: str) -> Floats:
    """Counts of an outcome; null counts as 0."""
    return np.nan_to_num(numbers(difficulty, name, policy))


@dataclass(kw_only=True)
class BuiltIn(Requiring, ScorePolicy):
    """A built-in policy: scores, and the option `require`. Its fields are its options."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.require:
            self.needs = "all"
            self.wider = f"{self.wider}, or leave out require: {self.require}"

    def eligible(self, difficulty: pa.Table) -> Bools:
        """Rows that meet the requirement and the policy's own condition."""
        return self.required(difficulty, self.title) & self.allowed(difficulty)

    def allowed(self, difficulty: pa.Table) -> Bools:
        """One boolean per row: the policy's own condition."""
        return np.ones(difficulty.num_rows, dtype=bool)
