"""Training on episodes: the tokens and gradients of plain TRL, the record, and resuming."""

from pathlib import Path

import pytest
import torch
from episode_training_cases import GROUP, outcome, plan_of, probed, scripted, trained, turn  # noqa: F401 (fixtures)
from grpo import one_thread  # noqa: F401 (fixture)
from safetensors.torch import load
from scripted_model import Scripted
from two_workers import two_workers

from orchestrator.planning.cells import Cell
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.training.trial import run_cell


def worker(rank: int, folder: Path, cell_json: str) -> None:
    """Run a cell as one of two workers, whose models say what `turn` says."""
    script = Scripted(turn)
    TransformersSampler.sample = lambda _, requests, settings: script.sample(requests, settings)  # type: ignore[method-assign]
    run_cell(Cell.model_validate_json(cell_json), f"{folder}/runs", lambda _: None)


@pytest.mark.parametrize("policy", ["random", "dynamic"])
def test_two_workers_play_the_episodes_of_one(
    tmp_path: Path, scripted: Scripted, policy: str
) -> None:
    results = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        grid = {"model": ["stub"], "dataset": ["game"], "policy": [policy]}
        changes = {"grid": grid, "resources": {"workers": count, "cpus": 1}}
        [cell] = plan_of(folder, changes, per_device_train_batch_size=2 * GROUP // count).cells
        if count == 1:
            store = trained(folder, cell, ())
        else:
            store = probed(folder, cell)
            two_workers(worker, folder, cell.model_dump_json())
        results.append(outcome(store, cell))
    (one, two) = results
    assert one[:3] == two[:3] and one[0]["tool_calls"] > 0
    weights = [load(adapter) for adapter in (one[3], two[3])]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name])
