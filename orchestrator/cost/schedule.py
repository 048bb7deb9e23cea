"""In which order cells run and where: complete blocks, packed on devices. Pure.

The same order and the same packing serve the plan, a running sweep and the simulation of a cluster
(`benchmarks/cluster_simulation.py`). A block is all policies of one model, dataset and seed: a
sweep that must end early has dropped seeds, and what ran can be compared.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor
from typing import Any, NamedTuple, TypeVar

from cluster.resources import trials_at_once
from orchestrator.config.experiment import Resources
from orchestrator.planning.cells import Cell, HasAxes, block_of

SLACK = 1e-9  # shares such as 0.1 do not add up to 1 exactly


C = TypeVar("C", bound=HasAxes)


def in_blocks(
    cells: Sequence[C], seconds: Callable[[C], float], *, by_seed: bool = False
) -> list[list[C]]:
    """The cells as blocks, in the order in which they start: what is long first, in it and of them.

    What is short then fills the end. `by_seed`: every block of a seed before the next seed's, in
    the grid's order, so that stopping early leaves out seeds rather than models.
    """
    seeds = list(dict.fromkeys(_seeds(cell) for cell in cells)) if by_seed else []
    blocks: dict[tuple[Any, ...], list[C]] = {}
    for cell in cells:
        blocks.setdefault(block_of(cell), []).append(cell)

    def place(block: Sequence[C]) -> tuple[int, float]:
        return seeds.index(_seeds(block[0])) if by_seed else 0, -sum(map(seconds, block))

    ordered = [sorted(block, key=seconds, reverse=True) for block in blocks.values()]
    return sorted(ordered, key=place)


def _seeds(cell: HasAxes) -> tuple[int, int]:
    return cell.axes["probe_seed"], cell.axes["seed"]


class Job(NamedTuple):
    """A cell as it is packed: `workers` processes that each hold `share` of a device."""

    name: str
    seconds: float
    workers: int = 1
    share: float = 1.0


def job_of(cell: Cell, seconds: float, name: str = "") -> Job:
    """A cell to be packed."""
    return Job(name or cell.name, seconds, cell.resources.workers, share_of(cell.resources))


def share_of(resources: Resources) -> float:
    """What one worker holds of a device of `capacity_of`."""
    return resources.gpus or resources.cpus


class Capacity(NamedTuple):
    """Where jobs run: the capacity of each device, how many jobs at most, and what a device is."""

    devices: tuple[float, ...]
    at_once: int
    unit: str = "GPU"


class Placement(NamedTuple):
    """A job with its time, in seconds from the start, and the device of each worker."""

    job: Job
    start: float
    end: float
    devices: tuple[int, ...]


def capacity_of(cluster: Mapping[str, float], resources: Resources) -> Capacity:
    """A cluster as its trials see it: its GPUs, or all CPUs as one device.

    Raises ResourceError where not even one trial fits.
    """
    at_once = trials_at_once(cluster, resources.cpus, resources.gpus, resources.workers)
    if resources.gpus:
        return Capacity((1.0,) * floor(cluster.get("GPU", 0.0)), at_once)
    return Capacity((cluster.get("CPU", 0.0),), at_once, "CPU")


def pack(jobs: Sequence[Job], room: Capacity) -> list[Placement]:
    """Start every job as early as it fits, in their order; a later one passes what does not fit.

    Raises ValueError for a job that fits no empty cluster.
    """
    free, ends, placed, now = list(room.devices), list[tuple[float, int]](), list[Placement](), 0.0
    waiting = list(jobs)
    while waiting:
        waiting, begun = _start(waiting, free, room.at_once - len(ends), now)
        for each in begun:
            heapq.heappush(ends, (each.end, len(placed)))
            placed.append(each)
        if waiting and not ends:
            raise ValueError(f"{waiting[0].name} fits nowhere: give it a smaller share")
        if waiting:
            now = _next_end(ends, placed, free)
    return placed


def _start(
    waiting: Sequence[Job], free: list[float], slots: int, now: float
) -> tuple[list[Job], list[Placement]]:
    """What starts now, taken from `free`, and what goes on waiting."""
    left, begun, too_large = list[Job](), list[Placement](), set[tuple[int, float]]()
    for job in waiting:
        need = (job.workers, job.share)
        found = None if need in too_large or len(begun) >= slots else _place(*need, free)
        if found is None:
            too_large.add(need)
            left.append(job)
        else:
            begun.append(Placement(job, now, now + job.seconds, found))
    return left, begun


def _place(workers: int, share: float, free: list[float]) -> tuple[int, ...] | None:
    """A device for each worker, the fullest that has room; taken from `free` if all have one."""
    found: list[int] = []
    for _ in range(workers):
        fits = [(room, device) for device, room in enumerate(free) if room >= share - SLACK]
        if not fits:
            break
        device = min(fits)[1]
        free[device] -= share
        found.append(device)
    if len(found) == workers:
        return tuple(found)
    for device in found:
        free[device] += share
    return None


def _next_end(
    ends: list[tuple[float, int]], placed: Sequence[Placement], free: list[float]
) -> float:
    """The time at which the next jobs end; gives back what they held."""
    now = ends[0][0]
    while ends and ends[0][0] <= now:
        _, number = heapq.heappop(ends)
        for device in placed[number].devices:
            free[device] += placed[number].job.share
    return now


def makespan(placed: Sequence[Placement]) -> float:
    """Seconds until the last job has ended."""
    return max((each.end for each in placed), default=0.0)


def device_seconds(jobs: Sequence[Job]) -> float:
    """Device time of jobs, wherever they run."""
    return sum(job.seconds * job.workers * job.share for job in jobs)


def lower_bound(jobs: Sequence[Job], room: Capacity) -> float:
    """No packing ends before all work is shared evenly, nor before the longest job has ended."""
    even = device_seconds(jobs) / sum(room.devices)
    return max(even, max((job.seconds for job in jobs), default=0.0))


ROWS = 16  # of a chart; more are alike


def gantt(placed: Sequence[Placement], room: Capacity, width: int = 66) -> list[str]:
    """A chart in text: a row per device, or per share of one; each job's name where it runs."""
    total = makespan(placed)
    if not total:
        return []
    lanes = _lanes(placed)
    head = max(len(f"{room.unit} {device}") for device, _ in lanes)
    rows = [
        f"{f'{room.unit} {device}' if number == 0 else '':<{head}} |{_bar(jobs, total, width)}|"
        for (device, number), jobs in list(lanes.items())[:ROWS]
    ]
    more = len(lanes) - len(rows)
    return rows + ([f"{'':<{head}}  … and {more} more rows"] if more else [])


def _lanes(placed: Sequence[Placement]) -> dict[tuple[int, int], list[Placement]]:
    """(device, number) -> jobs that follow each other there."""
    lanes: dict[tuple[int, int], list[Placement]] = {}
    for each, device in _by_start(placed):
        number = 0
        while (lane := lanes.get((device, number))) and lane[-1].end > each.start + SLACK:
            number += 1
        lanes.setdefault((device, number), []).append(each)
    return dict(sorted(lanes.items()))


def _by_start(placed: Sequence[Placement]) -> Iterator[tuple[Placement, int]]:
    for each in sorted(placed, key=lambda p: p.start):
        for device in each.devices:
            yield each, device


def _bar(jobs: Sequence[Placement], total: float, width: int) -> str:
    line = [" "] * width
    for each in jobs:
        first, last = (round(t / total * width) for t in (each.start, each.end))
        room = last - first
        if room > 0:
            line[first:last] = (f"{each.job.name[: room - 1]:─<{room - 1}}┤")[-room:]
    return "".join(line)
