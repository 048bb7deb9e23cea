"""Cells that the storage has of an earlier version of Decile stay what they are."""

from pathlib import Path

import pytest
from factories import finished_cell, small_plan

from orchestrator.pipeline.open_plan import with_stored_cells
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.selection.stored import request_of
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from policies import choice_rng

POLICIES = ("hard", "random", "gated", "dynamic")
RULES = {"gated": {"policy": "dynamic", "options": {"gates": ["gaussian"], "of": "random"}}}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return small_plan(tmp_path, policies=POLICIES, rules=RULES)


def earliest(cell: Cell) -> Cell:
    """As a version of Decile without streams of their own has it."""
    return cell.changed(stream="", online_version=1)


def test_only_cells_whose_choices_changed_have_new_ids(plan: Plan) -> None:
    hard, random, gated, dynamic = plan.cells
    assert hard.earlier == dynamic.earlier == []
    assert [hard, dynamic] == [earliest(hard), earliest(dynamic)]
    assert [(each.stream, each.online_version) for each in gated.earlier] == [
        ("", 2),
        ("random", 1),
        ("", 1),
    ]
    assert random.earlier == [earliest(random)]
    ids = {each.cell_id for each in (random, *random.earlier, gated, *gated.earlier)}
    assert len(ids) == 6
    assert random.subset_key != earliest(random).subset_key
    assert Cell.model_validate(earliest(random).model_dump(mode="json")) == earliest(random)
    assert "stream" not in earliest(random).model_dump()


def test_finished_cells_of_an_earlier_version_stay_finished(plan: Plan) -> None:
    store = Store(plan.source.config.storage)
    for cell in plan.cells:
        finished_cell(store, plan, earliest(cell))
    opened = with_stored_cells(plan, store)
    assert opened.cells == [earliest(cell) for cell in plan.cells]
    assert with_stored_cells(opened, store).cells == opened.cells
    random = opened.cells[1]
    probe = PlanProbe(opened, store, random.probe)
    assert probe.cell("random", None, None).subset_key == random.subset_key
    assert probe.cell("random", None, 5).stream == "random", "no cell of the grid"
    assert request_of(random).rng.random() == choice_rng(0).random()
    assert request_of(plan.cells[1]).rng.random() == choice_rng(0, "random").random()


def test_a_started_cell_is_continued_if_its_code_is_the_same(plan: Plan) -> None:
    store = Store(plan.source.config.storage)
    for cell in plan.cells:
        CellFolder(store, earliest(cell).cell_id).save_settings(earliest(cell))
    hard, random, gated, dynamic = plan.cells
    opened = with_stored_cells(plan, store)
    assert opened.cells == [hard, earliest(random), gated, dynamic]


def test_a_cell_of_this_version_comes_first(plan: Plan) -> None:
    store, random = Store(plan.source.config.storage), plan.cells[1]
    for cell in (random, earliest(random)):
        finished_cell(store, plan, cell)
    assert with_stored_cells(plan, store).cells == plan.cells
