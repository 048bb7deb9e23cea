"""How far a cell has come, read from its files in the store. The only place that decides it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from orchestrator.evaluation.groups import learnable_pct
from orchestrator.evaluation.metrics import accuracy, by_update, main
from orchestrator.planning.cells import Cell
from orchestrator.storage.proof import Json, Unsound
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


Amount = Annotated[FiniteFloat, Field(ge=0)]


class Checkpoint(NamedTuple):
    """What Decile writes into a checkpoint; tables by their names in TABLES, and DISCARDED."""

    manifest: dict[str, Any]
    tables: dict[str, pa.Table]


class Finished(NamedTuple):
    """What a finished cell has stored; tables by their names in TABLES, and DISCARDED."""

    result: dict[str, Any]
    tables: dict[str, pa.Table]


class _Ledger(BaseModel):
    """Those entries of a ledger that all versions contain; the others are numbers, too."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat] = Field(init=False)

    prompts: Amount
    rollouts: Amount
    prompt_tokens: FiniteFloat
    generated_tokens: Amount
    updates: Amount
    seconds: Amount


class _Result(BaseModel):
    """What the results of all versions contain. A share is nan where no answer could be scored."""

    model_config = ConfigDict(strict=True)

    model: str
    dataset: str
    policy: str
    seed: int
    cell_id: str
    updates: int
    size: int
    learnable_pct: float
    accuracy_base: float
    accuracy_final: float
    gain: float
    ledger: _Ledger
    versions: dict[str, str]
    timing: dict[str, float] = {}
    finished_at: AwareDatetime | None = Field(None, strict=False)


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


def is_stopped(store: Store, cell: Cell) -> bool:
    """Whether the cell is STOPPED; reads nothing of a cell that cannot be."""
    return bool(cell.rivals) and cell_state(store, cell) is CellState.STOPPED


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
    """The result of a finished cell; None if it or a file that it lists fails verification.

    Of the files, only the sizes are compared; `read_finished` also reads the tables.
    """
    opened = store.open_json("cells", cell_id, RESULT)
    if opened is None or not opened.proven:
        finished = read_finished(store, cell_id) if opened else None
        return finished.result if finished else None
    sizes = store.sizes("cells", cell_id) if opened.files else {}
    for name, proof in (opened.files or {}).items():
        if problem := size_problem(proof, sizes.get(name)):
            store.warn_unsound(problem, "cells", cell_id, name)
            return None
    return dict(opened.value)


def read_finished(store: Store, cell_id: str) -> Finished | None:
    """The result of a finished cell and its tables; None if one of them fails verification."""
    try:
        return open_finished(store, cell_id)
    except Unsound as error:
        store.warn_unsound(error, "cells", cell_id, RESULT)
        return None


def open_finished(store: Store, cell_id: str) -> Finished | None:
    """As `read_finished`. Raises Unsound for a result without a proof that is not the cell's own.

    Versions that wrote no proofs listed no files: such a result is compared with the tables.
    """
    opened = store.open_json("cells", cell_id, RESULT)
    if opened is None:
        return None
    if not opened.proven:
        _check_fields(opened.value, cell_id)
    tables = _read_tables(store, f"cells/{cell_id}", opened)
    if tables is None:
        return None
    if not opened.proven:
        _check_numbers(opened.value, tables)
    return Finished(dict(opened.value), tables)


def _check_fields(result: Any, cell_id: str) -> None:
    if not isinstance(result, dict) or result.get("cell_id") != cell_id:
        raise Unsound("is not the result of this cell")
    try:
        _Result.model_validate(result)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        raise Unsound(f"is not a result ({field} is missing or not valid)") from error


def _check_numbers(result: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    steps = by_update(main(tables["evaluations"]))
    if not {0, result["updates"]} <= steps.keys():
        raise Unsound("is not the result of its tables (other updates)")
    base, final = (accuracy(steps[update]) for update in (0, result["updates"]))
    numbers = {
        "accuracy_base": base,
        "accuracy_final": final,
        "gain": final - base,
        "learnable_pct": learnable_pct(tables["groups"], tables.get(DISCARDED)),
    }
    for name, number in numbers.items():
        if not np.isclose(result[name], number, rtol=1e-6, atol=1e-9, equal_nan=True):
            raise Unsound(f"is not the result of its tables ({name} is {number:g} there)")


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
    if not isinstance(opened.value, dict) or "seconds" not in opened.value:
        store.warn_unsound("is not the manifest of a checkpoint", place, MANIFEST)
        return None
    sizes = store.sizes(place) if opened.files else {}
    if any(size_problem(proof, sizes.get(name)) for name, proof in (opened.files or {}).items()):
        return None
    tables = _read_tables(store, place, opened)
    return Checkpoint(opened.value, tables) if tables else None


def _read_tables(store: Store, place: str, manifest: Json) -> dict[str, pa.Table] | None:
    """The tables beside a manifest, as it lists them, or each on its own if it lists nothing.

    None if one is missing or fails verification.
    """
    names, files = dict(TABLES), manifest.files
    if f"{DISCARDED}.parquet" in (files or {}) or "learnable_drawn_pct" in manifest.value:
        names[DISCARDED] = GROUPS
    tables = {}
    for name, schema in names.items():
        file = f"{name}.parquet"
        listed = files.get(file) if files is not None else None
        unlisted = files is not None and listed is None
        table = None if unlisted else store.read_table(schema, place, file, listed=listed)
        if table is None:
            if unlisted or not store.exists(place, file):
                store.warn_unsound("is missing", place, file)
            return None
        tables[name] = table
    return tables


def checkpoint_problems(store: Store, cell_id: str, name: str) -> list[Checked]:
    """What fails verification of a checkpoint that has a manifest; reads all files.

    A file that the manifest does not list fails, too: the trainer could load it.
    """
    place = f"cells/{cell_id}/{name}"
    files = [*check_folder(store, place, MANIFEST, strict=True)]
    tables = {f"{place}/{table}.parquet" for table in TABLES} - {each.path for each in files}
    missing = [Checked(path, "is missing") for path in sorted(tables)]
    return [each for each in (*files, *missing) if each.problem]
