"""The time that a plan still takes: calibrated on finished cells, or estimated without any.

Reads the store; runs nothing. Completion lengths come from the probe as far as it has been drawn.
A model's speed comes from its finished cells in this storage, otherwise from `throughput`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cluster.resources import Share, probe_share
from orchestrator.config.experiment import Resources
from orchestrator.cost.forecast import ProbeCost
from orchestrator.cost.memory import shape_of
from orchestrator.cost.throughput import (
    ANY_SIZE,
    DEFAULT_GPU,
    DEVICES,
    Cost,
    Device,
    Draws,
    Expected,
    ModelSize,
    ModelSpeed,
    TokenLengths,
    cell_workload,
    cpu,
    expected_draws,
    finished_workload,
    gpu_share,
    gpu_type,
    measured_cost,
    model_size,
    model_speed,
    nominal_cost,
    samples_per_call,
    sampling_seconds,
    token_lengths,
    worker_device,
)
from orchestrator.difficulty.estimates import fit_prior, live_chance, posterior_mean
from orchestrator.pipeline.run import Run, probe_id
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.planning.result import GpuMemory, Result
from orchestrator.plugins.counts import counted
from orchestrator.probing.outcomes import NONE, PART_SECONDS, Codes, PartSize
from orchestrator.probing.probe import sampler_groups
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.sampling.model import ModelSource
from orchestrator.selection.stored import read_subset
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from tasks import OUTCOMES
from tasks.marking.marks import UNSCORED

Results = Mapping[str, Result]  # by cell_id


class CostEstimates(NamedTuple):
    """Costs by cell_id and by probe_id, and the speeds of the models, by their names.

    A model of unknown speed is in `speeds` only.
    """

    cells: dict[str, Cost]
    probes: dict[str, ProbeCost]
    speeds: dict[str, ModelSpeed]


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


def live_share(codes: Codes, group_size: int) -> float:
    """The expected share of groups whose rewards differ, from outcomes [prompts, K] of a pool.

    Without any sample, every pass rate is as likely as any other.
    """
    unscored = [NONE, *map(OUTCOMES.index, UNSCORED)]
    unrewarded = np.isin(codes, unscored)
    right = np.count_nonzero(codes == OUTCOMES.index("correct"), axis=1)
    n = codes.shape[1] - np.count_nonzero(unrewarded, axis=1)
    return float(posterior_mean(live_chance(group_size), right, n, fit_prior(right, n)).mean())


def estimate_costs(
    run: Run,
    cells: Iterable[Cell],
    gpu: str | None = None,
    results: Results | None = None,
    speeds: Mapping[str, ModelSpeed] | None = None,
) -> CostEstimates:
    """The costs of these cells and of every unfinished probe on the cluster's devices.

    Finished cells are read for the speeds of the models, unless those of an earlier estimate are
    given. `gpu` replaces the type of the cluster's GPUs.
    """
    for spec in run.plan.probes:
        run.folder(spec).read()
    estimator = _Estimator(run, gpu or gpu_type(run.cluster) or DEFAULT_GPU)
    if not speeds:
        if results is None:
            results = finished_results(run.plan, run.store)
        speeds = estimator.measure(results)
    estimator.speeds = dict(speeds)
    costs = {cell.cell_id: estimator.cell_cost(cell) for cell in cells}
    probes: dict[str, ProbeCost] = {}
    for group in sampler_groups(run.plan):
        of_group = {probe_id(s): cost for s in group if (cost := estimator.probe_cost(s))}
        for number, (probe, cost) in enumerate(of_group.items()):  # the group's actors start once
            probes[probe] = cost._replace(start=0.0) if number else cost
    return CostEstimates(
        {cell_id: cost for cell_id, cost in costs.items() if cost is not None},
        probes,
        estimator.speeds,
    )


def part_sizes(run: Run, specs: Sequence[ProbeSpec]) -> list[PartSize]:
    """How large the parts of these probes are, by the time model and what is stored of them."""
    estimator = _Estimator(run, gpu_type(run.cluster) or DEFAULT_GPU)
    return [estimator.part_size(spec, _size_of(spec.model)) for spec in specs]


def _size_of(model: ModelSource) -> ModelSize | None:
    shape = shape_of(model)
    if shape is None:
        return None
    return model_size(shape, model.dtype, load_in_4bit=model.load_in_4bit)


def samples_text(total: int, missing: int, *, at_most: bool, shared: int = 0) -> str:
    """How many samples of a probe are stored and to draw; `at_most`: it may need fewer.

    `shared`: those that another probe draws.
    """
    up_to = "up to " if at_most else ""
    if shared:
        stored = f", {total - missing - shared:,} stored" if total > missing + shared else ""
        of_another = f"{shared:,} of {counted(total, 'sample')} shared with another probe"
        return f"{of_another}{stored}, {missing:,} to draw"
    if not missing:
        return f"all {'needed ' if at_most else f'{total:,} '}samples stored"
    if missing == total:
        return f"{up_to}{counted(total, 'sample')} to draw"
    return f"{total - missing:,} of {counted(total, 'sample')} stored, {up_to}{missing:,} to draw"


def probe_labels(specs: Sequence[ProbeSpec]) -> dict[str, str]:
    """Display names by `probe_id`; settings are named only where probes differ in them."""
    labels = {probe_id(s): f"{s.model.name}/{s.dataset.variant_key} {s.split}" for s in specs}
    qualifiers: tuple[Callable[[ProbeSpec], str], ...] = (
        lambda spec: "" if spec.settings.temperature else "greedy",
        lambda spec: f"seed {spec.settings.seed}",
        lambda spec: f"{counted(spec.settings.samples, 'sample')}",
        lambda spec: spec.key[:8],
    )
    for qualifier in qualifiers:
        uses = Counter(labels.values())
        for spec in specs:
            label, detail = labels[probe_id(spec)], qualifier(spec)
            if uses[label] > 1 and detail:
                labels[probe_id(spec)] = f"{label}, {detail}"
    return labels


class _Estimator:
    """Estimates for one plan, from the samples that its folders have read."""

    def __init__(self, run: Run, gpu: str) -> None:
        self.run, self.plan, self.store, self.gpu = run, run.plan, run.store, gpu
        self.speeds: dict[str, ModelSpeed] = {}  # by the model's name
        self._lengths: dict[str, TokenLengths] = {}
        self._live: dict[tuple[str, int], float] = {}

    def measure(self, results: Results) -> dict[str, ModelSpeed]:
        """The speed of every model of the plan, given the plan's finished cells.

        From finished cells of the plan, else of the storage, else from datasheets. The plan's own
        cells are compared with their own estimates, so that the estimate's errors about this
        dataset and these settings cancel out.
        """
        speeds: dict[str, ModelSpeed] = {}
        specs = (*self.plan.probes, *(cell.probe for cell in self.plan.cells))
        for model in {spec.model.name: spec.model for spec in specs}.values():
            cells = [cell for cell in self.plan.cells if cell.probe.model.name == model.name]
            resources, size = (cells or self.plan.cells)[0].resources, _size_of(model)
            pairs = [
                (self._nominal_cost(cell, size or ANY_SIZE), measured_cost(result))
                for cell in cells
                if (result := results.get(cell.cell_id)) is not None
            ]
            if not pairs:
                pairs = _finished_costs(self.store, model, size or ANY_SIZE, resources, self.gpu)
            speeds[model.name] = model_speed(size, pairs, resources, self.gpu)
        return speeds

    def _nominal_cost(self, cell: Cell, size: ModelSize) -> Cost:
        folder, group_size = self.run.folder(cell.probe), cell.batch.group_size
        pool, test = self._pool_lengths(cell.probe), self._pool_lengths(cell.baseline)
        subset, lengths, draws = read_subset(self.store, cell), pool, 1.0
        if cell.online:
            rates = None if subset is None else subset["pass_rate"].to_numpy()
            draws = expected_draws(cell.online.build_online(), rates, group_size)
        if subset is not None:
            rows = folder.prompts.rows_of(subset["prompt_id"])
            rows = rows[rows >= 0]
            lengths = token_lengths(folder.tokens[rows], folder.prompts.take(rows), cell.probe)
        key = probe_id(cell.probe), group_size
        if key not in self._live:  # what the base model would have on the whole pool
            self._live[key] = live_share(folder.codes, group_size)
        # What is drawn again until it is live is trained on as live groups.
        live = self._live[key] if draws == 1 else 1.0
        expected = Expected(lengths, pool, test, live, draws * cell.times_drawn)
        work = cell_workload(self.plan, cell, expected)
        return nominal_cost(work, size, worker_device(cell.resources, self.gpu))

    def cell_cost(self, cell: Cell) -> Cost | None:
        """The cost of a cell; None if its model's speed is unknown."""
        speed = self.speeds[cell.probe.model.name]
        return speed.calibration(self._nominal_cost(cell, speed.size)) if speed.size else None

    def _pool_lengths(self, spec: ProbeSpec) -> TokenLengths:
        """The lengths of all prompts of a probe."""
        key, folder = probe_id(spec), self.run.folder(spec)
        if key not in self._lengths:
            self._lengths[key] = token_lengths(folder.tokens, folder.prompts, spec)
        return self._lengths[key]

    def probe_cost(self, spec: ProbeSpec) -> ProbeCost | None:
        """The cost of a probe's missing samples; None if there are none or if it is unknown."""
        speed = self.speeds[spec.model.name]
        count = self.run.pending_after_earlier_probes(spec).samples
        if speed.size is None or not count or spec.settings.engine == "server":
            return None
        samples = spec.settings.samples
        prompts, share = -(-count // samples), self._share(spec)
        parts = self.part_size(spec, speed.size).count(count, prompts, share.actors)
        device = self._device(share)
        lengths, rows = self._pool_lengths(spec), count / parts
        longest = lengths.longest(rows)
        part = Draws(rows, lengths.mean, longest, lengths.prompt, samples)
        vllm = spec.settings.engine == "vllm"
        calibration = speed.calibration
        seconds = sampling_seconds(part, speed.size, device, vllm=vllm) * calibration.evaluation
        start = device.start_seconds * calibration.start
        return ProbeCost(start, seconds * max(1.0, parts / share.actors), seconds, count)

    def part_size(self, spec: ProbeSpec, size: ModelSize | None) -> PartSize:
        """The size of a probe's parts; the default of a model or server of unknown speed."""
        if size is None or spec.settings.engine == "server":
            return PartSize()
        device, vllm = self._device(self._share(spec)), spec.settings.engine == "vllm"
        lengths, samples = self._pool_lengths(spec), spec.settings.samples
        batch, per_second = samples_per_call(lengths, samples, size, device, vllm=vllm)
        return PartSize(batch, per_second * PART_SECONDS)

    def _share(self, spec: ProbeSpec) -> Share:
        """What the samplers of a probe get: as many as there are prompts to draw, at most."""
        prompts = max(
            1, -(-self.run.pending_after_earlier_probes(spec).samples // spec.settings.samples)
        )
        settings = spec.settings
        most = most_on_cpus(settings.engine)
        return probe_share(self.run.cluster, prompts, settings.gpus_per_sampler, most)

    def _device(self, share: Share) -> Device:
        return gpu_share(DEVICES[self.gpu], share.gpus) if share.gpus else cpu(1)


def _finished_costs(
    store: Store, model: ModelSource, size: ModelSize, resources: Resources, gpu: str
) -> list[tuple[Cost, Cost]]:
    """(nominal, measured) costs of a model's finished cells, preferably with these resources."""
    same: list[tuple[Cost, Cost]] = []
    others: list[tuple[Cost, Cost]] = []
    for folder in CellFolder.all(store):
        result = folder.result()
        cell = folder.settings() if result else None
        if result is None or cell is None or cell.probe.model.identity != model.identity:
            continue
        used = cell.resources
        work = finished_workload(cell, result)
        pair = (nominal_cost(work, size, worker_device(used, gpu)), measured_cost(result))
        (same if used == resources else others).append(pair)
    return same or others
