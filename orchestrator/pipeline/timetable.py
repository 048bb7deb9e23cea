"""When the cells of a plan would run, at what cost, and where the figures come from."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from cluster.resources import ResourceError
from cluster.session import this_machine
from orchestrator.config.experiment import Experiment
from orchestrator.cost.caps import make_queue
from orchestrator.cost.forecast import duration
from orchestrator.cost.schedule import (
    CHART_COLUMNS,
    Capacity,
    cell_job,
    cluster_capacity,
    device_seconds,
    gantt,
    makespan,
    pack,
)
from orchestrator.cost.throughput import DEFAULT_GPU, DEVICES, gpu_type, memory_fit, memory_lines
from orchestrator.pipeline.estimate import estimate_costs, finished_results
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


def timetable(
    run: Run,
    cells: Sequence[Cell],
    site: Site,
    chart_columns: int = CHART_COLUMNS,
    updates: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """ETA in seconds, GPU-hours, cost, sources of the figures, and a chart of the schedule.

    `updates`: those that cells have done, by cell_id. Numbers are None if a model's speed is
    unknown, or if no trial fits (`problem` says why).
    """
    view: dict[str, Any] = {
        **dict.fromkeys(("eta_seconds", "probe_seconds", "gpu_hours", "cost")),
        "room": "",
        "sources": {},
        "packing": [],
        "memory": {},
        "dropped": {},
        "problem": "",
    }
    plan, results = run.plan, finished_results(run.plan, run.store)
    try:
        site, capacity = site.for_trials(plan.experiment)
        run = replace(run, cluster=site.cluster)
        estimates = estimate_costs(run, cells, site.gpu, results)
    except ResourceError as error:
        return view | {"problem": str(error)}
    view["sources"] = {name: speed.source for name, speed in estimates.speeds.items()}
    costs, meter = estimates.cells, usage_meter(plan.name, run.store)
    if any(cell.cell_id not in costs for cell in cells):
        return view
    queue = make_queue(plan.experiment, cells, costs, estimates.probes, capacity, meter, updates)
    admitted = list(iter(queue.next, None))
    names = short_names(plan)
    jobs = [cell_job(c, queue.forecast.remaining(c), names[c.cell_id]) for c in admitted]
    placements, probe_seconds = pack(jobs, capacity), queue.forecast.probe_seconds()
    gpu_hours, count = 0.0, round(capacity.devices[0])
    if capacity.unit == "GPU":  # a probe occupies every GPU
        count = len(capacity.devices)
        gpu_seconds = device_seconds(jobs) + probe_seconds * site.cluster.get("GPU", 0.0)
        gpu_hours = gpu_seconds / 3600
    at_once = f"{counted(capacity.at_once, 'cell')}"
    return view | {
        "eta_seconds": probe_seconds + makespan(placements),
        "probe_seconds": probe_seconds,
        "gpu_hours": gpu_hours,
        "cost": None if site.price is None else gpu_hours * site.price,
        "room": f"{counted(count, capacity.unit)}, {at_once} at a time",
        "packing": gantt(placements, capacity, chart_columns),
        "memory": memory_fit(plan, DEVICES[site.gpu], results),
        "dropped": queue.dropped_json(),
    }


def time_lines(view: Mapping[str, Any]) -> list[str]:
    """A timetable as text."""
    if view["cells_owed"] == 0:
        return ["ETA: nothing to run"]
    sources = [f"  speed of {model}: {source}" for model, source in view["sources"].items()]
    if view["eta_seconds"] is None:
        problem = ": no trial fits this cluster" if view["problem"] else ""
        return [f"ETA: unknown{problem}", *sources]
    probes = f", of which probes {duration(view['probe_seconds'])}" if view["probe_seconds"] else ""
    lines = [f"ETA: {duration(view['eta_seconds'])}{probes} ({view['room']})", *sources]
    if view["gpu_hours"]:
        price = "" if view["cost"] is None else f", cost {view['cost']:,.2f}"
        lines.append(f"GPU-hours: {view['gpu_hours']:,.1f}{price}")
    if view["packing"]:
        lines += ["schedule:", *(f"  {row}" for row in view["packing"])]
    lines += memory_lines(view["memory"])
    if dropped := dropped_summary(view):
        lines.append(f"capped: {dropped}")
    return lines
