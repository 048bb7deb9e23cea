"""`decile plan --pilot`: one update of each model on this machine gives a plan its times."""

import json
from pathlib import Path

import pytest
import torch
from sweeps import experiments, plan_of

from orchestrator.cli.main import main
from orchestrator.pipeline.pilot import SOURCE, run_pilot
from orchestrator.storage.errors import UserError


def test_a_pilot_measures_what_a_plan_lacks_and_stores_nothing(tmp_path: Path, capsys) -> None:
    """Also of a cell with an online policy and several workers, in one process."""
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["dynamic"]}
    file = experiments(tmp_path, grid=grid, resources={"workers": 2})
    before = sorted(tmp_path.rglob("*"))
    arguments = ["plan", str(file), "-e", "small", "--cpus", "2", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["eta_seconds"] is None
    assert main([*arguments, "--pilot"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["eta_seconds"] > view["probe_seconds"] > 0
    assert view["sources"] == {"tiny": SOURCE}
    assert view["flops_to_run"] > view["tokens_to_run"] > 0 and view["tokens_at_most"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pilot_is_refused_where_trials_need_a_gpu_and_none_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plan = plan_of(experiments(tmp_path, resources={"gpus": 1}))
    with pytest.raises(UserError, match="--pilot"):
        run_pilot(plan)


def test_a_pilot_that_does_not_fit_the_memory_names_the_model_and_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("trl.GRPOTrainer.train", exhausted)
    with pytest.raises(UserError, match=r"tiny .*per_device_train_batch_size"):
        run_pilot(plan_of(experiments(tmp_path)))
