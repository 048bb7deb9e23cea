"""The ETA of a running sweep, from events at given times."""

import itertools
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from factories import small_plan
from paths import SUPPORT

from orchestrator.cost.forecast import (
    LATE,
    Forecast,
    ProbeCost,
    Speed,
    TimeLeft,
    duration,
    evaluations_until,
)
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.throughput import Cost
from orchestrator.planning.cells import Cell

COST = Cost(start=2, training=8, evaluation=4)  # 4 updates, evaluated after the 2nd and the 4th


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return small_plan(tmp_path, policies=["hard", "random"], seeds=[0, 1]).cells


def make_forecast(cells: list[Cell], clock: Clock, **more: object) -> Forecast:
    costs = {cell.cell_id: COST for cell in cells}
    return Forecast(cells, costs, Capacity((2.0,), 2, "CPU"), clock=clock, **more)  # type: ignore[arg-type]


def seconds_left(forecast: Forecast) -> float | None:
    left = forecast.left()
    return None if left is None else left.seconds


def probe(
    sampling: float, *, start: float = 0.0, part: float = 0.0, samples: int = 500
) -> ProbeCost:
    return ProbeCost(start, sampling, part, samples)


def test_before_anything_runs_cells_are_packed_after_the_probes(cells: list[Cell]) -> None:
    assert seconds_left(make_forecast(cells, Clock())) == 2 * 14
    probes = {"p": probe(3.0, start=2.0)}
    assert seconds_left(make_forecast(cells, Clock(), probes=probes)) == 5 + 2 * 14
    assert seconds_left(make_forecast(cells[:3], Clock())) == 28, "a last cell that runs alone"


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


def test_a_probe_is_corrected_by_its_own_speed() -> None:
    """From its first wave of parts on, in which its estimate counts as much as two parts."""
    clock = Clock()
    forecast = make_forecast([], clock, probes={"p": probe(50.0, start=5.0, part=10.0)})
    left = []
    for at, done in ((0.0, 0), (15.0, 100), (35.0, 200), (55.0, 300), (75.0, 400), (95.0, 500)):
        clock.now = at
        forecast.probe_progress("p", done, 500)
        left.append(seconds_left(forecast))
    assert left[:2] == [55, 40], "twice as slow as expected, but nothing is measured yet"
    assert left[2] == pytest.approx(30 * 4 / 3, rel=0.05)
    assert left[3] == pytest.approx(20 * 1.55, rel=0.05) and left[4] == pytest.approx(17, rel=0.05)
    assert left[5] == 0


def test_a_probe_that_is_reported_within_its_parts_is_corrected_from_the_second_report_on() -> None:
    clock = Clock()
    forecast = make_forecast([], clock, probes={"p": probe(50.0, start=5.0, part=10.0)})
    for clock.now, done in ((0.0, 0), (9.0, 10), (13.0, 30)):  # 20 samples: 2 s, and it took 4
        forecast.probe_progress("p", done, 500)
    assert seconds_left(forecast) == pytest.approx(47 * (20 + 4) / (20 + 2), rel=0.01)


def test_a_probe_counts_down_until_its_next_part_is_due() -> None:
    clock = Clock()
    forecast = make_forecast([], clock, probes={"p": probe(50.0, start=5.0, part=10.0)})
    forecast.probe_progress("p", 0, 500)
    for clock.now, seconds in ((0, 55), (14, 41), (15, 40), (19, 40 + 4 * LATE)):
        assert seconds_left(forecast) == pytest.approx(seconds)
    forecast.probe_progress("p", 100, 500)
    for clock.now, seconds in ((20, 39), (29, 30), (39, 30 + 10 * LATE)):
        assert seconds_left(forecast) == pytest.approx(seconds)


