"""Stopping a cell early, and saying so: it is clearly below the best policy of its block.

At an intermediate evaluation a cell is held against the cells of its block (same model, dataset and
seed, other policies) that have been evaluated after as many updates, question by question. It stops
where even the upper end of the interval of its difference to the best of them lies MARGIN below
zero. The interval is of new questions for this very run: it knows nothing of other seeds, nor of
what later updates would have brought. So a stopped cell is censored: it has no result, its policy
is compared nowhere, and without `stop_hopeless` the same command finishes it from its checkpoint.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from orchestrator.evaluation.metrics import by_update, main, per_prompt
from orchestrator.planning.cells import Cell
from orchestrator.storage.schema import EVALUATIONS
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import STOPPED_EARLY, CellState, cell_state
from orchestrator.training.record import CellRecord, summary

MARGIN = 0.02  # of accuracy
LEVEL = 0.01  # of stopping a cell that is not that far below, over all its looks and rivals

Scores = Mapping[str, float]  # question -> mean correctness of its samples


class StopDecision(NamedTuple):
    """Why a cell stops: the rival's cell_id, mean difference and its upper bound, as shares."""

    rival: str
    difference: float
    upper: float


def stop_decision(mine: Scores, rivals: Mapping[str, Scores], looks: int) -> StopDecision | None:
    """Whether these scores are hopeless beside the best rival's; None where they are not.

    One-sided t over questions, the level shared out over `looks` and rivals: the best of several is
    picked by the same numbers.
    """
    found = [
        StopDecision(name, *bound)
        for name, scores in rivals.items()
        if (bound := _bound(mine, scores, LEVEL / (looks * len(rivals))))
    ]
    best = min(found, key=lambda each: each.difference, default=None)
    return best if best is not None and best.upper < -MARGIN else None


def _bound(mine: Scores, other: Scores, level: float) -> tuple[float, float] | None:
    """Mean difference over shared questions and its upper bound; None for fewer than two."""
    shared = sorted(mine.keys() & other.keys())
    if len(shared) < 2:
        return None
    apart = np.array([mine[i] - other[i] for i in shared])
    half = float(stdtrit(len(apart) - 1, 1 - level)) * float(apart.std(ddof=1)) / sqrt(len(apart))
    return float(apart.mean()), float(apart.mean()) + half


def interim_updates(cell: Cell) -> int:
    """Intermediate evaluations of a cell."""
    return (cell.updates - 1) // cell.evaluate_every if cell.evaluate_every else 0


def interim_check(cell: Cell, store: Store, record: CellRecord, update: int) -> StopDecision | None:
    """Leave the scores of an intermediate evaluation for the block, and hold them against it."""
    mine = _scores(by_update(record.evaluations)[update])
    store.write_json(mine, "cells", cell.cell_id, "scores", f"{update}.json")
    found = {rival: scores_at(store, rival, update) for rival in cell.rivals}
    rivals = {rival: scores for rival, scores in found.items() if scores}
    return stop_decision(mine, rivals, interim_updates(cell))


def scores_at(store: Store, cell_id: str, update: int) -> dict[str, float] | None:
    """A cell's scores after so many updates, whether it is finished or still runs."""
    left: dict[str, float] | None = store.read_json("cells", cell_id, "scores", f"{update}.json")
    if left is not None:
        return left
    table = store.read_table(EVALUATIONS, "cells", cell_id, "evaluations.parquet")
    steps = by_update(table) if table is not None else {}
    return _scores(steps[update]) if update in steps else None


def _scores(evaluation: Any) -> dict[str, float]:
    return {i: c / n for i, (n, c) in per_prompt(main(evaluation)).items() if n}


def save_stop(cell: Cell, store: Store, record: CellRecord, update: int, why: StopDecision) -> None:
    """Say what a stopped cell had come to; its checkpoint stays."""
    said = summary(cell, record, update) | {"censored": True, "of_updates": cell.updates}
    store.write_json(said | {"why": why._asdict()}, "cells", cell.cell_id, STOPPED_EARLY)


def stopped_lines(store: Store, cells: Sequence[Cell]) -> list[str]:
    """A sentence for each stopped cell."""
    names = {cell.cell_id: cell.name for cell in cells}
    lines = []
    for cell in cells:
        if cell_state(store, cell) is CellState.STOPPED:
            said = store.read_json("cells", cell.cell_id, STOPPED_EARLY)
            why = said["why"]
            lines.append(
                f"{cell.name} was stopped after {said['updates']} of {cell.updates} updates, "
                f"{-100 * why['difference']:.1f} points below "
                f"{names.get(why['rival'], why['rival'])} (at least {-100 * why['upper']:.1f}); "
                f"{cell.policy} is not compared"
            )
    return lines
