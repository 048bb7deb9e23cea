"""The churn (`stats.churn`) of cells: of all test questions, and of each tier and source."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import pyarrow as pa

from orchestrator.report.rows import OWN, Row, axes_of, question_parts
from orchestrator.stats.churn import Churn, churn, flips


class PartChurn(NamedTuple):
    """The churn of the test questions of a tier or source; of all, where `kind` is empty."""

    kind: Literal["", "tier", "source"]
    name: str
    churn: Churn


def churn_by_part(rows: Sequence[Row], span: tuple[int, int] | None = None) -> list[PartChurn]:
    """The mean over cells, from one evaluation (update) to another: of all questions first.

    span: None: from the base model to each cell's end. Kinds with one name are left out.
    """
    spans = [(row.marks, span or (0, row.cell.updates)) for row in rows]
    changed = [flips([marks[first]], [marks[last]]) for marks, (first, last) in spans]
    groups = rows[0].groups.get(OWN, {})
    churns = ((kind, name, churn(changed, groups, own)) for kind, name, own in question_parts(rows))
    return [PartChurn(kind, name, own) for kind, name, own in churns if own]


def churn_table(rows: Sequence[Row]) -> pa.Table:
    """A row per finished cell, pair of evaluations and part of its own test set.

    The pairs are the base and the final model, and every two consecutive evaluations.
    """
    body = []
    for row, axes in zip(rows, axes_of(rows), strict=True):
        evaluated = sorted(row.counts[OWN])
        for span in dict.fromkeys([(0, row.cell.updates), *pairwise(evaluated)]):
            about = {"cell_id": row.cell.cell_id, "from_update": span[0], "to_update": span[1]}
            for kind, name, part in churn_by_part([row], span):
                numbers = part._asdict() | {"net": part.net}
                body.append({**axes, **about, "part": kind or "all", "name": name, **numbers})
    return pa.Table.from_pylist(body)
