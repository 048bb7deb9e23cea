"""Caps drop whole blocks, count the usage of all runs, and report what they left out."""

import io
from pathlib import Path

import pytest
from caps_cases import make, planned

from orchestrator.pipeline.manifest import write_manifest
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.sweep import Sweep, SweepOutcome
from orchestrator.storage.store import Store
from orchestrator.tracking import Tracker


@pytest.mark.parametrize(("caps", "writes"), [({}, 2), ({"max_gpu_hours": 100}, 4)])
def test_usage_is_saved_when_a_capped_block_starts_and_not_with_every_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caps: dict[str, float], writes: int
) -> None:
    """The file names all cells, so that a write for every cell would be quadratic."""
    monkeypatch.chdir(tmp_path)  # where MLflow's default database is
    plan, store = planned(tmp_path, **caps), Store(str(tmp_path / "runs"))
    tracker = Tracker("", store, plan)
    tracker.enabled = False
    progress = ProgressDisplay(total=6, out=io.StringIO())
    write_manifest(plan, store)
    run = Run(plan, store, progress, {"CPU": 2.0, "GPU": 1.0})
    sweep = Sweep(run, plan.cells, tracker, SweepOutcome())
    sweep.queue = make(plan, meter=sweep.meter)
    written, write = list[str](), store.write_json
    monkeypatch.setattr(
        store, "write_json", lambda *a, **k: (written.append(a[-1]), write(*a, **k))
    )
    for cell in iter(sweep.next, None):
        saved = store.read_json("sweeps", "small.json")["spent"]["begun"]
        assert cell.cell_id in saved or not caps
        sweep.ended(cell, "RuntimeError: deliberate")
    assert written == ["small.json"] * writes
    assert len(store.read_json("sweeps", "small.json")["spent"]["begun"]) == 6
