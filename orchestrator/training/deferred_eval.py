"""Checkpoints of many cells -> one engine per GPU -> evaluations and results (issue 6).

Where `evaluate.engine` is set, a trial keeps the adapter of every checkpoint that an evaluation is
due for, and answers nothing. This room then loads each base model once per actor, swaps the
adapters in one by one, and finishes the cells. What a kill leaves is done again by the same call.
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
from orchestrator.sampling.model import ModelSource
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

# Called with (checkpoints evaluated, checkpoints in all).
Progress = Callable[[int, int], None]


def evaluate_trained(
    store: Store, cells: Sequence[Cell], cluster: Mapping[str, float], progress: Progress
) -> Iterator[tuple[Cell, str]]:
    """Bring trained cells to their results; gives each with the reason where that failed.

    Cells of one model share its actors. Needs a connected Ray.
    """
    owed = {cell.cell_id: owed_updates(store, cell) for cell in cells}
    total, done = sum(map(len, owed.values())), 0
    failed: dict[str, str] = {}
    for together in _by_engine(cells):
        if any(owed[cell.cell_id] for cell in together):
            for row in _evaluated(store, together, owed, cluster):
                done += 1
                progress(done, total)
                if row["failure"]:
                    failed[row["cell_id"]] = row["failure"]
    for cell in cells:
        if cell.cell_id not in failed:
            _finish(store, cell)
        yield cell, failed.get(cell.cell_id, "")


def owed_updates(store: Store, cell: Cell) -> list[int]:
    """The updates whose adapter was kept and not evaluated yet."""
    there = evaluated_updates(store, cell)
    kept = sorted(int(name) for name in store.folders("cells", cell.cell_id, ADAPTERS))
    return [update for update in kept if is_due(cell, update) and update not in there]


def evaluated_updates(store: Store, cell: Cell) -> list[int]:
    """The updates whose evaluation waits for the cell's others."""
    names = store.names("cells", cell.cell_id, EVALUATED)
    return sorted(int(name.split(".")[0]) for name in names if name.endswith(".parquet"))


def _by_engine(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells whose checkpoints one engine answers: same model, engine and GPUs."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        settings = cell.baseline.settings
        name = canonical_hash([_bare(cell).key(), settings.engine, settings.gpus])
        found.setdefault(name, []).append(cell)
    return list(found.values())


def _bare(cell: Cell) -> ModelSource:
    """The model without what one dataset's wording asks of its chat template."""
    return replace(cell.baseline.model, chat_template_kwargs={})


def _evaluated(
    store: Store, cells: list[Cell], owed: Mapping[str, list[int]], cluster: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    parts = [
        pa.table({"cell": [cell.model_dump_json()], "update": [update]})
        for cell in cells
        for update in owed[cell.cell_id]
    ]
    settings = cells[0].baseline.settings
    share = probe_share(cluster, len(parts), settings.gpus)
    arguments = {
        "model": _bare(cells[0]),
        "engine": settings.engine,
        "rank": max(_rank(cell.lora) for cell in cells),
        "storage": store.uri,
        "cpus": share.cpus,
    }
    return map_over_actors(parts, CheckpointActor, arguments, share)


def _rank(lora: Mapping[str, Any]) -> int:
    """The largest rank of any layer."""
    return max(int(lora["r"]), *map(int, (lora.get("rank_pattern") or {}).values()), 1)


class CheckpointActor:
    """One base model in one process; called with a cell and an update, it evaluates its adapter."""

    def __init__(
        self, model: ModelSource, engine: str, rank: int, storage: str, cpus: float
    ) -> None:
        import torch

        from orchestrator.sampling import load_sampler

        torch.set_num_threads(max(1, int(cpus)))
        self.store = Store(storage)
        self.sampler = load_sampler(model, engine, lora_rank=rank)
        self.pools: dict[str, Pool] = {}

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Evaluate one checkpoint; gives the cell's id, and why its answers cannot be judged."""
        [row] = batch.to_pylist()
        cell = Cell.model_validate_json(row["cell"])
        failure = ""
        try:
            self.evaluate(cell, row["update"])
        except MarkingError as error:
            failure = str(error)
        return pa.table({"cell_id": [cell.cell_id], "failure": [failure]})

    def evaluate(self, cell: Cell, update: int) -> None:
        """Answer the test sets with the adapter of one update; the table is written last."""
        began, place = time.monotonic(), ("cells", cell.cell_id, EVALUATED)
        dataset = cell.probe.dataset
        if dataset.name not in self.pools:
            self.pools[dataset.name] = load_pool(dataset)
        with _on_this_node(self.store, "cells", cell.cell_id, ADAPTERS, str(update)) as folder:
            self.sampler.adapt(folder)
            evaluator = Evaluator(cell, self.pools[dataset.name])
            table = evaluator.evaluate(self.sampler, update)
        self.store.write_json({"seconds": time.monotonic() - began}, *place, f"{update}.json")
        self.store.write_table(table, *place, f"{update}.parquet")


@contextmanager
def _on_this_node(store: Store, *place: str) -> Iterator[Path]:
    """A folder of the store as a local one."""
    if store.local:
        yield store.local_path(*place)
        return
    with tempfile.TemporaryDirectory(prefix="decile-adapter-") as folder:
        store.copy_out(Path(folder), *place)
        yield Path(folder)


def _finish(store: Store, cell: Cell) -> None:
    """The result of a cell whose evaluations are all there; what they were made of goes."""
    found = latest_checkpoint(store, cell.cell_id)
    assert found is not None, "a trained cell has its last checkpoint"
    record, place = found[1], ("cells", cell.cell_id, EVALUATED)
    for update in evaluated_updates(store, cell):
        table = store.read_table(EVALUATIONS, *place, f"{update}.parquet")
        if table is not None and not record.has_evaluation(update):
            record.add_evaluation(table)
            record.evaluation_seconds += store.read_json(*place, f"{update}.json")["seconds"]
    keep_adapter(store, cell.cell_id, cell.updates, "adapter")
    finish(store, cell, record, versions())
