"""`ray job submit` on a real one-node cluster, as the README says."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeps import NAME, experiments, plan_of, refused

from benchmarks.local_cluster import ROOT, ray, token_head
from orchestrator.storage.store import Store

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment for a head node with token authentication on loopback."""
    home = Path("/tmp") / f"decile-job-{os.getpid()}"
    home.mkdir()
    with token_head(home) as env:
        yield env
    shutil.rmtree(home, ignore_errors=True)


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
