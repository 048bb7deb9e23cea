"""Whole sweeps with Ray, TRL, MLflow and the embedded model, also with killed processes."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import torch
from mlflow import MlflowClient
from remedies import refused
from sweeps import evaluations, experiments, groups, plan_of, probed, run, store_of

from orchestrator.evaluation.groups import learnable_pct
from orchestrator.selection.stored import read_subset
from orchestrator.tracking import default_tracking_uri
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.micro_batch import SmallerBatch, fitted_grpo, shrink
from orchestrator.training.trial import run_cell
from orchestrator.training.trl_internals import LiveGroupsTrainer
from orchestrator.training.tune_runner import is_deterministic

pytestmark = pytest.mark.cluster


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


def test_a_deleted_subset_ends_a_cell_without_another_attempt(
    finished: Path, tmp_path: Path
) -> None:
    file = experiments(tmp_path)
    shutil.copytree(finished.parent / "runs" / "probes", tmp_path / "runs" / "probes")
    cell, store = plan_of(file).cells[0], store_of(file)
    with refused(cell.subset_key, cell.name, by=ValueError) as caught:
        run_cell(cell, store.uri, lambda _: None)
    assert is_deterministic(caught.value)


def test_running_out_of_memory_with_a_micro_batch_of_one_is_reported(tmp_path: Path) -> None:
    file = experiments(tmp_path)
    cell, store = plan_of(file).cells[0], store_of(file)
    for size in (8, 4, 2, 1):
        for _ in range(2):  # two workers run out of memory at once
            error = shrink(cell, store, 2 * size)
            assert isinstance(error, SmallerBatch)
            assert f"{size} from here on" in str(error)
        grpo = fitted_grpo(cell, store)
        assert grpo["per_device_train_batch_size"] == size
        assert grpo["gradient_accumulation_steps"] == 16 // size
    error = shrink(cell, store, 1)
    assert not isinstance(error, SmallerBatch)
    assert "grpo.max_completion_length" in str(error)


def test_two_workers_train_one_cell_through_ray_train(
    finished: Path, local_ray: Path, tmp_path: Path
) -> None:
    file = probed(
        finished,
        tmp_path,
        grid={"model": ["tiny"], "dataset": ["few"], "policy": ["random"]},
        resources={"workers": 2, "cpus": 0.5},
        grpo={"max_steps": 4, "num_generations": 4, "max_completion_length": 48, "save_steps": 2},
        evaluate={"every": 2, "samples": 2},
        refresh={"every": 2, "samples": 2, "share": 0.5},
    )
    run(file, here=True)
    store, [cell] = store_of(file), plan_of(file).cells
    recorded = groups(store, cell.cell_id)
    assert recorded["update"].to_pylist() == [u for u in range(1, 5) for _ in range(4)]
    assert all(len(rewards) == 4 for rewards in recorded["rewards"].to_pylist())
    counts = evaluations(store, cell.cell_id)["update"].to_pylist()
    assert [counts.count(u) for u in (0, 2, 4)] == [32, 32, 32]
    finished_cell = CellFolder(store, cell.cell_id).finished()
    assert finished_cell is not None
    refreshed = finished_cell.tables["refreshed"]  # by each worker, half of the prompts
    assert refreshed["update"].to_pylist() == [3] * 8
    assert len(refreshed["prompt_id"].unique()) == 8
    assert all(len(rewards) == 2 for rewards in refreshed["rewards"].to_pylist())
    assert finished_cell.result.ledger.refreshed_rollouts == 16
