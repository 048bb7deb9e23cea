"""The order in which cells run, and how they are packed on devices. Pure.

The plan, a running sweep and the cluster simulation (`benchmarks/cluster_simulation.py`) share the
same order and packing. A block is all policies of one model, dataset and seed; running block by
block means that a sweep which ends early has dropped seeds, and its policies can be compared.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import Any, NamedTuple, TypeVar

from cluster.resources import trials_at_once
from orchestrator.config.experiment import Resources
from orchestrator.planning.cells import Cell, HasAxes, block_of
from orchestrator.plugins.counts import counted

ROUNDING = 1e-9  # shares such as 0.1 do not add up to 1 exactly
MAX_CHART_ROWS = 16
CHART_COLUMNS = 66  # without the labels of its rows


C = TypeVar("C", bound=HasAxes)
Size = tuple[int, float]  # workers and share of a job


def make_blocks(
    cells: Sequence[C], seconds: Callable[[C], float], *, by_seed: bool = False
) -> list[list[C]]:
    """The cells as blocks, in the order in which they start.

    Long blocks start first, and long cells within a block, so that short ones fill the end.
    `by_seed`: all blocks of a seed come before the next seed's, in the grid's order, so that
    stopping early leaves out seeds rather than models.
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
    """Work to be packed: `workers` processes that each occupy `share` of a device."""

    name: str
    seconds: float
    workers: int = 1
    share: float = 1.0


def cell_job(cell: Cell, seconds: float, name: str = "") -> Job:
    """The job of a cell."""
    share = cell.resources.gpus or cell.resources.cpus
    return Job(name or cell.name, seconds, cell.resources.workers, share)


class Capacity(NamedTuple):
    """The capacity of each device, the number of jobs at once, and the devices' kind."""

    devices: tuple[float, ...]
    at_once: int
    unit: str = "GPU"


class Placement(NamedTuple):
    """When a job runs, in seconds from the start, and the device of each of its workers."""

    job: Job
    start: float
    end: float
    devices: tuple[int, ...]


def cluster_capacity(cluster: Mapping[str, float], resources: Resources) -> Capacity:
    """A cluster's GPUs, or all its CPUs as one device for trials without a GPU.

    Raises ResourceError if not even one trial fits.
    """
    at_once = trials_at_once(cluster, resources.cpus, resources.gpus, resources.workers)
    if resources.gpus:
        return Capacity((1.0,) * floor(cluster.get("GPU", 0.0)), at_once)
    return Capacity((cluster.get("CPU", 0.0),), at_once, "CPU")


def pack(jobs: Sequence[Job], capacity: Capacity) -> list[Placement]:
    """Start every job, in order, as early as it fits; later jobs may overtake one that does not.

    Raises ValueError for a job that does not fit an empty cluster.
    """
    free, now = list(capacity.devices), 0.0
    running = list[tuple[float, int]]()  # heap of (end, index in placements)
    placements, waiting = list[Placement](), dict[Size, deque[tuple[int, Job]]]()
    for number, job in enumerate(jobs):
        waiting.setdefault((job.workers, job.share), deque()).append((number, job))
    while waiting:
        for placement in _start(waiting, free, capacity.at_once - len(running), now):
            heapq.heappush(running, (placement.end, len(placements)))
            placements.append(placement)
        if waiting and not running:
            _, first = min(queue[0] for queue in waiting.values())
            raise ValueError(f"{first.name} does not fit the cluster: use smaller resources")
        if waiting:  # until the next jobs end, which return their devices
            now = running[0][0]
        while waiting and running and running[0][0] <= now:
            job, _, _, devices = placements[heapq.heappop(running)[1]]
            for device in devices:
                free[device] += job.share
    return placements


def _start(
    waiting: dict[Size, deque[tuple[int, Job]]], free: list[float], slots: int, now: float
) -> list[Placement]:
    """The jobs that start now, in order; takes them from `waiting`, and their devices from `free`.

    `waiting` are (number, job) by size. Of jobs of the same size, none fits if the first does not.
    """
    started, candidates = list[Placement](), {*waiting}
    while candidates and len(started) < slots:
        size = min(candidates, key=lambda size: waiting[size][0])
        devices = _allocate(*size, free)
        if devices is None:
            candidates.remove(size)
            continue
        _, job = waiting[size].popleft()
        started.append(Placement(job, now, now + job.seconds, devices))
        if not waiting[size]:
            candidates.remove(size)
            del waiting[size]
    return started


def _allocate(workers: int, share: float, free: list[float]) -> tuple[int, ...] | None:
    """A device for each worker, the fullest that fits; taken from `free` if all workers fit."""
    allocated: list[int] = []
    for _ in range(workers):
        fits = [(left, device) for device, left in enumerate(free) if left >= share - ROUNDING]
        if not fits:
            for device in allocated:
                free[device] += share
            return None
        device = min(fits)[1]
        free[device] -= share
        allocated.append(device)
    return tuple(allocated)


def makespan(placements: Sequence[Placement]) -> float:
    """Seconds until the last job has ended."""
    return max((placement.end for placement in placements), default=0.0)


def device_seconds(jobs: Sequence[Job]) -> float:
    """Total device time of jobs."""
    return sum(job.seconds * job.workers * job.share for job in jobs)


def gantt(
    placements: Sequence[Placement], capacity: Capacity, width: int = CHART_COLUMNS
) -> list[str]:
    """A text chart with a row per device (or share of one) and each job's name where it runs."""
    total = makespan(placements)
    if not total:
        return []
    # (device, lane number) -> jobs that follow each other there
    lanes: dict[tuple[int, int], list[Placement]] = {}
    for placement in sorted(placements, key=lambda placement: placement.start):
        for device in placement.devices:
            number, busy = 0, placement.start + ROUNDING
            while (lane := lanes.get((device, number))) and lane[-1].end > busy:
                number += 1
            lanes.setdefault((device, number), []).append(placement)
    label_width = max(len(f"{capacity.unit} {device}") for device, _ in lanes)
    rows = []
    for (device, number), lane in sorted(lanes.items())[:MAX_CHART_ROWS]:
        label = f"{capacity.unit} {device}" if number == 0 else ""
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
