"""Checkpoints of many cells -> one engine per GPU -> evaluations and results.

If `evaluate.engine` is set, a trial does not evaluate; it keeps the adapter of every checkpoint
that is due for evaluation. After training, each actor loads the base model once and swaps in one
adapter after the other. Then the cells are finished. After a kill, the same call does the rest.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Self

import pyarrow as pa

from cluster.actors import map_over_actors, run_in_worker
from cluster.part_progress import PartReporter, following
from cluster.resources import probe_share
from orchestrator.evaluation.evaluator import Evaluator
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.probing.samples import MarkingError
from orchestrator.sampling.base import Listener, Sampler, SamplingError, engine_errors
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.locks import scratch_folder
from orchestrator.storage.proof import Unsound, canonical_hash
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import finish_trained
from orchestrator.training.served_adapters import Server, server_of, unloaded_at_end
from tasks import TaskError

# Called with (evaluated checkpoints, all checkpoints, completions of those in progress).
Progress = Callable[[int, int, int], None]


def evaluate_trained(
    store: Store,
    experiment: str,
    cells: Sequence[Cell],
    cluster: Mapping[str, float],
    progress: Progress,
) -> Iterator[tuple[Cell, str]]:
    """Finish trained cells; yields each with the reason for a failure, or an empty text.

    Cells of one model share actors. Needs the experiment's lease and a connected Ray.
    """
    label = uuid.uuid4().hex[:16]
    with unloaded_at_end(store, experiment, label, servers_of(cells)):
        failed = _evaluated(store, cells, cluster, progress, label)
    for cell in cells:
        if cell.cell_id not in failed:
            failed[cell.cell_id] = finish_trained(store, cell)
        yield cell, failed[cell.cell_id]


def _evaluated(
    store: Store,
    cells: Sequence[Cell],
    cluster: Mapping[str, float],
    progress: Progress,
    label: str,
) -> dict[str, str]:
    """Run missing evaluations; cell_id -> reason for a failure. label: of adapters on servers."""
    folders = [CellFolder(store, cell.cell_id) for cell in cells]
    pending = {f.cell_id: f.pending_updates(c) for f, c in zip(folders, cells, strict=True)}
    total = sum(map(len, pending.values()))
    ended = set[str]()
    failed: dict[str, str] = {}

    def follow(counts: Mapping[str, int]) -> None:
        completions = sum(count for name, count in counts.items() if name not in ended)
        progress(len(ended), total, completions)

    if total:
        follow({})  # an engine may take minutes to load
    for group in _by_engine(cells):
        parts = [
            pa.table({"cell": [cell.model_dump_json()], "update": [update]})
            for cell in group
            for update in pending[cell.cell_id]
        ]
        if not parts:
            continue
        settings = group[0].baseline.settings
        gpus = settings.gpus_per_sampler
        most = most_on_cpus(settings.engine)
        share = probe_share(cluster, len(parts), gpus, most)
        arguments: dict[str, Any] = {"engine": AdapterEngine.of(group), "storage": store.uri}
        arguments |= {"cpus": share.cpus, "label": label}
        python = settings.engine_python
        with following(follow) as channel:
            arguments["channel"] = channel
            for row in map_over_actors(parts, CheckpointActor, arguments, share, python):
                ended.add(row["checkpoint"])
                follow({})
                if row["failure"]:
                    failed[row["cell_id"]] = row["failure"]
    return failed


def check_servers(cells: Sequence[Cell]) -> None:
    """Check in a Ray worker that the cells' servers can swap adapters, before the cells train.

    Raises SamplingError. Needs a connected Ray.
    """
    for group in _by_engine([cell for cell in cells if cell.evaluate_engine == "server"]):
        python = group[0].baseline.settings.engine_python
        run_in_worker(_check_server, AdapterEngine.of(group), python=python)


class AdapterEngine(NamedTuple):
    """The engine that evaluates the adapters of some cells; `rank` is their largest."""

    model: ModelSource
    name: str
    args: Mapping[str, Any]
    rank: int

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Self:
        """The engine for cells that share one."""
        settings = cells[0].baseline.settings
        own = [(cell.lora["r"], *(cell.lora.get("rank_pattern") or {}).values()) for cell in cells]
        rank = max(1, *(int(rank) for ranks in own for rank in ranks))
        return cls(_base_model(cells[0]), settings.engine, settings.engine_args, rank)

    def load(self) -> Sampler:
        """The engine with its model."""
        from orchestrator.sampling import load_sampler  # engines are slow to import

        return load_sampler(self.model, self.name, lora_rank=self.rank, engine_args=self.args)


def servers_of(cells: Sequence[Cell]) -> list[Server]:
    """The servers that evaluate these cells, each once."""
    served = [cell for cell in cells if cell.evaluate_engine == "server"]
    servers = [server_of(cell.baseline.settings) for cell in served]
    return [server for i, server in enumerate(servers) if server not in servers[:i]]


def _check_server(engine: AdapterEngine) -> str:
    engine.load()
    return ""


def _by_engine(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Groups of cells that one engine can evaluate: same model, engine and its settings."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        settings = cell.baseline.settings
        engine = (settings.engine, settings.engine_args, settings.gpus)
        key = canonical_hash([_base_model(cell).key(), *engine])
        groups.setdefault(key, []).append(cell)
    return list(groups.values())


def _base_model(cell: Cell) -> ModelSource:
    """The model without a start's adapter, which checkpoints replace, and without the chat template
    settings of one dataset.
    """
    return replace(cell.baseline.model.base, chat_template_kwargs={})


class CheckpointActor:
    """One base model in one process; evaluates the adapter of a cell after an update.

    The number of ended completions is reported to the `channel` of `following`, if any. On a
    server, the names of adapters begin with the `label` of this run.
    """

    def __init__(
        self, engine: AdapterEngine, storage: str, cpus: float, channel: str = "", label: str = ""
    ) -> None:
        import torch

        torch.set_num_threads(max(1, int(cpus)))
        self.store = Store(storage)
        self.reporter = PartReporter(channel)
        self.label, self.failure = label, ""
        try:
            self.sampler = engine.load()
        except SamplingError as error:
            self.failure = str(error)
        self.pools: dict[str, Pool] = {}

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Evaluate one checkpoint; returns which one, and the reason for a failure, if any."""
        [row] = batch.to_pylist()
        cell = Cell.model_validate_json(row["cell"])
        checkpoint = f"{cell.cell_id}/{row['update']}"
        failure = self.failure
        self.reporter.start(checkpoint)
        try:
            if not failure:
                self.evaluate(cell, row["update"])
        except (MarkingError, SamplingError, TaskError, Unsound) as error:
            failure = str(error)
        return pa.table(
            {"cell_id": [cell.cell_id], "checkpoint": [checkpoint], "failure": [failure]}
        )

    def evaluate(self, cell: Cell, update: int) -> None:
        """Evaluate the adapter of one update; its table is written last."""
        started = time.monotonic()
        dataset = cell.probe.dataset
        if dataset.name not in self.pools:
            self.pools[dataset.name] = load_pool(dataset)
        folder = CellFolder(self.store, cell.cell_id)
        for path, problem in folder.adapter_problems(update).items():
            raise Unsound(f"{path} {problem}: rerun to resume before it")
        kept = folder.kept_place(update)
        with (
            nullcontext(self.store.local_path(kept))
            if self.store.local
            else scratch_folder("decile-adapter-")
        ) as adapter:
            if not self.store.local:
                self.store.copy_out(adapter, kept)
            self.sampler.adapter_label = f"{self.label}-{cell.cell_id}-{update}"
            with engine_errors(type(self.sampler), "adapt"):
                self.sampler.adapt(adapter)
            try:
                evaluator = Evaluator(cell, self.pools[dataset.name])
                table = evaluator.evaluate(
                    self.sampler, update, lambda _: Listener(self.reporter.add)
                )
            finally:
                self.sampler.drop_adapter()
        folder.save_evaluation(update, table, time.monotonic() - started)
