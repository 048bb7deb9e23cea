"""Whole sweeps with Ray, TRL, MLflow and the embedded model, also with killed processes."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import torch
from mlflow import MlflowClient
from sweeps import evaluations, groups, plan_of, probed, run, store_of

from orchestrator.evaluation.groups import learnable_pct
from orchestrator.selection.stored import read_subset
from orchestrator.tracking import default_tracking_uri
from orchestrator.training.micro_batch import SmallerBatch
from orchestrator.training.trial import run_cell
from orchestrator.training.trl_internals import LiveGroupsTrainer


def mlflow_runs(file: Path) -> list:
    client = MlflowClient(default_tracking_uri(store_of(file)))
    [experiment] = [e for e in client.search_experiments() if e.name != "Default"]
    return client.search_runs([experiment.experiment_id])


def test_a_sweep_leaves_results_that_agree_with_what_was_recorded(finished: Path) -> None:
    store, bases = store_of(finished), []
    for cell in plan_of(finished).cells:
        result = store.read_json("cells", cell.cell_id, "result.json")
        recorded = groups(store, cell.cell_id)
        assert result["learnable_pct"] == learnable_pct(recorded)
        assert set(recorded["update"].to_pylist()) == set(range(1, 13))
        assert set(evaluations(store, cell.cell_id)["update"].to_pylist()) == {0, 6, 12}
        ledger = result["ledger"]
        assert ledger["rollouts"] == cell.rollouts == 12 * 16
        assert ledger["live"] + ledger["all_right"] + ledger["all_wrong"] == 12 * 4
        assert ledger["prompt_tokens"] > ledger["rollouts"]
        assert store.exists("cells", cell.cell_id, "adapter", "adapter_model.safetensors")
        assert not [n for n in store.folders("cells", cell.cell_id) if "checkpoint" in n]
        subset = read_subset(store, cell)
        assert subset is not None and subset.num_rows == cell.size == 16
        assert {*recorded["prompt_id"].to_pylist()} <= {*subset["prompt_id"].to_pylist()}
        evaluated = evaluations(store, cell.cell_id)
        bases.append(evaluated.filter(pc.equal(evaluated["update"], 0)))
    assert bases[0] == bases[1], "of the same stored samples"


def test_rerunning_a_finished_sweep_reports_that_nothing_is_left(finished: Path) -> None:
    def written() -> dict[Path, int]:
        files = Path(store_of(finished).path("cells")).rglob("*.parquet")
        return {file: file.stat().st_mtime_ns for file in files}

    before = written()
    assert "nothing to do" in run(finished, here=True)
    assert written() == before
    assert len(mlflow_runs(finished)) == 3


def test_running_out_of_memory_halves_the_micro_batch_and_changes_no_group(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell runs out of memory twice; its groups are those of a normal run."""
    file = probed(finished, tmp_path)
    cell, store = plan_of(file).cells[0], store_of(file)
    whole = LiveGroupsTrainer._compute_loss

    def small(self: LiveGroupsTrainer, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if self.state.global_step > 6 and len(inputs["completion_ids"]) > 4:
            raise torch.OutOfMemoryError("as a GPU would")
        return whole(self, model, inputs)

    monkeypatch.setattr(LiveGroupsTrainer, "_compute_loss", small)
    for size, smaller in ((16, 8), (8, 4)):
        with pytest.raises(SmallerBatch, match=f"micro-batch of {size}: {smaller} from here on"):
            run_cell(cell, store.uri, lambda _: None)
    run_cell(cell, store.uri, lambda _: None)
    recorded, calm = groups(store, cell.cell_id), groups(store_of(finished), cell.cell_id)
    assert recorded["update"].equals(calm["update"])
    assert recorded["prompt_id"].equals(calm["prompt_id"])
    first = pc.less_equal(calm["update"], 7)  # then the weights differ by rounding
    assert recorded.filter(first).equals(calm.filter(first))
    ledgers = [
        store_.read_json("cells", cell.cell_id, "result.json")["ledger"]
        for store_ in (store, store_of(finished))
    ]
    for name in ("prompts", "rollouts", "updates"):
        assert ledgers[0][name] == ledgers[1][name]
