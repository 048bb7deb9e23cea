"""Engines under another interpreter: what is checked before, and where the actors then run."""

import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import small_plan
from sweeps import evaluations, experiments, plan_of, run, store_of

from cluster.actors import interpreter_problem, worker_options
from orchestrator.config.catalog import load_config
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.pipeline import probes
from orchestrator.pipeline.run import Run
from orchestrator.plugins.project_modules import PACKAGES, ROOT
from orchestrator.probing.checks import EngineFails, check_engine
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store

ENGINE = '''
import os
from pathlib import Path
from orchestrator.sampling.transformers import TransformersSampler


class Logged(TransformersSampler):
    """Writes down which environment it is loaded in."""

    @classmethod
    def load(cls, source, device=None, lora_rank=0):
        with open(Path(__file__).parent / "loads", "a") as file:
            print(os.environ.get("ENVIRONMENT"), lora_rank, file=file)
        return super().load(source, device, lora_rank)
'''


def interpreter(file: Path, *lines: str, python: str = sys.executable) -> str:
    """The path of a script that runs these shell lines, then a Python interpreter."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["#!/bin/sh", *lines, f'exec {python} "$@"']))
    file.chmod(0o755)
    return str(file)


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


@pytest.mark.slow
def test_interpreters_that_ray_cannot_use_are_named_with_both_versions(tmp_path: Path) -> None:
    own = f"Python {sys.version.split()[0]} and Ray "
    assert interpreter_problem(sys.executable) == ""
    for wrong in (str(tmp_path / "missing"), str(tmp_path), "/bin/true", "/bin/false"):
        assert interpreter_problem(wrong).startswith(f"{wrong} ")
    other = interpreter(tmp_path / "other", "echo versions 3.99.1 2.1.0; exit")
    problem = interpreter_problem(other)
    assert "Python 3.99.1 and Ray 2.1.0" in problem and own in problem
    without = interpreter(tmp_path / "without", python=f"{sys.executable} -I -S")
    assert "no Ray" in interpreter_problem(without) and own in interpreter_problem(without)


def check(python: str, engine: str = "transformers") -> str:
    return check_engine(Probe(engine=engine, engine_python=python), 0)


def test_the_check_names_library_version_and_interpreter(local_ray: Path, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "an environment" / "python")
    assert check(python).startswith("transformers ") and check(python).endswith(f"({python})")
    with pytest.raises(EngineFails, match=r"missing .*make engine-vllm"):
        check(str(tmp_path / "missing"))


def test_decile_must_be_installed_there(local_ray: Path, tmp_path: Path) -> None:
    (tmp_path / "lib" / "orchestrator").mkdir(parents=True)
    (tmp_path / "lib" / "orchestrator" / "__init__.py").write_text("import missing_dependency")
    python = interpreter(tmp_path / "python", f"export PYTHONPATH={tmp_path / 'lib'}")
    with pytest.raises(EngineFails, match=rf"No module named 'missing_dependency'; .*{python} -m"):
        check(python)


def test_the_same_decile_must_be_installed_there(local_ray: Path, tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / "lib" / package)
    python = interpreter(tmp_path / "python", f"export PYTHONPATH={tmp_path / 'lib'}")
    assert check(python)
    with (tmp_path / "lib" / "tasks" / "gsm8k.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(EngineFails, match=f"the decile in {tmp_path / 'lib'} is another one"):
        check(python)


def test_a_library_that_is_missing_there_is_named(local_ray: Path, tmp_path: Path) -> None:
    (tmp_path / "lib" / "vllm").mkdir(parents=True)
    (tmp_path / "lib" / "vllm" / "__init__.py").write_text("raise ImportError('broken')")
    folders = f"{tmp_path / 'lib'}:{ROOT}"
    python = interpreter(tmp_path / "python", f"export PYTHONPATH={folders}")
    with pytest.raises(EngineFails, match="vllm .*broken"):
        check(python, "vllm")


def test_probes_and_evaluations_run_under_it(finished: Path, local_ray: Path) -> None:
    (local_ray / "logged.py").write_text(ENGINE)
    python = interpreter(local_ray / "own environment" / "python", "export ENVIRONMENT=own")
    own = {"engine": "logged:Logged", "engine_python": os.path.relpath(python, local_ray)}
    file = experiments(
        local_ray,
        grid={"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]},
        probe={"samples": 4, "max_completion_length": 48, "adaptive": True} | own,
        evaluate={"every": 6, "samples": 2, "greedy": True} | own,
    )
    text = " ".join(run(file, here=True).split())
    assert f"engine of probe: transformers {version('transformers')} ({python})" in text, text
    loads = set((local_ray / "loads").read_text().split("\n")[:-1])
    assert loads == {"own 0", "own 4"}
    hard, reference = plan_of(file).cells[0], plan_of(finished).cells[0]
    own_test = evaluations(store_of(finished), reference.cell_id)
    own_test = own_test.filter([row["dataset"] == "" for row in own_test.to_pylist()])
    assert evaluations(store_of(file), hard.cell_id) == own_test


@pytest.mark.parametrize(("missing", "checks"), [(3, 1), (0, 0)])
def test_the_engine_of_a_probe_whose_samples_are_stored_is_not_needed(
    missing: int, checks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = small_plan(tmp_path, probe={"engine": "vllm"}), Store(str(tmp_path))
    checked = []
    monkeypatch.setattr(probes, "check_engine", lambda settings, gpus: checked.append(settings))
    monkeypatch.setattr(Run, "pending", lambda *_: SimpleNamespace(samples=missing))
    probes.check_engines(Run.of(plan, store, {"CPU": 2.0}))
    assert len(checked) == checks
