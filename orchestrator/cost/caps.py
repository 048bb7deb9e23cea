"""What a sweep may take, what it took, and what a cap drops: whole blocks, never a policy. Pure.

A cap is met between two blocks. One that has begun is finished, so that what ran can be compared;
the next begins only if it is expected to end within every cap.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.config.experiment import Experiment
from orchestrator.cost.forecast import Forecast
from orchestrator.cost.schedule import Capacity, device_seconds, in_blocks, makespan, pack
from orchestrator.cost.throughput import Cost
from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store


class Usage(NamedTuple):
    """Wall seconds of an experiment's runs, and the GPU-seconds that probes and cells held."""

    seconds: float = 0.0
    gpu_seconds: float = 0.0


class UsageMeter:
    """What the runs of one experiment have taken, and the cells whose blocks they began.

    `before` is what an earlier run kept (`as_json`).
    """

    def __init__(
        self, before: Mapping[str, Any] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        kept = before or {}
        self.begun: set[str] = set(kept.get("begun", ()))
        self._before = Usage(kept.get("seconds", 0.0), kept.get("gpu_seconds", 0.0))
        self._clock, self._from, self._held = clock, clock(), 0.0
        self._running: dict[str, tuple[float, float]] = {}

    def probed(self, seconds: float, gpus: float) -> None:
        """A probe held so many GPUs for so long."""
        self._held += seconds * gpus

    def began(self, cell: Cell) -> None:
        """A cell was handed out."""
        resources = cell.resources
        self._running[cell.cell_id] = (self._clock(), resources.gpus * resources.workers)

    def ended(self, cell: Cell) -> None:
        """A cell has its result, or failed."""
        start, gpus = self._running.pop(cell.cell_id, (0.0, 0.0))
        self._held += (self._clock() - start) * gpus

    def spent(self) -> Usage:
        """All runs together, this one up to now."""
        now = self._clock()
        running = sum((now - start) * gpus for start, gpus in self._running.values())
        seconds, gpu_seconds = self._before
        return Usage(seconds + now - self._from, gpu_seconds + self._held + running)

    def as_json(self) -> dict[str, Any]:
        """What the next run has to know."""
        spent = {name: round(value, 3) for name, value in self.spent()._asdict().items()}
        return {**spent, "begun": sorted(self.begun)}


def usage_meter(experiment: str, store: Store) -> UsageMeter:
    """What earlier runs of an experiment have taken."""
    return UsageMeter((store.read_json("sweeps", f"{experiment}.json") or {}).get("spent"))


class ProjectedCost(NamedTuple):
    """What would be taken on top of what was: wall seconds from now, and GPU-seconds."""

    seconds: float
    gpu_seconds: float


def exceeded(experiment: Experiment, spent: Usage, ahead: ProjectedCost) -> str:
    """The cap that would be passed and by how much, or nothing."""
    for name, unit, cap, used, more in (
        (
            "max_gpu_hours",
            "GPU-hours",
            experiment.max_gpu_hours,
            spent.gpu_seconds,
            ahead.gpu_seconds,
        ),
        ("max_hours", "hours", experiment.max_hours, spent.seconds, ahead.seconds),
    ):
        if cap is not None and (used >= 3600 * cap or used + more > 3600 * cap):
            total = f"{_hours(used + more)} {unit} with the next block"
            return f"{name} {cap:g} ({_hours(used)} taken, {total})"
    return ""


def _hours(seconds: float) -> str:
    """Three digits, but nothing below a second."""
    return f"{seconds / 3600:.3g}" if seconds >= 1 else "0"


class Queue:
    """Owed cells in the order in which they start; closes between two blocks when a cap is met.

    `blocks` are those of `schedule.in_blocks`, without the cells that have results.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[Cell]],
        experiment: Experiment,
        forecast: Forecast,
        account: UsageMeter,
    ) -> None:
        def fresh(block: Sequence[Cell]) -> bool:
            return not self._is_begun(block)

        self.experiment, self.forecast, self.account = experiment, forecast, account
        self.why = ""
        self._blocks = sorted((list(block) for block in blocks if block), key=fresh)
        self._ready: list[Cell] = []
        self._handed: list[Cell] = []

    def _is_begun(self, block: Sequence[Cell]) -> bool:
        return any(cell.cell_id in self.account.begun for cell in block)

    @property
    def dropped(self) -> list[Cell]:
        """The cells that no block was begun for, once a cap was met."""
        return [cell for block in self._blocks for cell in block] if self.why else []

    def is_open(self) -> bool:
        """Whether another cell will be handed out, as things stand."""
        if not self._ready and self._blocks and not self.why:
            block = self._blocks[0]
            if not self._is_begun(block):
                self.why = exceeded(self.experiment, self.account.spent(), self._ahead(block))
        return bool(self._ready or (self._blocks and not self.why))

    def next(self) -> Cell | None:
        """The next cell to start, or None when there is none left or a cap was met."""
        if not self.is_open():
            return None
        if not self._ready:
            self._ready = self._blocks.pop(0)
            self.account.begun.update(cell.cell_id for cell in self._ready)
        cell = self._ready.pop(0)
        self._handed.append(cell)
        self.account.began(cell)
        return cell

    def ended(self, cell: Cell) -> None:
        """A cell that was handed out has its result, or failed."""
        self.forecast.ended(cell)
        self.account.ended(cell)

    def _ahead(self, block: Sequence[Cell]) -> ProjectedCost:
        """What probes, the cells handed out and those of another block still take."""
        jobs, room = self.forecast.jobs([*self._handed, *block]), self.forecast.room
        probes = sum(self.forecast.probes.values())
        gpus = len(room.devices) if room.unit == "GPU" else 0
        cells = device_seconds(jobs) if room.unit == "GPU" else 0.0
        return ProjectedCost(probes + makespan(pack(jobs, room)), probes * gpus + cells)


def queue_of(
    experiment: Experiment,
    cells: Sequence[Cell],
    costs: Mapping[str, Cost],
    probes: Mapping[str, float],
    room: Capacity,
    account: UsageMeter,
) -> Queue:
    """The queue of owed cells, with what is expected of them (`costs` by id, `probes` by id)."""

    def seconds(cell: Cell) -> float:
        return costs[cell.cell_id].seconds if cell.cell_id in costs else 0.0

    capped = experiment.max_gpu_hours is not None or experiment.max_hours is not None
    blocks = in_blocks(cells, seconds, by_seed=capped)
    ordered = [cell for block in blocks for cell in block]
    return Queue(blocks, experiment, Forecast(ordered, costs, room, probes), account)


def closed(queue: Queue) -> dict[str, Any]:
    """The cap that closed a queue and the ids of the cells it left out; empty where none did."""
    dropped = [cell.cell_id for cell in queue.dropped]
    return {"cap": queue.why, "cells": dropped} if dropped else {}


def dropped_sentence(declared: Mapping[str, Any]) -> str:
    """What a cap dropped, from what the store keeps of a sweep; nothing where none was met.

    `declared` has the sweep's `cells`, each with its axes, and what `closed` gave as `dropped`.
    """
    dropped = declared.get("dropped")
    if not dropped:
        return ""
    ids = set(dropped["cells"])
    cells = [cell for cell in declared["cells"] if cell["cell_id"] in ids]
    where: dict[str, list[int]] = {}
    for cell in cells:
        seeds = where.setdefault(f"{cell['model']}/{cell['dataset']}", [])
        if cell["seed"] not in seeds:
            seeds.append(cell["seed"])
    names = "; ".join(f"{_seeds(seeds)} of {name}" for name, seeds in where.items())
    total = len(declared["cells"])
    return f"{dropped['cap']} leaves out {names}: {len(cells)} of {total} cells"


def _seeds(seeds: Collection[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
