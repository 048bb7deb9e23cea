"""The time that a plan still takes: calibrated on finished cells, or estimated without any.

Reads the store; runs nothing. Completion lengths come from the probe as far as it has been drawn.
A model's speed comes from its finished cells in this storage, otherwise from `throughput`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cluster.resources import probe_share
from orchestrator.config.experiment import Resources
from orchestrator.cost.caps import UsageMeter
from orchestrator.cost.memory import shape_of
from orchestrator.cost.speed import (
    ANY_SIZE,
    DEFAULT_GPU,
    ModelSpeed,
    cell_workload,
    finished_workload,
    gpu_share,
    measured_cost,
    model_speed,
    token_lengths,
    worker_device,
)
from orchestrator.cost.throughput import (
    DEVICES,
    Cost,
    ModelSize,
    TokenLengths,
    cpu,
    model_size,
    nominal_cost,
    sampling_seconds,
)
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.outcomes import ROWS_PER_PART, load_tokens
from orchestrator.probing.probes import pending_samples, targets_of
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.sampling.model import ModelSource
from orchestrator.selection.stored import read_subset
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import read_result

Results = Mapping[str, dict[str, Any]]  # result.json by cell_id


class CostEstimates(NamedTuple):
    """Costs by cell_id, seconds by probe_id, and where each model's figures come from.

    A model of unknown speed is in `sources` only.
    """

    cells: dict[str, Cost]
    probes: dict[str, float]
    sources: dict[str, str]

    def seconds(self, cell: Cell) -> float:
        """Seconds of a cell; 0 if its model's speed is unknown."""
        return self.cells[cell.cell_id].seconds if cell.cell_id in self.cells else 0.0


def usage_meter(experiment: str, store: Store) -> UsageMeter:
    """A meter that continues from the earlier runs of an experiment."""
    return UsageMeter((store.read_json("sweeps", f"{experiment}.json") or {}).get("spent"))


def finished_results(plan: Plan, store: Store) -> Results:
    """The results of a plan's finished cells."""
    results = {cell.cell_id: read_result(store, cell.cell_id) for cell in plan.cells}
    return {cell_id: result for cell_id, result in results.items() if result is not None}


class StoredTokens:
    """The token counts of a plan's stored samples; each probe is read once."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store
        self._tokens: dict[str, npt.NDArray[np.int32]] = {}
        self._missing: dict[str, int] = {}

    def of(self, spec: ProbeSpec) -> npt.NDArray[np.int32]:
        """Token counts of every sample of a probe, [prompts, K]; -1 where it is not stored."""
        if probe_id(spec) not in self._tokens:
            prompts = self.plan.pool(spec).prompts(spec.split)
            self._tokens[probe_id(spec)] = load_tokens(self.store, spec, prompts)
        return self._tokens[probe_id(spec)]

    def missing(self, spec: ProbeSpec) -> int:
        """The samples that a probe is missing; an adaptive probe may need fewer."""
        if probe_id(spec) not in self._missing:
            self._missing[probe_id(spec)] = (
                int(np.count_nonzero(self.of(spec) < 0))
                if targets_of(self.plan, spec) is None
                else pending_samples(self.plan, self.store, spec).samples
            )
        return self._missing[probe_id(spec)]


def estimate_costs(
    plan: Plan,
    store: Store,
    cells: Iterable[Cell],
    cluster: Mapping[str, float],
    gpu: str = DEFAULT_GPU,
    results: Results | None = None,
    tokens: StoredTokens | None = None,
) -> CostEstimates:
    """The costs of these cells and of every unfinished probe on a cluster's devices."""
    if results is None:
        results = finished_results(plan, store)
    estimator = _Estimator(plan, store, gpu, results, tokens or StoredTokens(plan, store))
    costs = {cell.cell_id: estimator.cell_cost(cell) for cell in cells}
    probes = {probe_id(spec): estimator.probe_seconds(spec, cluster) for spec in plan.probes}
    return CostEstimates(
        {cell_id: cost for cell_id, cost in costs.items() if cost is not None},
        {probe: seconds for probe, seconds in probes.items() if seconds},
        {name: speed.source for name, speed in estimator.speeds.items()},
    )


def probe_id(spec: ProbeSpec) -> str:
    """A probe's identity within a plan."""
    return f"{spec.key}/{spec.dataset.name}/{spec.split}/{spec.settings.samples}"