def test_probes_of_one_sampler_follow_each_other_and_the_next_one_starts_anew() -> None:
    clock = Clock()
    probes = {"a": probe(10, start=5, part=2), "b": probe(5, part=2), "c": probe(6, start=4)}
    forecast = make_forecast([], clock, probes=probes)
    assert seconds_left(forecast) == 30
    for clock.now, name, done in ((0, "a", 0), (10, "a", 250), (15, "a", 500)):
        forecast.probe_progress(name, done, 500)
    assert seconds_left(forecast) == 15 and forecast.probe_left("b") is None
    clock.now = 17
    forecast.probe_progress("b", 200, 500)
    assert seconds_left(forecast) == pytest.approx(13)
    left = forecast.probe_left("b")
    assert left and left.seconds == pytest.approx(3) and left.due == pytest.approx(19)
    clock.now = 20
    forecast.probe_progress("b", 500, 500)
    clock.now = 24
    assert seconds_left(forecast) == 10 + 4 * LATE, "the actors of b have ended"
    forecast.probe_progress("c", 0, 500)
    assert seconds_left(forecast) == 10


def test_a_probe_without_an_estimate_has_its_measured_speed(cells: list[Cell]) -> None:
    """As of a server, whose speed nobody knows."""
    clock = Clock()
    forecast = make_forecast(cells, clock)
    forecast.probe_progress("p", 100, 500)
    assert forecast.probe_left("p") is None and seconds_left(forecast) == 28
    clock.now = 10.0
    forecast.probe_progress("p", 200, 500)
    left = forecast.probe_left("p")
    assert left and left.seconds == pytest.approx(30)
    assert seconds_left(forecast) == pytest.approx(28 + 30)
    clock.now = 15.0
    assert seconds_left(forecast) == pytest.approx(28 + 25)
    forecast.probe_progress("p", 500, 500)
    assert seconds_left(forecast) == pytest.approx(28)


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
    """Of every cell, a tenth is as if it had been measured as estimated."""
    clock = Clock()
    forecast = make_forecast(cells, clock)
    clock.now = 10.0
    forecast.cell_progress(cells[0], 2)
    assert forecast.corrections() == (1, 1), "a first report says nothing about the speed"
    clock.now = 16.0
    forecast.cell_progress(cells[0], 3)  # 6 seconds where 2 were expected
    fades = math.exp(-2 / (2 * 0.5 * 8))  # two cells run at once
    slower = (0.8 * fades + 6) / (0.8 * fades + 2)
    assert forecast.corrections() == pytest.approx((slower, slower))
    own = 3 * 2 / 8 + slower * 6 / 8
    assert forecast.remaining(cells[0]) == pytest.approx(2 * own + 2 * slower)
    assert forecast.remaining(cells[2]) == pytest.approx(2 + 12 * slower)


def test_cells_are_expected_to_be_as_slow_as_the_probes_until_they_are_measured(
    cells: list[Cell],
) -> None:
    clock = Clock()
    before = make_forecast(cells, clock, probes={"p": probe(100.0, part=1.0)})
    for clock.now, done in ((0, 0), (2, 5), (302, 500)):
        before.probe_progress("p", done, 500)
    assert before.probe_correction == pytest.approx(3, abs=0.1)
    forecast = make_forecast(cells, clock)
    forecast.assume(before.probe_correction)
    assert forecast.remaining(cells[0]) == pytest.approx(2 + 12 * before.probe_correction)
    for update in (1, 2, 3, 4):
        clock.now += 2 + 2 * (update % 2 == 0)
        for cell in cells[:2]:
            forecast.cell_progress(cell, update)
    assert forecast.corrections().training < 2


