"""Caps on a sweep's hours and GPU-hours. Pure.

Caps are checked between blocks (all policies of one model, dataset and seed). A started block is
always finished, so that its policies can be compared. The next one starts only if it is expected to
end within every cap. Before anything is measured, one block starts, and the rest wait for its first
updates. A cap therefore drops whole blocks, never a single policy.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

from orchestrator.config.experiment import Experiment
from orchestrator.cost.forecast import Forecast
from orchestrator.cost.schedule import Capacity, device_seconds, make_blocks, makespan, pack
from orchestrator.cost.work import Estimates, Work
from orchestrator.planning.cells import Cell, axis_names
from orchestrator.plugins.counts import counted, noun_for


class Usage(NamedTuple):
    """Wall-clock seconds, and GPU-seconds of probes and cells, of past runs or remaining work."""

    seconds: float = 0.0
    gpu_seconds: float = 0.0


class Spent(TypedDict, total=False):
    """The stored usage of an experiment's runs: `Usage`, and the cells of started blocks."""

    seconds: float
    gpu_seconds: float
    begun: list[str]


class Dropped(TypedDict, total=False):
    """The cap that closed a queue, and the ids of the cells that it left out; empty without one."""

    cap: str
    cells: list[str]


class UsageMeter:
    """Counts the usage of all runs of one experiment, and records the cells of started blocks.

    previous: saved by an earlier run (`as_json`).
    """

    def __init__(
        self, previous: Spent | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        saved = previous or Spent()
        self.started: set[str] = set(saved.get("begun", ()))
        self._previous = Usage(saved.get("seconds", 0.0), saved.get("gpu_seconds", 0.0))
        self._clock, self._start, self._gpu_seconds = clock, clock(), 0.0
        self._running: dict[str, tuple[float, float]] = {}  # cell_id -> (start, GPUs)

    def add(self, seconds: float, gpus: float) -> None:
        """Count work outside of cells, such as a probe."""
        self._gpu_seconds += seconds * gpus

    def cell_started(self, cell: Cell) -> None:
        """Count a cell's GPUs from now on."""
        resources = cell.resources
        self._running[cell.cell_id] = (self._clock(), resources.gpus * resources.workers)

    def cell_ended(self, cell: Cell) -> None:
        """Stop counting a cell that has succeeded or failed."""
        start, gpus = self._running.pop(cell.cell_id, (0.0, 0.0))
        self._gpu_seconds += (self._clock() - start) * gpus

    def usage(self) -> Usage:
        """The usage of all runs, this one up to now."""
        now = self._clock()
        running = sum((now - start) * gpus for start, gpus in list(self._running.values()))
        seconds, gpu_seconds = self._previous
        return Usage(seconds + now - self._start, gpu_seconds + self._gpu_seconds + running)

    def as_json(self) -> Spent:
        """The state that the next run needs to continue counting."""
        seconds, gpu_seconds = (round(value, 3) for value in self.usage())
        return Spent(seconds=seconds, gpu_seconds=gpu_seconds, begun=sorted(self.started))


def has_cap(experiment: Experiment) -> bool:
    """Whether the hours or the GPU-hours of an experiment are capped."""
    return experiment.max_gpu_hours is not None or experiment.max_hours is not None


def exceeded_cap(experiment: Experiment, usage: Usage, projected: Usage) -> str:
    """The cap that `projected` further usage would exceed, with the figures; empty if none."""
    hours, gpu_hours = experiment.max_hours, experiment.max_gpu_hours
    for name, unit, cap, used, more in (
        ("max_gpu_hours", "GPU-hours", gpu_hours, usage.gpu_seconds, projected.gpu_seconds),
        ("max_hours", "hours", hours, usage.seconds, projected.seconds),
    ):
        if cap is not None and (used >= 3600 * cap or used + more > 3600 * cap):
            total = f"{_hours(used + more)} {unit} with the next block"
            return f"{name} {cap:g} ({_hours(used)} used, {total})"
    return ""


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3g}" if seconds >= 1 else "0"


