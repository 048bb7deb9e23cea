"""An allocation of an update's completions by a column of the user's data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.allocation import LEAST, Groups, SizeRule, proportional
from policies.base import ByColumns, Needs, PolicyError, Rows
from policies.partition import as_text, check_known, column_texts, schedules_of


@dataclass(kw_only=True)
class ByColumn(SizeRule, ByColumns):
    """Completions in proportion to the weight of a prompt's value in `column`, at least 2 each.

    Options:
        column: a column that travels with the prompts, such as `source`.
        weights: {value: weight}, such as {algebra: 1, geometry: 2}: a geometry prompt gets twice as
            many as an algebra prompt. A weight may depend on the update, as shares of `within` do.
            Prompts with other values have the weight 1.
    """

    name: ClassVar[str] = "by_column"
    needs: ClassVar[Needs] = "nothing"
    example: ClassVar[str] = "column: source, weights: {algebra: 1, geometry: 2}"

    column: str
    weights: Mapping[str, Any]

    def __post_init__(self) -> None:
        named = isinstance(self.column, str) and isinstance(self.weights, Mapping)
        if not named or not self.weights:
            raise PolicyError(
                f"by_column: column is {self.column!r:.80} and weights {self.weights!r:.80}: "
                f"write them as {self.example}"
            )
        self.weights = {as_text(value): weight for value, weight in self.weights.items()}
        what = f"by_column: {self.column}: the weight of"
        self._schedules = schedules_of(self.weights, what, zero=False)

    @property
    def reads_columns(self) -> list[str]:
        """The column."""
        return [self.column]

    def check_values(self, prompts: pa.Table) -> None:
        """Raise PolicyError for a column, or a value with a weight, that a pool does not have."""
        texts = column_texts(prompts, self.column, self.name)
        check_known(self.weights, pc.unique(texts).to_pylist(), self.column, self.name)

    def __call__(self, groups: Groups) -> Rows:
        """All completions at once."""
        weights = np.ones(len(groups.drawn))
        for value, schedule in self._schedules.items():
            own = groups.columns[self.column] == value
            weights[own] = schedule.at(groups.update, groups.updates)
        return proportional(weights / weights.max(), groups.left, LEAST)
