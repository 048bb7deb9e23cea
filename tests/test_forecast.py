"""The ETA of a running sweep, from events at given times."""

from pathlib import Path

import pytest
from factories import small_plan

from orchestrator.cost.forecast import Forecast, duration, evaluations_until
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


def test_before_anything_runs_cells_are_packed_after_the_probes(cells: list[Cell]) -> None:
    assert make_forecast(cells, Clock()).seconds_left() == 2 * 14
    assert make_forecast(cells, Clock(), probes={"p": 5.0}).seconds_left() == 5 + 2 * 14
    assert make_forecast(cells[:3], Clock()).seconds_left() == 28, "a last cell that runs alone"


def test_a_probe_is_extrapolated_at_its_own_speed(cells: list[Cell]) -> None:
    clock = Clock()
    forecast = make_forecast([], clock, probes={"p": 5.0, "q": 7.0})
    forecast.probe_progress("p", 100, 500)
    assert forecast.seconds_left() == 12, "nothing drawn in this run yet"
    clock.now = 10.0
    forecast.probe_progress("p", 200, 500)
    assert forecast.seconds_left() == pytest.approx(30 + 7)
    forecast.probe_progress("p", 500, 500)
    assert forecast.probes == {"q": 7.0} and forecast.seconds_left() == 7
    clock.now = 20.0
    forecast.probe_progress("q", 300, 300)  # nothing was missing
    assert forecast.seconds_left() == 0


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
        assert forecast.seconds_left() == pytest.approx(14 - at)
    for cell in cells[:2]:
        forecast.cell_ended(cell)
    assert forecast.seconds_left() == 0


def test_a_slower_machine_corrects_all_cells_after_two_updates(
    cells: list[Cell],
) -> None:
    clock = Clock()
    forecast = make_forecast(cells, clock)
    for update, at in ((1, 10.0), (2, 22.0)):  # 12 seconds where 4 were expected
        clock.now = at
        forecast.cell_progress(cells[0], update)
    assert forecast.correction == pytest.approx(3)
    assert forecast.remaining(cells[0]) == pytest.approx(3 * 6)
    assert forecast.remaining(cells[2]) == pytest.approx(2 + 3 * 12)


def test_a_cell_resumed_from_a_checkpoint_does_not_look_fast(
    cells: list[Cell],
) -> None:
    clock = Clock()
    forecast = make_forecast(cells[:1], clock)
    clock.now = 5.0
    forecast.cell_progress(cells[0], 3)
    assert forecast.correction == 1
    assert forecast.seconds_left() == pytest.approx(4)


def test_progress_without_time_or_work_between_corrects_nothing(cells: list[Cell]) -> None:
    """As of a cell that reports twice in one second, and of one that hangs."""
    clock = Clock()
    forecast = make_forecast(cells, clock)
    for update in (1, 2):
        forecast.cell_progress(cells[0], update)
    assert forecast.correction == 1
    forecast = make_forecast(cells, clock)
    for at in (1.0, 9.0):
        clock.now = at
        forecast.cell_progress(cells[0], 1)
    assert forecast.correction == 1
    assert forecast.remaining(cells[2]) == 14


def test_cells_of_a_fraction_of_a_second_are_corrected_too(cells: list[Cell]) -> None:
    clock = Clock()
    costs = {cell.cell_id: Cost(0, 0.4, 0) for cell in cells}
    forecast = Forecast(cells, costs, Capacity((1.0,), 1, "CPU"), clock=clock)
    for clock.now, update in ((0.0, 0), (0.4, 2)):
        forecast.cell_progress(cells[0], update)
    assert forecast.correction == pytest.approx(2)
    assert forecast.seconds_left() == pytest.approx(0.4 + 3 * 0.8)


def test_what_a_cell_has_done_counts_for_it_by_how_much_that_is(cells: list[Cell]) -> None:
    """Twice as slow as expected in its first half; another three times as slow in a quarter."""
    clock = Clock()
    forecast = make_forecast(cells, clock)
    cell, other = cells[:2]
    forecast.cell_progress(cell, 0)
    clock.now = 12.0  # 6 expected: half of training, and an evaluation
    forecast.cell_progress(cell, 2)
    forecast.cell_progress(other, 0)
    clock.now = 18.0
    forecast.cell_progress(other, 1)  # 2 expected
    assert forecast.correction == pytest.approx(18 / 8)
    own = 0.5 * 2 + 0.5 * 18 / 8
    assert forecast.remaining(cell) == pytest.approx(6 * own - 6), "the rest, less 6 s since then"
    assert forecast.remaining(other) == pytest.approx(10 * (3 / 6 + 18 / 8 * 5 / 6))
    clock.now = 100.0
    assert forecast.remaining(cell) == 0, "late, not negative"
    assert [job.seconds for job in forecast.jobs([cells[2], other])][1] == pytest.approx(
        2 + 12 * 18 / 8
    ), "running ones come first"
    forecast.cell_ended(other)
    assert [job.name for job in forecast.jobs(cells[:2])] == [cell.name]
    assert forecast.seconds_left() is not None
    del forecast.costs[cells[3].cell_id]  # type: ignore[attr-defined]
    forecast.cell_progress(cells[3], 1)
    assert forecast.remaining(cells[3]) == 0 and forecast.seconds_left() is None


def test_a_duration_is_written_as_on_a_clock() -> None:
    for seconds, text in ((0, "0:00"), (75, "1:15"), (3599.6, "1:00:00"), (36061, "10:01:01")):
        assert duration(seconds) == text


def test_without_costs_the_remaining_time_is_unknown(cells: list[Cell]) -> None:
    forecast = Forecast(cells, {}, Capacity((2.0,), 2, "CPU"))
    forecast.cell_progress(cells[0], 1)
    assert forecast.seconds_left() is None
