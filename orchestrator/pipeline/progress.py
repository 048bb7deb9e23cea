"""Live progress: one redrawn line on a terminal, plain lines elsewhere. Independent of Ray."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO

from orchestrator.cost.forecast import Forecast, duration
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan

TERMINAL_WIDTH = 160
TERMINAL_SECONDS = 0.2  # between two redraws


class RunningCell(NamedTuple):
    """A cell in training: its last update and its latest metrics by name."""

    cell: Cell
    update: int
    metrics: dict[str, float]


@dataclass
class ProgressDisplay:
    """The state of a run: cells done, cells running, and the ETA of the forecast."""

    total: int
    done: int = 0
    out: TextIO = field(default_factory=lambda: sys.stderr)
    every: float = 10.0  # seconds between two lines, if not on a terminal
    forecast: Forecast | None = None

    def __post_init__(self) -> None:
        self._running: dict[str, RunningCell] = {}
        self._explained: dict[str, str] = {}
        self._terminal = self.out.isatty()
        self._last_drawn = 0.0
        self._width = 0

    @classmethod
    def of(cls, plan: Plan, finished: int) -> "ProgressDisplay":
        """Progress over a plan's cells."""
        return cls(total=len(plan.cells), done=finished)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self._clear()
        print(text, file=self.out, flush=True)

    def probe(self, probe_id: str, label: str, done: int, total: int) -> None:
        """Show how many samples of a probe are drawn."""
        if self.forecast:
            self.forecast.probe_progress(probe_id, done, total)
        line = f"{label}: {done}/{total} samples, ETA {self._eta()}"
        self._draw(line, force=done in (0, total))

    def update(self, cell: Cell, report: Mapping[str, Any]) -> None:
        """Show that a running cell has completed another update.

        `report` has `update`, `metrics`, and an `explanation` if nothing could be learned from the
        update; that is printed once per reason.
        """
        previous = self._running.get(cell.cell_id)
        metrics = (previous.metrics if previous else {}) | report["metrics"]
        self._running[cell.cell_id] = RunningCell(cell, report["update"], metrics)
        if self.forecast:
            self.forecast.cell_progress(cell, report["update"])
        if explanation := report.get("explanation"):
            reason = explanation.partition(": ")[2]
            if self._explained.get(cell.cell_id) != reason:
                self._explained[cell.cell_id] = reason
                self.say(f"{cell.name}, update {report['update']}: {explanation}")
        running = [
            f"{r.cell.name} {r.update}/{r.cell.updates}{_metrics_text(r.metrics)}"
            for r in self._running.values()
        ]
        head = f"{self.done}/{self.total} cells done, {len(running)} running, ETA {self._eta()}"
        self._draw(" | ".join([head, *running]))

    def trained(self, cell: Cell) -> None:
        """A cell is trained; its checkpoints are evaluated later."""
        self._running.pop(cell.cell_id, None)
        self.say(f"{cell.name}: trained; its checkpoints are evaluated after all cells are trained")

    def evaluated(self, done: int, total: int) -> None:
        """Show how many checkpoints are evaluated, after training."""
        self._draw(f"evaluations: {done}/{total} checkpoints", force=done == total)

    def finished(self, cell: Cell, text: str) -> None:
        """A cell has ended; `text` is its result or why it has none."""
        self._running.pop(cell.cell_id, None)
        self.done += 1
        if self.forecast:
            self.forecast.cell_ended(cell)
        eta = f" (ETA {self._eta()})" if self.done < self.total else ""
        self.say(f"[{self.done}/{self.total}] {cell.name}: {text}{eta}")

    def _eta(self) -> str:
        """Until the last cell has ended, probes and evaluations included."""
        seconds = self.forecast.seconds_left() if self.forecast else None
        return "?" if seconds is None else duration(seconds)

    def _draw(self, line: str, force: bool = False) -> None:
        now = time.monotonic()
        interval = TERMINAL_SECONDS if self._terminal else self.every
        if not force and now - self._last_drawn < interval:
            return
        self._last_drawn = now
        if self._terminal:
            self._clear()
            self.out.write(line[:TERMINAL_WIDTH])
            self._width = min(TERMINAL_WIDTH, len(line))
            self.out.flush()
        else:
            print(line, file=self.out, flush=True)

    def _clear(self) -> None:
        if self._terminal and self._width:
            self.out.write("\r" + " " * self._width + "\r")
            self._width = 0


def _metrics_text(metrics: Mapping[str, float]) -> str:
    parts = []
    if "train/learnable_pct" in metrics:
        parts.append(f"learnable {metrics['train/learnable_pct']:.0f} %")
    if "eval/accuracy" in metrics:
        parts.append(f"accuracy {metrics['eval/accuracy']:.3f}")
    return f" ({', '.join(parts)})" if parts else ""
