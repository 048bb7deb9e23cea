"""Live progress: bars on a terminal or in a notebook, plain lines elsewhere. Does not use Ray."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TextIO

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from cluster.ending import at_end
from cluster.terminal import echo, printable_line
from orchestrator.config.experiment import value_text
from orchestrator.cost.caps import UsageMeter
from orchestrator.cost.forecast import Forecast, TimeLeft
from orchestrator.pipeline.live_region import (
    LiveRegion,
    NotebookRegion,
    open_region,
    progress_stream,
    styled,
    terminal_size,
)
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.plugins.durations import duration
from orchestrator.report.layout import wrapped
from orchestrator.training.cell_folder import CellState

FORECAST_SECONDS = 1.0  # at least, between two forecasts, which pack all remaining cells
FORECAST_SHARE = 1 / 20  # of the driver's time, at most
BAR_COLUMNS = 64  # terminals narrower than this show cells without bars,
LEARNABLE_COLUMNS = 48  # and below this without learnable %
UNKNOWN = "–"
PLAIN_CELLS = 8  # running cells in a plain line
PLAIN_METRICS = {"train/learnable_pct": "learnable {:.0f} %", "eval/accuracy": "accuracy {:.3f}"}


class RunningCell(NamedTuple):
    """A cell in training: its last update (None before its first report), its latest metrics.

    `activity` is what it does before the next update, if that takes long.
    """

    cell: Cell
    update: int | None = None
    metrics: Mapping[str, float] = {}
    activity: str = ""


@dataclass
class ProgressDisplay:
    """The state of a run: cells done, cells running, and the ETA of the forecast.

    As a context manager it draws bars if `out` is a terminal or a notebook's, in a thread that
    reads the forecast and the meter while the driver changes them.
    """

    total: int
    done: int = 0
    out: TextIO = field(default_factory=progress_stream)
    every: float = 10.0  # seconds between two lines, where nothing can be redrawn
    forecast: Forecast | None = None
    meter: UsageMeter | None = None
    names: Mapping[str, str] = field(default_factory=dict)  # by cell_id, for bars
    evaluated_later: set[str] = field(default_factory=set)  # cell_ids of trained cells

    def __post_init__(self) -> None:
        self._running: dict[str, RunningCell] = {}
        self._phase: Phase | None = None  # probes and evaluations; training follows from the cells
        self._explained: dict[str, str] = {}
        self._last_line = self._next_forecast = float("-inf")
        self._evaluations_start: float | None = None
        self._evaluations_left: TimeLeft | None = None
        self._left: TimeLeft | None = None
        self._cells_left: dict[str, TimeLeft] = {}  # of running cells, by cell_id
        self._gpu_hours: float | None = None
        self._region: LiveRegion | NotebookRegion | None = None
        self._ending = ExitStack()

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Progress over a plan's cells; `count` says how far each is, if any has started."""
        return cls(len(plan.cells), names=short_names(plan))

    def count(self, plan: Plan, states: Sequence[CellState]) -> None:
        """Count how many cells are done, by the states of a plan's cells."""
        self.done = states.count(CellState.FINISHED)
        self.evaluated_later = {
            cell.cell_id
            for cell, state in zip(plan.cells, states, strict=False)
            if state is CellState.TRAINED
        }

    def __enter__(self) -> Self:
        self._region = open_region(self.out, self._frame)
        if self._region:
            self._ending.enter_context(at_end(self._region.stop, before_message=True))
        return self

    def __exit__(self, *_: object) -> None:
        if self._region:
            self._region.stop()
            self._region = None
        self._ending.close()

    def expect(self, forecast: Forecast) -> None:
        """Show the ETA of this forecast from now on."""
        self.forecast = forecast
        self._look_ahead()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        text = printable_line(text)
        if self._region:
            columns, _ = terminal_size(self.out)
            self._region.print(wrapped(text, columns - 1))
        else:
            echo(text, self.out)

    def probe(self, probe_id: str, label: str, done: int, total: int) -> None:
        """Show how many samples of a probe are drawn."""
        left = None
        if self.forecast:
            self.forecast.probe_progress(probe_id, done, total)
            left = self.forecast.probe_left(probe_id)
        drawn = f"{done:,}/{counted(total, 'sample')}"
        self._phase = Phase(label, done / total, drawn, left)

        def line() -> str:
            if self._left is None and left is not None:  # before any cell is measured
                return f"{label}: {drawn}, ETA of this probe {time_left(left)}"
            return f"{label}: {drawn}, ETA {self._eta()}"

        self._show(line, done in (0, total))

    def probed(self, text: str) -> None:
        """A probe has ended, an adaptive one perhaps before its last sample; `text` says so."""
        self._phase = None
        self.say(text)

    def started(self, cell: Cell) -> None:
        """A cell starts, or waits for resources that are about to become free."""
        if self.forecast:
            self.forecast.cell_started(cell)
        self._running[cell.cell_id] = RunningCell(cell)

    def update(self, cell: Cell, report: Mapping[str, Any]) -> None:
        """Show that a running cell has completed another update.

        `report` has `update`, `metrics`, and an `explanation` if nothing could be learned from the
        update; that is printed once per reason.
        """
        previous = self._running.get(cell.cell_id, RunningCell(cell))
        if self.forecast:
            self.forecast.cell_progress(cell, report["update"])
        metrics = {**previous.metrics, **report["metrics"]}
        self._running[cell.cell_id] = RunningCell(cell, report["update"], metrics)
        if explanation := report.get("explanation"):
            reason = explanation.partition(": ")[2]
            if self._explained.get(cell.cell_id) != reason:
                self._explained[cell.cell_id] = reason
                self.say(f"{cell.name}, update {report['update']}: {explanation}")
        self._show(self._cells_line)

    def active(self, cell: Cell, activity: str, done: int, total: int) -> None:
        """Show how far a running cell is with its activity before the next update."""
        running = self._running.get(cell.cell_id, RunningCell(cell))
        share = f"{done:,}/{total:,}" if done < total else "done"
        self._running[cell.cell_id] = running._replace(activity=f"{activity} {share}")
        self._show(self._cells_line)

    def trained(self, cell: Cell) -> None:
        """A cell is trained; its checkpoints are evaluated later."""
        self._running.pop(cell.cell_id, None)
        self.evaluated_later.add(cell.cell_id)
        self.say(f"{cell.name}: trained; its checkpoints are evaluated after all cells are trained")

    def evaluated(self, done: int, total: int, completions: int = 0) -> None:
        """Show how many checkpoints are evaluated, after training.

        `completions` are those of checkpoints that are being evaluated.
        """
        now, left = time.monotonic(), None
        if not done or self._evaluations_start is None:
            self._evaluations_start = now
        elif completions:
            left = self._evaluations_left
        elif done < total:
            each = (now - self._evaluations_start) / done
            left = TimeLeft(each * (total - done), now, now + each)
        self._evaluations_left, count = left, f"{done}/{counted(total, 'checkpoint')}"
        if completions:
            count += f", {counted(completions, 'completion')} of the next"
        self._phase = Phase("evaluations", done / total, count, left) if done < total else None
        self._show(lambda: f"evaluations: {count}", done == total)

    def finished(self, cell: Cell, text: str) -> None:
        """A cell has ended; `text` is its result or why it has none."""
        self._running.pop(cell.cell_id, None)
        self.evaluated_later.discard(cell.cell_id)
        self.done += 1
        if self.forecast:
            self.forecast.cell_ended(cell)
        self._look_ahead(if_due=True)
        eta = f" (ETA {self._eta()})" if self.done < self.total else ""
        self.say(f"[{self.done}/{self.total}] {cell.name}: {text}{eta}")

    def _show(self, line: Callable[[], str], force: bool = False) -> None:
        """Print a line from time to time if there are no bars."""
        now = time.monotonic()
        if not self._region and (force or now - self._last_line >= self.every):
            self._last_line = now
            self._look_ahead()
            echo(line(), self.out)

    def _look_ahead(self, *, if_due: bool = False) -> None:
        """Read the forecast and the meter; `if_due`, only if the last time was not just now."""
        start = time.monotonic()
        if if_due and start < self._next_forecast:
            return
        self._left = self._evaluations_left  # after training
        if self.forecast and self._left is None:
            self._left = self.forecast.left()
            self._cells_left = self.forecast.cells_left()
        now = time.monotonic()
        pause = max(FORECAST_SECONDS, (now - start) / FORECAST_SHARE)
        self._next_forecast = now + min(pause, self.every)
        if self.meter and (gpu_seconds := self.meter.usage().gpu_seconds):
            self._gpu_hours = gpu_seconds / 3600

    def _eta(self) -> str:
        """Until the last cell has ended, probes and evaluations included."""
        return time_left(self._left)

    def _cells_line(self) -> str:
        """The running cells as one line."""
        running = [
            cell for cell in self._running.values() if cell.update is not None or cell.activity
        ]
        head = (
            f"{self.done}/{counted(self.total, 'cell')} finished, {len(running)} running, "
            f"ETA {self._eta()}"
        )
        cells = []
        for cell, update, metrics, activity in running[:PLAIN_CELLS]:
            shown = [text.format(metrics[n]) for n, text in PLAIN_METRICS.items() if n in metrics]
            about = f" ({', '.join(shown)})" if shown else ""
            now = f", {activity}" if activity else ""
            cells.append(f"{cell.name} {update or 0}/{cell.updates}{now}{about}")
        if len(running) > PLAIN_CELLS:
            cells.append(f"+ {len(running) - PLAIN_CELLS} more")
        return " | ".join([head, *cells])

    def _frame(self, columns: int, lines: int) -> RenderableType:
        """Called by the thread that redraws, while events change the state."""
        self._look_ahead(if_due=True)
        cells = [
            CellLine(
                self.names.get(running.cell.cell_id, running.cell.name),
                running.update,
                running.cell.updates,
                running.metrics.get("train/learnable_pct"),
                running.metrics.get("eval/accuracy"),
                self._cells_left.get(running.cell.cell_id),
                running.activity,
            )
            for running in list(self._running.values())
        ]
        phase = self._phase
        if cells:
            ended = self.done + len(self.evaluated_later)
            share = (ended + sum((c.update or 0) / c.updates for c in cells)) / self.total
            phase = Phase("training", share, f"{100 * share:.0f} %")
        totals = [f"{self.done}/{counted(self.total, 'cell')} finished", f"ETA {self._eta()}"]
        if self._gpu_hours is not None:
            totals.append(f"{self._gpu_hours:,.2f} GPU-hours")
        return frame(phase, cells, totals, columns, lines)