def probe_labels(specs: Sequence[ProbeSpec]) -> dict[str, str]:
    """Display names by `probe_id`; settings are named only where probes differ in them."""
    labels = {probe_id(s): f"{s.model.name}/{s.dataset.name} {s.split}" for s in specs}
    qualifiers: tuple[Callable[[ProbeSpec], str], ...] = (
        lambda spec: "" if spec.settings.temperature else "greedy",
        lambda spec: f"seed {spec.settings.seed}",
        lambda spec: f"{spec.settings.samples} samples",
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
    """Estimates for one plan; reads each probe once."""

    def __init__(
        self, plan: Plan, store: Store, gpu: str, results: Results, tokens: StoredTokens
    ) -> None:
        self.plan, self.store, self.gpu, self.results = plan, store, gpu, results
        self.tokens = tokens
        self._pool_lengths: dict[str, TokenLengths] = {}
        models = {cell.probe.model.name: cell.probe.model for cell in plan.cells}
        self.speeds = {name: self._speed(model) for name, model in models.items()}

    def _speed(self, model: ModelSource) -> ModelSpeed:
        """From finished cells of the plan, else of the storage, else from datasheets.

        The plan's own cells are compared with their own estimates, so that the estimate's errors
        about this dataset and these settings cancel out.
        """
        cells = [cell for cell in self.plan.cells if cell.probe.model.name == model.name]
        shape, resources = shape_of(model), cells[0].resources
        size = model_size(shape, model.dtype, load_in_4bit=model.load_in_4bit) if shape else None
        pairs = [
            (self._nominal_cost(cell, size or ANY_SIZE), measured_cost(result))
            for cell in cells
            if (result := self.results.get(cell.cell_id)) is not None
        ]
        if not pairs:
            pairs = _finished_costs(self.store, model, size or ANY_SIZE, resources, self.gpu)
        return model_speed(size, pairs, resources, self.gpu)

    def _nominal_cost(self, cell: Cell, size: ModelSize) -> Cost:
        work = cell_workload(self.plan, cell, self._lengths(cell))
        return nominal_cost(work, size, worker_device(cell.resources, self.gpu))

    def cell_cost(self, cell: Cell) -> Cost | None:
        """The cost of a cell; None if its model's speed is unknown."""
        speed = self.speeds[cell.probe.model.name]
        return speed.calibration(self._nominal_cost(cell, speed.size)) if speed.size else None

    def _lengths(self, cell: Cell) -> TokenLengths:
        """Completion lengths of the cell's subset, or of the pool before one is selected."""
        tokens, train = self.tokens.of(cell.probe), self.plan.pool(cell.probe).train
        subset = read_subset(self.store, cell)
        if subset is None:
            key = probe_id(cell.probe)
            if key not in self._pool_lengths:
                self._pool_lengths[key] = token_lengths(tokens, train, cell.probe)
            return self._pool_lengths[key]
        rows = train.rows_of(subset["prompt_id"])
        rows = rows[rows >= 0]
        return token_lengths(tokens[rows], train.take(rows), cell.probe)

    def probe_seconds(self, spec: ProbeSpec, cluster: Mapping[str, float]) -> float | None:
        """Wall-clock seconds of a probe's missing samples; None if none or if unknown."""
        speed = self.speeds[spec.model.name]
        count = self.tokens.missing(spec)
        if speed.size is None or not count or spec.settings.engine == "server":
            return None
        prompts = self.plan.pool(spec).prompts(spec.split)
        lengths = token_lengths(self.tokens.of(spec), prompts, spec)
        share = probe_share(
            cluster,
            -(-count // ROWS_PER_PART),
            spec.settings.gpus,
            most_on_cpus(spec.settings.engine),
        )
        device = gpu_share(DEVICES[self.gpu], share.gpus) if share.gpus else cpu(1)
        vllm = spec.settings.engine == "vllm"
        seconds = sampling_seconds(
            count / share.actors, lengths.mean, lengths.prompt, 1, speed.size, device, vllm=vllm
        )
        calibration = speed.calibration
        return device.start_seconds * calibration.start + seconds * calibration.evaluation


def _finished_costs(
    store: Store, model: ModelSource, size: ModelSize, resources: Resources, gpu: str
) -> list[tuple[Cost, Cost]]:
    """(nominal, measured) costs of a model's finished cells, preferably with these resources."""
    same: list[tuple[Cost, Cost]] = []
    others: list[tuple[Cost, Cost]] = []
    for cell_id in store.folders("cells"):
        result = read_result(store, cell_id)
        cell = store.read_json("cells", cell_id, "cell.json") if result else None
        if result is None or cell is None or cell["probe"]["model"]["identity"] != model.identity:
            continue
        used = Resources.model_validate(cell["resources"])
        work = finished_workload(cell["grpo"], used, result)
        pair = (nominal_cost(work, size, worker_device(used, gpu)), measured_cost(result))
        (same if used == resources else others).append(pair)
    return same or others
