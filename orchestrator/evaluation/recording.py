"""The visits of a recorded run: the correct completions of each group of a prompt. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.difficulty.estimates import fit_prior, rates
from orchestrator.plugins.row_counts import RowCounts

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

COMPLETE = 0.9  # share of the prompts that have a visit, below which it is left out


class Visit(NamedTuple):
    """One group: its prompt, the update or the number of the visit, and its completions."""

    prompt: str
    update: int
    correct: int
    marked: int


@dataclass(frozen=True)
class Recording:
    """The groups of a run by prompt and visit; `columns`: texts of the prompts, such as a source.

    correct, marked: [prompts, visits], of each group; `marked` is 0 where a prompt has no such
    visit. update: [prompts, visits], -1 where it is not known.
    """

    name: str
    layout: str
    prompt_ids: tuple[str, ...]
    correct: Counts
    marked: Counts
    update: Counts
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rows: RowCounts = RowCounts(0)

    @classmethod
    def of(
        cls,
        name: str,
        layout: str,
        visits: Sequence[Visit],
        columns: Mapping[str, tuple[str, ...]] | None = None,
        notes: tuple[str, ...] = (),
        rows: RowCounts | None = None,
    ) -> "Recording":
        """From the visits of a run; those of a prompt are ordered by their update."""
        ids = sorted({visit.prompt for visit in visits})
        row_of = {prompt: number for number, prompt in enumerate(ids)}
        ordered = sorted(visits, key=lambda visit: (visit.prompt, visit.update))
        row = np.array([row_of[visit.prompt] for visit in ordered], np.int64)
        place = np.arange(len(row)) - np.searchsorted(row, row)
        shape = (len(ids), int(place.max(initial=-1)) + 1)
        correct, marked, update = np.zeros(shape, int), np.zeros(shape, int), np.full(shape, -1)
        correct[row, place] = [visit.correct for visit in ordered]
        marked[row, place] = [visit.marked for visit in ordered]
        update[row, place] = [visit.update for visit in ordered]
        read = RowCounts(len(visits)) if rows is None else rows
        return cls(name, layout, tuple(ids), correct, marked, update, columns or {}, notes, read)

    @cached_property
    def visits(self) -> int:
        """The visits that are counted: those that nearly all prompts have."""
        present = (self.marked > 0).mean(axis=0)
        return int(np.argmin(np.append(present >= COMPLETE, False)))

    @cached_property
    def group_size(self) -> int:
        """The most frequent number of completions of a group."""
        return int(np.bincount(self.marked[self.marked > 0]).argmax())

    @cached_property
    def rates(self) -> Floats:
        """[prompts, visits]: the share of correct completions of each group, nan without one."""
        with np.errstate(invalid="ignore"):
            return self.correct[:, : self.visits] / self.marked[:, : self.visits]

    @cached_property
    def live(self) -> Floats:
        """[prompts, visits]: 1 where some completions are correct and some are not, else 0.

        nan where a prompt has no such visit.
        """
        return np.where(
            np.isnan(self.rates), np.nan, ((self.rates > 0) & (self.rates < 1)).astype(float)
        )

    def groups_in_rows(self, prompts: Any, first: int = 0) -> int:
        """The rows of a table that hold these prompts' visits from `first` on; 0 for logs."""
        marked = self.marked[prompts, first:]
        if self.layout == "completions":  # a row each
            return int(marked.sum())
        return int((marked > 0).sum()) * (self.layout == "rates")

    def part(self, rows: npt.NDArray[np.int64]) -> "Recording":
        """The recording of these prompts alone; some of them may occur several times."""
        ids = tuple(self.prompt_ids[row] for row in rows.tolist())
        columns = {
            name: tuple(values[row] for row in rows.tolist())
            for name, values in self.columns.items()
        }
        return replace(
            self,
            prompt_ids=ids,
            correct=self.correct[rows],
            marked=self.marked[rows],
            update=self.update[rows],
            columns=columns,
        )

    def difficulty(self, first: int, count: int) -> pa.Table:
        """The difficulty table of `count` visits, from visit `first` on (counted from 0)."""
        own = slice(first, first + count)
        return difficulty_of(
            self.prompt_ids,
            self.correct[:, own].sum(axis=1),
            self.marked[:, own].sum(axis=1),
            self.group_size,
            self.columns,
        )


def difficulty_of(
    prompt_ids: Sequence[str],
    successes: Counts,
    samples: Counts,
    group_size: int,
    columns: Mapping[str, Sequence[str]],
) -> pa.Table:
    """A difficulty table, in the order of the prompts, with the columns that follow from counts."""
    table = pa.table(rates(successes, samples, fit_prior(successes, samples), group_size))
    table = table.append_column("prompt_id", pa.array(prompt_ids, pa.string()))
    table = table.append_column("n", pa.array(samples))
    table = table.append_column("wrong", pa.array(samples - successes))
    table = table.append_column("score", table["pass_rate"])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    return table


def mean_by_prompt(values: Floats) -> Floats:
    """The mean of the known values of each row; nan where none is."""
    known = np.isfinite(values)
    count = known.sum(axis=1)
    sums = np.where(known, values, 0).sum(axis=1)
    mean: Floats = np.divide(sums, count, out=np.full(len(count), np.nan), where=count > 0)
    return mean
