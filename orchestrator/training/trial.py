"""One cell, from its subset to its result: GRPO with evaluations in between.

`run_cell` serves a Tune trial in one process and every worker of a Ray Train group. It may be
killed at any moment: called again, it resumes from the last complete checkpoint, and it does
nothing for a cell that has its result.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from orchestrator.config.entries import build_online_policy
from orchestrator.evaluation.evaluator import Evaluator, is_due
from orchestrator.evaluation.groups import GroupRecorder, Tally
from orchestrator.evaluation.metrics import by_update, evaluation_metrics
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.selection.candidates import history_of
from orchestrator.selection.stored import read_subset
from orchestrator.storage.locks import exclusive
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import STARTED, CellState, cell_state
from orchestrator.training.checkpoints import Checkpoints, resumable_checkpoint
from orchestrator.training.early_stopping import StopDecision, interim_check, save_stop
from orchestrator.training.micro_batch import fitted_grpo, shrink
from orchestrator.training.record import (
    CellRecord,
    finish,
    keep_adapter,
    keep_for_evaluation,
    read_checkpoint,
    versions,
)
from orchestrator.training.workers import Workers
from policies import History, discards
from tasks.prompt_table import PromptTable

# Receives {"update": u, "metrics": {MLflow name: value}, "groups": Tally as a dict, "explanation":
# what else happened, as text} after every update.
Report = Callable[[dict[str, Any]], None]


class Start(NamedTuple):
    """What a trial starts from: a checkpoint's name, and GRPO settings that fit the memory."""

    checkpoint: str | None
    grpo: dict[str, Any]


