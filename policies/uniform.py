"""Policies that select at random: from the whole pool, by first samples, or by the task's tiers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.base import (
    FAILURES,
    Bools,
    BuiltIn,
    Floats,
    Needs,
    PolicyError,
    Ties,
    column,
    is_one_of,
)


class Uniform(BuiltIn):
    """Uniform among the eligible rows."""

    def score(self, difficulty: pa.Table) -> Floats:
        """The same for every row."""
        return np.zeros(difficulty.num_rows)

    @property
    def stream(self) -> str:
        """The policy's name."""
        return self.title


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
    takes_all = True
    stream = ""  # only the order is random

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        """All eligible rows in random order; `size` is ignored."""
        return self.pick(difficulty, max(1, self.capacity(difficulty)), rng)


class _FirstSample(Uniform):
    """Uniform among the prompts whose first sample has one of `outcomes`."""

    needs: Needs = "first"
    outcomes: ClassVar[list[str]]
    description: ClassVar[str]

    def allowed(self, difficulty: pa.Table) -> Bools:
        """Rows whose first sample has one of the outcomes; false if it is missing or an error."""
        return is_one_of(difficulty, "first", self.outcomes, self.title)

    def holds(self, difficulty: pa.Table) -> str:
        return f"whose first sample was {self.description}"


class BaseWrong(_FirstSample):
    """Prompts whose first sample is not correct (wrong, unparsed or truncated), uniformly."""

    name = "base_wrong"
    outcomes: ClassVar[list[str]] = [*FAILURES]
    description: ClassVar[str] = "not correct"


class BaseRight(_FirstSample):
    """Prompts whose first sample is correct, uniformly."""

    name = "base_right"
    outcomes: ClassVar[list[str]] = ["correct"]
    description: ClassVar[str] = "correct"


_RANGE = re.compile(r"\s*(\d+)\s*[-–]\s*(\d+)\s*")
_SHOWN = 8  # tiers of a table that a message lists


@dataclass(kw_only=True)
class Tiers(Uniform):
    """Uniform among the prompts of the tiers in `levels`.

    Options:
        levels: `1-3`, short for [1, 2, 3], or a list such as [1, easy]. A tier is text and matches
            if it equals an item of the list. If a tier is itself named 1-3, write a list: [1-3].
    """

    name = "tiers"
    needs = "nothing"
    wider = "more levels"
    easier = "choose easier tiers"
    harder = "choose harder tiers"
    example: ClassVar[str] = "levels: 1-3"

    levels: int | str | Sequence[int | str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.levels = _levels(self.levels)

    def allowed(self, difficulty: pa.Table) -> Bools:
        return is_one_of(difficulty, "tier", _levels(self.levels), self.title)

    def holds(self, difficulty: pa.Table) -> str:
        """What makes a row eligible, and the tiers in the table, at most the first few."""
        tiers = sorted(map(str, pc.unique(column(difficulty, "tier", "tiers")).to_pylist()))
        shown = ", ".join(map(repr, tiers[:_SHOWN]))
        more = f" and {len(tiers) - _SHOWN} more" if len(tiers) > _SHOWN else ""
        return f"in the tiers {', '.join(_levels(self.levels))} (the table has {shown}{more})"


def _levels(levels: Any) -> list[str]:
    """Levels as names of tiers, without repeats, 2 before 10."""
    if isinstance(levels, str) and (span := _RANGE.fullmatch(levels)):
        listed: list[Any] = [*range(int(span[1]), int(span[2]) + 1)]
    elif isinstance(levels, list | tuple | set | frozenset):
        listed = [*levels]
    else:
        listed = [levels]
    if not listed or any(isinstance(one, bool) or not isinstance(one, int | str) for one in listed):
        raise PolicyError(f"tiers: levels is {levels!r}: write 1-3, or a list such as [1, 2, 3]")
    return sorted(set(map(str, listed)), key=lambda text: (len(text), text))
