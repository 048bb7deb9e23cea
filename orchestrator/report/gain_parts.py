"""The gain of cells divided among the factors of accuracy (`stats.factors`).

Of all test questions, and of each tier and source; and the gain under both markings.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from orchestrator.report.rows import OWN, Row, axes_of, question_parts
from orchestrator.stats.factors import DividedGain, divided_gain
from tasks.marking.marks import FACTORS


class PartGain(NamedTuple):
    """The gain on the test questions of a tier or source; on all, where `kind` is empty."""

    kind: Literal["", "tier", "source"]
    name: str
    gain: DividedGain


def gain_by_part(rows: Sequence[Row]) -> list[PartGain]:
    """From the base model to the end of training, over the seeds of a policy: of all first."""
    reads = [row.answers_read[OWN] for row in rows]
    before = [read[0] for read in reads]
    after = [read[row.cell.updates] for read, row in zip(reads, rows, strict=True)]
    groups = rows[0].groups.get(OWN, {})
    gains = (
        (kind, name, divided_gain(before, after, groups, own, paired=True))
        for kind, name, own in question_parts(rows)
    )
    return [PartGain(kind, name, gain) for kind, name, gain in gains if gain]


def factor_name(factor: str) -> str:
    """As it is written in names of columns and metrics."""
    return factor.replace("-", "_")


def gain_part_table(rows: Sequence[Row]) -> pa.Table:
    """A row per finished cell and part of its own test set: factors, gain and its parts (shares).

    Unknown values are null.
    """
    body = []
    for row, axes in zip(rows, axes_of(rows), strict=True):
        for kind, name, gain in gain_by_part([row]):
            numbers: dict[str, float | None] = {"gain": gain.gain.mean}
            for place, factor in enumerate(map(factor_name, FACTORS)):
                numbers[f"{factor}_base"] = gain.before[place]
                numbers[f"{factor}_final"] = gain.after[place]
                part = gain.parts[place] if gain.parts else None
                for end in ("mean", "low", "high"):
                    column = f"gain_from_{factor}" + ("" if end == "mean" else f"_{end}")
                    numbers[column] = getattr(part, end, None)
            about = {"cell_id": row.cell.cell_id, "part": kind or "all", "name": name}
            body.append({**axes, **about, "questions": gain.questions, **numbers})
    return pa.Table.from_pylist(body)
