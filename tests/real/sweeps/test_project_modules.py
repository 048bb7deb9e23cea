"""A user's folder with modules named like Decile's, the standard library's or an optional one."""

import json
import subprocess
import sys
from pathlib import Path

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
