"""Whole sweeps with Ray, TRL, MLflow and the embedded model, also with killed processes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import torch
from mlflow import MlflowClient
from remedies import refused
from sweeps import NAME, evaluations, experiments, groups, plan_of, probed, run, store_of

from benchmarks.local_cluster import ROOT
from orchestrator.cli.main import main
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
    store = store_of(finished)
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


def test_cells_train_on_their_subset_and_share_the_base_evaluation(finished: Path) -> None:
    store, plan = store_of(finished), plan_of(finished)
    bases = []
    for cell in plan.cells:
        subset = read_subset(store, cell)
        assert subset is not None
        chosen = set(subset["prompt_id"].to_pylist())
        assert len(chosen) == cell.size == 16
        assert set(groups(store, cell.cell_id)["prompt_id"].to_pylist()) <= chosen
        table = evaluations(store, cell.cell_id)
        bases.append([r for r in table.to_pylist() if r["update"] == 0])
    assert bases[0] == bases[1]


def test_mlflow_has_one_parent_and_one_run_per_cell_with_every_axis(finished: Path) -> None:
    runs = mlflow_runs(finished)
    children = [r for r in runs if "mlflow.parentRunId" in r.data.tags]
    assert len(runs) == 3
    assert {r.data.params["policy"] for r in children} == {"hard", "random"}
    for child in children:
        assert {"model", "dataset", "policy", "seed", "grpo.learning_rate"} <= set(
            child.data.params
        )
        assert child.info.status == "FINISHED"
        assert "final/accuracy" in child.data.metrics


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
        grpo={
            "max_steps": 4,
            "num_generations": 4,
            "per_device_train_batch_size": 8,
            "max_completion_length": 48,
            "save_steps": 2,
        },
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


def test_a_storage_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = experiments(tmp_path, storage=str(tmp_path / "file" / "runs"))
    text = run(file, expect=2)
    assert "cannot be written" in text
    assert "Traceback" not in text
    assert NAME in file.read_text()


def test_the_notebook_draws_the_finished_sweep(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    monkeypatch.setenv("DECILE_FILE", str(finished))
    monkeypatch.setenv("DECILE_STORAGE", store_of(finished).uri)
    monkeypatch.setenv("DECILE_EXPERIMENT", NAME)
    notebook = json.loads((ROOT / "notebooks" / "results.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["results"].table.num_rows == 2  # type: ignore[attr-defined]


def test_the_report_is_one_page_that_needs_no_network(finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["report", str(finished), "-e", NAME, "--storage", store_of(finished).uri]
    assert main([*arguments, "--out", str(page)]) == 0
    text = page.read_text()
    assert text.count("<svg") >= 3
    assert "→" in text
    assert "hard" in text
    for outside in ("src=", "<script", "@import", "<link"):
        assert outside not in text
