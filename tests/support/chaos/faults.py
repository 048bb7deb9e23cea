"""Faults of what a sweep needs: disk space, the tracking server, object storage, the clock."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mlflow_server import serving
from paths import ROOT
from s3_server import bucket, s3_server
from sweeps import NAME, decile, start, wait_for

from chaos.cases import Case, checkpoints, differences, finish, sweep, tracebacks
from chaos.proxy import flaky_proxy
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri
from orchestrator.tracking.client import connect

SET_BACK = """
import time as _time
_now, _now_ns = _time.time, _time.time_ns
_time.time = lambda: _now() - 86_400
_time.time_ns = lambda: _now_ns() - 86_400 * 10**9
"""


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """Mount a file system of this size at `folder`; needs root."""
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def full_disks(folder: Path, reference: Path, count: int, rng: random.Random) -> Iterator[Case]:
    """A storage that runs out of space at `count` different moments, then gets more."""
    if os.geteuid() != 0:
        yield Case("disk full (skipped: needs root)", 0)
        return
    used = sum(f.stat().st_size for f in (reference.parent / "runs").rglob("*") if f.is_file())
    for number in range(count):
        place = folder / f"disk-{number}"
        kilobytes = int(used / 1024 * (number + rng.random()) / count) + 4
        with small_disk(place / "runs", kilobytes):
            file, began = sweep(place), time.monotonic()
            process = decile("run", str(file), "-e", NAME, folder=place)
            output = process.stdout + process.stderr
            case = Case("disk full", problems=tracebacks(output))
            case.seconds = time.monotonic() - began
            if process.returncode not in (0, 1):
                case.problems.append(f"exit code {process.returncode}: {output[-300:]}")
            elif process.returncode and "space" not in output:
                case.problems.append(f"the message does not name the cause: {output[-300:]}")
            subprocess.run(["mount", "-o", "remount,size=1g", place / "runs"], check=True)
            case.problems += finish(file) + differences(file, reference)
            case.problems = [f"{kilobytes} kB: {problem}" for problem in case.problems]
        yield case


def trackers(folder: Path, reference: Path) -> Iterator[Case]:
    """A tracking server that is down, dies during the sweep, or is slow."""
    for scenario in ("down", "killed", "slow"):
        place = folder / f"tracker-{scenario}"
        place.mkdir()
        file, log, began = sweep(place), place / "driver.log", time.monotonic()
        case, tracker = Case(f"tracking server {scenario}"), Store(str(place / "tracker"))
        connect(default_tracking_uri(tracker))
        with serving(tracker) as (address, server):
            delay = 1.0 if scenario == "slow" else 0.0
            with flaky_proxy(address, delay=delay) as (proxy, _):
                if scenario == "down":
                    server.kill()
                driver = start(file, log, "--tracking-uri", proxy)
                if scenario == "killed":
                    wait_for(partial(checkpoints, file), driver, log)
                    server.kill()
                if driver.wait(600):
                    case.problems.append(f"exit code {driver.returncode}: {log.read_text()[-300:]}")
                case.problems += tracebacks(log.read_text())
        with serving(tracker) as (address, _):
            case.problems += finish(file, "--tracking-uri", address)
            case.problems += differences(file, reference, address)
        case.seconds = time.monotonic() - began
        yield case


def object_stores(folder: Path, reference: Path, count: int, rng: random.Random) -> Iterator[Case]:
    """S3 that fails a tenth of all calls and tears some uploads, `count` sweeps."""
    with s3_server() as server:
        for number in range(count):
            place = folder / f"bucket-{number}"
            place.mkdir()
            failing = random.Random(rng.random())
            with flaky_proxy(f"http://{server}", failures=0.1, rng=failing) as (proxy, failed):
                direct = bucket(server, f"chaos-{number}")
                storage = direct.replace(server.replace(":", "%3A"), proxy.removeprefix("http://"))
                file, began = sweep(place, storage=storage), time.monotonic()
                tracking = f"sqlite:///{place / 'mlflow.db'}"
                case = Case("failed S3 calls, one in ten")
                process = decile(
                    *("run", str(file), "-e", NAME, "--tracking-uri", tracking), folder=place
                )
                case.problems += tracebacks(process.stdout + process.stderr)
                case.count = len(failed)
            case.problems += finish(file, "--storage", direct, "--tracking-uri", tracking)
            file = sweep(place, storage=direct)
            case.problems += differences(file, reference, tracking)
            case.seconds = time.monotonic() - began
            yield case


def clocks(folder: Path, reference: Path, interrupted: Path) -> Iterator[Case]:
    """A sweep that is resumed after the clock was set back by a day."""
    place, patch = folder / "clock", folder / "set-back"
    shutil.copytree(interrupted, place)
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(SET_BACK)
    began, file = time.monotonic(), sweep(place)
    path = f"{patch}:{ROOT}"
    case = Case("clock set back by a day")
    case.problems = finish(file, PYTHONPATH=path) + differences(file, reference)
    case.seconds = time.monotonic() - began
    yield case