class CellQueue:
    """Unfinished cells in the order in which they start; closes between blocks at a cap.

    blocks: from `schedule.make_blocks`, without finished cells. Blocks that an earlier run started
    come first.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[Cell]],
        experiment: Experiment,
        forecast: Forecast,
        meter: UsageMeter,
    ) -> None:
        self.experiment, self.forecast, self.meter = experiment, forecast, meter
        self.cap = ""  # the cap that closed the queue, with its figures
        self.capped = has_cap(experiment)
        self._blocks = [list(block) for block in blocks if block]
        self._blocks.sort(key=lambda block: not self._has_started(block))
        self._current: list[Cell] = []  # cells of a started block that have not started yet
        self._running: dict[str, Cell] = {}  # by cell_id

    def _has_started(self, block: Sequence[Cell]) -> bool:
        return any(cell.cell_id in self.meter.started for cell in block)

    @property
    def dropped(self) -> list[Cell]:
        """The cells of the blocks that a cap left out; empty if no cap closed the queue."""
        return [cell for block in self._blocks for cell in block] if self.cap else []

    def is_open(self) -> bool:
        """Whether `next` would return a cell."""
        if not self._current and self._blocks and not self.cap:
            block = self._blocks[0]
            if self.capped and not self._has_started(block):
                # The probes and running cells that remain, and one more block.
                jobs = self.forecast.jobs([*self._running.values(), *block])
                capacity, probe_seconds = self.forecast.capacity, self.forecast.probe_seconds()
                gpu_seconds = 0.0
                if capacity.unit == "GPU":
                    gpu_seconds = probe_seconds * len(capacity.devices) + device_seconds(
                        jobs, capacity
                    )
                projected = Usage(probe_seconds + makespan(pack(jobs, capacity)), gpu_seconds)
                self.cap = exceeded_cap(self.experiment, self.meter.usage(), projected)
        return bool(self._current or (self._blocks and not self.cap))

    def waits(self) -> bool:
        """Whether a cap can only admit the next block once a running cell was measured."""
        if self._current or not self._blocks or not self.capped or not self._running:
            return False
        block = self._blocks[0]
        unknown = any(self.forecast.cell_left(cell) is None for cell in block)
        return unknown and not self._has_started(block)

    def next(self) -> Cell | None:
        """The next cell to start, or None if none is left or a cap closed the queue."""
        if not self.is_open():
            return None
        if not self._current:
            self._current = self._blocks.pop(0)
            self.meter.started.update(cell.cell_id for cell in self._current)
        cell = self._current.pop(0)
        self._running[cell.cell_id] = cell
        self.meter.cell_started(cell)
        return cell

    def cell_ended(self, cell: Cell) -> None:
        """Record that a started cell has succeeded or failed."""
        self._running.pop(cell.cell_id, None)
        self.forecast.cell_ended(cell)
        self.meter.cell_ended(cell)

    def dropped_json(self) -> Dropped:
        """The cells that a cap left out."""
        dropped = [cell.cell_id for cell in self.dropped]
        return Dropped(cap=self.cap, cells=dropped) if dropped else Dropped()


def make_queue(
    experiment: Experiment,
    cells: Sequence[Cell],
    estimates: Estimates,
    capacity: Capacity,
    meter: UsageMeter,
    updates: Mapping[str, int] = MappingProxyType({}),
    order: Mapping[str, Work] = MappingProxyType({}),
) -> CellQueue:
    """A queue of unfinished cells.

    updates: done by cells so far. order: the work by which long cells start first; by default from
    the estimates.
    """
    works = order or estimates.works

    def size(cell: Cell) -> float:
        return works[cell.cell_id].tokens if cell.cell_id in works else 0.0

    blocks = make_blocks(cells, size, by_seed=has_cap(experiment))
    ordered = [cell for block in blocks for cell in block]
    forecast = Forecast(ordered, estimates, capacity, updates)
    return CellQueue(blocks, experiment, forecast, meter)


def dropped_summary(dropped: Mapping[str, Any] | None, cells: Sequence[Mapping[str, Any]]) -> str:
    """One sentence on the cells that a cap left out of a sweep; empty if none.

    dropped: from `CellQueue.dropped_json`. cells: of the sweep, with their axes.
    """
    if not dropped:
        return ""
    ids = set(dropped["cells"])
    left_out = [cell for cell in cells if cell["cell_id"] in ids]
    seeds: dict[str, list[int]] = {}
    for cell in left_out:
        name = "/".join([cell["model"], cell["dataset"], *axis_names(cell.get("axes", {}))])
        seeds.setdefault(name, []).append(cell["seed"])
    names = []
    for name, values in seeds.items():
        unique = list(dict.fromkeys(values))
        names.append(f"{noun_for(len(unique), 'seed')} {', '.join(map(str, unique))} of {name}")
    share = f"{len(left_out)} of {counted(len(cells), 'cell')}"
    return f"{dropped['cap']} leaves out {'; '.join(names)}: {share}"
