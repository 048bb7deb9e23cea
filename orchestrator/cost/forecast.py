"""The remaining time of a running sweep. Pure: it receives events and their times.

Each cell's estimated cost is corrected by how long running cells really take, training and
evaluations apart: by its own speed, the more of it is done, and by the average of all cells
otherwise, in which the estimate counts as much as a few updates. What remains is then packed in the
order in which it will run, so that a last cell that runs alone counts in full. Between two reports
of a cell or a probe, its remaining time counts down until the next report is due. From then on it
rises, since whatever is late may take longer still.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from orchestrator.cost.schedule import Capacity, Job, makespan, pack
from orchestrator.cost.throughput import Cost, evaluations_until
from orchestrator.planning.cells import Cell

LATE = 0.25  # expected further seconds per second by which a report is late
STALL = 10.0  # times as long as usual: from there on, a delay says nothing about the speed

Sums = tuple[float, float]


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
        """What is left at a later time, if there has been no report since."""
        return TimeLeft(self.seconds_at(now), now, max(self.due, now))


@dataclass
class Speed:
    """Measured seconds per estimated second, as a moving average.

    prior: estimated seconds, as if these had been measured as estimated. horizon: estimated seconds
    after which a measurement counts 1/e; the prior fades in the same way.
    """

    prior: float
    horizon: float

    def __post_init__(self) -> None:
        self._sums = self.prior, self.prior  # measured and estimated

    def _added(self, sums: Sums, measured: float, expected: float) -> Sums:
        if min(sums) > 0:
            measured = min(measured, STALL * expected * sums[0] / sums[1])
        fades = exp(-expected / self.horizon) if self.horizon > 0 else 1.0
        return fades * sums[0] + measured, fades * sums[1] + expected

    def assume(self, correction: float) -> None:
        """What the prior says, if not that the estimate is right."""
        self._sums = self.prior * correction, self.prior

    def add(self, measured: float, expected: float) -> None:
        """Work of so many estimated seconds took so long."""
        self._sums = self._added(self._sums, measured, expected)

    @property
    def correction(self) -> float:
        """1 before anything is measured."""
        return self.correction_with([])

    def correction_with(self, running: Iterable[tuple[float, float]]) -> float:
        """The same if work that takes longer than usual had just ended: (seconds, estimate)."""
        sums = self._sums
        for measured, expected in running:
            if sums[1] > 0 and measured * sums[1] > expected * sums[0]:
                sums = self._added(sums, measured, expected)
        return sums[0] / sums[1] if sums[1] > 0 else 1.0


def duration(seconds: float) -> str:
    """`75` -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# Shares of a cell, or of a probe: the estimate counts as much as measurements of the first one, and
# measurements of the last such share of each running one count most.
PRIOR, HORIZON = 0.1, 0.5
PRIOR_PARTS = 2  # of a probe, whose first parts arrive together


class ProbeCost(NamedTuple):
    """Estimated seconds of a probe's missing samples.

    start: until its actors are ready. sampling: from then on, `samples` in all. part: what one
    actor takes from one report to the next.
    """

    start: float
    sampling: float
    part: float
    samples: int

    @property
    def seconds(self) -> float:
        """From the start to the last sample."""
        return self.start + self.sampling


@dataclass
class CellProgress:
    """The last report of a running cell: when, and its update.

    Before the first one, for which `reported` is false: when the cell started, and from where.
    measured, expected: seconds of its updates without evaluations, as far as they were reported.
    """

    time: float
    update: int
    reported: bool = False
    measured: float = 0.0
    expected: float = 0.0


class Work(NamedTuple):
    """Estimated seconds of training and of evaluations, or the corrections of both."""

    training: float
    evaluation: float

    def less(self, other: "Work") -> "Work":
        """What remains without the other."""
        return Work(self.training - other.training, self.evaluation - other.evaluation)

    def times(self, correction: "Work") -> float:
        """The corrected seconds."""
        return self.training * correction.training + self.evaluation * correction.evaluation


