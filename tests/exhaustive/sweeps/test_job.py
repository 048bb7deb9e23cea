"""`ray job submit` on a real one-node cluster, as the README says."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from processes import wait_until
from sweeps import NAME, empty_database, experiments, plan_of, refused

from benchmarks.local_cluster import ROOT, ray, token_head
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment for a head node with token authentication on loopback."""
    home = Path("/tmp") / f"decile-job-{os.getpid()}"
    home.mkdir()
    with token_head(home, cpus=1) as env:
        yield env
    shutil.rmtree(home, ignore_errors=True)


def mlflow_runs(store: Store) -> list[Run]:
    """The runs of a storage's own database."""
    client = MlflowClient(default_tracking_uri(store))
    return client.search_runs([e.experiment_id for e in client.search_experiments()])


def test_a_stopped_job_is_resumed_by_the_next_and_keeps_its_results(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for package in ("decile", "orchestrator", "tasks", "policies", "cluster"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, project / package, ignore=ignore)
    file = experiments(
        project,
        storage="./runs",
        grid={"model": ["tiny"], "dataset": ["few"], "policy": ["random"]},
    )
    submit = ("job", "submit", "--working-dir", str(project))
    command = ("--", "python", "-m", "orchestrator", "run", "experiments.yaml", "-e", NAME)
    store = Store(str(Path(cluster["HOME"]) / "decile" / "runs"))
    shutil.copyfile(empty_database(), store.local_path() / "mlflow.db")
    ray(cluster, *submit, "--no-wait", "--submission-id", "first", *command)
    wait_until(lambda: list(Path(store.path("cells")).glob("*/checkpoint-*/decile.json")))
    ray(cluster, "job", "stop", "first")
    assert "interrupted; rerun" in ray(cluster, "job", "logs", "first")
    killed = mlflow_runs(store)
    assert {run.info.status for run in killed} == {"KILLED"}
    text = ray(cluster, *submit, *command)
    assert "accuracy" in text
    assert "to draw" not in text, "the probes of the first job are in the same storage"
    resumed = mlflow_runs(store)
    assert {run.info.status for run in resumed} == {"FINISHED"}
    assert {run.info.run_id for run in resumed} == {run.info.run_id for run in killed}
    [cell] = plan_of(file).cells
    assert store.exists("cells", cell.cell_id, "result.json"), text
    assert "RAY_AUTH_MODE=token" in refused(tmp_path, cluster["HEAD"])
