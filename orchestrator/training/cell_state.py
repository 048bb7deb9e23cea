"""How far a cell has come, read from its files in the store. The only place that decides it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store

STARTED = "cell.json"  # what the cell is, written when its first trial starts
MANIFEST = "decile.json"  # written last into a checkpoint, which is complete from then on
STOPPED_EARLY = "censored.json"  # why a cell was stopped; deleted when it is finished after all
RESULT = "result.json"  # written last of all


class CellState(StrEnum):
    """How far a cell has come."""

    PENDING = "pending"
    """No trial has started it."""
    RUNNING = "running"
    """A trial has started it; the next one resumes from the last complete checkpoint, if any."""
    TRAINED = "trained"
    """All updates are done; only evaluations of its checkpoints may be missing."""
    FINISHED = "finished"
    """Its result is stored."""
    STOPPED = "stopped"
    """Stopped early, which its experiment still asks for; otherwise it counts as running."""

    @property
    def needs_training(self) -> bool:
        """Whether updates are missing."""
        return self in (CellState.PENDING, CellState.RUNNING)

    @property
    def settled(self) -> bool:
        """Whether a run has nothing left to do for the cell."""
        return self in (CellState.FINISHED, CellState.STOPPED)


def cell_state(store: Store, cell: Cell) -> CellState:
    """The state of a cell. Costs up to four requests to the store."""
    place = ("cells", cell.cell_id)
    if store.exists(*place, RESULT):
        return CellState.FINISHED
    if store.exists(*place, f"checkpoint-{cell.updates}", MANIFEST):
        return CellState.TRAINED
    if cell.rivals and store.exists(*place, STOPPED_EARLY):
        return CellState.STOPPED
    return CellState.RUNNING if store.exists(*place, STARTED) else CellState.PENDING


def finished_at(store: Store, cell_id: str, result: Mapping[str, Any]) -> datetime | None:
    """When a cell was finished, in UTC, by its result.

    Results of older versions do not say it; there it is the date of the file, which a copy of the
    storage may have changed.
    """
    if "finished_at" in result:
        return datetime.fromisoformat(result["finished_at"])
    info = store.fs.get_file_info(store.path("cells", cell_id, RESULT))
    return info.mtime.astimezone(UTC) if info.mtime else None
