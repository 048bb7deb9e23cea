"""Whole sweeps with Ray, TRL, MLflow and the embedded model, also with killed processes."""

import shutil
from pathlib import Path

from remedies import refused
from sweeps import evaluations, experiments, groups, plan_of, probed, run, store_of

from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.micro_batch import SmallerBatch, fitted_grpo, shrink
from orchestrator.training.trial import run_cell
from orchestrator.training.tune_runner import is_deterministic


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
