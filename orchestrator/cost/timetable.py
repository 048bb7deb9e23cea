"""When the cells of a plan would run, what that costs, and where the figures are from."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from cluster.resources import ResourceError
from cluster.session import this_machine
from orchestrator.config.experiment import Experiment
from orchestrator.cost.caps import closed, dropped_sentence, queue_of, usage_meter
from orchestrator.cost.expected import GPU, expect, kind_of
from orchestrator.cost.fit import memory_lines, memory_of
from orchestrator.cost.forecast import duration
from orchestrator.cost.schedule import (
    Capacity,
    Job,
    capacity_of,
    device_seconds,
    gantt,
    job_of,
    makespan,
    pack,
)
from orchestrator.cost.throughput import MACHINES
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store

CPUS_PER_GPU = 16  # of machines that are only imagined: CPUs are never what is short there


class Site(NamedTuple):
    """Where a plan would run: resource counts as Ray gives them, and the price of a GPU-hour."""

    cluster: Mapping[str, float]
    gpu: str = GPU
    price: float | None = None
    said: bool = False  # the user named the number of GPUs

    @classmethod
    def of(cls, asked: Mapping[str, float], gpu: str | None, price: float | None) -> Self:
        """This machine, or the CPUs and GPUs that the user says instead. Raises UserError."""
        here = this_machine()
        if price is not None and price < 0:
            raise UserError(f"--gpu-price is {price:g}: write a number from 0")
        if gpu and not kind_of([gpu]):
            raise UserError(f"--gpu {gpu} is not known: write one of {', '.join(MACHINES)}")
        kind = kind_of([gpu] if gpu else here) or GPU
        there = _with_gpus(here, asked["GPU"]) if "GPU" in asked else here
        return cls(there | dict(asked), kind, price, "GPU" in asked)

    def room(self, experiment: Experiment) -> tuple["Site", Capacity]:
        """The room that trials find; where they need GPUs and there are none, as few as they need.

        Raises ResourceError where they fit nowhere.
        """
        resources = experiment.resources
        if resources.gpus and not self.said and self.cluster.get("GPU", 0) < 1:
            needed = max(experiment.probe.gpus, -(-resources.workers // int(1 / resources.gpus)))
            site = self._replace(cluster=_with_gpus(self.cluster, needed))
            return site, capacity_of(site.cluster, resources)
        return self, capacity_of(self.cluster, resources)

    def words(self, room: Capacity) -> str:
        """What there is, for people."""
        count = len(room.devices) if room.unit == "GPU" else round(room.devices[0])
        return f"{count} {room.unit}{'s' * (count > 1)}, {room.at_once} at once"


def _with_gpus(cluster: Mapping[str, float], gpus: float) -> dict[str, float]:
    cpus = max(cluster.get("CPU", 1.0), CPUS_PER_GPU * gpus)
    return {**cluster, "CPU": cpus, "GPU": float(gpus)}


def timetable(plan: Plan, store: Store, cells: Sequence[Cell], site: Site) -> dict[str, Any]:
    """ETA in seconds, GPU-hours, cost, sources of the figures, and the packing as a chart.

    Numbers are null where nothing is known of a model, or where no trial fits this machine.
    """
    try:
        site, room = site.room(plan.experiment)
        expected = expect(plan, store, cells, site.cluster, site.gpu)
    except ResourceError as error:
        return _unknown(str(error))
    if any(cell.cell_id not in expected.cells for cell in cells):
        return _unknown("", expected.sources)
    account = usage_meter(plan.name, store)
    queue = queue_of(plan.experiment, cells, expected.cells, expected.probes, room, account)
    admitted = list(iter(queue.next, None))
    jobs = [job_of(cell, expected.seconds(cell), _short(plan, cell)) for cell in admitted]
    placed, probes = pack(jobs, room), sum(expected.probes.values())
    hours = _gpu_hours(jobs, probes, room, site)
    return {
        "eta_seconds": probes + makespan(placed),
        "probe_seconds": probes,
        "gpu_hours": hours,
        "cost": None if site.price is None else hours * site.price,
        "room": site.words(room),
        "sources": expected.sources,
        "packing": gantt(placed, room),
        "memory": memory_of(plan, MACHINES[site.gpu], store),
        "dropped": closed(queue),
        "problem": "",
    }


def _unknown(problem: str, sources: Mapping[str, str] | None = None) -> dict[str, Any]:
    nothing = dict.fromkeys(("eta_seconds", "probe_seconds", "gpu_hours", "cost"))
    return nothing | {
        "room": "",
        "sources": sources or {},
        "packing": [],
        "memory": {},
        "dropped": {},
        "problem": problem,
    }


def _gpu_hours(jobs: Sequence[Job], probes: float, room: Capacity, site: Site) -> float:
    """Of cells by their shares, and of probes, which take every GPU there is."""
    if room.unit != "GPU":
        return 0.0
    return (device_seconds(jobs) + probes * site.cluster.get("GPU", 0.0)) / 3600


def _short(plan: Plan, cell: Cell) -> str:
    """A cell's name without what all cells of the plan share."""
    axes = [cell.axes | {"seed": f"s{cell.seed}"} for cell in (cell, *plan.cells)]
    shared = {axis for axis in ("model", "dataset") if len({a[axis] for a in axes}) == 1}
    return "/".join(axes[0][a] for a in ("policy", "seed", "model", "dataset") if a not in shared)


def time_lines(view: Mapping[str, Any]) -> list[str]:
    """The timetable for people."""
    if view["cells_owed"] == 0:
        return ["ETA: nothing to do"]
    sources = [f"  {model}: {source}" for model, source in view["sources"].items()]
    if view["eta_seconds"] is None:
        return [f"ETA: not known{f': {p}' if (p := view['problem']) else ''}", *sources]
    probes = view["probe_seconds"]
    head = f"ETA: {duration(view['eta_seconds'])} ({view['room']}"
    head += f"; {duration(probes)} of it for probes)" if probes else ")"
    hours = [_hours_line(view)] if view["gpu_hours"] else []
    capped = [f"capped: {text}"] if (text := dropped_sentence(view)) else []
    memory = memory_lines(view["memory"])
    return [head, *sources, *hours, *(f"  {row}" for row in view["packing"]), *memory, *capped]


def _hours_line(view: Mapping[str, Any]) -> str:
    price = "" if view["cost"] is None else f", cost {view['cost']:,.2f}"
    return f"GPU-hours: {view['gpu_hours']:,.1f}{price}"
