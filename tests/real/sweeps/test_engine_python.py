"""Engines under another interpreter: what is checked before, and where the actors then run."""

import sys
from pathlib import Path

import pytest
from engine_python_cases import check, interpreter

from cluster.actors import interpreter_problem
from orchestrator.plugins.project_modules import ROOT
from orchestrator.probing.checks import EngineFails


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


def test_the_check_names_library_version_and_interpreter(local_ray: Path, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "an environment" / "python")
    checked = check(python)
    assert checked.startswith("transformers ") and checked.endswith(f"({python})")
    with pytest.raises(EngineFails, match=r"missing .*make engine-vllm"):
        check(str(tmp_path / "missing"))


def test_decile_must_be_installed_there(local_ray: Path, tmp_path: Path) -> None:
    (tmp_path / "lib" / "orchestrator").mkdir(parents=True)
    (tmp_path / "lib" / "orchestrator" / "__init__.py").write_text("import missing_dependency")
    python = interpreter(tmp_path / "python", f"export PYTHONPATH={tmp_path / 'lib'}")
    with pytest.raises(EngineFails, match=rf"No module named 'missing_dependency'; .*{python} -m"):
        check(python)


def test_a_library_that_is_missing_there_is_named(local_ray: Path, tmp_path: Path) -> None:
    (tmp_path / "lib" / "vllm").mkdir(parents=True)
    (tmp_path / "lib" / "vllm" / "__init__.py").write_text("raise ImportError('broken')")
    folders = f"{tmp_path / 'lib'}:{ROOT}"
    python = interpreter(tmp_path / "python", f"export PYTHONPATH={folders}")
    with pytest.raises(EngineFails, match="vllm .*broken"):
        check(python, "vllm")