class Forecast:
    """The estimates of a sweep, updated as it runs.

    `cells` are the unfinished ones, in the order in which they start. If the cost of any is
    unknown, so is the remaining time. `probes` by probe_id. `updates`: those that cells have done,
    by cell_id; they resume after them. Another thread may read what is left.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        costs: Mapping[str, Cost],
        capacity: Capacity,
        probes: Mapping[str, ProbeCost] = MappingProxyType({}),
        updates: Mapping[str, int] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cells = {cell.cell_id: cell for cell in cells}
        self.costs, self.capacity, self.clock = costs, capacity, clock
        self.probes, self._updates = probes, updates
        self._event_at = clock()
        work = [(cost.training, cost.evaluation) for cost in costs.values()]
        mean = Work(*np.mean(work or [(0.0, 0.0)], axis=0).tolist())
        horizon = HORIZON * min(capacity.at_once, max(1, len(work)))
        self._training = Speed(PRIOR * mean.training, horizon * mean.training)
        self._evaluation = Speed(PRIOR * mean.evaluation, horizon * mean.evaluation)
        self._running: dict[str, CellProgress] = {}
        self._ended: set[str] = set()
        sampling = max((cost.sampling for cost in probes.values()), default=0.0)
        parts = PRIOR_PARTS * max((cost.part for cost in probes.values()), default=0.0)
        prior = max(PRIOR * sampling, parts)
        self._probe_speed = Speed(prior, max(HORIZON * sampling, 2 * prior))
        self._unsampled: dict[str, float] = {}  # estimated seconds of started probes
        self._unestimated: dict[str, tuple[float, int]] = {}  # first reports of other probes
        self._measured_left: dict[str, TimeLeft] = {}  # of these
        self._sampler: ProbeCost | None = None  # of the probe that was reported last
        self._sampled, self._reported_at = 0.0, 0.0  # since the sampler's start; its last report
        self._unmeasured = 0.0  # of what is sampled, at first

    def probe_progress(self, probe_id: str, done: int, total: int) -> None:
        """A probe has drawn `done` of its samples; those of one sampler are drawn together.

        Its speed is measured after the first report, which counts the time until it, too; after
        seconds of a part where that is a whole one, since the first parts of all actors come at
        once.
        """
        cost, now = self.probes.get(probe_id), self.clock()
        self._event_at = now
        if cost is None:
            start, first = self._unestimated.setdefault(probe_id, (now, done))
            if done > first:
                seconds = (now - start) * (total - done) / (done - first)
                self._measured_left[probe_id] = TimeLeft(seconds, now)
            return
        left = cost.sampling * (total - done) / max(1, cost.samples)
        drawn = self._unsampled.get(probe_id, cost.sampling) - left
        if drawn <= 0 and probe_id not in self._unsampled:  # its sampler starts
            self._sampled = 0.0
        elif drawn > 0:
            if not self._sampled:
                self._unmeasured = cost.part if drawn >= cost.part / 2 else drawn
            elif self._sampled >= self._unmeasured:
                self._probe_speed.add(now - self._reported_at, drawn)
            self._sampled += drawn
        self._unsampled[probe_id], self._sampler, self._reported_at = left, cost, now

    def probe_left(self, probe_id: str) -> TimeLeft | None:
        """The time left of a probe that has started; None if that is unknown."""
        if probe_id in self._unsampled:
            return self._probes_left([probe_id])
        return self._measured_left.get(probe_id)

    def _probes_left(self, probe_ids: Iterable[str]) -> TimeLeft:
        """The time left of these probes, of which only those of one sampler run."""
        now, correction, sampler = self.clock(), self._probe_speed.correction, self._sampler
        seconds = started = 0.0
        for probe_id in probe_ids:
            cost, left = self.probes[probe_id], self._unsampled.get(probe_id)
            waiting = cost.start + correction * cost.sampling
            seconds += waiting if left is None else correction * left
            started += left or 0.0
        if sampler is None or not started:  # between two samplers
            return TimeLeft(seconds, now, now)
        start = 0.0 if self._sampled else sampler.start
        step = start + correction * min(sampler.part, started)
        last = self._reported_at
        return TimeLeft(start + seconds, last, last + step).at_time(now)

    @property
    def probe_correction(self) -> float:
        """Measured seconds per estimated second of the probes."""
        return self._probe_speed.correction

    def assume(self, correction: float) -> None:
        """Expect cells to take so many times as long as estimated, until they are measured."""
        self._training.assume(correction)

    def probe_seconds(self) -> float:
        """Seconds until all probes have ended, as far as that is known."""
        measured = (left.seconds_at(self.clock()) for left in list(self._measured_left.values()))
        return self._probes_left(self.probes).seconds + sum(measured)

    def cell_started(self, cell: Cell) -> None:
        """A trial of a cell starts."""
        self._event_at = self.clock()
        if cell.cell_id in self.costs:
            update = self._updates.get(cell.cell_id, 0)
            self._running[cell.cell_id] = CellProgress(self.clock(), update)

    def cell_progress(self, cell: Cell, update: int) -> None:
        """A cell has completed this many updates, with the evaluations that were due.

        What an interval takes longer than its updates is the time of its evaluation.
        """
        cost, now = self.costs.get(cell.cell_id), self.clock()
        if cost is None:
            return
        last = self._running.get(cell.cell_id)
        if (
            last is None or not last.reported or update <= last.update
        ):  # a first one, or a new trial
            self._running[cell.cell_id] = CellProgress(now, update, reported=True)
            return
        work, took = self._work(cell, update).less(self._work(cell, last.update)), now - last.time
        if work.evaluation > 0:
            correction = self._training.correction
            evaluation = max(0.0, took - correction * work.training)
            self._evaluation.add(evaluation / correction, work.evaluation)
        else:
            self._training.add(took, work.training)
            last.measured, last.expected = last.measured + took, last.expected + work.training
        last.time, last.update = now, update

    def cell_ended(self, cell: Cell) -> None:
        """A cell has succeeded or failed."""
        self._event_at = self.clock()
        self._ended.add(cell.cell_id)
        self._running.pop(cell.cell_id, None)

    def _work(self, cell: Cell, update: int) -> Work:
        """Estimated seconds until a cell has completed this many updates, without its start."""
        cost, update = self.costs[cell.cell_id], min(update, cell.updates)
        evaluated = evaluations_until(cell, update) / evaluations_until(cell, cell.updates)
        return Work(cost.training * update / cell.updates, cost.evaluation * evaluated)

    def corrections(self) -> Work:
        """Measured seconds per estimated second over all cells; 1 before anything is measured.

        An update or an evaluation that is late counts as if it had just ended.
        """
        now, running = self.clock(), list(self._running.items())
        steps = [(self._step(self.cells[i], p), now - p.time) for i, p in running if p.reported]
        updates = [(seconds, work.training) for work, seconds in steps if not work.evaluation]
        training = self._training.correction_with(updates)
        evaluations = [
            (seconds / training - work.training, work.evaluation)
            for work, seconds in steps
            if work.evaluation
        ]
        return Work(training, training * self._evaluation.correction_with(evaluations))

    def _step(self, cell: Cell, last: CellProgress) -> Work:
        """What a cell does until its next report."""
        return self._work(cell, last.update + 1).less(self._work(cell, last.update))

    def remaining(self, cell: Cell) -> float:
        """Remaining seconds of a cell; 0 if it has ended or its cost is unknown."""
        return self.cell_left(cell).seconds

    def cell_left(self, cell: Cell, correction: Work | None = None) -> TimeLeft:
        """The time left of a cell; none if it has ended or its cost is unknown."""
        now, cost = self.clock(), self.costs.get(cell.cell_id)
        if cost is None or cell.cell_id in self._ended:
            return TimeLeft(0.0, now)
        correction, last = correction or self.corrections(), self._running.get(cell.cell_id)
        update = last.update if last else self._updates.get(cell.cell_id, 0)
        left = Work(cost.training, cost.evaluation)
        left = left.less(self._work(cell, update)) if update else left
        if last is None:
            return TimeLeft(cost.start + left.times(correction), now, now)
        start = 0.0 if last.reported else cost.start
        if last.expected > 0:  # its own speed, weighted by the share of it that was seen
            weight = min(1.0, last.expected / cost.training)
            own = weight * last.measured / last.expected + (1 - weight) * correction.training
            correction = correction._replace(training=own)
        step = start + self._step(cell, last).times(correction)
        seconds = start + left.times(correction)
        return TimeLeft(seconds, last.time, last.time + step).at_time(now)

    def jobs(self, cells: Sequence[Cell]) -> list[Job]:
        """The remaining work of cells, running ones first."""
        ordered = sorted(cells, key=lambda cell: cell.cell_id not in self._running)
        correction = self.corrections()
        unended = [cell for cell in ordered if cell.cell_id not in self._ended]
        return [Job(each.name, self.cell_left(each, correction).seconds) for each in unended]

    def cells_left(self) -> dict[str, TimeLeft]:
        """The time left of each running cell, by cell_id."""
        correction = self.corrections()
        return {i: self.cell_left(self.cells[i], correction) for i in list(self._running)}

    def left(self) -> TimeLeft | None:
        """The time left until all probes and cells have ended; None if unknown."""
        if self.cells.keys() - self.costs.keys():
            return None
        now, jobs = self.clock(), self.jobs(list(self.cells.values()))
        seconds = self.probe_seconds() + makespan(pack(jobs, self.capacity))
        measured = [left for left in list(self._measured_left.values()) if left.seconds]
        running = [*measured, *self.cells_left().values()]
        if any(list(self._unsampled.values())):
            running.append(self._probes_left(self.probes))
        if not running and seconds:
            return TimeLeft(seconds, self._event_at, self._event_at).at_time(now)
        return TimeLeft(seconds, now, max((left.due for left in running), default=inf))