def run_cell(cell: Cell, storage: str, report: Report) -> None:
    """Run or resume a cell in this process, which may be one of several that train it together.

    Raises ValueError when training ends short of its updates: TRL trains nothing, silently, when a
    subset is smaller than one batch. Raises SmallerBatch where another attempt may fit the memory.
    """
    store, workers = Store(storage), Workers.of(cell)
    checkpoints = Checkpoints(store, cell.cell_id, workers.rank)
    with ExitStack() as lock:

        def waits(process: str) -> None:
            if workers.count == 1:  # a report of one worker of a group would wait for the others
                text = f"waits until process {process}, which trains this cell, ends"
                report({"update": 0, "metrics": {}, "explanation": text})

        def start() -> Start | None:
            lock.enter_context(exclusive(checkpoints.folder, waits))
            state = cell_state(store, cell)
            if state.settled or (state is CellState.TRAINED and cell.evaluate_engine):
                return None
            store.write_json(cell.model_dump(mode="json"), "cells", cell.cell_id, STARTED)
            return Start(resumable_checkpoint(store, cell.cell_id), fitted_grpo(cell, store))

        # Only one worker decides: another could see an older state of the store.
        decided = workers.from_first(start)
        if decided is None:
            return
        checkpoints.clear()  # a killed process may have left incomplete files
        try:
            Trial(cell, store, checkpoints, decided, report, workers).run()
        finally:
            checkpoints.clear()


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
        discarding = cell.online is not None and discards(build_online_policy(cell.online))
        record: CellRecord | None = CellRecord(GroupRecorder(discarded=[] if discarding else None))
        if self.checkpoint:
            record = read_checkpoint(store, cell.cell_id, self.checkpoint)
        if record is None:
            raise RuntimeError(
                f"worker {workers.rank} cannot read {self.checkpoint} of cell {cell.name}: "
                "give --storage that all nodes share"
            )
        self.record = record
        self.pool = load_pool(cell.probe.dataset)
        self.evaluator = Evaluator(cell, self.pool, workers.rank, workers.count)
        self.stop: StopDecision | None = None
        self.notes: list[str] = []  # reported with the next update

    def run(self) -> None:
        """Train from where the record stands, evaluate, finish."""
        import torch

        from orchestrator.sampling.decoding import allocation_errors
        from orchestrator.sampling.transformers import TransformersSampler
        from orchestrator.training.callback import CellCallback
        from orchestrator.training.trainer import build_trainer

        cell = self.cell
        torch.set_num_threads(max(1, int(cell.resources.cpus)))
        if not self.record.has_evaluation(0):
            self.record.add_evaluation(self.evaluator.base(self.store))
        micro_batch = int(self.grpo["per_device_train_batch_size"])
        subset, history = self._subset()
        self.size = len(subset)
        place, task = self.checkpoints.folder, self.pool.task
        trainer = build_trainer(cell, place, task, subset, self.record, self.grpo, history)
        self.notes = trainer.notes
        if self.grpo != cell.grpo:
            self.notes.append(
                f"resumed after running out of memory: micro-batch of {micro_batch}, "
                "same effective batch"
            )
        tokenizer: Any = trainer.processing_class
        self.sampler = TransformersSampler(
            trainer.model, tokenizer, cell.probe.model.chat_template_kwargs
        )
        trainer.add_callback(CellCallback(self.record, self._after_update, self._after_save))
        resumed = str(self.checkpoints.restored(self.checkpoint)) if self.checkpoint else None
        self.record.start_seconds = time.monotonic() - self.started
        try:
            with allocation_errors():
                trainer.train(resume_from_checkpoint=resumed)
        except torch.OutOfMemoryError as error:  # a new process resumes, with all its memory free
            raise shrink(cell, self.store, micro_batch) from error
        updates = trainer.state.global_step
        if self.stop is None and updates != cell.updates:
            raise ValueError(f"cell {cell.name} ended after {updates} of {cell.updates} updates")
        self.workers.from_first(lambda: self._end(updates))

    def _subset(self) -> tuple[PromptTable, History | None]:
        """The cell's prompts by id: which they are decides the training, not their ranks.

        With what is known of them, in the same order, for an online policy.
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
        history = history_of(self.cell, table.take(subset.order)) if self.cell.online else None
        return subset.take(subset.order), history

    def _after_update(self, update: int) -> tuple[bool, bool]:
        """Evaluate where it is due, and report the update's numbers.

        Returns whether to write a checkpoint now, and whether to stop training.
        """
        cell, due = self.cell, is_due(self.cell, update) and not self.record.has_evaluation(update)
        if due and not cell.evaluate_engine:
            started = time.monotonic()
            self.record.add_evaluation(self.evaluator.evaluate(self.sampler, update))
            self.record.evaluation_seconds += time.monotonic() - started
            if cell.rivals and update < cell.updates:
                self.stop = self.workers.from_first(
                    lambda: interim_check(cell, self.store, self.record, update)
                )
        metrics = self.record.groups.metrics(update)
        if self.record.has_evaluation(update):
            evaluations = by_update(self.record.evaluations)
            metrics |= evaluation_metrics(evaluations[update], evaluations[0], cell.pass_at)
        groups = self.record.groups.tallies.get(update, Tally())._asdict()
        explanation = "; ".join(self.notes)
        self.notes.clear()
        self.report(
            {"update": update, "metrics": metrics, "groups": groups, "explanation": explanation}
        )
        stop = self.stop is not None
        return stop or (due and bool(cell.evaluate_engine)), stop

    def _after_save(self, update: int) -> None:
        """Complete the trainer's checkpoint, once every worker has written its part of it."""
        self.checkpoints.keep(update)
        self.workers.wait()
        self.workers.from_first(lambda: self._complete(update))

    def _complete(self, update: int) -> None:
        import torch

        if self.cell.evaluate_engine and is_due(self.cell, update):
            keep_for_evaluation(self.store, self.cell.cell_id, update)
        files = self.checkpoints.files(update)
        if torch.cuda.is_available():
            peak = torch.cuda.max_memory_reserved() / 2**30
            self.record.peak_gib = max(self.record.peak_gib, peak)
        ledger = self.record.running_ledger(self.cell, self.size)
        self.record.save(self.store, self.cell.cell_id, update, ledger, files)
        self.checkpoints.forget_old()

    def _end(self, updates: int) -> None:
        """Write the result, or why the cell was stopped; an engine's evaluations come later."""
        if self.stop is not None:
            save_stop(self.cell, self.store, self.record, updates, self.stop)
        elif not self.cell.evaluate_engine:
            adapter = keep_adapter(self.store, self.cell.cell_id, updates, "adapter")
            finish(self.store, self.cell, self.record, versions(), adapter)
