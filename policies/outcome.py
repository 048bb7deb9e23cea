"""Policies that look at one sample per prompt: did the base model's first answer hold?"""

from typing import ClassVar

import pyarrow as pa

from policies.arrays import Bools
from policies.base import Needs
from policies.columns import is_one_of
from policies.uniform import Uniform


class _FirstSample(Uniform):
    """Prompts whose first sample came out in one of these ways, uniformly among them."""

    needs: Needs = "first"
    outcomes: ClassVar[list[str]]
    so: ClassVar[str]

    def allowed(self, difficulty: pa.Table) -> Bools:
        """Rows whose first sample had such an outcome; none or an error is no such outcome."""
        return is_one_of(difficulty, "first", self.outcomes, self.title)

    def holds(self, difficulty: pa.Table) -> str:
        """What makes a row eligible."""
        return f"whose first sample was {self.so}"


class BaseWrong(_FirstSample):
    """First sample not correct (wrong, unparsed or truncated); uniform among those."""

    name = "base_wrong"
    outcomes: ClassVar[list[str]] = ["wrong", "unparsed", "truncated"]
    so: ClassVar[str] = "not correct"


class BaseRight(_FirstSample):
    """First sample correct; uniform among those."""

    name = "base_right"
    outcomes: ClassVar[list[str]] = ["correct"]
    so: ClassVar[str] = "correct"
