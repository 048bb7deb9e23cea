"""A sweep that is ended by signals and loses its Ray leaves no process, and resumes to its end."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
from processes import LIMIT, wait_gone
from sweeps import (
    NAME,
    decile_here,
    experiments,
    run,
    same_results,
    start,
    store_of,
    wait_for,
    workers,
)

from cluster.ending import INTERRUPTED
from orchestrator.storage.lease import driver_lease


def statuses(file: Path) -> set[str]:
    """The statuses of the sweep's runs in MLflow."""
    with closing(sqlite3.connect(store_of(file).path("mlflow.db"))) as database:
        return {status for (status,) in database.execute("SELECT status FROM runs")}


def test_a_sweep_that_is_killed_at_every_stage_has_the_results_of_a_calm_one(
    finished: Path, local_ray: Path, tmp_path: Path
) -> None:
    """SIGTERM while Ray starts; a sampler and the raylet die in probing; SIGINT in training; then a
    trial and, after the first result, the driver are killed."""
    file, log = experiments(tmp_path), tmp_path / "driver.log"
    store, cells = store_of(file), Path(store_of(file).path("cells"))

    def ray_process(driver: psutil.Process, name: str) -> psutil.Process | None:
        return next((p for p in driver.children(recursive=True) if p.name() == name), None)

    def stage(condition: object, victim: str | None, number: int, code: int, text: str) -> None:
        driver = start(file, log, parallel=True)
        process = psutil.Process(driver.pid)
        wait_for(lambda: condition(process), driver, log)  # type: ignore[operator]
        below = process.children(recursive=True)
        target = ray_process(process, victim) if victim else process
        assert target is not None
        target.send_signal(number)
        assert driver.wait(timeout=LIMIT) == code, log.read_text()
        assert text in log.read_text().splitlines()[-1], log.read_text()
        assert "Traceback" not in log.read_text()
        assert "Raylet is terminated" not in log.read_text()
        wait_gone(below)

    samplers: list[int] = []

    def sampler_is_replaced(driver: psutil.Process) -> bool:
        running = [each.pid for each in workers(driver.pid, "ProbeActor")]
        if running and not samplers:
            os.kill(running[0], signal.SIGKILL)
            samplers.append(running[0])
        return bool(samplers) and bool({*running} - {*samplers})

    stage(lambda p: ray_process(p, "gcs_server"), None, signal.SIGTERM, 143, INTERRUPTED)
    stage(sampler_is_replaced, "raylet", signal.SIGKILL, 1, "the raylet of")
    trained = "*/checkpoint-2/*"
    stage(lambda _: list(cells.glob(trained)), None, signal.SIGINT, 130, INTERRUPTED)
    assert statuses(file) == {"KILLED"}
    with driver_lease(store, NAME, print):
        refused = decile_here("run", str(file), "-e", NAME, folder=tmp_path)
    assert refused.returncode == 1
    assert (
        f"another driver runs {NAME}" in refused.stderr
        and f"process {os.getpid()}" in refused.stderr
    )

    driver = start(file, log, parallel=True)
    second_epoch = "*/checkpoint-6/decile.json"
    saved = wait_for(lambda: next(cells.glob(second_epoch), None), driver, log)
    lock = saved.parents[1] / ".lock"  # type: ignore[attr-defined]
    trial = int(lock.read_text())
    os.kill(trial, signal.SIGKILL)
    wait_for(lambda: lock.read_text().strip() not in ("", str(trial)), driver, log)
    results = wait_for(lambda: [*cells.glob("*/result.json")], driver, log)
    first = {result: result.read_bytes() for result in results}  # type: ignore[attr-defined]
    driver.send_signal(signal.SIGKILL)
    driver.wait()

    run(file, "--wait", here=True)
    assert all(result.read_bytes() == written for result, written in first.items()), "ran again"
    assert same_results(file, finished)
    assert statuses(file) == {"FINISHED"}
    with closing(sqlite3.connect(store.path("mlflow.db"))) as database:
        assert [*database.execute("SELECT COUNT(*) FROM runs")] == [(3,)]
