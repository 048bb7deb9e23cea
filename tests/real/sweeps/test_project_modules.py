"""A user's folder with modules named like Decile's, the standard library's or an optional one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from project_modules_cases import (
    own,
    project,  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
)
from sweeps import NAME, decile

from benchmarks.local_cluster import ROOT, environment


def test_own_modules_break_no_command_and_references_find_them(project: Path) -> None:
    file = own(project)
    for arguments in (["ls", "tasks"], ["plan", str(file), "-e", NAME, "--json"]):
        process = decile(*arguments, folder=project)
        assert process.returncode == 0, process.stderr
    assert {probe["dataset"] for probe in json.loads(process.stdout)["probes"]} == {"few", "far"}


# As the script `decile` starts, which has the current folder on its path if PYTHONPATH has.
SCRIPT = "from orchestrator.cli.main import process; process()"


def marked(folder: Path, task: str) -> subprocess.CompletedProcess[str]:
    """`decile mark`, which is refused, in a folder that comes before all libraries."""
    words = ["mark", "--task", task, "--input", "a.jsonl", "--out", "b.jsonl"]
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", ["json", "numpy"])
def test_a_module_that_replaces_a_library_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text("x = 1\n")
    process = marked(tmp_path, "gsm8k")
    last = process.stderr.splitlines()[-1]
    assert process.returncode == 2
    assert last.startswith("decile: ") and str(file) in last and "rename" in last


def test_a_library_that_is_imported_in_place_of_a_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from argparse import rows\nclass Mine: pass\n")
    (tmp_path / "argparse.py").write_text("rows = 1\n")
    words = ["mark", "--task", "own:Mine", "--input", "a.jsonl", "--out", "b.jsonl"]
    process = decile(*words, folder=tmp_path)
    assert process.returncode == 2
    assert f"rename {tmp_path / 'argparse.py'}" in process.stderr


def test_libraries_do_not_see_the_projects_folders(project: Path) -> None:
    script = (
        "import sys; sys.path.remove(''); from importlib.util import find_spec\n"
        "from orchestrator.cli.main import main; from policies import find_policy\n"
        "main(['ls', 'policies']); find_policy('rules:best')(None, 3, None)\n"
        "print([find_spec(name) for name in ('vllm', 'wandb', 'flash_attn', 'rules_')])\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert process.stdout.endswith("[None, None, None, None]\n"), process.stderr


def test_the_repository_itself_can_be_the_working_directory() -> None:
    process = decile("ls", "policies", folder=ROOT)
    assert process.returncode == 0 and "hard" in process.stdout
