"""The remaining time of a running sweep. Pure: it receives events and their times.

Each cell's estimated cost is corrected by how long running cells really take: by its own speed, the
more of it is done, and by the average of all cells otherwise. What remains is then packed in the
order in which it will run, so that a last cell that runs alone counts in full.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.cost.schedule import Capacity, Job, cell_job, makespan, pack
from orchestrator.cost.throughput import Cost
from orchestrator.planning.cells import Cell


class ProgressPoint(NamedTuple):
    """A time, and how much was done by then: estimated seconds of a cell, or samples of a probe."""

    time: float
    done: float


@dataclass
class CellProgress:
    """The first and the last progress seen of a running cell."""

    first: ProgressPoint
    last: ProgressPoint


def evaluations_until(cell: Cell, update: int) -> int:
    """Evaluations of trained weights up to an update; the base model's come from its probe."""
    every = cell.evaluate_every
    passed = update // every if every else 0
    return passed + (update == cell.updates and (not every or update % every > 0))


def expected_until(cell: Cell, update: int, cost: Cost) -> float:
    """Estimated seconds from a cell's start until it has completed this many updates."""
    evaluated = evaluations_until(cell, update) / evaluations_until(cell, cell.updates)
    return cost.until(update / cell.updates, evaluated)


def seconds_after(cell: Cell, update: int, cost: Cost) -> float:
    """Estimated seconds of a cell that starts, or resumes after this many updates."""
    return cost.seconds - (expected_until(cell, update, cost) - cost.start)


class Forecast:
    """The estimates of a sweep, updated as it runs.

    `cells` are the unfinished ones, in the order in which they start. If the cost of any is
    unknown, so is the remaining time. `probes` are seconds by probe_id.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        costs: Mapping[str, Cost],
        capacity: Capacity,
        probes: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cells = {cell.cell_id: cell for cell in cells}
        self._names = {cell.cell_id: cell.name for cell in cells}
        self.costs, self.capacity, self.clock = costs, capacity, clock
        self.probes = dict(probes or {})
        self._cell_progress: dict[str, CellProgress] = {}
        self._measured = self._expected = 0.0  # seconds between first and last progress, all cells
        self._ended: set[str] = set()
        self._probe_starts: dict[str, ProgressPoint] = {}

    def probe_progress(self, probe_id: str, done: int, total: int) -> None:
        """A probe has drawn `done` of its samples; its own speed gives its remaining time."""
        start = self._probe_starts.setdefault(probe_id, ProgressPoint(self.clock(), done))
        if done >= total:
            self.probes.pop(probe_id, None)
        elif done > start.done:
            seconds_per_sample = (self.clock() - start.time) / (done - start.done)
            self.probes[probe_id] = seconds_per_sample * (total - done)

    def cell_progress(self, cell: Cell, update: int) -> None:
        """A cell has completed this many updates, with the evaluations that were due."""
        if cell.cell_id not in self.costs:
            return
        expected = expected_until(cell, update, self.costs[cell.cell_id])
        point = ProgressPoint(self.clock(), expected)
        progress = self._cell_progress.setdefault(cell.cell_id, CellProgress(point, point))
        self._measured += point.time - progress.last.time
        self._expected += point.done - progress.last.done
        progress.last = point

    def cell_ended(self, cell: Cell) -> None:
        """A cell has succeeded or failed."""
        self._ended.add(cell.cell_id)

    @property
    def correction(self) -> float:
        """Measured seconds per estimated second over all cells; 1 before any has progressed."""
        known = self._measured > 0 and self._expected > 0
        return self._measured / self._expected if known else 1.0

    def remaining(self, cell: Cell) -> float:
        """Remaining seconds of a cell; 0 if it has ended or its cost is unknown."""
        cost, progress = self.costs.get(cell.cell_id), self._cell_progress.get(cell.cell_id)
        if cost is None or cell.cell_id in self._ended:
            return 0.0
        if progress is None:
            return cost.start + self.correction * (cost.seconds - cost.start)
        remaining = (cost.seconds - progress.last.done) * self._cell_correction(progress, cost)
        return max(0.0, remaining - (self.clock() - progress.last.time))

    def _cell_correction(self, progress: CellProgress, cost: Cost) -> float:
        """A cell's own correction, weighted by the share of it that was seen, else that of all."""
        expected = progress.last.done - progress.first.done
        if expected <= 0:
            return self.correction
        own = (progress.last.time - progress.first.time) / expected
        weight = min(1.0, expected / (cost.seconds - cost.start))
        return weight * own + (1 - weight) * self.correction

    def jobs(self, cells: Sequence[Cell]) -> list[Job]:
        """The remaining work of cells, running ones first."""
        ordered = sorted(cells, key=lambda cell: cell.cell_id not in self._cell_progress)
        unended = [cell for cell in ordered if cell.cell_id not in self._ended]
        return [cell_job(cell, self.remaining(cell), self._names[cell.cell_id]) for cell in unended]

    def seconds_left(self) -> float | None:
        """Seconds until all probes and cells have ended; None if unknown."""
        if self.cells.keys() - self.costs.keys():
            return None
        jobs = self.jobs(list(self.cells.values()))
        return sum(self.probes.values()) + makespan(pack(jobs, self.capacity))


def duration(seconds: float) -> str:
    """`75` -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
