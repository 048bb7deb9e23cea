"""A user's folder with modules named like Decile's, the standard library's or an optional one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sweeps import NAME, decile, experiments

from benchmarks.local_cluster import ROOT, environment
from orchestrator.plugins.project_modules import PACKAGES, _folders_from_driver

BROKEN = "raise SystemExit('a module of the user was imported')\n"
HIDING = (*PACKAGES[2:], "statistics", "json", "argparse", "mlflow", "transformers", "ray", "torch")
TASK = """
import helper
from tasks.shuffled_objects import ShuffledObjects
class Mine(ShuffledObjects):
    {doc}
"""
POLICY = '''
def best(table, size, rng):
    """The first rows."""
    import helper, numpy
    return numpy.arange(size)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that hides half of the world, with a task and a policy of its own."""
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text(BROKEN)
    for name in ("vllm", "wandb", "flash_attn"):
        (tmp_path / name).mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(BROKEN)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "questions.py").write_text(TASK.format(doc='"""My questions."""'))
    (tmp_path / "rules.py").write_text(POLICY)
    (tmp_path / "helper.py").write_text("")
    return tmp_path


def own(folder: Path, **changes: object) -> Path:
    """An experiment with the project's task and policy."""
    file = experiments(folder, **changes)
    content = yaml.safe_load(file.read_text())
    content["datasets"]["few"]["task"] = "mine.questions:Mine"
    content["experiments"][NAME]["grid"]["policy"] = ["rules:best"]
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.slow
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


def test_a_rays_worker_puts_the_folders_of_the_driver_last() -> None:
    ray = "/lib/ray/_private/workers"
    path = [
        "/project",
        "/bin",
        "/lib/ray/thirdparty_files",
        ray,
        "/tmp/working_dir_files/x",
        "/lib",
    ]
    assert _folders_from_driver(path, ray) == ["/project", "/bin", "/tmp/working_dir_files/x"]


@pytest.mark.cluster
def test_a_sweep_runs_beside_own_modules(project: Path) -> None:
    training = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 16}
    training["max_completion_length"] = 48
    file = own(project, grpo=training, evaluate={"samples": 1})
    process = decile("run", str(file), "-e", NAME, folder=project)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "MLflow at" not in process.stderr
