"""The driver's progress, on a terminal and without one."""

import io
import time
from pathlib import Path

import pytest
from factories import small_plan
from terminal import FakeTerminal, Screen

from orchestrator.cost.caps import UsageMeter
from orchestrator.cost.forecast import Forecast
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.work import Estimates, Speed, Work
from orchestrator.pipeline import live_region, progress
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.training.cell_folder import CellState


def test_progress_counts_cells_and_updates_the_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, second] = small_plan(tmp_path).cells
    works = {cell.cell_id: Work(60, 0) for cell in (first, second)}
    estimates = Estimates(works, speeds={"stub": Speed(0, 1)})
    now, out = 0.0, io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    forecast = Forecast([first, second], estimates, Capacity((1.0,), 1, "CPU"), clock=lambda: now)
    display = ProgressDisplay(total=2, out=out, every=0.0, forecast=forecast)
    display.update(first, {"update": 1, "metrics": {"train/learnable_pct": 50.0}})
    now += 15.0
    display.update(first, {"update": 2, "metrics": {"eval/accuracy": 0.25}})
    display.finished(first, "done")
    display.finished(second, "FAILED: out of memory")
    assert out.getvalue().splitlines() == [
        f"0/2 cells finished, 1 running, ETA 1:45 | {first.name} 1/4 (learnable 50 %)",
        f"0/2 cells finished, 1 running, ETA 1:30 | {first.name} 2/4 "
        "(learnable 50 %, accuracy 0.250)",
        f"[1/2] {first.name}: done (ETA 1:00)",
        f"[2/2] {second.name}: FAILED: out of memory",
    ]


def test_before_any_cell_is_measured_a_probe_has_a_time_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, now, out = small_plan(tmp_path).cells, 0.0, io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    works = {cell.cell_id: Work(60, 0) for cell in cells}
    forecast = Forecast(cells, Estimates(works), Capacity((1.0,), 1, "CPU"), clock=lambda: now)
    display = ProgressDisplay(total=2, out=out, every=0.0, forecast=forecast)
    display.probe("p", "probe stub/small train", 0, 160)
    now += 10.0
    display.probe("p", "probe stub/small train", 40, 160)
    assert out.getvalue().splitlines() == [
        "probe stub/small train: 0/160 samples, ETA ?",
        "probe stub/small train: 40/160 samples, ETA of this probe 0:30",
    ]


def test_cells_that_end_together_share_a_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It packs all remaining cells, so that one for every cell would be quadratic."""
    cells = small_plan(tmp_path, seeds=range(5)).cells
    works, calls = {cell.cell_id: Work(60, 0) for cell in cells}, []
    estimates = Estimates(works, speeds={"stub": Speed(0, 1)})
    forecast = Forecast(cells, estimates, Capacity((1.0,), 1, "CPU"))
    left = forecast.left
    monkeypatch.setattr(forecast, "left", lambda: (calls.append(1), left())[1])
    out = io.StringIO()
    display = ProgressDisplay(total=10, out=out, forecast=forecast)
    for cell in cells:
        display.finished(cell, "done")
    assert len(calls) < 10
    assert out.getvalue().count("(ETA ") == 9


def test_a_plain_line_names_a_few_running_cells_and_counts_the_rest(tmp_path: Path) -> None:
    cells = small_plan(tmp_path, seeds=range(5)).cells
    out = io.StringIO()
    with ProgressDisplay(total=10, out=out, every=0.0) as display:
        for cell in cells:
            display.started(cell)
            display.update(cell, {"update": 1, "metrics": {}})
    last = out.getvalue().splitlines()[-1]
    assert last.startswith("0/10 cells finished, 10 running, ETA ? | ")
    assert last.endswith(f"{cells[7].name} 1/4 | + 2 more")


def test_bars_follow_the_phases_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan(tmp_path, policies=("hard", "easy", "random"))
    first, second, third = plan.cells
    screen = Screen(80, 24)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(live_region, "REDRAWS", 1 / 60)  # only when something is printed
    monkeypatch.setattr(progress, "FORECAST_SECONDS", 0)
    states = [CellState.PENDING, CellState.TRAINED, CellState.FINISHED]
    display = ProgressDisplay.of(plan)
    display.count(plan, states)
    display.out = FakeTerminal(screen)
    with display:
        display.meter = UsageMeter({"gpu_seconds": 7200})
        display.probe("id", "probe stub/small train", 40, 160)
        display.say("a message")
        assert screen.shown[0] == "a message"
        assert screen.shown[1].startswith("probe stub/small train  ━")
        assert screen.shown[1].endswith("40/160 samples")
        assert screen.shown[2] == "1/3 cells finished, ETA ?, 2.00 GPU-hours"
        display.probed("160 samples")
        assert screen.shown[2].startswith("1/3 cells finished")
        display.started(first)
        display.update(first, {"update": 2, "metrics": {"train/learnable_pct": 50.0}})
        display.say("training")
        assert screen.shown[3].endswith("  83 %")  # one finished, one trained, half of the other
        assert screen.shown[5].split()[-4:] == ["2/4", "50.0", "–", "?"]
        assert screen.shown[5].startswith("hard/s0 ")
        display.trained(first)
        display.evaluated(0, 2)
        display.evaluated(1, 2)
        display.say("evaluating")
        *_, row, _ = filter(None, screen.shown)
        assert "evaluations " in row and "1/2 checkpoints, ETA 0:00" in row
        display.evaluated(1, 2, completions=7)
        display.say("evaluating the last")
        *_, row, _ = filter(None, screen.shown)
        assert "1/2 checkpoints, 7 completions of the next, ETA 0:00" in row
        display.evaluated(2, 2)
        display.finished(second, "done")
    assert screen.printed.split("\n") == [
        "a message",
        "160 samples",
        "training",
        f"{first.name}: trained; its checkpoints are evaluated after all cells are",
        "  trained",
        "evaluating",
        "evaluating the last",
        f"[2/3] {second.name}: done (ETA ?)",
    ]


def test_the_bars_eta_moves_between_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [cell, other] = small_plan(tmp_path).cells
    now, screen = 0.0, Screen(80, 24)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(live_region, "REDRAWS", 1 / 60)  # only when something is printed
    monkeypatch.setattr(time, "monotonic", lambda: now)
    works = {each.cell_id: Work(60, 0) for each in (cell, other)}
    estimates = Estimates(works, speeds={"stub": Speed(10, 1)})
    forecast = Forecast([cell, other], estimates, Capacity((1.0,), 1, "CPU"), clock=lambda: now)
    shown = []
    with ProgressDisplay(total=2, out=FakeTerminal(screen)) as display:
        display.expect(forecast)
        display.started(cell)
        display.update(cell, {"update": 1, "metrics": {}})
        for seconds in (5.0, 14.0, 30.0, 45.0):
            now = seconds
            display.say("a message")
            *_, row, totals = filter(None, screen.shown)
            shown.append((row.split()[-1], totals.split()[-1]))
    assert shown[:2] == [("0:40", "1:50"), ("0:31", "1:41")]
    late = [total for _, total in shown[2:]]
    assert late[0] > "1:41" and late[1] > late[0], "the update is late"


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
