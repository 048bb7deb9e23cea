"""Partitions of a pool with shares: `within`, `weights` and the parts of a mixture.

A stratum is the rows with one value of a column. Its share is a number, or a schedule of numbers
over the updates of a training. Arrays have one entry per row of a table, or per stratum [S].
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.registry import suggest
from orchestrator.plugins.shares import SLACK, largest_remainder
from policies.base import Floats, PolicyError, Rows, kept_advice

HOW = (
    "write a column, such as source, or one with its shares: {source: equal}, or {source: "
    "{gsm8k: 0.7, math: 0.3}}"
)
FORM = "write a number, {from: 0.8, to: 0.2, schedule: cosine}, or a list of numbers"
SCHEDULES = ("linear", "cosine")
# Bands of pass rates, each without its lower end: 0, the quarters, and 1. A rate that misses 1 by
# rounding alone, such as a mean of means, counts as 1.
RATE_BANDS = ("0", "0-0.25", "0.25-0.5", "0.5-0.75", "0.75-1", "1")
RATE_ENDS = (0.0, 0.25, 0.5, 0.75, 1 - 1e-9)  # the highest rate of each band but the last
NO_VALUE = "(none)"  # the stratum of rows without a value
MAX_STRATA = 10_000  # a column with more values probably has ids or texts
SHOWN = 8  # values of a column that a message lists


def is_number(value: Any) -> bool:
    """Whether an option is a finite number."""
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)


@dataclass(frozen=True)
class Schedule:
    """A number that may depend on the update: constant, linear, cosine, or listed.

    values: a list, each for an equal part of the training.
    """

    values: tuple[float, ...]
    kind: str = "listed"

    @classmethod
    def of(cls, written: Any, what: str) -> "Schedule":
        """The schedule that an option describes. Raises PolicyError for any other form."""
        if is_number(written):
            return cls((float(written),))
        if isinstance(written, list | tuple) and written and all(map(is_number, written)):
            return cls(tuple(map(float, written)))
        if isinstance(written, Mapping) and {"from", "to"} <= written.keys():
            first, last = written["from"], written["to"]
            kind = written.get("schedule", "linear")
            known = written.keys() <= {"from", "to", "schedule"} and kind in SCHEDULES
            if known and is_number(first) and is_number(last):
                return cls((float(first), float(last)), kind)
        raise PolicyError(f"{what} is {written!r:.80}: {FORM}")

    def at(self, update: int, updates: int) -> float:
        """The number for an update, counted from 1."""
        if self.kind == "listed":
            part = (update - 1) * len(self.values) // updates
            return self.values[min(part, len(self.values) - 1)]
        progress = (update - 1) / max(1, updates - 1)
        if self.kind == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        first, last = self.values
        return first + (last - first) * progress


def schedules_of(written: Mapping[str, Any], what: str, *, zero: bool) -> dict[str, Schedule]:
    """Schedules by value of a column. Raises PolicyError with a message that begins with `what`.

    zero: whether their numbers may be 0; they may not be negative.
    """
    schedules = {value: Schedule.of(number, f"{what} {value}") for value, number in written.items()}
    for value, schedule in schedules.items():
        lowest = min(schedule.values)
        if lowest < 0 or (lowest == 0 and not zero):
            least = "of at least 0" if zero else "above 0"
            raise PolicyError(f"{what} {value} is {written[value]!r:.80}: write numbers {least}")
    return schedules


def checked_shares(shares: Iterable[tuple[str, Any]], what: str, form: str) -> list[float]:
    """Shares of a whole, by name. Raises PolicyError unless they are above 0 and sum to 1.

    Messages begin with `what`; `form` describes how to write shares.
    """
    checked = []
    for name, share in shares:
        if not is_number(share) or not 0 < share <= 1:
            raise PolicyError(
                f"{what} the share of {name} is {share!r:.80}: write a number above 0, at most 1"
            )
        checked.append(float(share))
    if abs(sum(checked) - 1) > SLACK:
        raise PolicyError(f"{what} the shares sum to {sum(checked):g}, not 1: {form}")
    return checked


class Stratum(NamedTuple):
    """Rows of a partition, ascending, and their share; the shares need not sum to 1."""

    name: str
    rows: Rows
    share: Schedule


def shares_of(strata: Sequence[Stratum], update: int = 1, updates: int = 1) -> Floats:
    """The shares for an update [S]; before training there is one update."""
    return np.array([stratum.share.at(update, updates) for stratum in strata])


@dataclass(frozen=True)
class Partition:
    """The option `within`: strata by the values of a column, or all rows as one.

    shares: `proportional` to the strata's rows, `equal`, or by value; a value without a share has
    0. within: the option in canonical form, {} without a column. Messages begin with `what`.
    """

    what: str
    column: str | None = None
    shares: str | Mapping[str, Schedule] = "equal"
    within: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, written: Any, policy: str, *, scheduled: bool = False) -> "Partition":
        """A policy's option; None: all rows as one stratum. Raises PolicyError for any other form.

        scheduled: shares may depend on the update, and need not sum to 1.
        """
        what = f"{policy}: within"
        if written is None:
            return cls(what)
        given = {written: "proportional"} if isinstance(written, str) else written
        if not isinstance(given, Mapping) or len(given) != 1:
            raise PolicyError(f"{what} is {written!r:.80}: {HOW}")
        [(column, shares)] = given.items()
        if shares in ("proportional", "equal"):
            return cls(what, str(column), shares, {str(column): shares})
        if not isinstance(shares, Mapping) or not shares:
            raise PolicyError(f"{what} {column} is {shares!r:.80}: {HOW}")
        by_value = {as_text(value): share for value, share in shares.items()}
        if scheduled:
            schedules = schedules_of(by_value, f"{what} {column}: the share of", zero=True)
        else:
            numbers = checked_shares(by_value.items(), f"{what} {column}:", HOW)
            by_value = dict(zip(by_value, numbers, strict=True))
            schedules = {value: Schedule((share,)) for value, share in by_value.items()}
        return cls(what, str(column), schedules, {str(column): by_value})

    def strata_of(self, table: pa.Table, rows: Rows) -> list[Stratum]:
        """The strata of some rows of a table. Raises PolicyError as `column_texts` and `strata`."""
        if self.column is None:
            return self.strata(None, rows)
        return self.strata(column_texts(table, self.column, self.what), rows)

    def strata(self, texts: pa.Array | None, rows: Rows) -> list[Stratum]:
        """The strata of some rows, in the order of the values; `texts` is the column for all rows.

        Raises PolicyError for more than MAX_STRATA values, or for a share of a value that no row
        has.
        """
        if texts is None or self.column is None:
            return [Stratum("", rows, Schedule((1.0,)))]
        values = pc.unique(texts).sort().to_pylist()
        if len(values) > MAX_STRATA:
            raise PolicyError(
                f"{self.what}: the column {self.column} has {len(values):,} values: write one with "
                f"at most {MAX_STRATA:,}"
            )
        if not isinstance(self.shares, str):
            check_known(self.shares, values, self.column, self.what)
        code = pc.index_in(texts, value_set=pa.array(values, pa.string())).to_numpy()[rows]
        ends = np.cumsum(np.bincount(code, minlength=len(values)))
        parts = np.split(rows[np.argsort(code, kind="stable")], ends[:-1])
        strata = []
        for value, own in zip(values, parts, strict=True):
            if not isinstance(self.shares, str):
                share = self.shares.get(value, Schedule((0.0,)))
            elif self.shares == "proportional":
                share = Schedule((float(len(own)),))
            else:  # equal
                share = Schedule((1.0 if len(own) else 0.0,))
            strata.append(Stratum(value, own, share))
        return strata


def check_known(named: Iterable[str], known: Sequence[str], column: str, what: str) -> None:
    """Raise PolicyError, beginning with `what`, for a value that no row has."""
    unknown = [value for value in named if value not in known]
    if unknown:
        distinct = sorted(set(known))
        shown = ", ".join(f"{value!r:.40}" for value in distinct[:SHOWN])
        if len(distinct) > SHOWN:
            shown += f" and {len(distinct) - SHOWN:,} more"
        raise PolicyError(
            f"{what}: no row has the {column} {unknown[0]!r:.80}: write some of {shown}"
            f"{suggest(unknown[0], distinct)}"
        )


def rate_bands(rates: Floats) -> Rows:
    """The position in RATE_BANDS of each pass rate; nan: the last position."""
    return np.searchsorted(RATE_ENDS, rates)


def column_texts(table: pa.Table, column: str, what: str) -> pa.Array:
    """The values of a column as text, NO_VALUE for null; for pass rates, their bands.

    Raises PolicyError, beginning with `what`, if the table does not have the column, or if its
    values are neither text nor numbers.
    """
    if column not in table.column_names:
        raise PolicyError(
            f"{what}: the table has no column {column!r:.80}, only "
            f"{', '.join(table.column_names)}: write one of these, or {kept_advice(column)}"
            f"{suggest(column, table.column_names)}"
        )
    values = table[column].combine_chunks()
    if column == "pass_rate":
        rates = values.to_numpy(zero_copy_only=False).astype(float)
        bands = pa.array(rate_bands(rates), mask=np.isnan(rates))
        values = pa.array(RATE_BANDS).take(bands)
    try:
        return pc.fill_null(values.cast(pa.string()), NO_VALUE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PolicyError(
            f"{what}: the column {column} has type {values.type}: write a column of text or numbers"
        ) from error


def as_text(value: Any) -> str:
    """A value as text, as if cast with a column of its type."""
    return str(pa.scalar(value).cast(pa.string()).as_py())


def filled(
    shares: Floats,
    eligible: Sequence[int],
    due: Sequence[int],
    rounded: Callable[[Floats, int], list[int]] = largest_remainder,
) -> list[int]:
    """Rows of each stratum [S]: the number due, or all of them if the stratum is short of rows.

    Missing rows are divided among the other strata in proportion to their shares; `rounded` turns
    these into whole numbers with a given sum.
    """
    capacity = np.where(shares > 0, eligible, 0)
    counts = np.minimum(due, capacity)
    total = min(sum(due), int(capacity.sum()))
    while (missing := total - int(counts.sum())) > 0:
        weights = np.where(counts < capacity, shares, 0.0)
        further = rounded(weights / weights.sum() * missing, missing)
        counts = np.minimum(counts + further, capacity)
    return [int(count) for count in counts]
