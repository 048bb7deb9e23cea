"""The files of `cluster`: validated against their schemas, checked for consistency, and run."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cluster_files_cases import (
    CLUSTER,
    KEY,
    PASSWORD,
    SERVE,
    SLURM,
    environment,
    slurm,  # noqa: F401 (fixtures)
)
from paths import ROOT
from processes import LIMIT

SWEEP = SLURM / "sweep.sbatch"


@pytest.mark.parametrize("script", [SERVE, SWEEP])
def test_scripts_pass_bash_and_shellcheck(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    lint(["shellcheck", "--severity=warning", str(script)])
    assert os.access(script, os.X_OK)


def lint(command: list[str]) -> None:
    """Run a linter that is installed next to the interpreter; fails with its output."""
    tool = shutil.which(command[0], path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if tool is None:
        pytest.skip(f"{command[0]} is not installed: pip install -e '.[dev]'")
    run = subprocess.run([tool, *command[1:]], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_image_is_linted_and_copies_existing_files() -> None:
    file = CLUSTER / "Dockerfile"
    lint(["hadolint", str(file)])
    lines = file.read_text().replace("\\\n", " ").splitlines()
    steps = [line.split() for line in lines if line and not line.startswith("#")]
    assert [words[1] for words in steps if words[0] == "USER"] == ["1000"]
    copied = [source for words in steps if words[0] == "COPY" for source in words[1:-1]]
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {p.rstrip("*") for p in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages | {project["project"]["readme"]} <= set(copied)
    variables = dict(words[1].split("=") for words in steps if words[0] == "ARG")
    assert set(variables["EXTRAS"].split(",")) <= project["project"]["optional-dependencies"].keys()
    assert variables["CONSTRAINTS"] in copied


def test_a_slurm_job_starts_head_and_workers_and_returns_the_exit_code_of_the_sweep(
    slurm: Path,
) -> None:
    calls = slurm / "calls"
    variables = {
        "CALLS": str(calls),
        "PATH": f"{slurm}:{os.environ['PATH']}",
        **{"SLURM_JOB_NODELIST": "node[1-3]", "SLURM_JOB_NUM_NODES": "3"},
        **{"SLURM_JOB_ID": "77", "SLURM_CPUS_ON_NODE": "8", "SLURM_GPUS_ON_NODE": "2"},
    }
    run = subprocess.run(
        [str(SWEEP), str(ROOT / "experiments.yaml"), "quickstart", "/shared/runs", "--json"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 1, run.stderr
    log = calls.read_text()
    head = "ray start --head --node-ip-address=10.0.0.1 --port=20077 --include-dashboard=false"
    assert f"{head} --num-cpus=8 --num-gpus=2 --block" in log
    assert "srun --nodes=2 --ntasks=2 --overlap --exclude=node1 bash" in log
    assert "ray start --address=10.0.0.1:20077 --num-cpus=8 --num-gpus=2 --block" in log
    assert "decile run " in log and "-e quickstart --storage /shared/runs --json" in log
    assert "10.0.0.1:20077 64 token" in log
    token = re.compile("[0-9a-f]{64}")
    assert not token.search(log + run.stdout + run.stderr), "the token is in no command line"


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ([], {}, "usage: sbatch"),
        (["no.yaml", "x", "s"], {}, "start it with sbatch"),
        (["no.yaml", "x", "s"], {"SLURM_JOB_NODELIST": "n1"}, "no.yaml cannot be read"),
    ],
)
def test_a_slurm_job_names_missing_settings(
    arguments: list[str], variables: dict[str, str], message: str
) -> None:
    run = subprocess.run(
        [str(SWEEP), *arguments],
        env={"PATH": os.environ["PATH"]} | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 2 and message in run.stderr


@pytest.mark.parametrize(
    ("variables", "messages"),
    [
        ({}, ["MLFLOW_AUTH_ADMIN_PASSWORD is not set", "MLFLOW_FLASK_SERVER_SECRET_KEY is not"]),
        (
            {"MLFLOW_AUTH_ADMIN_PASSWORD": "tiny-one", "MLFLOW_FLASK_SERVER_SECRET_KEY": KEY},
            ["12 characters"],
        ),
        (
            {
                "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
                "MLFLOW_FLASK_SERVER_SECRET_KEY": KEY,
                "MLFLOW_AUTH_CONFIG_PATH": "missing.ini",
            },
            ["missing.ini cannot be read"],
        ),
    ],
)
def test_the_mlflow_script_names_missing_settings(
    variables: dict[str, str], messages: list[str], tmp_path: Path
) -> None:
    run = subprocess.run(
        [str(SERVE)],
        env=environment(DECILE_MLFLOW_HOME=str(tmp_path / "home"), **variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 2, run.stderr
    assert all(message in run.stderr for message in messages), run.stderr
    assert not any(value in run.stdout + run.stderr for value in (PASSWORD, KEY, "tiny-one"))
