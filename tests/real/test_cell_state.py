"""The state of a cell follows from the files that it has in the store."""

import io
from collections import Counter
from pathlib import Path

import pytest
from factories import cell_record, finished_cell, small_plan

from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.sweep import run_experiment
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state
from orchestrator.training.record import finish


def test_a_cell_goes_from_pending_over_running_and_trained_to_finished(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard"])
    store, [cell] = Store(str(tmp_path / "runs")), plan.cells
    record = cell_record(plan, cell)
    assert cell_state(store, cell) is CellState.PENDING
    store.write_json(cell.model_dump(mode="json"), "cells", cell.cell_id, "cell.json")
    record.save(store, cell.cell_id, 2)
    assert cell_state(store, cell) is CellState.RUNNING
    record.save(store, cell.cell_id, cell.updates)
    assert cell_state(store, cell) is CellState.TRAINED
    finish(store, cell, record, {})
    assert cell_state(store, cell) is CellState.FINISHED


def test_the_settings_of_a_stored_cell_may_have_rivals(tmp_path: Path) -> None:
    """As they had while a cell could be stopped early."""
    [cell] = small_plan(tmp_path, policies=["hard"]).cells
    store = Store(str(tmp_path / "runs"))
    stored = cell.model_dump(mode="json") | {"rivals": []}
    store.write_json(stored, "cells", cell.cell_id, "cell.json")
    assert CellFolder(store, cell.cell_id).settings() == cell


def test_only_pending_and_running_cells_need_training() -> None:
    assert [s for s in CellState if s.needs_training] == [CellState.PENDING, CellState.RUNNING]


def test_a_run_with_nothing_to_do_reads_every_file_for_one_reason_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its proof, the state, MLflow, the analysis, the spread between the seeds of all finished
    cells: at 5,000 cells any other would be felt."""
    plan = small_plan(tmp_path, seeds=[0, 1])
    store, out = Store(str(tmp_path / "runs")), io.StringIO()
    for cell in plan.cells:
        finished_cell(store, plan, cell)
    uri = default_tracking_uri(store)
    run_experiment(Run(plan, store, ProgressDisplay(total=4, out=out)), uri)
    reads, read = Counter[str](), store.read_bytes

    def counted(*parts: str) -> bytes:
        reads["/".join(parts).rpartition("/")[2]] += 1
        return read(*parts)

    monkeypatch.setattr(store, "read_bytes", counted)
    run_experiment(Run(plan, store, ProgressDisplay(total=4, out=out)), uri)
    assert "nothing to do: all 4 cells of small are finished" in out.getvalue()
    assert reads["result.json"] <= 6 * len(plan.cells), "the proof reads it twice"
    for name in ("groups.parquet", "evaluations.parquet", "log.parquet"):
        assert reads[name] <= 2 * len(plan.cells)
    assert reads["README.md"] <= len(plan.cells)
    assert reads["cell.json"] <= 2 * len(plan.cells), "of finished cells, for the seeds' spread"
    assert reads["ledger.json"] <= 2 * len(plan.cells), "it is compared with the result"
