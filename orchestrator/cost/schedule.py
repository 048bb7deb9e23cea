"""The order in which cells run, and how they are packed on devices. Pure.

The plan, a running sweep and the cluster simulation (`benchmarks/cluster_simulation.py`) share the
same order and packing. A block is all policies of one model, dataset and seed. Since cells run
block by block, a sweep that ends early lacks whole seeds, and its policies can be compared.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import Any, NamedTuple, TypeVar

from cluster.resources import trials_at_once
from orchestrator.config.experiment import Resources
from orchestrator.planning.cells import HasAxes, block_of
from orchestrator.plugins.counts import counted

ROUNDING = 1e-9  # shares such as 0.1 do not add up to 1 exactly
MAX_CHART_ROWS = 16
CHART_COLUMNS = 66  # without the labels of its rows


C = TypeVar("C", bound=HasAxes)


def make_blocks(
    cells: Sequence[C], seconds: Callable[[C], float], *, by_seed: bool = False
) -> list[list[C]]:
    """The cells as blocks, in the order in which they start.

    Long blocks start first, and long cells within a block, so that short ones fill the end.
    by_seed: all blocks of a seed come before the next seed's, in the grid's order, so that an early
    stop leaves out seeds rather than models.
    """
    seeds = {seed: n for n, seed in enumerate(dict.fromkeys(map(_seeds, cells)))}
    blocks: dict[tuple[Any, ...], list[C]] = {}
    for cell in cells:
        blocks.setdefault(block_of(cell), []).append(cell)

    def position(block: Sequence[C]) -> tuple[int, float]:
        return seeds[_seeds(block[0])] if by_seed else 0, -sum(map(seconds, block))

    ordered = [sorted(block, key=seconds, reverse=True) for block in blocks.values()]
    return sorted(ordered, key=position)


def _seeds(cell: HasAxes) -> tuple[int, int]:
    return cell.axes["probe_seed"], cell.axes["seed"]


class Job(NamedTuple):
    """Work to be packed."""

    name: str
    seconds: float


class Capacity(NamedTuple):
    """The kind and capacity of devices, and a job's share of them.

    `at_once` jobs run at a time; each has `workers` processes that occupy `share` of a device. All
    cells of an experiment have the same resources.
    """

    devices: tuple[float, ...]
    at_once: int
    unit: str = "GPU"
    workers: int = 1
    share: float = 1.0

    def devices_of(self, slot: int) -> list[int]:
        """The numbers of the devices of the job in one of the `at_once` slots."""
        first, per_device = slot * self.workers, int(self.devices[0] / self.share + ROUNDING)
        return [(first + worker) // per_device for worker in range(self.workers)]


class Placement(NamedTuple):
    """The start and end of a job, in seconds from the start, and its slot."""

    job: Job
    start: float
    end: float
    slot: int


def cluster_capacity(cluster: Mapping[str, float], resources: Resources) -> Capacity:
    """A cluster's GPUs, or all its CPUs as one device for trials without a GPU.

    Raises ResourceError if not even one trial fits.
    """
    workers = resources.workers
    at_once = trials_at_once(cluster, resources.cpus, resources.gpus, workers)
    if resources.gpus:
        gpus = (1.0,) * floor(cluster.get("GPU", 0.0))
        return Capacity(gpus, at_once, "GPU", workers, resources.gpus)
    return Capacity((cluster.get("CPU", 0.0),), at_once, "CPU", workers, resources.cpus)


def pack(jobs: Sequence[Job], capacity: Capacity) -> list[Placement]:
    """Start every job, in order, as soon as a slot is free."""
    free = [(0.0, slot) for slot in range(min(capacity.at_once, len(jobs)))]  # a heap
    placements = []
    for job in jobs:
        start, slot = free[0]
        placements.append(Placement(job, start, start + job.seconds, slot))
        heapq.heapreplace(free, (start + job.seconds, slot))
    return placements


def makespan(placements: Sequence[Placement]) -> float:
    """Seconds until the last job has ended."""
    return max((placement.end for placement in placements), default=0.0)


def device_seconds(jobs: Sequence[Job], capacity: Capacity) -> float:
    """Total device time of jobs."""
    return sum(job.seconds for job in jobs) * capacity.workers * capacity.share


def gantt(
    placements: Sequence[Placement], capacity: Capacity, width: int = CHART_COLUMNS
) -> list[str]:
    """A text chart with a row per device (or share of one) and the names of jobs."""
    total = makespan(placements)
    if not total:
        return []
    lanes: dict[tuple[int, int], list[Placement]] = {}  # by device and slot
    for placement in placements:
        for device in capacity.devices_of(placement.slot):
            lanes.setdefault((device, placement.slot), []).append(placement)
    label_width = max(len(f"{capacity.unit} {device}") for device, _ in lanes)
    rows: list[str] = []
    labelled = set()  # devices that have a row
    for (device, _), lane in sorted(lanes.items())[:MAX_CHART_ROWS]:
        label = "" if device in labelled else f"{capacity.unit} {device}"
        labelled.add(device)
        bars = [" "] * width
        for placement in lane:
            first, last = (round(t / total * width) for t in (placement.start, placement.end))
            length = last - first
            if length > 0:
                name = placement.job.name[: length - 1]
                bars[first:last] = f"{name:─<{length - 1}}┤"[-length:]
        rows.append(f"{label:<{label_width}} |{''.join(bars)}|")
    if len(lanes) > len(rows):
        rows.append(f"{'':<{label_width}}  … and {counted(len(lanes) - len(rows), 'more row')}")
    return rows
