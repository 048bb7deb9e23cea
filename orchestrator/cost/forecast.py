"""The remaining time of a running sweep. Pure: it receives events and their times.

The time per token of a cell is the measured one of its model, in this run or earlier ones. A model
without measurements is expected to be as fast as the other models, relative to its size. The
remaining work is packed in its order of execution, so that a last cell that runs alone counts in
full. Between two reports of a cell or a probe, its remaining time counts down until the next report
is due. After that it rises, since late work may take even longer.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from orchestrator.cost.schedule import Capacity, Job, makespan, pack
from orchestrator.cost.work import Estimates
from orchestrator.planning.cells import Cell

LATE = 0.25  # expected further seconds per second of a report's delay
STALL = 10.0  # times the usual time: longer delays are not evidence about the speed
PRIOR = 0.1  # of a cell: weight of earlier measurements, as a share of the cell in this run


class TimeLeft(NamedTuple):
    """Seconds left at a time, and when the next report is due; times of time.monotonic()."""

    seconds: float
    at: float
    due: float = inf

    def seconds_at(self, now: float) -> float:
        """The same at a later time, if there has been no report since."""
        late = max(0.0, now - max(self.at, self.due))
        return max(0.0, self.seconds - (now - self.at - late)) + LATE * late

    def at_time(self, now: float) -> "TimeLeft":
        """The time left at a later time, if there has been no report since."""
        return TimeLeft(self.seconds_at(now), now, max(self.due, now))


@dataclass
class Pace:
    """Measured seconds for a number of tokens."""

    seconds: float = 0.0
    tokens: float = 0.0

    def add(self, seconds: float, tokens: float) -> None:
        """Add measured work; a stall counts only in part."""
        if self.seconds > 0:
            seconds = min(seconds, STALL * tokens * self.seconds / self.tokens)
        self.seconds += seconds
        self.tokens += tokens

    @property
    def per_token(self) -> float | None:
        """Seconds per token; None before any measurement."""
        return self.seconds / self.tokens if self.tokens else None


@dataclass
class CellProgress:
    """The time and update of a running cell's last report.

    Before the first report (`reported` is False), the time and update of the cell's start.
    """

    time: float
    update: int
    reported: bool = False
    pace: Pace = field(default_factory=Pace)


class ProbeProgress(NamedTuple):
    """The time and samples of a probe's first report in this run, and its current time left."""

    time: float
    done: int
    left: TimeLeft | None = None


