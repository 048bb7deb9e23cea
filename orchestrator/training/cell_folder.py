"""The folder of one cell in a store: the cell's state and its stored files.

Only this module determines the state of a cell and the names of its files.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, NotRequired, Self, TypedDict

import pyarrow as pa
from pydantic import ValidationError

from orchestrator.planning.cells import Cell
from orchestrator.planning.result import GpuMemory, Result
from orchestrator.sampling.gpu_peaks import Phase
from orchestrator.storage.locks import is_held
from orchestrator.storage.proof import FileProof, Json, Unsound, file_proof
from orchestrator.storage.schema import EVALUATIONS, GROUPS, LOG
from orchestrator.storage.store import Store
from orchestrator.storage.verification import Checked, check_folder, size_problem
from orchestrator.training.cell_paths import CELLS, RESULT, is_cell

logger = logging.getLogger(__name__)

STARTED = "cell.json"  # the cell's settings, written when its first trial starts
MANIFEST = "decile.json"  # written last into a checkpoint; completes it
LEDGER = "ledger.json"  # the cell's consumption; in a finished cell, a copy of part of RESULT
README = "README.md"  # of a finished cell, for users of the adapter
MICRO_BATCH = "micro_batch.json"  # the size that fitted this machine's memory
TABLES = {"groups": GROUPS, "evaluations": EVALUATIONS, "log": LOG}  # of a cell or a checkpoint
DISCARDED = "discarded"  # groups that an online policy drew and did not train on, schema GROUPS
REFRESHED = "refreshed"  # prompts probed again during training, schema GROUPS
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")
FINAL_ADAPTER = "adapter"  # after the last update
ADAPTERS, EVALUATED = "adapters", "evaluated"  # by update, for evaluation after training


class CellState(StrEnum):
    """The state of a cell."""

    PENDING = "pending"
    """No trial has started it."""
    RUNNING = "running"
    """A trial has started it; the next one resumes from the last complete checkpoint, if any."""
    TRAINED = "trained"
    """All updates are done; only evaluations of its checkpoints may be missing."""
    FINISHED = "finished"
    """Its result is stored."""

    @property
    def needs_training(self) -> bool:
        """Whether updates are missing."""
        return self in (CellState.PENDING, CellState.RUNNING)


class Progress(TypedDict):
    """The content of a checkpoint's manifest besides the files.

    base_weights: missing in files of earlier versions. peaks_gib: only with a GPU. start_seconds:
    only of a finished cell.
    """

    seconds: float
    evaluation_seconds: float
    peak_gib: float
    base_weights: NotRequired[str]
    peaks_gib: NotRequired[Mapping[Phase, float]]
    start_seconds: NotRequired[float]


class Checkpoint(NamedTuple):
    """Decile's part of a checkpoint.

    tables: by their names in TABLES, and DISCARDED and REFRESHED.
    """

    update: int
    manifest: Progress
    tables: dict[str, pa.Table]


class Finished(NamedTuple):
    """The stored result of a finished cell; tables as in a checkpoint."""

    result: Result
    tables: dict[str, pa.Table]


class CellFolder:
    """The stored files of one cell. Every call reads them, since trials may write at any time.

    A damaged or missing file is logged and treated as if it was never written.
    """

    def __init__(self, store: Store, cell_id: str) -> None:
        self.store = store
        self.cell_id = cell_id
        self.place = f"{CELLS}/{cell_id}"

    @classmethod
    def all(cls, store: Store) -> list[Self]:
        """The folders of all cells of a store."""
        return [cls(store, cell_id) for cell_id in store.folders(CELLS)]

    @classmethod
    def at(cls, folder: Path) -> Self | None:
        """The cell of a local folder; None if the folder is not where cells are."""
        if not is_cell(folder):
            return None
        path = folder.resolve()
        return cls(Store(str(path.parents[1])), path.name)

    def state(self, cell: Cell) -> CellState:
        """The state of `cell`, which has this folder.

        Takes up to four requests to the store; ten for a trained cell.
        """
        if self.result() is not None:
            return CellState.FINISHED
        if self.checkpoint(cell.updates) is not None:
            return CellState.TRAINED
        started = self.store.exists(self.place, STARTED)
        return CellState.RUNNING if started else CellState.PENDING

    def is_training(self) -> bool:
        """Whether a trial holds the cell's lock, which only local stores have."""
        return self.store.local and is_held(Path(self.store.path(self.place)))

    def settings(self) -> Cell | None:
        """The cell as a sweep started it; None also for a version with different settings."""
        stored = self.store.read_json(self.place, STARTED)
        try:
            return None if stored is None else Cell.model_validate(stored)
        except ValidationError:
            return None

    def save_settings(self, cell: Cell) -> None:
        """Store the cell's settings."""
        self.store.write_json(cell.model_dump(mode="json"), self.place, STARTED)

    def micro_batch(self) -> int | None:
        """The micro-batch stored by `save_micro_batch`, if a larger one did not fit the memory."""
        stored = self.store.read_json(self.place, MICRO_BATCH)
        return None if stored is None else int(stored["micro_batch"])

    def save_micro_batch(self, size: int) -> None:
        """Store a smaller micro-batch for the next attempt."""
        self.store.write_json({"micro_batch": size}, self.place, MICRO_BATCH)

    def result(self) -> Result | None:
        """The result, if the cell is finished and all files listed in the result are sound.

        Only file sizes are compared; `finished` also reads the tables.
        """
        opened = self.store.open_json(self.place, RESULT)
        if opened is None:
            return None
        sizes = self.store.sizes(self.place)
        for name, proof in opened.files.items():
            if problem := size_problem(proof, sizes.get(name)):
                self.store.warn_unsound(problem, self.place, name)
                return None
        return self._result(opened)

    def finished(self) -> Finished | None:
        """The result and the tables; None if one of them fails verification."""
        opened = self.store.open_json(self.place, RESULT)
        result = self._result(opened) if opened else None
        tables = _read_tables(self.store, self.place, opened.files) if opened else None
        return Finished(result, tables) if result and tables else None

    def _result(self, opened: Json) -> Result | None:
        """The value of a file as the result; None for a version with different fields."""
        try:
            return Result.model_validate(opened.value)
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"]))
            problem = f"is not a result ({field} is missing or not valid)"
            self.store.warn_unsound(problem, self.place, RESULT)
            return None

    def save_result(self, result: Result, files: Mapping[str, FileProof]) -> None:
        """Finish the cell with its result, which lists `files`; delete files for training."""
        self.store.write_json(result.as_json(), self.place, RESULT, files=files)
        self.drop_checkpoints()

    @staticmethod
    def checkpoint_name(update: int) -> str:
        """The name of a checkpoint's folder, in the store and in the trainer's output folder."""
        return f"checkpoint-{update}"

    def checkpoint_place(self, update: int) -> str:
        """The folder of the checkpoint after `update` updates."""
        return f"{self.place}/{self.checkpoint_name(update)}"

    def checkpoints(self, *, complete: bool = True) -> list[int]:
        """The updates that have checkpoints, ascending; `complete`: only those with a manifest."""
        matches = map(
            re.compile(r"checkpoint-([1-9][0-9]*)").fullmatch, self.store.folders(self.place)
        )
        updates = sorted(int(match[1]) for match in matches if match)
        if not complete:
            return updates
        return [u for u in updates if self.store.exists(self.checkpoint_place(u), MANIFEST)]

    def checkpoint(self, update: int) -> Checkpoint | None:
        """A complete checkpoint: its tables can be read, and its other files have their sizes.

        `latest` also reads the other files.
        """
        place = self.checkpoint_place(update)
        opened = self.store.open_json(place, MANIFEST)
        if opened is None:
            return None
        sizes = self.store.sizes(place)
        if any(size_problem(proof, sizes.get(name)) for name, proof in opened.files.items()):
            return None
        tables = _read_tables(self.store, place, opened.files)
        return Checkpoint(update, opened.value, tables) if tables else None

    def memory_so_far(self) -> GpuMemory | None:
        """The GPU memory of a cell in training, from its newest checkpoint; None on a CPU."""
        for update in self.checkpoints()[-1:]:
            manifest = self.store.read_json(self.checkpoint_place(update), MANIFEST)
            if manifest and (peak := manifest["peak_gib"]):
                return GpuMemory(peak, manifest.get("peaks_gib", {}), done=False)
        return None

    def last_update(self) -> int:
        """The update that it resumes from; 0 without a checkpoint. Skips the trainer's files."""
        usable = (u for u in reversed(self.checkpoints()) if self.checkpoint(u) is not None)
        return next(usable, 0)

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint with only sound files; None to start over.

        Newer checkpoints with a manifest that fail verification are set aside and logged. A file
        that the manifest does not list also fails, because the trainer could load it.
        """
        for update in reversed(self.checkpoints()):
            place = self.checkpoint_place(update)
            files = [*check_folder(self.store, place, MANIFEST, strict=True)]
            tables = {f"{place}/{table}.parquet" for table in TABLES} - {f.path for f in files}
            missing = [Checked(path, "is missing") for path in sorted(tables)]
            self.set_aside(update, [each for each in (*files, *missing) if each.problem])
            if (checkpoint := self.checkpoint(update)) is not None:
                return checkpoint
        return None

    def set_aside(self, update: int, unsound: Sequence[Checked]) -> None:
        """Set aside files of a checkpoint, and its manifest if it lists one of them."""
        for path, problem, _, listed in unsound:
            remedy = "the checkpoint before it is used" if listed else "set aside"
            logger.warning("%s %s: %s", path, problem, remedy)
            self.store.set_aside(path)
        if any(each.listed for each in unsound):
            self.store.set_aside(self.checkpoint_place(update), MANIFEST)

    def drop_checkpoints(self) -> None:
        """Delete a finished cell's checkpoints, intermediate adapters and their evaluations."""
        for name in self.store.folders(self.place):
            if name.startswith("checkpoint-") or name in (ADAPTERS, EVALUATED):
                self.store.delete_folder(self.place, name)

    def keep_adapter(self, update: int, folder: str = FINAL_ADAPTER) -> dict[str, FileProof]:
        """Copy the adapter (safetensors and its config) from a checkpoint to a folder.

        Returns the files by name. If they differ from the manifest, sets the checkpoint aside and
        raises Unsound.
        """
        checkpoint = self.checkpoint_place(update)
        opened = self.store.open_json(checkpoint, MANIFEST)
        listed = opened.files if opened else {}  # empty while a checkpoint is being completed
        files = {}
        for file in ADAPTER:
            path = f"{checkpoint}/{file}"
            data = self.store.read_bytes(path)
            proof = file_proof(data)
            if listed.get(file, proof) != proof:
                self.set_aside(update, [Checked(path, "does not match its hash")])
                raise Unsound(f"{path} does not match its hash: rerun to resume before it")
            self.store.write_bytes(data, self.place, folder, file)
            files[file] = proof
        return files

    def copy_adapter(self, other: "CellFolder") -> dict[str, FileProof] | None:
        """Copy the adapter of another, finished cell; None if it fails verification."""
        adapter = other.final_adapter()
        if adapter is None:
            return None
        for name, data in adapter.items():
            self.store.write_bytes(data, self.place, FINAL_ADAPTER, name)
        return {name: file_proof(data) for name, data in adapter.items()}

    def final_adapter(self) -> dict[str, bytes] | None:
        """The files of a finished cell's adapter by name; None if one fails verification.

        Empty if the result lists none.
        """
        opened = self.store.open_json(self.place, RESULT)
        if opened is None:
            return None
        files = {}
        for name in ADAPTER:
            if (listed := opened.files.get(f"{FINAL_ADAPTER}/{name}")) is not None:
                files[name] = self.store.read_bytes(self.place, FINAL_ADAPTER, name)
                if file_proof(files[name]) != listed:
                    return None
        return files

    def kept_place(self, update: int) -> str:
        """The folder of the adapter that is kept for evaluation after training."""
        return f"{self.place}/{ADAPTERS}/{update}"

    def keep_for_evaluation(self, update: int) -> None:
        """Keep the adapter of a checkpoint until it is evaluated after training."""
        files = self.keep_adapter(update, f"{ADAPTERS}/{update}")
        self.store.write_json({"update": update}, self.kept_place(update), MANIFEST, files=files)

    def adapter_problems(self, update: int) -> dict[str, str]:
        """Why files of an adapter that was kept for evaluation fail verification, by path."""
        place = self.kept_place(update)
        files = {each.path: each.problem for each in check_folder(self.store, place, MANIFEST)}
        missing = {f"{place}/{name}": "is missing" for name in (*ADAPTER, MANIFEST)}
        return {path: problem for path, problem in (missing | files).items() if problem}

    def evaluations(self) -> dict[int, tuple[pa.Table, float]]:
        """Update -> its sound evaluation after training, and the seconds that it took."""
        place, evaluations = f"{self.place}/{EVALUATED}", {}
        for name in self.store.names(place):
            update, _, kind = name.partition(".")
            if kind == "parquet" and update.isdecimal():
                table = self.store.read_table(EVALUATIONS, place, name)
                timing = self.store.read_json(place, f"{update}.json")
                if table is not None and timing is not None:
                    evaluations[int(update)] = (table, timing["seconds"])
        return dict(sorted(evaluations.items()))

    def save_evaluation(self, update: int, table: pa.Table, seconds: float) -> None:
        """Store an evaluation after training; its table is written last."""
        place = f"{self.place}/{EVALUATED}"
        self.store.write_json({"seconds": seconds}, place, f"{update}.json")
        self.store.write_table(table, place, f"{update}.parquet")

    def pending_updates(self, cell: Cell) -> list[int]:
        """The updates with an adapter that was kept but not evaluated yet."""
        evaluated = self.evaluations()
        names = self.store.folders(self.place, ADAPTERS)
        kept = sorted(int(name) for name in names if name.isdecimal())
        return [u for u in kept if cell.evaluates_after(u) and u not in evaluated]

    def lost_updates(self, cell: Cell) -> list[int]:
        """Updates with neither a sound evaluation nor a sound adapter, up to the last checkpoint.

        To evaluate them, training must be repeated from an earlier checkpoint.
        """
        newest = self.checkpoints()[-1:]
        checkpoint = self.checkpoint(newest[0]) if newest else None
        if checkpoint is None:
            return []
        in_training = checkpoint.tables["evaluations"]["update"].to_pylist()  # without an engine
        evaluated = {*in_training, *self.evaluations()}
        due = [u for u in range(1, checkpoint.update + 1) if cell.evaluates_after(u)]
        return [u for u in due if u not in evaluated and self.adapter_problems(u)]

    def check(self, unread: str | None = None) -> Iterator[Checked]:
        """Check every file; `unread` as in `check_folder`.

        A folder in training has no checkpoints to check: the trial verifies the one that it resumes
        from, and deletes older ones.
        """
        if self.is_training():
            return
        for name, _, problem in self.store.entries(self.place):
            if problem and re.fullmatch(r"checkpoint-\d+", name):  # the trainer would follow a link
                yield Checked(f"{self.place}/{name}", problem, listed=False)
        for update in self.checkpoints():
            place = self.checkpoint_place(update)
            yield from check_folder(self.store, place, MANIFEST, strict=True)
        for name in self.store.folders(self.place, ADAPTERS):
            yield from check_folder(self.store, f"{self.place}/{ADAPTERS}/{name}", MANIFEST)
        skip = ("checkpoint-", f"{ADAPTERS}/")
        for checked in check_folder(self.store, self.place, RESULT, skip=skip, unread=unread):
            if checked.path == f"{self.place}/{LEDGER}" and not checked.problem:
                result = self.store.open_json(self.place, RESULT)
                copied = result is not None and result.value["ledger"]
                if copied and self.store.read_json(checked.path) != copied:
                    checked = checked._replace(problem=f"is not the ledger of {RESULT}")
            yield checked

    def forget_unusable(self, cell: Cell) -> list[str]:
        """Set aside the checkpoints after an evaluation that cannot be made; returns notes.

        Call it in the trial that trains the cell, or while the cell is not in training.
        """
        lost = self.lost_updates(cell)
        if not lost:
            return []
        for update in self.checkpoints():
            if update >= lost[0]:
                self.store.set_aside(self.checkpoint_place(update), MANIFEST)
        where = self.kept_place(lost[0])
        return [f"{where} cannot be evaluated: the cell resumes from a checkpoint before"]


def cell_state(store: Store, cell: Cell) -> CellState:
    """The state of a cell."""
    return CellFolder(store, cell.cell_id).state(cell)


def write_tables(store: Store, place: str, tables: Mapping[str, pa.Table]) -> dict[str, FileProof]:
    """Write tables by their names; returns the files by name."""
    files = {f"{name}.parquet": table for name, table in tables.items()}
    return {file: store.write_table(table, place, file) for file, table in files.items()}


def _read_tables(
    store: Store, place: str, files: Mapping[str, FileProof]
) -> dict[str, pa.Table] | None:
    """The tables of a folder that its manifest lists.

    None if one is missing or fails verification.
    """
    optional = [name for name in (DISCARDED, REFRESHED) if f"{name}.parquet" in files]
    tables = {}
    for name, schema in (TABLES | dict.fromkeys(optional, GROUPS)).items():
        file = f"{name}.parquet"
        listed = files.get(file)
        table = store.read_table(schema, place, file, listed=listed) if listed else None
        if table is None:
            if not listed or not store.exists(place, file):
                store.warn_unsound("is missing", place, file)
            return None
        tables[name] = table
    return tables
