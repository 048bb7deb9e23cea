"""What a plan still has to compute, and how fast such work was measured in its storage.

Reads the store; runs nothing. Completion lengths come from the probe as far as it has been drawn,
speeds from the finished cells of the storage with the same resources.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.resources import probe_share
from orchestrator.config.experiment import Resources
from orchestrator.cost.memory import shape_of
from orchestrator.cost.work import (
    UNKNOWN_SIZE,
    Estimates,
    Lengths,
    ProbeWork,
    Speed,
    Work,
    cell_work,
    mean_lengths,
)
from orchestrator.pipeline.run import Run, probe_id
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.planning.result import GpuMemory, Result
from orchestrator.plugins.counts import counted
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder

Results = Mapping[str, Result]  # by cell_id


def finished_results(plan: Plan, store: Store) -> Results:
    """The results of a plan's finished cells."""
    results = {cell.cell_id: CellFolder(store, cell.cell_id).result() for cell in plan.cells}
    return {cell_id: result for cell_id, result in results.items() if result is not None}


def measured_memory(plan: Plan, store: Store, results: Results) -> dict[str, GpuMemory]:
    """The GPU memory of a plan's finished and running cells, by cell_id."""
    measured = {
        cell.cell_id: results[cell.cell_id].timing.memory
        if cell.cell_id in results
        else CellFolder(store, cell.cell_id).memory_so_far()
        for cell in plan.cells
    }
    return {cell_id: memory for cell_id, memory in measured.items() if memory is not None}


def estimate(
    run: Run, cells: Iterable[Cell], speeds: Mapping[str, Speed] | None = None
) -> Estimates:
    """The work of these cells and of every unfinished probe, and the speeds of their models.

    Finished cells are read for the speeds, unless those of an earlier estimate are given. Raises
    ResourceError if no sampler fits the cluster.
    """
    plan, known, at_most = run.plan, dict[str, Lengths](), False

    def lengths(spec: ProbeSpec) -> Lengths:
        """The lengths of all prompts of a probe, from its samples for any number of them."""
        name = f"{spec.key}/{spec.dataset.variant_key}/{spec.split}"
        if name not in known:
            same = (each for each in plan.probes if probe_id(each).startswith(f"{name}/"))
            folder = run.folder(next(same, spec)).read()
            limit = spec.settings.max_completion_length
            known[name] = mean_lengths(folder.tokens, folder.prompts, limit)
        return known[name]

    works, probes = dict[str, Work](), dict[str, ProbeWork]()
    models = dict[str, ModelSource]()
    for cell in cells:
        rollout, answer = lengths(cell.probe), lengths(cell.baseline)
        works[cell.cell_id] = cell_work(plan, cell, rollout, answer)
        models[cell.probe.model.name] = cell.probe.model
        at_most |= rollout.at_most or answer.at_most
    for spec in plan.probes:
        if missing := run.pending_after_earlier_probes(spec).samples:
            tokens, pace = missing * lengths(spec).total, _probe_pace(run, spec, missing)
            probes[probe_id(spec)] = ProbeWork(spec.model.name, missing, tokens, pace)
            models[spec.model.name] = spec.model
            at_most |= lengths(spec).at_most
    if speeds is None:
        speeds = measured_speeds(run, models)
    shapes = {name: shape_of(model) for name, model in models.items()}
    parameters = {
        name: float(shape.parameters) if shape else UNKNOWN_SIZE for name, shape in shapes.items()
    }
    return Estimates(works, probes, speeds, parameters, at_most)


def _probe_pace(run: Run, spec: ProbeSpec, missing: int) -> float | None:
    """Seconds per token of a probe as a multiple of those of a cell, by the devices of both."""
    settings, resources = spec.settings, run.plan.experiment.resources
    prompts, most = -(-missing // settings.samples), most_on_cpus(settings.engine)
    share = probe_share(run.cluster, prompts, settings.gpus_per_sampler, most)
    if settings.engine != "transformers" or bool(share.gpus) != bool(resources.gpus):
        return None
    devices = resources.workers * (resources.gpus or resources.cpus)
    return devices / (share.actors * (share.gpus or 1.0))  # a sampler without a GPU has one thread


def measured_speeds(run: Run, models: Mapping[str, ModelSource]) -> dict[str, Speed]:
    """The speeds of models, by their names, from cells of the storage with the same resources.

    A model without such cells gets the speed of models of the same shape and precision.
    """
    plan, results = run.plan, finished_results(run.plan, run.store)
    finished = [(cell, results[cell.cell_id]) for cell in plan.cells if cell.cell_id in results]
    if models.keys() - {cell.probe.model.name for cell, _ in finished}:
        finished.clear()
        for folder in CellFolder.all(run.store):
            result = folder.result()
            cell = folder.settings() if result else None
            if result and cell and _devices(cell.resources) == _devices(plan.experiment.resources):
                finished.append((cell, result))
    speeds = {}
    for name, model in models.items():
        base = model.base.identity
        own = [r for cell, r in finished if cell.probe.model.base.identity == base]
        like = [
            r for cell, r in finished if _precise_shape(cell.probe.model) == _precise_shape(model)
        ]
        if own:
            speeds[name] = Speed.of(own, f"measured on {counted(len(own), 'finished cell')}")
        elif like and shape_of(model):
            cells = counted(len(like), "finished cell")
            speeds[name] = Speed.of(like, f"measured on {cells} of a model of the same shape")
    return speeds


def _devices(resources: Resources) -> tuple[float, float, int]:
    return resources.cpus, resources.gpus, resources.workers


def _precise_shape(model: ModelSource) -> tuple[Any, ...]:
    return shape_of(model), model.dtype, model.load_in_4bit
