"""How far a cell has come, read from its files in the store. The only place that decides it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import ValidationError

from orchestrator.planning.cells import Cell
from orchestrator.storage.schema import EVALUATIONS, GROUPS, LOG
from orchestrator.storage.store import Store
from orchestrator.storage.verification import Checked, check_folder, size_problem

STARTED = "cell.json"  # what the cell is, written when its first trial starts
MANIFEST = "decile.json"  # written last into a checkpoint, which is complete from then on
STOPPED_EARLY = "censored.json"  # why a cell was stopped; deleted when it is finished after all
RESULT = "result.json"  # written last of all; the manifest of the cell
TABLES = {"groups": GROUPS, "evaluations": EVALUATIONS, "log": LOG}  # of a cell or a checkpoint
DISCARDED = "discarded"  # groups that an online policy drew and did not train on, schema GROUPS


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


class Checkpoint(NamedTuple):
    """What Decile writes into a checkpoint; tables by their names in TABLES, and DISCARDED."""

    manifest: dict[str, Any]
    tables: dict[str, pa.Table]


def cell_state(store: Store, cell: Cell) -> CellState:
    """The state of a cell. Costs up to four requests to the store, of a trained one ten."""
    place = ("cells", cell.cell_id)
    if read_result(store, cell.cell_id) is not None:
        return CellState.FINISHED
    if open_checkpoint(store, cell.cell_id, f"checkpoint-{cell.updates}") is not None:
        return CellState.TRAINED
    if cell.rivals and store.read_json(*place, STOPPED_EARLY) is not None:
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


def read_result(store: Store, cell_id: str) -> dict[str, Any] | None:
    """The result of a finished cell; None if it is absent or fails verification."""
    place = ("cells", cell_id, RESULT)
    opened = store.open_json(*place)
    if opened is None:
        return None
    result = opened.value
    if not opened.proven and (not isinstance(result, dict) or result.get("cell_id") != cell_id):
        store.warn_unsound("is not the result of this cell", *place)
        return None
    return dict(result)


def read_cell(store: Store, cell_id: str) -> Cell | None:
    """The settings of a cell that any sweep started.

    None if the file is absent, fails verification, or is of a version with other settings.
    """
    place = ("cells", cell_id, STARTED)
    opened = store.open_json(*place)
    if opened is None:
        return None
    try:
        cell = Cell.model_validate(opened.value)
    except ValidationError:
        return None
    if not opened.proven and cell.cell_id != cell_id:
        store.warn_unsound(f"is cell {cell.cell_id}", *place)
        return None
    return cell


def open_checkpoint(store: Store, cell_id: str, name: str) -> Checkpoint | None:
    """A complete checkpoint: its tables can be read, and its other files have their sizes.

    `checkpoint_problems` also reads the other files.
    """
    place = f"cells/{cell_id}/{name}"
    opened = store.open_json(place, MANIFEST)
    if opened is None:
        return None
    sizes = store.sizes(place) if opened.files else {}
    if any(size_problem(proof, sizes.get(name)) for name, proof in (opened.files or {}).items()):
        return None
    tables = {}
    listed = {DISCARDED: GROUPS} if f"{DISCARDED}.parquet" in (opened.files or {}) else {}
    for table, schema in (TABLES | listed).items():
        read = store.read_table(schema, place, f"{table}.parquet")
        if read is None:
            return None
        tables[table] = read
    return Checkpoint(opened.value, tables)


def checkpoint_problems(store: Store, cell_id: str, name: str) -> list[Checked]:
    """What fails verification of a checkpoint that has a manifest; reads all files.

    A file that the manifest does not list fails, too: the trainer could load it.
    """
    place = f"cells/{cell_id}/{name}"
    files = [*check_folder(store, place, MANIFEST, strict=True)]
    tables = {f"{place}/{table}.parquet" for table in TABLES} - {each.path for each in files}
    missing = [Checked(path, "is missing") for path in sorted(tables)]
    return [each for each in (*files, *missing) if each.problem]
