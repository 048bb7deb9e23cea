"""The order of an exported file, for trainers whose only curriculum is the order of rows."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.outcomes import band_of
from orchestrator.plugins.streams import generator
from orchestrator.storage.errors import UserError
from tasks.prompt_table import PromptTable

BY_RATE: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {  # what rises in the order
    "easy": lambda rates: -rates,
    "hard": lambda rates: rates,
    "learnable": lambda rates: -rates * (1 - rates),
}
ORDERS = (*BY_RATE, "random")
SPREADS = ("source", "tier", "band")
DEVIATION = 0.1  # of pass rates around the moving mean: as of an estimate from 16 samples


class RowOrder(NamedTuple):
    """The order of rows, and the column whose values have equal shares in every part of the file.

    name: one of ORDERS, or `gaussian:FROM:TO`: the mean pass rate moves from FROM to TO.
    """

    name: str = ""
    spread: str = ""
    seed: int = 0

    def check(self) -> None:
        """Raise UserError for an unknown order or column."""
        if self.name and self.name not in ORDERS:
            self._means()
        if self.spread and self.spread not in SPREADS:
            raise UserError(f"--spread {self.spread!r:.40} is unknown: write {', '.join(SPREADS)}")

    def _means(self) -> tuple[float, float]:
        """The mean pass rates at both ends of a Gaussian order."""
        numbers = re.fullmatch(r"gaussian:([\d.]+)(?:→|->|:)([\d.]+)", self.name)
        try:
            means = [float(number) for number in numbers.groups()] if numbers else []
        except ValueError:
            means = []
        if len({*means}) < 2 or not all(0 <= mean <= 1 for mean in means):
            raise UserError(
                f"--order {self.name!r:.40} is unknown: write {', '.join(ORDERS)}, or pass rates "
                "from 0 to 1 that differ, as gaussian:0.8:0.2"
            )
        return means[0], means[1]

    def apply(self, subset: pa.Table, prompts: PromptTable) -> pa.Table:
        """The subset (schema SUBSET) in this order; its `rank` is then the place in the file.

        Without a name and a spread, both are the policy's. Rows without a pass rate come last,
        except in the order random. Raises UserError if the column to spread by is empty.
        """
        subset = subset.sort_by("rank")
        if not self.name and not self.spread:
            return subset
        rates = subset["pass_rate"].to_numpy(zero_copy_only=False).astype(float)
        rng = generator("order of an export", self.seed)
        places = np.arange(len(rates))
        if self.name in BY_RATE:
            keys = BY_RATE[self.name](rates)
            places = np.argsort(keys.round(12), kind="stable")  # nan comes last
        elif self.name == "random":
            places = rng.permutation(len(rates))
        elif self.name:
            places = _moving(rates, self._means(), rng)
        if self.spread:
            places = places[_spread(self._parts(subset, prompts)[places])]
        ranks = pa.array(np.arange(len(rates)), subset.schema.field("rank").type)
        ordered = subset.take(places)
        return ordered.set_column(ordered.schema.get_field_index("rank"), "rank", ranks)

    def _parts(self, subset: pa.Table, prompts: PromptTable) -> np.ndarray:
        """[rows]: each row's value in the column to spread by, as a number."""
        if self.spread == "band":
            return band_of(subset)
        values = prompts.column(self.spread).take(prompts.rows_of(subset["prompt_id"]))
        if not any(values.to_pylist()):
            raise UserError(
                f"--spread {self.spread}: no prompt has a {self.spread}; name its column in the "
                "data set, or leave --spread out"
            )
        _, parts = np.unique(values.to_numpy(zero_copy_only=False), return_inverse=True)
        return parts


def _moving(rates: np.ndarray, means: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    """[rows]: positions in an order in which the mean pass rate moves evenly.

    A row's position is where the mean is at its rate, plus or minus DEVIATION; rates beyond the
    ends count as the ends.
    """
    length = means[1] - means[0]
    due = np.clip((rates - means[0]) / length, 0, 1)
    return np.argsort(due + rng.normal(scale=DEVIATION / abs(length), size=len(rates)))


def _spread(parts: np.ndarray) -> np.ndarray:
    """[rows]: positions in an order in which every stretch has the shares of all parts.

    The i-th of n rows of a part belongs at (i + 1/2) / n of the file; rows of a part keep their
    order.
    """
    positions = np.empty(len(parts))
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        positions[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.argsort(positions, kind="stable")