def test_a_slow_evaluation_corrects_evaluations_only(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = make_forecast(cells, clock)
    for clock.now, update in ((4.0, 1), (26.0, 2)):  # 20 seconds of evaluation, not 2
        forecast.cell_progress(cells[0], update)
    training, evaluation = forecast.corrections()
    assert training == 1 and 8 < evaluation < 10
    assert forecast.remaining(cells[0]) == pytest.approx(4 + 2 * evaluation)


def test_an_evaluation_that_takes_longer_counts_before_it_has_ended(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = make_forecast(cells, clock)
    for cell in cells[:2]:
        forecast.cell_started(cell)
        forecast.cell_progress(cell, 1)
    left = []
    for clock.now in range(31):
        left.append(seconds_left(forecast))
    assert left[0] == pytest.approx(10 + 14) and left[4] == pytest.approx(24 - 4)
    steps = [b - a for a, b in itertools.pairwise(left)]
    assert all(step == pytest.approx(-1) for step in steps[:4])
    assert all(0 < step < 3 for step in steps[4:]), "three more evaluations take as long"
    for cell in cells[:2]:
        forecast.cell_progress(cell, 2)
    assert seconds_left(forecast) == pytest.approx(left[-1], rel=0.1)


def test_a_cell_that_hangs_hardly_slows_the_others(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = Forecast(
        cells, {cell.cell_id: COST for cell in cells}, Capacity((64.0,), 64, "CPU"), clock=clock
    )
    for update in (1, 2, 3):
        clock.now += 2
        for cell in cells[1:]:
            forecast.cell_progress(cell, update)
    forecast.cell_progress(cells[0], 2)
    clock.now += 3600
    training, evaluation = forecast.corrections()
    assert training < 4 and evaluation < 40, "not 1,800 times as slow"
    assert forecast.remaining(cells[0]) > LATE * 3500


def test_a_cell_resumed_from_a_checkpoint_does_not_look_fast(cells: list[Cell]) -> None:
    clock, cell = Clock(), cells[0]
    forecast = make_forecast([cell], clock, updates={cell.cell_id: 2})
    assert seconds_left(forecast) == 2 + 6
    forecast.cell_started(cell)
    clock.now = 3.0
    assert seconds_left(forecast) == 5
    forecast.cell_progress(cell, 3)
    assert forecast.corrections() == (1, 1)
    assert seconds_left(forecast) == pytest.approx(4)
    clock.now = 60.0
    forecast.cell_progress(cell, 2)  # a new trial resumes from the checkpoint
    assert forecast.corrections() == (1, 1) and seconds_left(forecast) == pytest.approx(6)


def test_what_a_cell_has_done_counts_for_it_by_how_much_that_is(cells: list[Cell]) -> None:
    """Twice as slow as expected in a quarter; another three times as slow, after it."""
    clock = Clock()
    forecast = make_forecast(cells, clock)
    cell, other = cells[:2]
    forecast.cell_progress(cell, 0)
    clock.now = 4.0
    forecast.cell_progress(cell, 1)
    forecast.cell_progress(other, 0)
    clock.now = 10.0
    forecast.cell_progress(other, 1)
    pooled = forecast.corrections().training
    assert 2 < pooled < 3
    own = 2 * 2 / 8 + pooled * 6 / 8
    late = 10.0 - 4.0 - 2 * own - 2 * pooled
    assert late < 0, "its next report, with an evaluation, is due later"
    assert forecast.remaining(cell) == pytest.approx(6 * own + 4 * pooled - 6)
    assert forecast.remaining(other) == pytest.approx(6 * (3 * 2 / 8 + pooled * 6 / 8) + 4 * pooled)
    assert [job.name for job in forecast.jobs([cells[2], other])] == [other.name, cells[2].name], (
        "running ones come first"
    )
    forecast.cell_ended(other)
    assert [job.name for job in forecast.jobs(cells[:2])] == [cell.name]
    assert seconds_left(forecast) is not None
    del forecast.costs[cells[3].cell_id]  # type: ignore[attr-defined]
    forecast.cell_progress(cells[3], 1)
    assert forecast.remaining(cells[3]) == 0 and seconds_left(forecast) is None


def test_a_speed_recovers_from_reports_that_took_no_time() -> None:
    for prior in (0.0, 0.8):
        speed = Speed(prior, horizon=4.0)
        for measured in (0.0, 0.0, 0.0, *[2.0] * 20):
            speed.add(measured, 1.0)
        assert speed.correction == pytest.approx(2, abs=0.1)


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
    """Its updates take from one to sixteen seconds, and its evaluations from 8 to 80, not 3."""
    recorded, clock = RECORDED["run"], Clock()
    plan = small_plan(
        tmp_path, policies=[*recorded["costs"]], updates=50, evaluate={"every": 25, "samples": 8}
    )
    cells = {cell.policy: cell for cell in plan.cells}
    costs = {cells[name].cell_id: Cost(*cost) for name, cost in recorded["costs"].items()}
    forecast = Forecast(plan.cells, costs, Capacity((2.0,), 2, "CPU"), clock=clock)
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
    assert max(map(abs, steps)) < 45, "of more than ten minutes"


def test_a_duration_is_written_as_on_a_clock() -> None:
    for seconds, text in ((0, "0:00"), (75, "1:15"), (3599.6, "1:00:00"), (36061, "10:01:01")):
        assert duration(seconds) == text
