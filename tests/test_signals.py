"""A sweep that is ended by signals and loses its Ray leaves no process, and resumes to its end."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from processes import wait_until
from sweeps import NAME, decile, experiments, run, same_results, start, store_of, wait_for

from cluster.ending import INTERRUPTED
from orchestrator.storage.lease import driver_lease

pytestmark = pytest.mark.cluster


def statuses(file: Path) -> set[str]:
    """The statuses of the sweep's runs in MLflow."""
    with closing(sqlite3.connect(store_of(file).path("mlflow.db"))) as database:
        return {status for (status,) in database.execute("SELECT status FROM runs")}


def assert_gone(processes: list[psutil.Process]) -> None:
    """Fails unless every process ends."""
    wait_until(
        lambda: not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE],
        seconds=30,
    )


def test_an_interrupted_sweep_resumes_to_the_same_results(finished: Path, tmp_path: Path) -> None:
    """SIGTERM while Ray starts, a dead raylet in probing, SIGINT in training; then it finishes."""
    file, log = experiments(tmp_path), tmp_path / "driver.log"
    cells = Path(store_of(file).path("cells"))
    trained = "*/checkpoint-2/*"

    def ray_process(driver: psutil.Process, name: str) -> psutil.Process | None:
        return next((p for p in driver.children(recursive=True) if p.name() == name), None)

    def stage(condition: object, victim: str | None, number: int, code: int, text: str) -> None:
        driver = start(file, log)
        process = psutil.Process(driver.pid)
        wait_for(lambda: condition(process), driver, log)  # type: ignore[operator]
        below = process.children(recursive=True)
        target = ray_process(process, victim) if victim else process
        assert target is not None
        target.send_signal(number)
        assert driver.wait(timeout=60) == code, log.read_text()
        assert text in log.read_text().splitlines()[-1], log.read_text()
        assert "Traceback" not in log.read_text()
        assert "Raylet is terminated" not in log.read_text()
        assert_gone(below)

    stage(lambda p: ray_process(p, "gcs_server"), None, signal.SIGTERM, 143, INTERRUPTED)
    probing = "256 samples to draw"
    stage(lambda _: probing in log.read_text(), "raylet", signal.SIGKILL, 1, "the raylet of")
    stage(lambda _: list(cells.glob(trained)), None, signal.SIGINT, 130, INTERRUPTED)
    assert statuses(file) == {"KILLED"}
    with driver_lease(store_of(file), NAME, print):
        refused = decile("run", str(file), "-e", NAME, folder=tmp_path)
    assert refused.returncode == 1
    assert (
        f"another driver runs {NAME}" in refused.stderr
        and f"process {os.getpid()}" in refused.stderr
    )
    run(file, "--wait")
    assert same_results(file, finished)
    assert statuses(file) == {"FINISHED"}
