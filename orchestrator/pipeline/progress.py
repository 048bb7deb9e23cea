"""Live progress: one line that redraws on a terminal, plain lines elsewhere. Knows no Ray."""

import sys
import time
from dataclasses import dataclass, field
from typing import Any, TextIO

from orchestrator.cost.forecast import Forecast, duration
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan


@dataclass
class Progress:
    """What runs, what is done, how long it may still take."""

    total: int
    done: int = 0
    out: TextIO = field(default_factory=lambda: sys.stderr)
    every: float = 10.0
    updates: dict[str, tuple[str, int, int, dict[str, float]]] = field(default_factory=dict)
    forecast: Forecast | None = None

    def __post_init__(self) -> None:
        self._terminal = self.out.isatty()
        self._last = 0.0
        self._width = 0
        self._explained: dict[str, str] = {}

    @classmethod
    def of(cls, plan: Plan, finished: int) -> "Progress":
        """Progress over a plan's cells."""
        return cls(total=len(plan.cells), done=finished)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        print(text, file=self.out, flush=True)

    def probe(self, probe: str, label: str, done: int, total: int) -> None:
        """Samples drawn so far."""
        if self.forecast:
            self.forecast.probed(probe, done, total)
        line = f"{label}: {done}/{total} samples, ETA {self._eta()}"
        self._draw(line, force=done in (0, total))

    def update(self, cell: Cell, report: dict[str, Any]) -> None:
        """A running cell reached another update."""
        key = cell.cell_id
        latest = {**self.updates[key][3]} if key in self.updates else {}
        self.updates[key] = (cell.name, report["update"], cell.updates, latest | report["metrics"])
        if self.forecast:
            self.forecast.reached(cell, report["update"])
        self._explain(cell, report)
        self._draw(self._line())

    def _explain(self, cell: Cell, report: dict[str, Any]) -> None:
        """Why nothing could be learned from an update; said again only for another reason."""
        said = report.get("explanation")
        advice = said.partition(": ")[2] if said else ""
        if said and self._explained.get(cell.cell_id) != advice:
            self._explained[cell.cell_id] = advice
            self.say(f"{cell.name}, update {report['update']}: {said}")

    def trained(self, cell: Cell) -> None:
        """A cell was trained, and waits for the evaluation of its checkpoints."""
        self.updates.pop(cell.cell_id, None)
        self.say(f"{cell.name}: trained, its checkpoints are evaluated when all cells are")

    def evaluated(self, done: int, total: int) -> None:
        """Checkpoints evaluated so far, after training."""
        self._draw(f"evaluations: {done}/{total} checkpoints", force=done == total)

    def finished(self, cell: Cell, text: str) -> None:
        """A cell ended, well or badly."""
        self.updates.pop(cell.cell_id, None)
        self.done += 1
        if self.forecast:
            self.forecast.ended(cell)
        left = f" (ETA {self._eta()})" if self.done < self.total else ""
        self.say(f"[{self.done}/{self.total}] {cell.name}: {text}{left}")

    def _line(self) -> str:
        running = [
            f"{name} {update}/{of}{_latest(metrics)}"
            for name, update, of, metrics in self.updates.values()
        ]
        head = f"{self.done}/{self.total} cells done, {len(running)} running, ETA {self._eta()}"
        return " | ".join([head, *running])

    def _eta(self) -> str:
        """Until the last cell has ended: probes, starts, updates and evaluations."""
        left = self.forecast.seconds_left() if self.forecast else None
        return "?" if left is None else duration(left)

    def _draw(self, line: str, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._last < (0.2 if self._terminal else self.every):
            return
        self._last = now
        if self._terminal:
            self._clear()
            self.out.write(line[:160])
            self._width = min(160, len(line))
            self.out.flush()
        else:
            print(line, file=self.out, flush=True)

    def _clear(self) -> None:
        if self._terminal and self._width:
            self.out.write("\r" + " " * self._width + "\r")
            self._width = 0


def _latest(metrics: dict[str, float]) -> str:
    parts = []
    if "train/learnable_pct" in metrics:
        parts.append(f"learnable {metrics['train/learnable_pct']:.0f} %")
    if "eval/accuracy" in metrics:
        parts.append(f"accuracy {metrics['eval/accuracy']:.3f}")
    return f" ({', '.join(parts)})" if parts else ""