def short_names(plan: Plan) -> dict[str, str]:
    """Names by cell_id, without the model or dataset that all cells of the plan share."""
    varying = [
        axis for axis in ("model", "dataset") if len({cell.axes[axis] for cell in plan.cells}) > 1
    ]
    names = {}
    for cell in plan.cells:
        axes = cell.axes
        probe = [f"p{axes['probe_seed']}"] if axes["probe_seed"] else []
        values = [value_text(value) for value in cell.setting_axes.values()]
        shared = [axes[axis] for axis in varying]
        names[cell.cell_id] = "/".join([cell.policy, f"s{cell.seed}", *probe, *values, *shared])
    return names


class Phase(NamedTuple):
    """A phase of the run: the share of it that is done, a detail in words, and the time left."""

    label: str
    share: float
    detail: str
    left: TimeLeft | None = None


class CellLine(NamedTuple):
    """A running cell. `update` is None before its first report, `activity` what it does now."""

    name: str
    update: int | None
    updates: int
    learnable_pct: float | None
    accuracy: float | None
    left: TimeLeft | None
    activity: str = ""


def frame(
    phase: Phase | None, cells: Sequence[CellLine], totals: Sequence[str], columns: int, lines: int
) -> RenderableType:
    """At most this many lines of at most this many columns; what does not fit is counted.

    Of the totals, the first ones are shown, as many as fit.
    """
    parts: list[RenderableType] = []
    if phase and lines > 1:
        parts.append(phase_row(phase))
    free = lines - len(parts) - 2  # the heading of the cells, and the totals
    if cells and free > 0:
        shown = len(cells) if len(cells) <= free else free - 1
        parts.append(_cell_table(cells[:shown], columns))
        if shown < len(cells):
            more = f"+ {len(cells) - shown} more running"
            parts.append(styled(more, "dim"))
    while len(totals) > 1 and len(", ".join(totals)) > columns:
        totals = totals[:-1]
    return Group(*parts, styled(", ".join(totals), "bold"))


