"""Early stopping: rarely wrong, never counted as complete, and resumed from the same update."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from factories import cell_record, finished_cell, small_plan
from sweeps import NAME, evaluations, groups, plan_of, probed, run, store_of

from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import analyse
from orchestrator.report.compare import families
from orchestrator.report.render import write_page
from orchestrator.report.rows import read_rows
from orchestrator.report.sections.page import sweep_page
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import (
    STOPPED_EARLY,
    CellFolder,
    CellState,
    StopDecision,
    cell_state,
)
from orchestrator.training.early_stopping import (
    interim_check,
    interim_updates,
    save_stop,
    stop_decision,
    stopped_lines,
)
from orchestrator.training.record import finish
from orchestrator.training.trial import run_cell


def drawn(rng: np.random.Generator, rate: float, questions: int = 100) -> dict[str, float]:
    """Scores of four samples per question."""
    return {str(i): rng.binomial(4, rate) / 4 for i in range(questions)}


def test_a_cell_far_below_is_stopped_and_the_best_rival_is_named() -> None:
    rng = np.random.default_rng(0)
    rivals = {"good": drawn(rng, 0.8), "fair": drawn(rng, 0.6)}
    decision = stop_decision(drawn(rng, 0.3), rivals, checks=3)
    assert decision is not None
    assert decision.rival == "good"
    assert decision.difference < decision.upper < -0.02
    assert stop_decision(drawn(rng, 0.8), rivals, checks=3) is None
    assert stop_decision(drawn(rng, 0.3), {}, checks=3) is None


@pytest.mark.parametrize("below", [0.0, 0.02])
def test_a_cell_slightly_below_is_rarely_stopped(below: float) -> None:
    rng, stopped = np.random.default_rng(1), 0
    for _ in range(400):
        rivals = {str(i): drawn(rng, 0.5) for i in range(3)}
        stopped += any(stop_decision(drawn(rng, 0.5 - below), rivals, checks=3) for _ in range(3))
    assert stopped <= 8, "1 % of 400, and luck"


def test_more_rivals_and_more_checks_need_a_larger_difference() -> None:
    mine, other = {"a": 0.2, "b": 0.1, "c": 0.3}, {"a": 0.6, "b": 0.6, "c": 0.5}
    one = stop_decision(mine, {"x": other}, checks=1)
    assert one is None, "three questions prove nothing"
    many = {str(i): 0.0 + i % 2 * 0.25 for i in range(40)}
    best = {str(i): 0.3 + i % 3 * 0.25 for i in range(40)}
    uppers = [
        stop_decision(many, {str(r): best for r in range(rivals)}, looks)
        for rivals, looks in ((1, 1), (3, 1), (3, 9))
    ]
    assert [each is not None for each in uppers] == [True] * 3
    bounds = [each.upper for each in uppers if each]
    assert bounds == sorted(bounds) and len(set(bounds)) == 3


def stopping_plan(folder: Path, **more: object) -> Plan:
    return small_plan(
        folder, policies=["hard", "easy", "random"], seeds=[0, 1], stop_hopeless=True, **more
    )


def test_rivals_are_the_blocks_other_cells_and_change_no_id(tmp_path: Path) -> None:
    calm = small_plan(tmp_path, policies=["hard", "easy", "random"], seeds=[0, 1])
    plan = stopping_plan(tmp_path)
    assert [c.cell_id for c in plan.cells] == [c.cell_id for c in calm.cells]
    assert all(not c.rivals for c in calm.cells)
    for cell in plan.cells:
        mates = {c.cell_id for c in plan.cells if c.seed == cell.seed} - {cell.cell_id}
        assert set(cell.rivals) == mates
        assert interim_updates(cell) == 1


def test_early_stopping_requires_an_evaluation_during_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"experiments\.yaml:\d+: .*stop_hopeless: no cell is eval"):
        stopping_plan(tmp_path, evaluate={"samples": 8})


def test_scores_are_read_from_running_and_finished_cells(tmp_path: Path) -> None:
    plan, store = stopping_plan(tmp_path), Store(str(tmp_path / "runs"))
    first, second = plan.cells[0], plan.cells[1]
    record = cell_record(plan, first)
    assert CellFolder(store, first.cell_id).scores_at(2) is None
    interim_check(first, store, record, 2)
    running = CellFolder(store, first.cell_id).scores_at(2)
    finished_cell(store, plan, first)
    assert not store.names("cells", first.cell_id, "scores")
    assert CellFolder(store, first.cell_id).scores_at(2) == running
    assert CellFolder(store, second.cell_id).scores_at(2) is None


def stopped(store: Store, plan: Plan, number: int) -> None:
    cell = plan.cells[number]
    save_stop(cell, store, cell_record(plan, cell), 2, StopDecision(cell.rivals[0], -0.31, -0.12))


def test_a_stopped_cell_is_settled_only_while_its_experiment_stops_cells(tmp_path: Path) -> None:
    plan, store = stopping_plan(tmp_path), Store(str(tmp_path / "runs"))
    stopped(store, plan, 0)
    stored = store.read_json("cells", plan.cells[0].cell_id, STOPPED_EARLY)
    assert (stored["censored"], stored["updates"], stored["of_updates"]) == (True, 2, 4)
    assert cell_state(store, plan.cells[0]) is CellState.STOPPED
    plain = small_plan(tmp_path, policies=["hard", "easy", "random"], seeds=[0, 1])
    assert cell_state(store, plain.cells[0]) is CellState.PENDING
    finished_cell(store, plan, plan.cells[0])
    assert cell_state(store, plan.cells[0]) is CellState.FINISHED
    assert not store.exists("cells", plan.cells[0].cell_id, STOPPED_EARLY)


@pytest.mark.slow
def test_the_report_compares_no_policy_that_has_a_stopped_cell(tmp_path: Path) -> None:
    plan, store = stopping_plan(tmp_path), Store(str(tmp_path / "runs"))
    for number, cell in enumerate(plan.cells):
        if number:
            finished_cell(store, plan, cell, seed=number)
    stopped(store, plan, 0)
    rows = read_rows(store, plan.cells)
    assert len(rows) == 5
    [family] = families(rows)
    assert {(c.a, c.b) for c in family.accuracy} == {("easy", "random")}, "hard's other seed is out"
    line = (
        "stub/small/hard/s0 was stopped after 2 of 4 updates, 31.0 points below "
        "stub/small/easy/s0 (at least 12.0); hard is not compared"
    )
    assert stopped_lines(store, plan.cells) == [line]
    write_page(sweep_page(analyse(plan, store)), tmp_path / "page.html")
    assert line in (tmp_path / "page.html").read_text()


def test_a_stopped_cell_later_finishes_as_if_it_had_never_stopped(
    finished: Path, local_ray: Path, tmp_path: Path
) -> None:
    """The rival is simulated: finished, and always correct."""
    file = probed(finished, tmp_path, stop_hopeless=True)
    plan, store = plan_of(file), store_of(file)
    hard, rival = plan.cells
    record = finished_cell(store, plan, rival)
    rows = [
        row | {"update": u, "outcome": "correct"}
        for u in (0, 6, 12)
        for row in record.evaluations.to_pylist()
        if row["update"] == 0
    ]
    record.evaluations = pa.Table.from_pylist(rows, schema=record.evaluations.schema)
    finish(store, rival, record, {})

    text = run(file, here=True)
    assert "stopped early: clearly below the best policy of its block" in text
    stored = store.read_json("cells", hard.cell_id, STOPPED_EARLY)
    assert (stored["updates"], stored["why"]["rival"]) == (6, rival.cell_id)
    assert "nothing to do" in run(file, here=True)

    content = yaml.safe_load(file.read_text())
    content["experiments"][NAME]["stop_hopeless"] = False
    file.write_text(yaml.safe_dump(content))
    reports: list[dict] = []
    [cell, _] = plan_of(file).cells
    run_cell(cell, store.uri, reports.append)
    assert [report["update"] for report in reports if "update" in report] == [*range(7, 13)]
    assert not store.exists("cells", hard.cell_id, STOPPED_EARLY)
    calm = store_of(finished)
    assert groups(store, hard.cell_id) == groups(calm, hard.cell_id)
    assert evaluations(store, hard.cell_id) == evaluations(calm, hard.cell_id)
