"""How long a running sweep will still take. Pure: told what happens and when, it answers.

What was expected of each cell is corrected by what running cells really take: by their own speed,
the more of them is done, and by that of all cells before. What remains is then packed as it will
run, so that a last cell that runs alone counts in full.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.cost.schedule import Capacity, Job, job_of, makespan, pack
from orchestrator.cost.throughput import Cost
from orchestrator.planning.cells import Cell


class Mark(NamedTuple):
    """A moment in a cell: when, and how many expected seconds of it were done by then."""

    at: float
    done: float


@dataclass
class Track:
    """A cell that has made updates: the first and the last one heard of."""

    first: Mark
    last: Mark


def evaluations_until(cell: Cell, update: int) -> int:
    """Evaluations of trained weights up to an update; the base model's come from its probe."""
    every = cell.evaluate_every
    passed = update // every if every else 0
    return passed + (update == cell.updates and (not every or update % every > 0))


def expected_until(cell: Cell, update: int, cost: Cost) -> float:
    """Expected seconds of a cell from its start until it has made so many updates."""
    evaluated = evaluations_until(cell, update) / evaluations_until(cell, cell.updates)
    return cost.until(update / cell.updates, evaluated)


class Forecast:
    """What is expected of a sweep, and what became of it so far.

    `cells` are those owed, in the order in which they start; those without a cost are not known,
    and then neither is the end. `probes` are seconds by id.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        costs: Mapping[str, Cost],
        room: Capacity,
        probes: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cells = {cell.cell_id: cell for cell in cells}
        self.costs, self.room, self.clock = costs, room, clock
        self.probes = dict(probes or {})
        self._tracks: dict[str, Track] = {}
        self._ended: set[str] = set()
        self._probing: dict[str, Mark] = {}

    def probed(self, probe: str, done: int, total: int) -> None:
        """A probe holds so many of its samples; what it still needs follows from its own speed."""
        begun = self._probing.setdefault(probe, Mark(self.clock(), done))
        if done >= total:
            self.probes.pop(probe, None)
        elif done > begun.done:
            each = (self.clock() - begun.at) / (done - begun.done)
            self.probes[probe] = each * (total - done)

    def reached(self, cell: Cell, update: int) -> None:
        """A cell has made another update, and evaluated where that was due."""
        if cell.cell_id not in self.costs:
            return
        mark = Mark(self.clock(), expected_until(cell, update, self.costs[cell.cell_id]))
        track = self._tracks.setdefault(cell.cell_id, Track(mark, mark))
        track.last = mark

    def ended(self, cell: Cell) -> None:
        """A cell has its result, or failed."""
        self._ended.add(cell.cell_id)

    @property
    def correction(self) -> float:
        """Seconds that took, per second that was expected, over all cells; 1 before any."""
        took = sum(t.last.at - t.first.at for t in self._tracks.values())
        said = sum(t.last.done - t.first.done for t in self._tracks.values())
        return took / said if took > 0 and said > 0 else 1.0

    def remaining(self, cell: Cell) -> float:
        """Seconds that a cell still takes; 0 for one that ended or is not known."""
        cost, track = self.costs.get(cell.cell_id), self._tracks.get(cell.cell_id)
        if cost is None or cell.cell_id in self._ended:
            return 0.0
        if track is None:
            return cost.start + self.correction * (cost.seconds - cost.start)
        left = (cost.seconds - track.last.done) * self._pace(track, cost)
        return max(0.0, left - (self.clock() - track.last.at))

    def _pace(self, track: Track, cost: Cost) -> float:
        """A cell's own correction, trusted by the share of it that was seen; else that of all."""
        said = track.last.done - track.first.done
        if said <= 0:
            return self.correction
        own = (track.last.at - track.first.at) / said
        trust = min(1.0, said / (cost.seconds - cost.start))
        return trust * own + (1 - trust) * self.correction

    def running(self) -> list[Cell]:
        """Cells that were heard of and have not ended."""
        return [self.cells[i] for i in self._tracks if i not in self._ended and i in self.cells]

    def jobs(self, cells: Sequence[Cell]) -> list[Job]:
        """What remains of cells, those that run first."""
        first = sorted(cells, key=lambda cell: cell.cell_id not in self._tracks)
        return [
            job_of(cell, self.remaining(cell)) for cell in first if cell.cell_id not in self._ended
        ]

    def seconds_left(self, cells: Sequence[Cell] | None = None) -> float | None:
        """Seconds until probes and these cells (all) have ended; None where that is not known."""
        meant = list(self.cells.values()) if cells is None else list(cells)
        if any(cell.cell_id not in self.costs for cell in meant):
            return None
        return sum(self.probes.values()) + makespan(pack(self.jobs(meant), self.room))


def duration(seconds: float) -> str:
    """`75` -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