def time_left(left: TimeLeft | None) -> str:
    """The time left by now."""
    return "?" if left is None else duration(left.seconds_at(time.monotonic()))


def phase_row(phase: Phase) -> Table:
    """A phase in one line: its label, a bar, and its detail with the time left."""
    row = Table.grid(padding=(0, 2, 0, 0), expand=True)
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_column(ratio=1, min_width=4)
    row.add_column(no_wrap=True, overflow="ellipsis", justify="right")
    eta = "" if phase.left is None else f", ETA {time_left(phase.left)}"
    row.add_row(styled(phase.label), _bar(1.0, phase.share), styled(phase.detail + eta))
    return row


def _bar(total: float, completed: float) -> ProgressBar:
    """As wide as its column; rich's own bar is red, like an error."""
    return ProgressBar(total, completed, complete_style="cyan", finished_style="green")


def _cell_table(cells: Sequence[CellLine], columns: int) -> Table:
    """One line for each cell, below a heading."""
    bars, learnable = columns >= BAR_COLUMNS, columns >= LEARNABLE_COLUMNS
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True, header_style="dim")
    table.add_column("cell", no_wrap=True, overflow="ellipsis", ratio=None if bars else 1)
    if bars:
        table.add_column("", ratio=1, min_width=8)
    headings = ["update", "learnable %", "accuracy", "ETA"]
    if not learnable:
        headings.remove("learnable %")
    for heading in headings:
        table.add_column(heading, no_wrap=True, overflow="ellipsis", justify="right")
    for cell in cells:
        bar = _bar(cell.updates, cell.update or 0)
        update = f"{cell.update or 0}/{cell.updates}"
        if cell.activity:
            update = f"{cell.activity}, {update}" if bars else update
        elif cell.update is None:
            update = "starting"
        shown = UNKNOWN if cell.learnable_pct is None else f"{cell.learnable_pct:.1f}"
        accuracy = UNKNOWN if cell.accuracy is None else f"{cell.accuracy:.3f}"
        numbers = [update, shown, accuracy, time_left(cell.left)]
        if not learnable:
            numbers.remove(shown)
        table.add_row(styled(cell.name), *([bar] if bars else []), *map(styled, numbers))
    return table