class Forecast:
    """The time that a sweep's unfinished cells and probes still take.

    cells: in the order in which they start. updates: done by cells so far, by cell_id; cells resume
    after them. Another thread may read the time left.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        estimates: Estimates,
        capacity: Capacity,
        updates: Mapping[str, int] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cells = {cell.cell_id: cell for cell in cells}
        self.estimates, self.capacity, self.clock = estimates, capacity, clock
        self._updates, self._event_at = updates, clock()
        self._ended: set[str] = set()
        self._running: dict[str, CellProgress] = {}
        self._probes: dict[str, ProbeProgress] = {}
        self._probe_paces: dict[str, float] = {}  # seconds per token, by the model's name
        self._paces: dict[str, Pace] = defaultdict(Pace)
        for cell_id, work in estimates.works.items():
            name = self.cells[cell_id].probe.model.name
            if name in estimates.speeds:
                prior = PRIOR * work.tokens
                self._paces[name] = Pace(prior * estimates.speeds[name].per_token, prior)

    def probe_progress(self, probe_id: str, done: int, total: int) -> None:
        """A probe has drawn `done` of its samples. Its speed is known from the second report on."""
        now = self._event_at = self.clock()
        first = self._probes.setdefault(probe_id, ProbeProgress(now, done))
        if done > first.done:
            each = (now - first.time) / (done - first.done)
            left = TimeLeft(each * (total - done), now, now + each)
            self._probes[probe_id] = first._replace(left=left)
            if work := self.estimates.probes.get(probe_id):
                self._probe_paces[work.model] = each * work.samples / work.tokens

    def probe_left(self, probe_id: str, now: float | None = None) -> TimeLeft | None:
        """The time left of a probe; None if that is unknown."""
        now, work = self.clock() if now is None else now, self.estimates.probes.get(probe_id)
        if probe_id in self._probes and (left := self._probes[probe_id].left):
            return left
        if work is None:
            return None
        per_token = self._probe_paces.get(work.model)
        if per_token is None and work.pace is not None and work.model in self.estimates.speeds:
            per_token = work.pace * self.estimates.speeds[work.model].per_token
        return None if per_token is None else TimeLeft(work.tokens * per_token, now, now)

    def probes_left(self, now: float) -> list[TimeLeft | None]:
        """The time left of each drawn or pending probe."""
        return [self.probe_left(each, now) for each in {**self.estimates.probes, **self._probes}]

    def probe_seconds(self) -> float:
        """Seconds until all probes have ended, as far as known."""
        now = self.clock()
        return sum(left.seconds_at(now) for left in self.probes_left(now) if left)

    def cell_started(self, cell: Cell) -> None:
        """A trial of a cell starts."""
        self._event_at = self.clock()
        update = self._updates.get(cell.cell_id, 0)
        self._running[cell.cell_id] = CellProgress(self.clock(), update)

    def cell_progress(self, cell: Cell, update: int) -> None:
        """A cell has completed this many updates, with the evaluations that were due."""
        now, last = self.clock(), self._running.get(cell.cell_id)
        if last is None or not last.reported or update <= last.update:  # or a new trial
            self._running[cell.cell_id] = CellProgress(now, update, reported=True)
        elif work := self.estimates.works.get(cell.cell_id):
            tokens = work.until(cell, update) - work.until(cell, last.update)
            for pace in (self._paces[cell.probe.model.name], last.pace):
                pace.add(now - last.time, tokens)
            last.time, last.update = now, update

    def cell_ended(self, cell: Cell) -> None:
        """A cell has succeeded or failed."""
        self._event_at = self.clock()
        self._ended.add(cell.cell_id)
        self._running.pop(cell.cell_id, None)

    def _per_token(self, cell: Cell) -> float | None:
        """The pace of a cell's model, combined with its own by the measured share of the cell.

        For a model without measurements, the pace of all models, scaled by its size.
        """
        model, last = cell.probe.model.name, self._running.get(cell.cell_id)
        per_token = self._paces[model].per_token
        if per_token is not None:
            own = last.pace.per_token if last else None
            if last is None or own is None:
                return per_token
            weight = last.pace.tokens / self.estimates.works[cell.cell_id].tokens
            return weight * own + (1 - weight) * per_token
        sizes, all_models = self.estimates.parameters, Pace()
        for name, pace in list(self._paces.items()):
            all_models.seconds += pace.seconds
            all_models.tokens += pace.tokens * sizes.get(name, 1.0)
        per_token = all_models.per_token
        return None if per_token is None else per_token * sizes.get(model, 1.0)

    def cell_left(self, cell: Cell) -> TimeLeft | None:
        """The time left of a cell: 0 if it has ended; None if unknown."""
        now, last = self.clock(), self._running.get(cell.cell_id)
        if cell.cell_id in self._ended:
            return TimeLeft(0.0, now)
        work = self.estimates.works.get(cell.cell_id)
        per_token = self._per_token(cell) if work else None
        if work is None or per_token is None:
            return None
        update = last.update if last else self._updates.get(cell.cell_id, 0)
        done, speed = work.until(cell, update), self.estimates.speeds.get(cell.probe.model.name)
        start = speed.start if speed and not (last and last.reported) else 0.0
        seconds = start + per_token * (work.tokens - done)
        if last is None:
            return TimeLeft(seconds, now, now)
        due = last.time + start + per_token * (work.until(cell, update + 1) - done)
        return TimeLeft(seconds, last.time, due).at_time(now)

    def jobs(self, cells: Sequence[Cell]) -> list[Job]:
        """The remaining work of cells, running ones first; 0 seconds if unknown."""
        jobs = []
        for cell in sorted(cells, key=lambda cell: cell.cell_id not in self._running):
            if cell.cell_id not in self._ended:
                left = self.cell_left(cell)
                jobs.append(Job(cell.name, left.seconds if left else 0.0))
        return jobs

    def cells_left(self) -> dict[str, TimeLeft]:
        """The time left of each running cell, by cell_id, if known."""
        running = {i: self.cell_left(self.cells[i]) for i in list(self._running)}
        return {cell_id: left for cell_id, left in running.items() if left}

    def left(self) -> TimeLeft | None:
        """The time left until all probes and cells have ended; None if unknown."""
        now = self.clock()
        if None in self.probes_left(now) or None in map(self.cell_left, self.cells.values()):
            return None
        jobs = self.jobs(list(self.cells.values()))
        seconds = self.probe_seconds() + makespan(pack(jobs, self.capacity))
        drawn = [probe.left for probe in list(self._probes.values()) if probe.left]
        running = [left for left in drawn if left.seconds] + [*self.cells_left().values()]
        if not running and seconds:
            return TimeLeft(seconds, self._event_at, self._event_at).at_time(now)
        return TimeLeft(seconds, now, max((left.due for left in running), default=inf))
