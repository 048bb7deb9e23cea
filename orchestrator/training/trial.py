"""One cell, from its subset to its result: GRPO with evaluations in between.

`run_cell` runs in the process of a Tune trial, or in every worker of a Ray Train group. It may be
killed at any time. Called again, it resumes from the last complete checkpoint; for a finished cell
it does nothing.

A trainer writes its checkpoints to a local folder. With a file system store, this is the cell's own
folder. With an object store, it is a scratch folder on the node: every checkpoint is uploaded
before its manifest, and a cell that resumes downloads it, on any node. In both cases a kill loses
the updates since the last checkpoint.
"""

import io
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.evaluation.evaluator import Evaluator
from orchestrator.evaluation.groups import GroupRecorder, Tally
from orchestrator.evaluation.metrics import by_update, evaluation_metrics
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.plugins.counts import counted
from orchestrator.sampling.gpu_peaks import GpuPeaks
from orchestrator.selection.candidates import history_of
from orchestrator.selection.stored import read_subset
from orchestrator.storage.errors import StoreError, one_line
from orchestrator.storage.locks import exclusive
from orchestrator.storage.proof import FileProof
from orchestrator.storage.store import Store
from orchestrator.storage.verification import Checked, is_stored, local_files
from orchestrator.training.activity import Activity, Report, UpdateReport
from orchestrator.training.cell_folder import MANIFEST, CellFolder, CellState, Checkpoint
from orchestrator.training.micro_batch import fitted_grpo, shrink
from orchestrator.training.record import CellRecord, finish, finish_trained, versions
from orchestrator.training.workers import Workers
from policies import History
from tasks.prompt_table import PromptTable

if TYPE_CHECKING:
    from orchestrator.sampling.transformers import TransformersSampler
    from orchestrator.training.guards import Guards

# Files of the trainer that it reads with its own libraries.
_LOADED = re.compile(
    r"(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth|"
    r"adapter_model\.safetensors|(adapter_config|trainer_state)\.json"
)
REASON_LENGTH = 200
KEPT = 2  # checkpoints of a running cell
BUSY_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one cell, in one of the processes that train it."""

    def __init__(self, store: Store, cell_id: str, rank: int = 0) -> None:
        self.store, self.cell = store, CellFolder(store, cell_id)
        self.folder: Path
        """The folder where the trainer writes `checkpoint-N`."""
        if store.local:
            self.folder = store.local_path(self.cell.place)
            return
        # A folder of this user on this node, the same for every execution of the cell.
        base = Path(tempfile.gettempdir()) / f"decile-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise StoreError(f"{base} belongs to another user: set TMPDIR to a folder of your own")
        self.folder = base / cell_id / str(rank)
        self.folder.mkdir(parents=True, exist_ok=True)

    def restored(self, update: int) -> Path:
        """The local folder of a complete checkpoint of the store."""
        folder = self.folder / self.cell.checkpoint_name(update)
        if not self.store.local:
            self.store.copy_out(folder, self.cell.checkpoint_place(update))
        return folder

    def keep(self, update: int) -> None:
        """Upload this process's files of a checkpoint, which has no manifest yet."""
        folder = self.folder / self.cell.checkpoint_name(update)
        if not self.store.local and folder.is_dir():
            self.store.copy_in(folder, self.cell.checkpoint_place(update))

    def files(self, update: int) -> dict[str, FileProof]:
        """Every file of a checkpoint, by relative path; on a local disk, all are flushed."""
        files = local_files(self.folder / self.cell.checkpoint_name(update))
        place = self.cell.checkpoint_place(update)
        for file in self.store.sizes(place):
            if file not in files and is_stored(file):  # of another process
                files[file] = self.store.hash_file(place, file)
        return files

    def forget_old(self, newest: int) -> None:
        """Delete checkpoints before `newest`, which is complete, except those to keep.

        Later checkpoints of an earlier execution are incomplete; the trainer writes them again. Its
        own rotation would count them, and delete the one that it has just written.
        """
        updates = self.cell.checkpoints(complete=False)
        for update in [update for update in updates if update <= newest][:-KEPT]:
            # The manifest goes first: a half-deleted checkpoint is incomplete.
            self.store.delete(self.cell.checkpoint_place(update), MANIFEST)
            self.store.delete_folder(self.cell.checkpoint_place(update))

    def clear(self) -> None:
        """Delete the scratch files on this node."""
        if self.store.local:
            return
        for child in self.folder.iterdir():
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)


