"""Policies that use one sample per prompt: whether the base model's first answer is correct."""

from typing import ClassVar

import pyarrow as pa

from policies.base import Bools, Needs, is_one_of
from policies.uniform import Uniform


class _FirstSample(Uniform):
    """Uniform among the prompts whose first sample has one of `outcomes`."""

    needs: Needs = "first"
    outcomes: ClassVar[list[str]]
    description: ClassVar[str]

    def allowed(self, difficulty: pa.Table) -> Bools:
        """Rows whose first sample has one of the outcomes; false if it is missing or an error."""
        return is_one_of(difficulty, "first", self.outcomes, self.title)

    def holds(self, difficulty: pa.Table) -> str:
        """What makes a row eligible."""
        return f"whose first sample was {self.description}"


class BaseWrong(_FirstSample):
    """Prompts whose first sample is not correct (wrong, unparsed or truncated), uniformly."""

    name = "base_wrong"
    outcomes: ClassVar[list[str]] = ["wrong", "unparsed", "truncated"]
    description: ClassVar[str] = "not correct"


class BaseRight(_FirstSample):
    """Prompts whose first sample is correct, uniformly."""

    name = "base_right"
    outcomes: ClassVar[list[str]] = ["correct"]
    description: ClassVar[str] = "correct"
