"""Checkpoints of many cells -> one engine per GPU -> evaluations and results.

Where `evaluate.engine` is set, a trial does not evaluate; it keeps the adapter of every checkpoint
that is due for evaluation. After training, each actor loads the base model once, swaps in one
adapter after the other, and the cells are finished. After a kill, the same call does the rest.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.actors import map_over_actors
from cluster.resources import probe_share
from orchestrator.evaluation.evaluator import Evaluator, is_due
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.probing.samples import MarkingError
from orchestrator.sampling.base import SamplingError
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.own_engine import engine_errors
from orchestrator.storage.hashing import canonical_hash
from orchestrator.storage.schema import EVALUATIONS
from orchestrator.storage.store import Store
from orchestrator.training.record import (
    ADAPTERS,
    EVALUATED,
    finish,
    keep_adapter,
    latest_checkpoint,
    versions,
)
from tasks import TaskError

# Called with (checkpoints evaluated, checkpoints in all).
Progress = Callable[[int, int], None]


def evaluate_trained(
    store: Store, cells: Sequence[Cell], cluster: Mapping[str, float], progress: Progress
) -> Iterator[tuple[Cell, str]]:
    """Finish trained cells; yields each with the reason where that failed, else an empty text.

    Cells of one model share its actors. Needs a connected Ray.
    """
    pending = {cell.cell_id: pending_updates(store, cell) for cell in cells}
    total, done = sum(map(len, pending.values())), 0
    failed: dict[str, str] = {}
    if total:
        progress(done, total)  # an engine may take minutes to load
    for group in _by_engine(cells):
        if any(pending[cell.cell_id] for cell in group):
            for row in _evaluate(store, group, pending, cluster):
                done += 1
                progress(done, total)
                if row["failure"]:
                    failed[row["cell_id"]] = row["failure"]
    for cell in cells:
        if cell.cell_id not in failed:
            _finish(store, cell)
        yield cell, failed.get(cell.cell_id, "")


def pending_updates(store: Store, cell: Cell) -> list[int]:
    """The updates whose adapter was kept and not evaluated yet."""
    evaluated = evaluated_updates(store, cell)
    kept = sorted(int(name) for name in store.folders("cells", cell.cell_id, ADAPTERS))
    return [update for update in kept if is_due(cell, update) and update not in evaluated]


def evaluated_updates(store: Store, cell: Cell) -> list[int]:
    """The updates that are evaluated, while others of the cell are not."""
    names = store.names("cells", cell.cell_id, EVALUATED)
    return sorted(int(name.split(".")[0]) for name in names if name.endswith(".parquet"))


def _by_engine(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Groups of cells that one engine can evaluate: same model, engine and GPUs."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        settings = cell.baseline.settings
        key = canonical_hash([_base_model(cell).key(), settings.engine, settings.gpus])
        groups.setdefault(key, []).append(cell)
    return list(groups.values())


def _base_model(cell: Cell) -> ModelSource:
    """The model without the chat template settings of one dataset."""
    return replace(cell.baseline.model, chat_template_kwargs={})


def _evaluate(
    store: Store, cells: list[Cell], pending: Mapping[str, list[int]], cluster: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    parts = [
        pa.table({"cell": [cell.model_dump_json()], "update": [update]})
        for cell in cells
        for update in pending[cell.cell_id]
    ]
    settings = cells[0].baseline.settings
    share = probe_share(cluster, len(parts), settings.gpus)
    ranks = [(cell.lora["r"], *(cell.lora.get("rank_pattern") or {}).values()) for cell in cells]
    arguments = {
        "model": _base_model(cells[0]),
        "engine": settings.engine,
        "rank": max(1, *(int(rank) for own in ranks for rank in own)),
        "storage": store.uri,
        "cpus": share.cpus,
    }
    return map_over_actors(parts, CheckpointActor, arguments, share)


class CheckpointActor:
    """One base model in one process; evaluates the adapter of a cell after an update."""

    def __init__(
        self, model: ModelSource, engine: str, rank: int, storage: str, cpus: float
    ) -> None:
        import torch

        from orchestrator.sampling import load_sampler

        torch.set_num_threads(max(1, int(cpus)))
        self.store = Store(storage)
        self.failure = ""
        try:
            self.sampler = load_sampler(model, engine, lora_rank=rank)
        except SamplingError as error:
            self.failure = str(error)
        self.pools: dict[str, Pool] = {}

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Evaluate one checkpoint; returns the cell's id, and why that failed, if it did."""
        [row] = batch.to_pylist()
        cell = Cell.model_validate_json(row["cell"])
        failure = self.failure
        try:
            if not failure:
                self.evaluate(cell, row["update"])
        except (MarkingError, SamplingError, TaskError) as error:
            failure = str(error)
        return pa.table({"cell_id": [cell.cell_id], "failure": [failure]})

    def evaluate(self, cell: Cell, update: int) -> None:
        """Evaluate the adapter of one update; its table is written last."""
        started, place = time.monotonic(), ("cells", cell.cell_id, EVALUATED)
        dataset = cell.probe.dataset
        if dataset.name not in self.pools:
            self.pools[dataset.name] = load_pool(dataset)
        with _local_copy(self.store, "cells", cell.cell_id, ADAPTERS, str(update)) as folder:
            with engine_errors(type(self.sampler), "adapt"):
                self.sampler.adapt(folder)
            evaluator = Evaluator(cell, self.pools[dataset.name])
            table = evaluator.evaluate(self.sampler, update)
        self.store.write_json({"seconds": time.monotonic() - started}, *place, f"{update}.json")
        self.store.write_table(table, *place, f"{update}.parquet")


@contextmanager
def _local_copy(store: Store, *place: str) -> Iterator[Path]:
    """A folder of the store as a local folder, copied where the store is not local."""
    if store.local:
        yield store.local_path(*place)
        return
    with tempfile.TemporaryDirectory(prefix="decile-adapter-") as folder:
        store.copy_out(Path(folder), *place)
        yield Path(folder)


def _finish(store: Store, cell: Cell) -> None:
    """Write the result of a cell whose checkpoints are all evaluated."""
    newest = latest_checkpoint(store, cell.cell_id)
    assert newest is not None, "a trained cell has its last checkpoint"
    record, place = newest[1], ("cells", cell.cell_id, EVALUATED)
    for update in evaluated_updates(store, cell):
        table = store.read_table(EVALUATIONS, *place, f"{update}.parquet")
        if table is not None and not record.has_evaluation(update):
            record.add_evaluation(table)
            record.evaluation_seconds += store.read_json(*place, f"{update}.json")["seconds"]
    keep_adapter(store, cell.cell_id, cell.updates, "adapter")
    finish(store, cell, record, versions())
