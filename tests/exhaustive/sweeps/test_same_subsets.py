"""Policies that choose the same prompts: one cell is trained for all of them."""

import re
from pathlib import Path

import pytest
from sweeps import evaluations, experiments, groups, plan_of, run, store_of

from orchestrator.cli.main import main


def test_a_pool_that_is_never_solved_is_trained_on_once_and_said_to_teach_nothing(
    local_ray: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two tokens are too few for any answer."""
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard", "middle"]}
    short = {"samples": 2, "max_completion_length": 2}
    training = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 16}
    training["max_completion_length"] = 48
    file = experiments(
        tmp_path, grid=grid, probe=short, grpo=training, evaluate={"samples": 2}, lora={"r": 4}
    )
    text = run(file, here=True)
    assert re.search("middle/s0: .* tiny/few/hard/s0, trained once", text)
    assert "only 0 of 64 prompts" in text
    plan, store = plan_of(file), store_of(file)
    one, two = (cell.cell_id for cell in plan.cells)
    assert set(groups(store, one)["update"].to_pylist()) == {1, 2}
    assert groups(store, one) == groups(store, two)
    assert evaluations(store, one) == evaluations(store, two)
    assert "nothing to do" in run(file, here=True)
    monkeypatch.chdir(tmp_path)
    assert main(["plan", str(file), "-e", "small"]) == 0
    assert "only 0 of 64 prompts" in capsys.readouterr().out
