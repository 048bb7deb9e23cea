"""The store -> one row per cell: the only place where the report reads results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.cells import Cell
from orchestrator.evaluation import by_update, main, per_prompt
from orchestrator.report.statistics import Interval, paired_gain
from orchestrator.schema import EVALUATIONS
from orchestrator.store import Store
from orchestrator.subsets import read_subset, reason


@dataclass(frozen=True)
class Row:
    """A finished cell: accuracies are shares, `gain` an interval of their difference."""

    cell: Cell
    result: dict[str, Any]
    gain: Interval
    curve: dict[int, float]
    ties: dict[str, int] | None


def read_rows(store: Store, cells: Sequence[Cell]) -> list[Row]:
    """The rows of those cells that are finished, in their order."""
    rows = (_row(store, cell) for cell in cells)
    return [row for row in rows if row is not None]


def _row(store: Store, cell: Cell) -> Row | None:
    result = store.read_json("cells", cell.cell_id, "result.json")
    evaluations = store.read_table(EVALUATIONS, "cells", cell.cell_id, "evaluations.parquet")
    if result is None or evaluations is None:
        return None
    by = by_update(evaluations)
    rates = {update: _rates(table) for update, table in by.items()}
    base, final = rates[0], rates[cell.updates]
    shared = sorted(base.keys() & final.keys())
    gain = paired_gain(np.array([base[i] for i in shared]), np.array([final[i] for i in shared]))
    subset = read_subset(store, cell)
    ties = reason(subset)["ties"] if subset is not None else None
    curve = {update: float(np.mean(list(r.values()))) for update, r in rates.items()}
    return Row(cell, result, gain, curve, ties)


def _rates(evaluation: Any) -> dict[str, float]:
    return {i: c / n for i, (n, c) in per_prompt(main(evaluation)).items() if n}