def resumable_checkpoint(folder: CellFolder) -> Checkpoint | None:
    """The newest sound checkpoint that can be loaded; None to start over.

    Newer ones are set aside, and logged.
    """
    while (newest := folder.latest()) is not None:
        unsound = [*_unloadable(folder.store, folder.checkpoint_place(newest.update))]
        if not unsound:
            return newest
        folder.set_aside(newest.update, unsound)
    return None


def _unloadable(store: Store, place: str) -> Iterator[Checked]:
    """Files that the trainer cannot load because they do not have their type: it would always fail.

    The manifest only shows that they are unchanged since they were written, perhaps with different
    libraries.
    """
    import torch
    from safetensors.torch import load
    from transformers import TrainerState
    from transformers.trainer_pt_utils import safe_globals

    for name in filter(_LOADED.fullmatch, store.names(place)):
        data = store.read_bytes(place, name)
        try:  # as the trainer does, on a CPU
            if name.endswith(".json"):
                content = json.loads(data)
                if name.startswith("trainer_state"):
                    TrainerState(**content)
            elif name.endswith(".safetensors"):
                load(data)
            else:
                with safe_globals():
                    torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception as error:  # what pickle raises depends on the bytes
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                raise
            reason = f"{type(error).__name__}: {one_line(str(error))[:REASON_LENGTH]}"
            yield Checked(f"{place}/{name}", f"cannot be loaded ({reason})")


class Start(NamedTuple):
    """The start of a trial: a checkpoint's update, and GRPO settings that fit the memory."""

    checkpoint: int | None
    grpo: dict[str, Any]


def run_cell(cell: Cell, storage: str, report: Report) -> None:
    """Run or resume a cell in this process, which may be one of several that train it together.

    Raises ValueError if training ends before its last update: TRL silently trains nothing if a
    subset is smaller than one batch. Raises SmallerBatch if another attempt may fit the memory.
    """
    store, workers = Store(storage), Workers.of(cell)
    checkpoints = Checkpoints(store, cell.cell_id, workers.rank)
    folder = checkpoints.cell
    with ExitStack() as lock:

        def waits(process: str) -> None:
            if workers.count > 1:
                raise Busy(process)
            report(waiting(process))

        def start() -> Start | Busy | None:
            try:
                lock.enter_context(exclusive(checkpoints.folder, waits))
            except Busy as busy:
                time.sleep(BUSY_SECONDS)
                return busy
            for line in folder.forget_unusable(cell):
                logger.warning(line)
            if folder.state(cell) is CellState.FINISHED:
                return None
            folder.save_settings(cell)
            newest = resumable_checkpoint(folder)
            if newest is not None and newest.update == cell.updates:
                # Killed before its result was written: the trainer would train another update.
                if not cell.evaluate_engine and (problem := finish_trained(store, cell)):
                    raise ValueError(f"cell {cell.name}: {problem}")
                return None
            return Start(newest.update if newest else None, fitted_grpo(cell, store))

        # Only one worker decides, because another one could see an older state of the store.
        decided = workers.from_first(start)
        if isinstance(decided, Busy):
            report(waiting(str(decided)))
        while isinstance(decided, Busy):  # the others wait for worker 0 for a limited time
            decided = workers.from_first(start)
        checkpoints.clear()  # a killed process may have left incomplete files
        if decided is None:
            return
        try:
            Trial(cell, store, checkpoints, decided, report, workers).run()
        finally:
            checkpoints.clear()
        workers.wait()  # until no worker can hang: later hangs would not be detected


