"""The ETA of a running sweep, from events at given times."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from factories import small_plan
from paths import SUPPORT

from orchestrator.cost.forecast import LATE, PRIOR, STALL, Forecast, Pace, TimeLeft
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.work import Estimates, ProbeWork, Speed, Work, evaluations_until
from orchestrator.planning.cells import Cell
from orchestrator.plugins.durations import duration

WORK = Work(training=8, evaluation=4)  # 4 updates, evaluated after the 2nd and the 4th
SPEEDS = {"stub": Speed(start=2, per_token=1)}


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return small_plan(tmp_path, policies=["hard", "random"], seeds=[0, 1]).cells


def make_forecast(
    cells: list[Cell],
    clock: Clock,
    updates: dict[str, int] | None = None,
    capacity: int = 2,
    **estimated: object,
) -> Forecast:
    works = {cell.cell_id: WORK for cell in cells}
    estimates = Estimates(works, **{"speeds": SPEEDS, **estimated})  # type: ignore[arg-type]
    slots = Capacity((float(capacity),), capacity, "CPU")
    return Forecast(cells, estimates, slots, updates or {}, clock)


def seconds_left(forecast: Forecast) -> float | None:
    left = forecast.left()
    return None if left is None else left.seconds


def probe(tokens: float, *, samples: int = 500, pace: float | None = 1.0) -> ProbeWork:
    return ProbeWork("stub", samples, tokens, pace)


def test_before_anything_runs_cells_are_packed_after_the_probes(cells: list[Cell]) -> None:
    assert seconds_left(make_forecast(cells, Clock())) == 2 * 14
    probes = {"p": probe(10.0, pace=0.5)}
    assert seconds_left(make_forecast(cells, Clock(), probes=probes)) == 5 + 2 * 14
    assert seconds_left(make_forecast(cells[:3], Clock())) == 28, "a last cell that runs alone"


def test_nothing_is_said_before_anything_is_measured(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = make_forecast(cells, clock, speeds={})
    forecast.cell_started(cells[0])
    assert forecast.left() is None and forecast.cells_left() == {}
    forecast.cell_progress(cells[0], 1)
    assert forecast.left() is None, "a first report says nothing about the speed"
    clock.now = 8.0
    forecast.cell_progress(cells[0], 2)  # 4 tokens
    assert forecast.cells_left()[cells[0].cell_id].seconds == pytest.approx(12)
    assert seconds_left(forecast) == pytest.approx(24 + 24), (
        "12, 24, 24 and 24 seconds in two slots"
    )
    unknown = make_forecast(cells, clock, probes={"p": probe(9.0, pace=None)})
    assert unknown.left() is None and unknown.probe_seconds() == 0


def test_a_model_that_is_not_measured_is_as_fast_as_others_for_its_size(tmp_path: Path) -> None:
    grid = {"model": ["stub", "other"], "dataset": ["small"], "policy": ["hard"]}
    own, others = small_plan(tmp_path, grid=grid).cells
    sizes = {"stub": 2.0, "other": 6.0}
    forecast = make_forecast([own, others], Clock(), parameters=sizes)
    left = [forecast.cell_left(cell) for cell in (own, others)]
    assert [each.seconds for each in left if each] == [14, 3 * 12]


def test_while_nothing_runs_the_time_left_rises_slowly(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = make_forecast(cells, clock)
    clock.now = 40.0
    assert seconds_left(forecast) == 28 + LATE * 40
    forecast.cell_started(cells[0])
    assert seconds_left(forecast) == 28
    clock.now = 43.0
    assert seconds_left(forecast) == 28, "another cell of the same length has not started"
    assert [job.seconds for job in forecast.jobs(cells)] == [11, 14, 14, 14]


@pytest.mark.parametrize("probes", [{}, {"p": probe(50.0)}])
def test_a_probe_has_its_own_speed_from_the_second_report_on(
    cells: list[Cell], probes: dict[str, ProbeWork]
) -> None:
    """Also one without an estimate, and it counts down until its next report is due."""
    clock = Clock()
    forecast = make_forecast(cells, clock, probes=probes)
    forecast.probe_progress("p", 100, 500)
    left = forecast.probe_left("p")
    assert (left.seconds if left else None) == (50 if probes else None)
    clock.now = 10.0
    forecast.probe_progress("p", 101, 500)
    forecast.probe_progress("p", 200, 500)
    for clock.now, seconds in ((10.0, 30.0), (10.1, 29.9), (14.1, 29.9 + 4 * LATE)):
        assert seconds_left(forecast) == pytest.approx(28 + seconds)
    forecast.probe_progress("p", 500, 500)
    assert seconds_left(forecast) == pytest.approx(28)


def test_a_later_probe_is_as_fast_as_the_last_one_of_its_model() -> None:
    clock = Clock()
    probes = {"a": probe(50.0), "b": probe(20.0)}
    forecast = make_forecast([], clock, probes=probes)
    assert seconds_left(forecast) == 70
    forecast.probe_progress("a", 0, 500)
    clock.now = 100.0
    forecast.probe_progress("a", 500, 500)
    assert seconds_left(forecast) == pytest.approx(40), "two seconds per token"


def test_evaluations_are_counted_at_their_updates(cells: list[Cell]) -> None:
    cell = cells[0]
    assert [evaluations_until(cell, u) for u in range(5)] == [0, 0, 1, 1, 2]
    once = cell.model_copy(update={"evaluate_every": 0})
    assert [evaluations_until(once, u) for u in range(5)] == [0, 0, 0, 0, 1]
    odd = cell.model_copy(update={"evaluate_every": 3})
    assert [evaluations_until(odd, u) for u in range(5)] == [0, 0, 0, 1, 2]


def test_a_run_at_the_expected_speed_counts_down_exactly(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = make_forecast(cells[:2], clock)
    for update, at in ((1, 4.0), (2, 8.0), (3, 10.0), (4, 14.0)):
        clock.now = at
        for cell in cells[:2]:
            forecast.cell_progress(cell, update)
        assert seconds_left(forecast) == pytest.approx(14 - at)
    for cell in cells[:2]:
        forecast.cell_ended(cell)
    clock.now = 99.0
    assert seconds_left(forecast) == 0


def test_a_slower_machine_corrects_all_cells(cells: list[Cell]) -> None:
    """What was measured before counts as a tenth of a cell; a cell's own pace counts for it."""
    clock = Clock()
    forecast = make_forecast(cells, clock)
    forecast.cell_progress(cells[0], 2)
    clock.now = 6.0
    forecast.cell_progress(cells[0], 3)  # 6 seconds where 2 were expected
    slower = (PRIOR * 12 + 6) / (PRIOR * 12 + 2)
    left = [forecast.cell_left(cell) for cell in cells]
    own = 3 * 2 / 12 + slower * 10 / 12
    assert [each.seconds for each in left if each] == pytest.approx(
        [4 * own] + 3 * [2 + 12 * slower]
    )


