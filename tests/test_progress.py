"""The driver's progress lines, without a terminal."""

import io
from pathlib import Path

from factories import small_plan

from orchestrator.cost.forecast import Forecast
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.throughput import Cost
from orchestrator.pipeline.progress import ProgressDisplay


def test_progress_counts_cells_and_updates_the_forecast(tmp_path: Path) -> None:
    [first, second] = small_plan(tmp_path).cells
    costs = {cell.cell_id: Cost(0, 60, 0) for cell in (first, second)}
    forecast = Forecast([first, second], costs, Capacity((1.0,), 1, "CPU"), clock=lambda: now)
    now, out = 0.0, io.StringIO()
    display = ProgressDisplay(total=2, out=out, every=0.0, forecast=forecast)
    display.update(first, {"update": 1, "metrics": {"train/learnable_pct": 50.0}})
    now = 15.0
    display.update(first, {"update": 2, "metrics": {"eval/accuracy": 0.25}})
    display.finished(first, "done")
    display.finished(second, "FAILED: out of memory")
    assert out.getvalue().splitlines() == [
        f"0/2 cells done, 1 running, ETA 1:45 | {first.name} 1/4 (learnable 50 %)",
        f"0/2 cells done, 1 running, ETA 1:30 | {first.name} 2/4 (learnable 50 %, accuracy 0.250)",
        f"[1/2] {first.name}: done (ETA 1:00)",
        f"[2/2] {second.name}: FAILED: out of memory",
    ]


def test_an_explanation_is_printed_once_per_reason(tmp_path: Path) -> None:
    [cell, _] = small_plan(tmp_path).cells
    out = io.StringIO()
    display = ProgressDisplay(total=2, out=out, every=1e9)
    for update, reason in enumerate(("too easy", "too easy", "too hard"), start=1):
        report = {"update": update, "metrics": {}, "explanation": f"4 groups dead: {reason}"}
        display.update(cell, report)
    lines = [line for line in out.getvalue().splitlines() if "dead" in line]
    assert lines == [
        f"{cell.name}, update 1: 4 groups dead: too easy",
        f"{cell.name}, update 3: 4 groups dead: too hard",
    ]
