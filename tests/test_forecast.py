"""The ETA of a running sweep, told moments by hand."""

from pathlib import Path

import pytest
from factories import small_plan

from orchestrator.cost.forecast import Forecast, evaluations_until
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.throughput import Cost
from orchestrator.planning.cells import Cell

COST = Cost(start=2, training=8, evaluation=4)  # 4 updates, evaluated after the 2nd and the 4th


class Clock:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return small_plan(tmp_path, policies=["hard", "random"], seeds=[0, 1]).cells


def forecast(cells: list[Cell], clock: Clock, **more: object) -> Forecast:
    costs = {cell.cell_id: COST for cell in cells}
    return Forecast(cells, costs, Capacity((2.0,), 2, "CPU"), clock=clock, **more)  # type: ignore[arg-type]


def test_before_anything_runs_cells_are_packed_behind_the_probes(cells: list[Cell]) -> None:
    assert forecast(cells, Clock()).seconds_left() == 2 * 14
    assert forecast(cells, Clock(), probes={"p": 5.0}).seconds_left() == 5 + 2 * 14
    assert forecast(cells[:3], Clock()).seconds_left() == 28, "a last cell that runs alone"


def test_a_probe_is_expected_to_go_on_as_it_goes(cells: list[Cell]) -> None:
    clock = Clock()
    told = forecast([], clock, probes={"p": 5.0, "q": 7.0})
    told.probed("p", 100, 500)
    assert told.seconds_left() == 12, "nothing drawn in this run yet"
    clock.now = 10.0
    told.probed("p", 200, 500)
    assert told.seconds_left() == pytest.approx(30 + 7)
    told.probed("p", 500, 500)
    assert told.seconds_left() == 7


def test_evaluations_are_counted_where_they_are_due(cells: list[Cell]) -> None:
    cell = cells[0]
    assert [evaluations_until(cell, u) for u in range(5)] == [0, 0, 1, 1, 2]
    once = cell.model_copy(update={"evaluate_every": 0})
    assert [evaluations_until(once, u) for u in range(5)] == [0, 0, 0, 0, 1]
    odd = cell.model_copy(update={"evaluate_every": 3})
    assert [evaluations_until(odd, u) for u in range(5)] == [0, 0, 0, 1, 2]


def test_a_run_at_the_expected_speed_counts_down_exactly(cells: list[Cell]) -> None:
    clock = Clock()
    told = forecast(cells[:2], clock)
    for update, at in ((1, 4.0), (2, 8.0), (3, 10.0), (4, 14.0)):
        clock.now = at
        for cell in cells[:2]:
            told.reached(cell, update)
        assert told.seconds_left() == pytest.approx(14 - at)
    for cell in cells[:2]:
        told.ended(cell)
    assert told.seconds_left() == 0


def test_a_slower_machine_is_seen_after_two_updates_and_held_against_all(
    cells: list[Cell],
) -> None:
    clock = Clock()
    told = forecast(cells, clock)
    for update, at in ((1, 10.0), (2, 22.0)):  # 12 seconds where 4 were expected
        clock.now = at
        told.reached(cells[0], update)
    assert told.correction == pytest.approx(3)
    assert told.remaining(cells[0]) == pytest.approx(3 * 6)
    assert told.remaining(cells[2]) == pytest.approx(2 + 3 * 12)


def test_a_cell_that_goes_on_from_a_checkpoint_is_not_taken_for_a_fast_one(
    cells: list[Cell],
) -> None:
    clock = Clock()
    told = forecast(cells[:1], clock)
    clock.now = 5.0
    told.reached(cells[0], 3)
    assert told.correction == 1
    assert told.seconds_left() == pytest.approx(4)


def test_what_is_not_known_has_no_end(cells: list[Cell]) -> None:
    told = Forecast(cells, {}, Capacity((2.0,), 2, "CPU"))
    told.reached(cells[0], 1)
    assert told.seconds_left() is None
