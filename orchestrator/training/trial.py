"""One cell, from its subset to its result: GRPO with evaluations on the way.

`run_cell` serves both a Tune trial in one process and every worker of a Ray Train group. It may be
killed at any moment: called again it goes on from the last whole checkpoint, and does nothing for a
cell that has its result.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from orchestrator.evaluation.evaluator import Evaluator, is_due
from orchestrator.evaluation.metrics import by_update, evaluation_metrics
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.selection.subsets import read_subset
from orchestrator.storage.store import Store, exclusive
from orchestrator.training.cell_state import STARTED, CellState, cell_state
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.early_stopping import StopDecision, interim_check, save_stop
from orchestrator.training.micro_batch import fitted, shrink
from orchestrator.training.record import (
    ADAPTERS,
    CellRecord,
    finish,
    keep_adapter,
    latest_checkpoint,
    versions,
)
from tasks import Prompt

# Receives {"update": u, "metrics": {MLflow name: value}} after every update.
Report = Callable[[dict[str, Any]], None]


def run_cell(cell: Cell, storage: str, report: Report) -> None:
    """Run or continue a cell in this process, which may be one of several training it together.

    Raises RuntimeError when training ends short of its updates: TRL trains nothing, silently, when
    a subset is smaller than one batch.
    """
    store = Store(storage)
    rank, workers = _rank(cell)
    checkpoints = Checkpoints(store, cell.cell_id, rank)
    with exclusive(checkpoints.folder) if rank == 0 else nullcontext():
        state = cell_state(store, cell)
        if state.settled or (cell.evaluate_engine and state is CellState.TRAINED):
            return
        checkpoints.clear()  # what a killed process left may be torn
        try:
            Trial(cell, store, checkpoints, report, rank, workers).run()
        finally:
            checkpoints.clear()


def _rank(cell: Cell) -> tuple[int, int]:
    """This process among those that train the cell."""
    if cell.resources.workers == 1:
        return 0, 1
    import torch.distributed as dist

    return dist.get_rank(), dist.get_world_size()


class Trial:
    """One execution of a cell."""

    def __init__(
        self,
        cell: Cell,
        store: Store,
        checkpoints: Checkpoints,
        report: Report,
        rank: int,
        workers: int,
    ) -> None:
        self.cell, self.store, self.checkpoints, self.report = cell, store, checkpoints, report
        self.rank, self.workers, self.begun = rank, workers, time.monotonic()
        self.folder = checkpoints.folder
        found = latest_checkpoint(store, cell.cell_id)
        self.checkpoint: Path | None = checkpoints.restored(found[0]) if found else None
        self.record = found[1] if found else CellRecord()
        self.pool: Pool = load_pool(cell.probe.dataset)
        self.evaluator = Evaluator(cell, self.pool, rank, workers)
        self.hopeless: StopDecision | None = None
        self.note = ""  # said with the next update

    def run(self) -> None:
        """Train from where the record stands, evaluate, finish."""
        import torch

        from orchestrator.sampling.transformers import TransformersSampler
        from orchestrator.training.callback import CellCallback
        from orchestrator.training.trainer import build_trainer

        torch.set_num_threads(max(1, int(self.cell.resources.cpus)))
        self._start()
        grpo = fitted(self.cell, self.store)
        if grpo != self.cell.grpo:
            size = grpo["per_device_train_batch_size"]
            self.note = f"memory ended before: micro-batches of {size}, the same effective batch"
        trainer = build_trainer(
            self.cell, self.folder, self.pool.task, self._subset(), self.record, grpo
        )
        kwargs = self.cell.probe.model.chat_template_kwargs
        tokenizer: Any = trainer.processing_class
        self.sampler = TransformersSampler(trainer.model, tokenizer, kwargs)
        trainer.add_callback(CellCallback(self.record, self._after, self._save))
        self.record.start_seconds = time.monotonic() - self.begun
        try:
            trainer.train(resume_from_checkpoint=str(self.checkpoint) if self.checkpoint else None)
        except torch.OutOfMemoryError as error:  # a new process goes on, with all its memory free
            raise RuntimeError(shrink(self.cell, self.store)) from error
        done = trainer.state.global_step
        if self.hopeless is not None:
            if self.rank == 0:
                save_stop(self.cell, self.store, self.record, done, self.hopeless)
            return
        if done != self.cell.updates:
            raise RuntimeError(f"cell {self.cell.name} ended after {done} of {self.cell.updates}")
        if self.rank == 0:
            if self.cell.evaluate_engine:
                return  # its adapters are evaluated with those of other cells
            keep_adapter(self.store, self.cell.cell_id, done, "adapter")
            finish(self.store, self.cell, self.record, versions())

    def _start(self) -> None:
        """Write what the cell is, and take the base model's evaluation from its probe."""
        if self.rank == 0:
            description = self.cell.model_dump(mode="json")
            self.store.write_json(description, "cells", self.cell.cell_id, STARTED)
        if not self.record.has_evaluation(0):
            self.record.add_evaluation(self.evaluator.base(self.store))

    def _subset(self) -> list[Prompt]:
        """The cell's prompts by id: which they are decides the training, not their ranks."""
        table = read_subset(self.store, self.cell)
        if table is None:
            raise RuntimeError(f"cell {self.cell.name} has no subset {self.cell.subset_key}")
        prompts = {p.prompt_id: p for p in self.pool.train}
        return [prompts[i] for i in sorted(table["prompt_id"].to_pylist())]

    def _after(self, update: int) -> tuple[bool, bool]:
        """Evaluate where it is due, report the update's numbers.

        Whether to write a checkpoint now, and whether to stop: the cell is hopeless.
        """
        due = is_due(self.cell, update) and not self.record.has_evaluation(update)
        if due and not self.cell.evaluate_engine:
            self._evaluate(update)
        said, self.note = self.note or self.record.groups.explain(update), ""
        self.report({"update": update, "metrics": self._metrics(update), "explanation": said or ""})
        stop = self.hopeless is not None
        return stop or (due and bool(self.cell.evaluate_engine)), stop

    def _evaluate(self, update: int) -> None:
        began = time.monotonic()
        self.record.add_evaluation(self.evaluator.evaluate(self.sampler, update))
        self.record.evaluation_seconds += time.monotonic() - began
        if self.cell.rivals and update < self.cell.updates:
            self.hopeless = self._look(update)

    def _look(self, update: int) -> StopDecision | None:
        """Hold the cell against its block; the first worker decides for all."""
        found = [
            interim_check(self.cell, self.store, self.record, update) if self.rank == 0 else None
        ]
        if self.workers > 1:
            from accelerate.utils import broadcast_object_list

            broadcast_object_list(found)
        return found[0]

    def _metrics(self, update: int) -> dict[str, float]:
        """This update's numbers under their MLflow names."""
        metrics = self.record.groups.metrics(update)
        if not self.record.has_evaluation(update):
            return metrics
        steps = by_update(self.record.evaluations)
        return metrics | evaluation_metrics(steps[update], steps[0], self.cell.pass_at)

    def _save(self, update: int) -> None:
        """Make the trainer's checkpoint whole, once every worker's part of it is there."""
        self.checkpoints.keep(update)
        if self.workers > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()
        if self.rank == 0:
            if self.cell.evaluate_engine and is_due(self.cell, update):
                keep_adapter(self.store, self.cell.cell_id, update, ADAPTERS, str(update))
            self.record.peak_gib = max(self.record.peak_gib, _peak_gib())
            spent = self.record.running_ledger(self.cell)
            self.record.save(self.store, self.cell.cell_id, update, spent)
            self.checkpoints.forget_old()


def _peak_gib() -> float:
    """Most GPU memory that this process has held at once; 0 without a GPU."""
    import torch

    return torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0
