"""Engines under another interpreter: what is checked before, and where the actors then run."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import small_plan
from sweeps import experiments, plan_of

from cluster.actors import worker_options
from orchestrator.config.catalog import load_config
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.pipeline import probes
from orchestrator.pipeline.run import Run
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store


def test_the_interpreter_is_not_part_of_keys(tmp_path: Path) -> None:
    engine = {"engine": "transformers"}
    own = engine | {"engine_python": ".venv-vllm/bin/python"}
    plans = [
        plan_of(experiments(tmp_path, probe={"samples": 4} | each, evaluate={"samples": 2} | each))
        for each in (engine, own)
    ]
    settings = [cell.baseline.settings.engine_python for plan in plans for cell in plan.cells]
    assert settings == [None, None, *[own["engine_python"]] * 2]
    assert [c.cell_id for c in plans[0].cells] == [c.cell_id for c in plans[1].cells]
    assert [p.key for p in plans[0].probes] == [p.key for p in plans[1].probes]


def test_the_trainer_has_no_interpreter_of_its_own(tmp_path: Path) -> None:
    assert Evaluate(engine="transformers", engine_python="x").as_probe(Probe()).engine_python == "x"
    assert Evaluate().as_probe(Probe(engine="vllm", engine_python="x")).engine_python is None
    with pytest.raises(UserError, match=r"\.evaluate\.engine_python: "):
        load_config(experiments(tmp_path, evaluate={"engine_python": "python3"}))


def test_a_path_is_one_word_for_the_shell_and_links_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    assert worker_options(None) == {}
    assert worker_options("python") == {"runtime_env": {"py_executable": str(tmp_path / "python")}}
    [command] = worker_options("a b; rm x")["runtime_env"].values()
    assert command == f"'{tmp_path}/a b; rm x'"


@pytest.mark.parametrize(("missing", "checks"), [(3, 1), (0, 0)])
def test_the_engine_of_a_probe_whose_samples_are_stored_is_not_needed(
    missing: int, checks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = small_plan(tmp_path, probe={"engine": "vllm"}), Store(str(tmp_path))
    checked = []
    monkeypatch.setattr(probes, "check_engine", lambda settings, gpus: checked.append(settings))
    monkeypatch.setattr(
        Run, "pending_after_earlier_probes", lambda *_: SimpleNamespace(samples=missing)
    )
    probes.check_engines(Run.of(plan, store, {"CPU": 2.0}))
    assert len(checked) == checks
