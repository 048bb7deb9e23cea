"""`ray job submit` on a real one-node cluster, as the README says."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sweeps import NAME, ROOT, end_processes, environment, experiments, plan_of, refused

from orchestrator.storage.store import Store

BIN = Path(sys.executable).parent


def free_port() -> int:
    """A free port outside the range that Ray gives to its workers."""
    for port in range(26379, 27379):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A head node with token authentication on loopback; gives the environment of its users."""
    home = Path("/tmp") / f"decile-job-{os.getpid()}"
    home.mkdir()
    port, dashboard = free_port(), free_port() + 1000
    path = f"{BIN}:{os.environ['PATH']}"
    env = environment(HOME=str(home), RAY_AUTH_MODE="token", PATH=path, RAY_USAGE_STATS_ENABLED="0")
    env.pop("PYTHONPATH")
    ray(env, "get-auth-token", "--generate")
    before = set(psutil.pids())
    ray(
        env,
        *("start", "--head", "--port", str(port), "--dashboard-host", "127.0.0.1"),
        *("--dashboard-port", str(dashboard), "--temp-dir", str(home / "ray"), "--num-cpus", "2"),
        *(
            "--dashboard-agent-listen-port",
            str(free_port() + 2000),
        ),  # not another cluster's
        *("--object-store-memory", "200000000"),
    )
    try:
        addresses = {"RAY_ADDRESS": f"http://127.0.0.1:{dashboard}", "HEAD": f"127.0.0.1:{port}"}
        yield env | addresses
    finally:
        end_processes(set(psutil.pids()) - before, str(home))
        shutil.rmtree(home, ignore_errors=True)


def ray(env: dict[str, str], *arguments: str) -> str:
    for _ in range(20):
        done = subprocess.run(
            [str(BIN / "ray"), *arguments], env=env, capture_output=True, text=True, timeout=600
        )
        if "No available agent" not in done.stderr:  # on a busy machine it starts late
            break
        time.sleep(3)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_submitted_job_runs_the_sweep_and_keeps_its_results(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for package in ("orchestrator", "tasks", "policies", "cluster"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, project / package, ignore=ignore)
    file = experiments(
        project,
        storage="./runs",
        grid={"model": ["tiny"], "dataset": ["few"], "policy": ["random"]},
    )
    submit = ("job", "submit", "--working-dir", str(project), "--", "python", "-m", "orchestrator")
    text = ray(cluster, *submit, "run", "experiments.yaml", "-e", NAME)
    assert "accuracy" in text
    store = Store(str(Path(cluster["HOME"]) / "decile" / "runs"))
    [cell] = plan_of(file).cells
    assert store.exists("cells", cell.cell_id, "result.json"), text
    assert "nothing to do" in ray(cluster, *submit, "run", "experiments.yaml", "-e", NAME)
    assert "export RAY_AUTH_MODE=token" in refused(tmp_path, cluster["HEAD"])