def test_a_cell_that_hangs_hardly_slows_the_others(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = make_forecast(cells, clock, capacity=64)
    for update in (1, 2, 3):
        clock.now += 2.0
        for cell in cells[:3]:
            forecast.cell_progress(cell, update)
    clock.now += 3600.0
    hanging = forecast.cell_left(cells[0])
    assert hanging and hanging.seconds > LATE * 3500
    forecast.cell_progress(cells[0], 4)
    other = forecast.cell_left(cells[3])
    assert other and 14 < other.seconds < 2 + 12 * STALL, "not nine hundred times as slow"


def test_of_a_stall_only_a_part_counts() -> None:
    pace = Pace()
    assert pace.per_token is None
    pace.add(2.0, 1.0)
    pace.add(1000.0, 1.0)
    assert pace.per_token == pytest.approx((2 + 2 * STALL) / 2)
    pace = Pace()
    for seconds in (0.0, 0.0, 4.0):
        pace.add(seconds, 1.0)
    assert pace.per_token == pytest.approx(4 / 3), "reports that come at once take no time"


def test_a_cell_resumed_from_a_checkpoint_does_not_look_fast(cells: list[Cell]) -> None:
    clock, cell = Clock(), cells[0]
    forecast = make_forecast([cell], clock, updates={cell.cell_id: 2})
    assert seconds_left(forecast) == 2 + 6
    forecast.cell_started(cell)
    clock.now = 3.0
    assert seconds_left(forecast) == 5
    forecast.cell_progress(cell, 3)
    assert seconds_left(forecast) == pytest.approx(4)
    clock.now = 60.0
    forecast.cell_progress(cell, 2)  # a new trial resumes from the checkpoint
    assert seconds_left(forecast) == pytest.approx(6)


def test_running_cells_come_first_and_ended_ones_not_at_all(cells: list[Cell]) -> None:
    forecast = make_forecast(cells, Clock())
    forecast.cell_started(cells[1])
    assert [job.name for job in forecast.jobs(cells[:2])] == [cells[1].name, cells[0].name]
    forecast.cell_ended(cells[1])
    assert [job.name for job in forecast.jobs(cells[:2])] == [cells[0].name]
    forecast = Forecast(cells, Estimates(), Capacity((2.0,), 2, "CPU"), clock=Clock())
    forecast.cell_progress(cells[3], 1)
    assert [job.seconds for job in forecast.jobs(cells)] == [0.0] * 4, "their work is not known"
    assert forecast.left() is None


def test_the_time_left_counts_down_until_a_report_is_due_and_then_rises() -> None:
    left = TimeLeft(100.0, 46.0, due=56.0).at_time(50.0)
    assert left == (96.0, 50.0, 56.0)
    assert [left.seconds_at(50.0 + s) for s in (0, 6, 10)] == [96, 90, 90 + 4 * LATE]
    late = TimeLeft(100.0, 46.0, due=56.0).at_time(60.0)
    assert late == (90 + 4 * LATE, 60.0, 60.0)
    assert late.seconds_at(64.0) == 90 + 8 * LATE
    assert TimeLeft(3.0, 0.0).seconds_at(9.0) == 0, "never below zero"


# ---- recorded runs of the quickstart, on a machine that was busy with other work


RECORDED = json.loads((SUPPORT / "recorded_runs.json").read_text())


def displayed(
    forecast: Forecast, clock: Clock, events: list[tuple[float, Callable[[], None]]]
) -> list[tuple[float, float]]:
    """(time, seconds left) twice a second, forecast anew every second, as on a terminal."""
    shown, left, events = [], forecast.left(), sorted(events, key=lambda event: event[0])
    for tick in range(2 * int(events[-1][0])):
        while events and events[0][0] <= tick / 2:
            clock.now, event = events.pop(0)
            event()
        clock.now = tick / 2
        left = forecast.left() if tick % 2 == 0 else left
        assert left is not None
        shown.append((clock.now, left.seconds_at(clock.now)))
    return shown


def longest_standstill(shown: list[tuple[float, float]]) -> float:
    """The longest time for which the same second is displayed."""
    runs = itertools.groupby(shown, key=lambda each: round(each[1]))
    return max(run[-1][0] - run[0][0] for _, group in runs if (run := list(group)))


def test_the_eta_of_a_recorded_run_always_moves(tmp_path: Path) -> None:
    """Its updates take from one to sixteen seconds, and its evaluations from 8 to 80."""
    recorded, clock = RECORDED["run"], Clock()
    plan = small_plan(
        tmp_path,
        policies=["hard", "easy", "middle", "random"],
        updates=50,
        evaluate={"every": 25, "samples": 8},
    )
    cells = {cell.policy: cell for cell in plan.cells}
    # 50 updates of 64 completions, and four answers to each of 250 questions twice, of one length.
    works = {cell.cell_id: Work(50 * 64, 2 * 4 * 250) for cell in plan.cells}
    estimates = Estimates(works, speeds={"stub": Speed(10.0, 0.01)})
    forecast = Forecast(plan.cells, estimates, Capacity((2.0,), 2, "CPU"), clock=clock)
    calls = {
        "started": lambda cell, _: forecast.cell_started(cell),
        "update": forecast.cell_progress,
        "finished": lambda cell, _: forecast.cell_ended(cell),
    }
    events = [
        (at, partial(calls[kind], cells[name], update))
        for at, kind, name, update in recorded["events"]
    ]
    shown = displayed(forecast, clock, events)
    assert longest_standstill(shown) <= 1 / LATE + 1
    steps = [b[1] - a[1] for a, b in itertools.pairwise(shown)]
    assert max(map(abs, steps)) < 75, "of more than eight minutes"


def test_a_duration_is_written_as_on_a_clock() -> None:
    for seconds, text in ((0, "0:00"), (75, "1:15"), (3599.6, "1:00:00"), (36061, "10:01:01")):
        assert duration(seconds) == text