class Busy(Exception):
    """Another process is training the cell; the message is its id."""


def waiting(process: str) -> UpdateReport:
    """The report of a cell that another process is training."""
    text = f"waiting for process {process}, which is training this cell"
    return {"update": 0, "metrics": {}, "explanation": text}


class Trial:
    """One execution of a cell."""

    def __init__(
        self,
        cell: Cell,
        store: Store,
        checkpoints: Checkpoints,
        start: Start,
        report: Report,
        workers: Workers,
    ) -> None:
        self.started = time.monotonic()
        self.cell, self.store, self.checkpoints, self.report = cell, store, checkpoints, report
        self.workers, self.grpo, self.checkpoint = workers, start.grpo, start.checkpoint
        groups = GroupRecorder(
            discarded=[] if cell.discards else None, refreshed=[] if cell.refresh else None
        )
        record: CellRecord | None = CellRecord(groups)
        if self.checkpoint is not None:
            checkpoint = checkpoints.cell.checkpoint(self.checkpoint)
            record = CellRecord.of(checkpoint) if checkpoint else None
        if record is None:
            raise RuntimeError(
                f"worker {workers.rank} cannot read checkpoint-{self.checkpoint} of cell "
                f"{cell.name}: pass a --storage that all nodes share"
            )
        self.record = record
        self.pool = load_pool(cell.probe.dataset)
        self.evaluator = Evaluator(cell, self.pool, workers.rank, workers.count)
        self.activity = Activity(report if workers.count == 1 else None)
        self.peaks = GpuPeaks(record.peaks_gib, record.peak_gib)

    def run(self) -> None:
        """Train from the end of the record, evaluate, finish."""
        import torch

        from orchestrator.sampling.decoding import allocation_errors
        from orchestrator.sampling.transformers import TransformersSampler
        from orchestrator.training.guards import Guards
        from orchestrator.training.refresh import Refresher
        from orchestrator.training.trainer import Before, CellCallback, build_trainer

        cell = self.cell
        torch.set_num_threads(max(1, int(cell.resources.cpus)))
        if not self.record.has_evaluation(0):
            self.record.add_evaluation(self.evaluator.base(self.store))
        resumes_at = self.checkpoint or 0
        micro_batch = int(self.grpo["per_device_train_batch_size"])
        subset, history = self._subset()
        place, task = self.checkpoints.folder, self.pool.task
        trainer = build_trainer(cell, place, task, subset, self.record, self.grpo, history)
        trainer.generating = partial(self.peaks.phase, "rollout")
        if self.grpo != cell.grpo:
            trainer.notes.append(
                f"resumed after running out of memory: micro-batch of {micro_batch}, "
                "same effective batch"
            )
        tokenizer: Any = trainer.processing_class
        if trainer.decoder:
            tokenizer = trainer.decoder.sampler.tokenizer
            trainer.decoder.listeners = self.activity.listeners("rollouts")
        chat_arguments = cell.probe.model.chat_template_kwargs
        sampler = TransformersSampler(trainer.model, tokenizer, chat_arguments)
        before: Before | None = None
        if cell.refresh:
            groups, listeners = self.record.groups, self.activity.listeners("refresh")
            refresh = Refresher(cell, subset, task, sampler, groups, self.workers, listeners)
            before = self.peaks.phase("rollout")(refresh)
        guards = Guards(cell, trainer, sampler, self.record, resumes_at)
        after = AfterUpdate(self, sampler, guards, len(subset), trainer.notes)
        callback = CellCallback(self.record, after.update, after.save, before, self.activity)
        trainer.add_callback(callback)
        resumed = str(self.checkpoints.restored(resumes_at)) if resumes_at else None
        self.record.start_seconds = time.monotonic() - self.started
        try:
            with self.peaks.phase("update"), allocation_errors():
                trainer.train(resume_from_checkpoint=resumed)
        except torch.OutOfMemoryError as error:  # a new process resumes, with all memory free
            raise shrink(cell, self.store, micro_batch) from error
        updates = trainer.state.global_step
        if updates != cell.updates:
            raise ValueError(
                f"cell {cell.name} ended after {updates} of {counted(cell.updates, 'update')}"
            )
        self.workers.from_first(self._end)

    def _subset(self) -> tuple[PromptTable, History | None]:
        """The cell's prompts by id, since training does not depend on their ranks.

        With their history, in the same order, for an online policy or an allocation.
        """
        table = read_subset(self.store, self.cell)
        if table is None:
            raise ValueError(
                f"the subset {self.cell.subset_key} of cell {self.cell.name} is missing: "
                "rerun the same command to select it again"
            )
        rows = self.pool.train.rows_of(table["prompt_id"])
        if (rows < 0).any():
            raise ValueError(f"the pool of cell {self.cell.name} lacks prompts of its subset")
        subset = self.pool.train.take(rows)
        used = self.cell.online or self.cell.allocation
        history = history_of(self.cell, table.take(subset.order)) if used else None
        return subset.take(subset.order), history

    def _end(self) -> None:
        """Write the result, unless an engine's evaluations come later."""
        if not self.cell.evaluate_engine:
            adapter = self.checkpoints.cell.keep_adapter(self.cell.updates)
            finish(self.store, self.cell, self.record, versions(), adapter)


