"""What a terminal shows of a running sweep: its phase, its running cells and its totals. Pure."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.cost.forecast import TimeLeft, duration

BAR_COLUMNS = 64  # terminals narrower than this show cells without bars,
LEARNABLE_COLUMNS = 48  # and below this without learnable %
UNKNOWN = "–"


class Phase(NamedTuple):
    """A phase of the run: the share of it that is done, a detail in words, and the time left."""

    label: str
    share: float
    detail: str
    left: TimeLeft | None = None


class CellLine(NamedTuple):
    """A running cell. `update` is None before its first report."""

    name: str
    update: int | None
    updates: int
    learnable_pct: float | None
    accuracy: float | None
    left: TimeLeft | None


class Totals(NamedTuple):
    """Cells finished and in all, the time left, and GPU-hours used (None: no GPU)."""

    done: int
    total: int
    left: TimeLeft | None
    gpu_hours: float | None


def frame(
    phase: Phase | None, cells: Sequence[CellLine], totals: Totals, columns: int, lines: int
) -> RenderableType:
    """At most this many lines of at most this many columns; what does not fit is counted."""
    parts: list[RenderableType] = []
    if phase and lines > 1:
        parts.append(phase_row(phase))
    free = lines - len(parts) - 2  # the heading of the cells, and the totals
    if cells and free > 0:
        shown = len(cells) if len(cells) <= free else free - 1
        parts.append(_cell_table(cells[:shown], columns))
        if shown < len(cells):
            more = f"+ {len(cells) - shown} more running"
            parts.append(Text(more, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts, _totals(totals, columns))


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
    row.add_row(Text(phase.label), _bar(1.0, phase.share), Text(phase.detail + eta))
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
    for heading in ["update", *["learnable %"] * learnable, "accuracy", "ETA"]:
        table.add_column(heading, no_wrap=True, overflow="ellipsis", justify="right")
    for cell in cells:
        bar = _bar(cell.updates, cell.update or 0)
        update = "starting" if cell.update is None else f"{cell.update}/{cell.updates}"
        shown = UNKNOWN if cell.learnable_pct is None else f"{cell.learnable_pct:.1f}"
        accuracy = UNKNOWN if cell.accuracy is None else f"{cell.accuracy:.3f}"
        numbers = [update, *[shown] * learnable, accuracy, time_left(cell.left)]
        table.add_row(Text(cell.name), *[bar] * bars, *map(Text, numbers))
    return table


def _totals(totals: Totals, columns: int) -> Text:
    """As many of the totals as fit, the most important first."""
    parts = [f"{totals.done}/{totals.total} cells finished", f"ETA {time_left(totals.left)}"]
    if totals.gpu_hours is not None:
        parts.append(f"{totals.gpu_hours:,.2f} GPU-hours")
    while len(parts) > 1 and len(", ".join(parts)) > columns:
        parts.pop()
    return Text(", ".join(parts), style="bold", no_wrap=True, overflow="ellipsis")
