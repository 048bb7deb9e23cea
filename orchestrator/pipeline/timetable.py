"""What the cells of a plan still compute, when they would run, and at what cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from cluster.resources import ResourceError
from cluster.session import this_machine
from orchestrator.config.experiment import Experiment
from orchestrator.cost.caps import Dropped, dropped_summary, make_queue
from orchestrator.cost.memory import DEFAULT_GPU, GPUS, gpu_type
from orchestrator.cost.memory_fit import MemoryFit, memory_fit
from orchestrator.cost.schedule import (
    Capacity,
    Job,
    cluster_capacity,
    device_seconds,
    gantt,
    makespan,
    pack,
)
from orchestrator.cost.work import Speed
from orchestrator.pipeline.estimate import estimate, finished_results, measured_memory
from orchestrator.pipeline.manifest import usage_meter
from orchestrator.pipeline.progress import short_names
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.plugins.durations import duration
from orchestrator.storage.errors import UserError

HOST_CPUS_PER_GPU = 16  # of a hypothetical machine: more than trials request, so never the limit
NOT_MEASURED = "not measured"


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
            raise UserError(f"unknown --gpu {gpu}: write one of {', '.join(GPUS)}")
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
    cpus = max(cluster.get("CPU", 1.0), HOST_CPUS_PER_GPU * gpus)
    return {**cluster, "CPU": cpus, "GPU": float(gpus)}


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """Times, hours and cost are None if the speed of a model is not measured.

    `probe_seconds` is also None if another engine draws: the other times then exclude probes.
    Everything but `problem` is empty if no trial fits.
    """

    tokens_to_run: float = 0.0
    """Tokens that cells and probes still read and generate."""
    tokens_at_most: bool = False
    """Whether completion lengths are unknown, so that the token limit is used."""
    flops_to_run: float | None = None
    """FLOPs for these tokens; None if the size of a model is unknown."""
    eta_seconds: float | None = None
    probe_seconds: float | None = None
    gpu_hours: float | None = None
    gpu_price: float | None = None
    """The price of a GPU-hour."""
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
        if self.problem:
            return ["ETA: unknown: no trial fits this cluster"]
        up_to = "up to " if self.tokens_at_most else "about "
        of_flops = "" if self.flops_to_run is None else f", {self.flops_to_run:.2g} FLOPs"
        lines = [f"work: {up_to}{self.tokens_to_run:,.0f} tokens{of_flops}", *self.time_lines()]
        lines += [f"  speed of {model}: {source}" for model, source in self.sources.items()]
        if self.packing:
            lines += ["schedule:", *(f"  {row}" for row in self.packing)]
        lines += [line for model, fit in self.memory.items() for line in fit.lines(model)]
        if dropped := dropped_summary(self.dropped, cells):
            lines.append(f"capped: {dropped}")
        return lines

    def time_lines(self) -> list[str]:
        """The time and the GPU-hours, with their cost if a price is given."""
        if self.eta_seconds is None:
            hours = cost = NOT_MEASURED
            lines = [f"ETA: {NOT_MEASURED} ({self.room}); decile plan --pilot measures a short run"]
        else:
            probes = ""
            if self.probe_seconds is None:
                probes = f" without probes, which are {NOT_MEASURED}"
            elif self.probe_seconds:
                probes = f", of which probes {duration(self.probe_seconds)}"
            lines = [f"ETA: {duration(self.eta_seconds)}{probes} ({self.room})"]
            hours, cost = f"{self.gpu_hours:,.1f}", f"{self.cost or 0:,.2f}"
        if self.gpu_hours != 0:
            price = "" if self.gpu_price is None else f", cost {cost}"
            lines.append(f"GPU-hours: {hours}{price}")
        return lines


def timetable(
    run: Run,
    cells: Sequence[Cell],
    site: Site,
    chart_columns: int,
    updates: Mapping[str, int],
    pilot: Mapping[str, Speed],
) -> Timetable:
    """When the cells would run. `updates`: those that cells have done, by cell_id.

    `pilot`: speeds that were measured just now, by the models' names; they come before stored ones.
    """
    plan, results = run.plan, finished_results(run.plan, run.store)
    try:
        site, capacity = site.for_trials(plan.experiment)
        run = replace(run, cluster=site.cluster)
        estimates = estimate(run, cells)
    except ResourceError as error:
        return Timetable(problem=str(error))
    estimates = estimates._replace(speeds={**estimates.speeds, **pilot})
    meter = usage_meter(plan.name, run.store)
    queue = make_queue(plan.experiment, cells, estimates, capacity, meter, updates)
    admitted, forecast = list(iter(queue.next, None)), queue.forecast
    models, speeds = estimates.parameters.keys(), estimates.speeds
    tokens, flops = estimates.remaining(cells, updates)
    count = round(capacity.devices[0])
    if capacity.unit == "GPU":
        count = len(capacity.devices)
    planned = Timetable(
        tokens_to_run=tokens,
        tokens_at_most=estimates.at_most,
        flops_to_run=flops,
        gpu_hours=None if capacity.unit == "GPU" else 0.0,
        gpu_price=site.price,
        room=f"{counted(count, capacity.unit)}, {counted(capacity.at_once, 'cell')} at a time",
        sources={name: speeds[name].source if name in speeds else NOT_MEASURED for name in models},
        memory=memory_fit(plan, GPUS[site.gpu], measured_memory(plan, run.store, results)),
        dropped=queue.dropped_json(),
    )
    if models - speeds.keys():
        return planned
    measures_probes = None not in forecast.probes_left(0.0)
    names, probe_seconds = short_names(plan), forecast.probe_seconds()
    seconds = [job.seconds for job in forecast.jobs(admitted)]
    jobs = [Job(names[cell.cell_id], s) for cell, s in zip(admitted, seconds, strict=True)]
    placements, gpu_hours = pack(jobs, capacity), 0.0
    if capacity.unit == "GPU":  # a probe occupies every GPU
        gpu_seconds = device_seconds(jobs, capacity) + probe_seconds * site.cluster.get("GPU", 0.0)
        gpu_hours = gpu_seconds / 3600
    return replace(
        planned,
        eta_seconds=probe_seconds + makespan(placements),
        probe_seconds=probe_seconds if measures_probes else None,
        gpu_hours=gpu_hours,
        cost=None if site.price is None else gpu_hours * site.price,
        packing=gantt(placements, capacity, chart_columns),
    )