@dataclass(frozen=True)
class AfterUpdate:
    """A trial's work after every update, and after every checkpoint.

    size: of the subset. notes: of the next report.
    """

    trial: Trial
    sampler: "TransformersSampler"
    guards: "Guards"
    size: int
    notes: list[str]

    def update(self, update: int) -> bool:
        """Evaluate if due, and report the update's numbers.

        Returns whether to write a checkpoint now.
        """
        trial = self.trial
        cell = trial.cell
        record = trial.record
        due = cell.evaluates_after(update) and not record.has_evaluation(update)
        if due and not cell.evaluate_engine:
            started = time.monotonic()
            listeners = trial.activity.listeners("evaluation")
            with trial.peaks.phase("evaluation"):
                evaluation = trial.evaluator.evaluate(self.sampler, update, listeners)
            record.add_evaluation(evaluation)
            record.evaluation_seconds += time.monotonic() - started
        metrics = record.groups.metrics(update) | record.choice_metrics(update)
        if record.has_evaluation(update):
            evaluations = by_update(record.evaluations)
            metrics |= evaluation_metrics(evaluations[update], evaluations[0], cell.pass_at)
        groups = record.groups.tallies.get(update, Tally())._asdict()
        explanation = "; ".join(self.notes)
        self.notes.clear()
        trial.report(
            {"update": update, "metrics": metrics, "groups": groups, "explanation": explanation}
        )
        trial.activity.reported()
        self.guards.check_rollouts(record.log)
        return due and bool(cell.evaluate_engine)

    def save(self, update: int) -> None:
        """Complete the trainer's checkpoint, once every worker has written its part of it."""
        self.guards.check_weights(update)
        self.trial.checkpoints.keep(update)
        self.trial.workers.wait()
        self.trial.workers.from_first(lambda: self._complete(update))

    def _complete(self, update: int) -> None:
        trial = self.trial
        cell = trial.cell
        record = trial.record
        if cell.evaluate_engine and cell.evaluates_after(update):
            trial.checkpoints.cell.keep_for_evaluation(update)
        files = trial.checkpoints.files(update)
        trial.peaks.note()
        record.peak_gib = trial.peaks.reserved_gib
        ledger = record.running_ledger(cell, self.size)
        record.save(trial.store, cell.cell_id, update, ledger, files)
        trial.checkpoints.forget_old(update)
