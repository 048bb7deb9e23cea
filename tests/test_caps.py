"""A cap drops whole blocks, counts what all runs took, and says what it left out."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from factories import finished_cell, small_plan

from orchestrator.cost.caps import Queue, UsageMeter, dropped_sentence, queue_of
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.throughput import Cost
from orchestrator.pipeline.sweep import write_manifest
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report.page import write_page
from orchestrator.storage.store import Store

HOUR = Cost(0.0, 3600.0, 0.0)


class Clock:
    """A clock that is set, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def planned(folder: Path, **caps: object) -> Plan:
    """Two policies and three seeds, a GPU for each cell."""
    return small_plan(folder, seeds=[0, 1, 2], resources={"gpus": 1}, **caps)


def queue(
    plan: Plan,
    cells: Sequence[Cell] | None = None,
    gpus: int = 2,
    account: UsageMeter | None = None,
    probes: float = 0.0,
) -> Queue:
    cells = plan.cells if cells is None else cells
    costs = {cell.cell_id: HOUR for cell in cells}
    room = Capacity((1.0,) * gpus, gpus)
    account = account or UsageMeter(clock=Clock())
    made = queue_of(plan.experiment, cells, costs, {"p": probes}, room, account)
    made.forecast.clock = Clock()
    return made


def handed(made: Queue) -> list[tuple[int, str]]:
    return [(cell.seed, cell.policy) for cell in iter(made.next, None)]


def test_without_a_cap_every_cell_is_handed_out(tmp_path: Path) -> None:
    made = queue(planned(tmp_path))
    assert sorted(handed(made)) == [(s, p) for s in range(3) for p in ("hard", "random")]
    assert (made.why, made.dropped) == ("", [])


@pytest.mark.parametrize(
    ("caps", "seeds"),
    [
        ({"max_gpu_hours": 6}, [0, 1, 2]),
        ({"max_gpu_hours": 5.9}, [0, 1]),
        ({"max_gpu_hours": 3}, [0]),
        ({"max_gpu_hours": 1.9}, []),
        ({"max_hours": 3}, [0, 1, 2]),
        ({"max_hours": 2.5}, [0, 1]),
        ({"max_hours": 0.5}, []),
        ({"max_hours": 2.5, "max_gpu_hours": 2}, [0]),
    ],
)
def test_a_cap_drops_seeds_and_never_a_policy(
    tmp_path: Path, caps: dict[str, float], seeds: list[int]
) -> None:
    made = queue(planned(tmp_path, **caps))
    assert handed(made) == [(seed, policy) for seed in seeds for policy in ("hard", "random")]
    assert {cell.seed for cell in made.dropped} == {0, 1, 2} - set(seeds)
    assert all(name in made.why for name in list(caps)[-1:]) == (len(seeds) < 3)


def test_probes_count_with_every_gpu_that_they_hold(tmp_path: Path) -> None:
    assert handed(queue(planned(tmp_path, max_gpu_hours=2.0), probes=900)) == []
    assert len(handed(queue(planned(tmp_path, max_gpu_hours=2.5), probes=900))) == 2
    assert handed(queue(planned(tmp_path, max_hours=1.2), probes=900)) == []


def test_what_cells_really_take_decides(tmp_path: Path) -> None:
    """Cells that end in half the time leave room for a seed that was not expected to fit."""
    plan, clock = planned(tmp_path, max_gpu_hours=4), Clock()
    made = queue(plan, account=UsageMeter(clock=clock))
    made.forecast.clock = clock
    for _ in range(2):
        pair = [made.next(), made.next()]
        clock.now += 1800
        for cell in pair:
            assert cell is not None
            made.ended(cell)
    assert made.account.spent().gpu_seconds == 4 * 1800
    assert made.is_open()
    assert len(handed(made)) == 2


def test_a_block_that_began_is_finished_whatever_the_cap_says(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, max_hours=1.5), Clock()
    first = queue(plan, account=UsageMeter(clock=clock))
    began = first.next()
    assert began is not None
    clock.now = 7200.0
    kept = first.account.as_json()
    again = queue(plan, account=UsageMeter(kept, clock))
    assert handed(again) == [(0, "hard"), (0, "random")]
    assert again.why.startswith("max_hours 1.5 (2 taken")


def test_a_larger_cap_goes_on_where_the_smaller_one_ended(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, max_gpu_hours=2), Clock()
    first = queue(plan, account=UsageMeter(clock=clock))
    cells = list(iter(first.next, None))
    clock.now = 3600.0
    for cell in cells:
        first.ended(cell)
    owed = [cell for cell in plan.cells if cell not in cells]
    kept = first.account.as_json()
    assert handed(queue(plan, owed, account=UsageMeter(kept, clock))) == []
    larger = planned(tmp_path, max_gpu_hours=4)
    assert handed(queue(larger, owed, account=UsageMeter(kept, clock))) == [
        (1, "hard"),
        (1, "random"),
    ]


def test_where_nothing_is_known_of_a_model_only_what_was_taken_counts(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, max_gpu_hours=1), Clock()
    made = queue_of(
        plan.experiment, plan.cells, {}, {}, Capacity((1.0,) * 2, 2), UsageMeter(clock=clock)
    )
    for _ in range(2):
        assert made.next() is not None
    clock.now = 3600.0
    assert made.next() is None
    assert {cell.seed for cell in made.dropped} == {1, 2}


def test_the_sentence_names_what_did_not_run(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    cells = [{"cell_id": cell.cell_id, **cell.axes} for cell in plan.cells]
    ids = [cell.cell_id for cell in plan.cells if cell.seed]
    declared = {"cells": cells, "dropped": {"cap": "max_hours 2 (1 taken)", "cells": ids}}
    assert dropped_sentence(declared) == (
        "max_hours 2 (1 taken) leaves out seeds 1, 2 of stub/small: 4 of 6 cells"
    )
    assert dropped_sentence({"cells": cells}) == ""


def test_the_page_says_what_was_left_out(tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path, seeds=[0, 1]), Store(str(tmp_path / "runs"))
    for cell in plan.cells:
        if cell.seed == 0:
            finished_cell(store, plan, cell)
    declared = write_manifest(plan, store)
    declared["dropped"] = {"cap": "max_hours 2", "cells": [c.cell_id for c in plan.cells if c.seed]}
    store.write_json(declared, "sweeps", "small.json")
    write_page(plan, store, tmp_path / "page.html")
    assert "max_hours 2 leaves out seed 1 of stub/small" in (tmp_path / "page.html").read_text()
    write_manifest(plan, store)
    write_page(plan, store, tmp_path / "page.html")
    assert "leaves out seed" not in (tmp_path / "page.html").read_text()
