"""When the cells of a plan would run, at what cost, and where the figures come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from cluster.resources import ResourceError
from cluster.session import this_machine
from orchestrator.config.experiment import Experiment
from orchestrator.cost.caps import Dropped, make_queue
from orchestrator.cost.forecast import duration
from orchestrator.cost.schedule import (
    Capacity,
    Job,
    cluster_capacity,
    device_seconds,
    gantt,
    makespan,
    pack,
)
from orchestrator.cost.throughput import DEFAULT_GPU, DEVICES, MemoryFit, gpu_type, memory_fit
from orchestrator.pipeline.estimate import estimate_costs, finished_results, measured_memory
from orchestrator.pipeline.manifest import usage_meter
from orchestrator.pipeline.progress import short_names
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.stats.sentences import dropped_summary
from orchestrator.storage.errors import UserError

CPUS_PER_GPU = 16  # of hypothetical machines, so that CPUs never limit the estimate


class Site(NamedTuple):
    """Where a plan would run: Ray's resource counts, the GPUs' type and the price of a GPU-hour."""

    cluster: Mapping[str, float]
    gpu: str = DEFAULT_GPU
    price: float | None = None
    gpus_given: bool = False  # the user gave the number of GPUs

    @classmethod
    def from_options(
        cls, resources: Mapping[str, float], gpu: str | None, price: float | None
    ) -> Self:
        """This machine, with the CPUs and GPUs that the user gives instead. Raises UserError."""
        machine = this_machine()
        if gpu is not None and not gpu_type([gpu]):
            raise UserError(f"unknown --gpu {gpu}: write one of {', '.join(DEVICES)}")
        kind = gpu_type([gpu] if gpu else machine) or DEFAULT_GPU
        cluster = _with_gpus(machine, resources["GPU"]) if "GPU" in resources else machine
        return cls(cluster | dict(resources), kind, price, "GPU" in resources)

    def for_trials(self, experiment: Experiment) -> tuple["Site", Capacity]:
        """The site and its capacity, with the fewest GPUs that trials need if it has none.

        Raises ResourceError if no trial fits.
        """
        site, resources = self, experiment.resources
        if resources.gpus and not self.gpus_given and self.cluster.get("GPU", 0) < 1:
            needed = max(experiment.probe.gpus, -(-resources.workers // int(1 / resources.gpus)))
            site = self._replace(cluster=_with_gpus(self.cluster, needed))
        return site, cluster_capacity(site.cluster, resources)


def _with_gpus(cluster: Mapping[str, float], gpus: float) -> dict[str, float]:
    cpus = max(cluster.get("CPU", 1.0), CPUS_PER_GPU * gpus)
    return {**cluster, "CPU": cpus, "GPU": float(gpus)}


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """Numbers are None if a model's speed is unknown, or if no trial fits (`problem` says why)."""

    eta_seconds: float | None = None
    probe_seconds: float | None = None
    gpu_hours: float | None = None
    cost: float | None = None
    room: str = ""
    """What the cells run on, and how many at a time."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where the speed of each model comes from."""
    packing: Sequence[str] = ()
    """The chart of the schedule, a row for each device."""
    memory: Mapping[str, MemoryFit] = field(default_factory=dict)
    """By model."""
    dropped: Dropped = field(default_factory=Dropped)
    """What a cap leaves out."""
    problem: str = ""

    def lines(self, cells: Sequence[Mapping[str, Any]]) -> list[str]:
        """As text; `cells` are those of the plan, with their axes."""
        sources = [f"  speed of {model}: {source}" for model, source in self.sources.items()]
        if self.eta_seconds is None:
            problem = ": no trial fits this cluster" if self.problem else ""
            return [f"ETA: unknown{problem}", *sources]
        probes = f", of which probes {duration(self.probe_seconds)}" if self.probe_seconds else ""
        lines = [f"ETA: {duration(self.eta_seconds)}{probes} ({self.room})", *sources]
        if self.gpu_hours:
            price = "" if self.cost is None else f", cost {self.cost:,.2f}"
            lines.append(f"GPU-hours: {self.gpu_hours:,.1f}{price}")
        if self.packing:
            lines += ["schedule:", *(f"  {row}" for row in self.packing)]
        lines += [line for model, fit in self.memory.items() for line in fit.lines(model)]
        if dropped := dropped_summary(self.dropped, cells):
            lines.append(f"capped: {dropped}")
        return lines


def timetable(
    run: Run,
    cells: Sequence[Cell],
    site: Site,
    chart_columns: int,
    updates: Mapping[str, int],
) -> Timetable:
    """When the cells would run. `updates`: those that cells have done, by cell_id."""
    plan, results = run.plan, finished_results(run.plan, run.store)
    try:
        site, capacity = site.for_trials(plan.experiment)
        run = replace(run, cluster=site.cluster)
        estimates = estimate_costs(run, cells, site.gpu, results)
    except ResourceError as error:
        return Timetable(problem=str(error))
    sources = {name: speed.source for name, speed in estimates.speeds.items()}
    costs, meter = estimates.cells, usage_meter(plan.name, run.store)
    if any(cell.cell_id not in costs for cell in cells):
        return Timetable(sources=sources)
    queue = make_queue(plan.experiment, cells, costs, estimates.probes, capacity, meter, updates)
    admitted = list(iter(queue.next, None))
    names = short_names(plan)
    jobs = [Job(names[cell.cell_id], queue.forecast.remaining(cell)) for cell in admitted]
    placements, probe_seconds = pack(jobs, capacity), queue.forecast.probe_seconds()
    gpu_hours, count = 0.0, round(capacity.devices[0])
    if capacity.unit == "GPU":  # a probe occupies every GPU
        count = len(capacity.devices)
        gpu_seconds = device_seconds(jobs, capacity) + probe_seconds * site.cluster.get("GPU", 0.0)
        gpu_hours = gpu_seconds / 3600
    at_once = f"{counted(capacity.at_once, 'cell')}"
    return Timetable(
        eta_seconds=probe_seconds + makespan(placements),
        probe_seconds=probe_seconds,
        gpu_hours=gpu_hours,
        cost=None if site.price is None else gpu_hours * site.price,
        room=f"{counted(count, capacity.unit)}, {at_once} at a time",
        sources=sources,
        packing=gantt(placements, capacity, chart_columns),
        memory=memory_fit(plan, DEVICES[site.gpu], measured_memory(plan, run.store, results)),
        dropped=queue.dropped_json(),
    )
