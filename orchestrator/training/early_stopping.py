"""Stopping a cell early that is clearly below the best policy of its block (`stop_hopeless`).

At an intermediate evaluation a cell is compared, question by question, with the cells of its block
(same model, dataset and seed, other policies) that were evaluated after as many updates and cannot
have drawn more rollouts until then. It stops when even the upper end of the interval of its
difference to the best of them is more than MARGIN below zero. The interval covers new test
questions for this run only; it includes neither other seeds nor what later updates would change. So
a stopped cell has no result, its policy is compared nowhere, and without `stop_hopeless` the same
command finishes the cell from its checkpoint.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.evaluation.metrics import by_update, main, scores
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.selection.stored import subset_size
from orchestrator.stats.inference import half_width, mean_squares
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder, StopDecision
from orchestrator.training.record import CellRecord, summary

MARGIN = 0.02  # of accuracy
LEVEL = 0.01  # error rate of stopping a cell that is not, over all its checks and rivals

QuestionScores = Mapping[str, float]  # question -> mean correctness of its samples


def stop_decision(
    own: QuestionScores, rivals: Mapping[str, QuestionScores], checks: int
) -> StopDecision | None:
    """Why to stop a cell of these scores: it is clearly below the best rival; else None.

    One-sided t over questions. The level is divided by `checks` and rivals, since the best of
    several rivals is chosen by the same numbers.
    """
    differences = []
    for name, rival in rivals.items():
        shared = sorted(own.keys() & rival.keys())
        if len(shared) >= 2:
            values = np.array([own[i] - rival[i] for i in shared])
            level = 2 * LEVEL / (checks * len(rivals))  # that of two sides
            mean, half = float(values.mean()), half_width(mean_squares(values[None]), level)
            differences.append(StopDecision(name, mean, mean + half))
    best = min(differences, key=lambda each: each.difference, default=None)
    return best if best is not None and best.upper < -MARGIN else None


def interim_updates(cell: Cell) -> int:
    """The number of intermediate evaluations of a cell."""
    return (cell.updates - 1) // cell.evaluate_every if cell.evaluate_every else 0


def interim_check(cell: Cell, store: Store, record: CellRecord, update: int) -> StopDecision | None:
    """Store the scores of an intermediate evaluation, and compare them with the block's."""
    own = scores(main(by_update(record.evaluations)[update]))
    CellFolder(store, cell.cell_id).save_scores(update, own)
    folders = {rival: CellFolder(store, rival) for rival in cell.rivals}
    rivals = {i: stored for i, f in folders.items() if (stored := f.scores_at(update))}
    return stop_decision(own, rivals, interim_updates(cell))


def save_stop(cell: Cell, store: Store, record: CellRecord, update: int, why: StopDecision) -> None:
    """Store how far a stopped cell has come, and why it stopped; its checkpoint is kept."""
    status = {"censored": True, "of_updates": cell.updates, "why": why._asdict()}
    result = summary(cell, record, update, subset_size(store, cell))
    CellFolder(store, cell.cell_id).save_stopped(result | status)


def stopped_lines(store: Store, cells: Sequence[Cell]) -> list[str]:
    """A sentence for each stopped cell."""
    names = {cell.cell_id: cell.name for cell in cells}
    lines = []
    for cell in cells:
        folder = CellFolder(store, cell.cell_id)
        if folder.is_stopped(cell) and (status := folder.stopped()):
            rival, difference, upper = status.why
            lines.append(
                f"{cell.name} was stopped after {status.updates} of "
                f"{counted(cell.updates, 'update')}, {-100 * difference:.1f} points below "
                f"{names.get(rival, rival)} (at least {-100 * upper:.1f}); "
                f"{cell.policy} is not compared"
            )
    return lines
