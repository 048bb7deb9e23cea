"""Groups that an online policy drew and discarded: counted in every cost, and in nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
from discarded_cases import online_record
from factories import finished_cell, small_plan

from orchestrator.config.claims import resolved_claim
from orchestrator.report.analysis import analyse
from orchestrator.report.claim_verdicts import claim_results
from orchestrator.report.compare import families
from orchestrator.report.rows import OWN, read_rows
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.storage.store import Store
from orchestrator.training.record import finish


def test_the_report_compares_at_equal_rollouts(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["random", "dynamic"], seeds=[0, 1])
    store = Store(str(tmp_path / "runs"))
    for number, cell in enumerate(plan.cells):
        finished_cell(store, plan, cell, seed=number)
        if cell.online:
            finish(store, cell, online_record(plan, cell), {"torch": "1"})
    analysis = analyse(plan, store)
    [family] = analysis.families
    reads = {cell.policy: family.points[cell.cell_id] for cell in plan.cells if cell.seed == 0}
    assert reads["random"].update == 4 and reads["dynamic"].update == 2
    assert reads["random"].cost == reads["dynamic"].cost == plan.cells[0].rollouts
    assert family.mismatches == [] and family.matches == []
    assert "equal rollouts, discarded ones included" in family_verdict(family).read_at
    tables = {table.title: table for table in sweep_page(analysis).tables.values()}
    [line] = tables["Accuracy at equal rollouts"].body
    assert " after update 4 (" in line[1] and " after update 2 (" in line[2]
    cells = tables["Every cell"]
    row = dict(zip(cells.head, cells.body[1], strict=True))
    assert (row["policy"], row["discarded %"]) == ("dynamic", "50.0")
    assert float(row["of drawn"]) == pytest.approx(float(row["learnable %"]) / 2, abs=0.1)
    shares = tables["Live and dead groups"]
    row = dict(zip(shares.head, shares.body[1], strict=True))
    assert row["discarded"] == "50.0"
    lost = Path(store.path("cells", plan.cells[1].cell_id, "discarded.parquet"))
    lost.unlink()
    assert len(analyse(plan, store).rows) == 3, "not read as if nothing had been discarded"


def test_a_policy_without_an_evaluation_within_the_common_budget_is_not_compared(
    tmp_path: Path,
) -> None:
    """There its cell is the base model."""
    plan = small_plan(tmp_path, policies=["random", "hard", "dynamic"])
    store = Store(str(tmp_path / "runs"))
    for cell in plan.cells:
        finished_cell(store, plan, cell)
        if cell.online:
            finish(store, cell, online_record(plan, cell), {"torch": "1"})
    rows = [
        replace(row, counts={OWN: {u: row.counts[OWN][u] for u in (0, row.cell.updates)}})
        for row in read_rows(store, plan.cells)
    ]
    [family] = families(rows, "rollouts")
    assert [(pair.a, pair.b) for pair in family.accuracy] == [("random", "hard")]
    verdict = family_verdict(family)
    claim = resolved_claim("hard > dynamic", plan.experiment)
    [result] = claim_results([claim], [family], parts={})
    assert result.reason.startswith("stub/small/dynamic/s0 has no evaluation")
    assert any("common budget: dynamic; set a smaller" in text for text in verdict.caveats)
    assert verdict.read_at.endswith("after update 4")
    [two] = families([row for row in rows if row.cell.policy != "hard"], "rollouts")
    [line] = family_verdict(two).lines
    assert "fewer than two" in line
