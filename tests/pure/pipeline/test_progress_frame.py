"""What the bars show, at several sizes of terminal."""

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.cost.forecast import TimeLeft
from orchestrator.pipeline.progress import CellLine, Phase, frame

PHASE = Phase("training", 0.25, "25 %")


def drawn(
    cells: list[CellLine], columns: int, lines: int, gpu_hours: float | None = None
) -> list[str]:
    """The frame as text without colours."""
    out = io.StringIO()
    console = Console(file=out, width=columns, height=lines, color_system=None)
    totals = ["3/40 cells finished", "ETA 1:30"]
    totals += [] if gpu_hours is None else [f"{gpu_hours:.2f} GPU-hours"]
    console.print(frame(PHASE, cells, totals, columns, lines))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def cell_lines(count: int) -> list[CellLine]:
    """Cells that are a quarter done; the second has not reported yet."""
    cells = [
        CellLine(f"hard/s{i}", 3, 12, 62.5, 0.3125, TimeLeft(5.4, time.monotonic()))
        for i in range(count)
    ]
    return [*cells[:1], CellLine("easy/s0", None, 12, None, None, None), *cells[2:]]


def test_a_wide_frame_shows_bars_and_every_number() -> None:
    lines = drawn(cell_lines(2), 79, 23, gpu_hours=4.2)
    assert lines[0].startswith("training  ━━") and lines[0].endswith("25 %")
    assert lines[1].split() == ["cell", "update", "learnable", "%", "accuracy", "ETA"]
    assert lines[2].startswith("hard/s0  ━━") and lines[2].split()[2:] == [
        "3/12",
        "62.5",
        "0.312",
        "0:05",
    ]
    assert lines[3].split()[-4:] == ["starting", "–", "–", "?"]
    assert lines[4:] == ["3/40 cells finished, ETA 1:30, 4.20 GPU-hours"]


def test_a_narrow_frame_leaves_out_bars_then_learnable_then_totals() -> None:
    assert drawn(cell_lines(2), 56, 23)[2].split() == ["hard/s0", "3/12", "62.5", "0.312", "0:05"]
    assert drawn(cell_lines(2), 39, 23)[2].split() == ["hard/s0", "3/12", "0.312", "0:05"]
    assert drawn([], 39, 23, gpu_hours=4.2)[-1] == "3/40 cells finished, ETA 1:30"


@pytest.mark.parametrize(("lines", "shown", "more"), [(23, 19, 13), (9, 5, 27), (4, 0, 32)])
def test_cells_that_do_not_fit_are_counted(lines: int, shown: int, more: int) -> None:
    rows = drawn(cell_lines(32), 79, lines)
    assert len(rows) == lines
    assert rows[-2] == f"+ {more} more running"
    assert sum("3/12" in row or "starting" in row for row in rows) == shown


@given(st.integers(0, 30), st.integers(10, 200), st.integers(1, 50))
def test_a_frame_is_never_larger_than_the_terminal(count: int, columns: int, lines: int) -> None:
    rows = drawn(cell_lines(count) if count > 1 else [], columns, lines)
    assert len(rows) <= lines
    assert all(len(row) <= columns for row in rows)
