"""Connecting to Ray: clear errors without a cluster; a local one is private to this machine."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from paths import ROOT
from processes import LIMIT, wait_gone
from session_cases import (
    TIMED_OUT,
    short_folder,  # noqa: F401 (fixtures)
)
from sweeps import ONE_CPU

from benchmarks.local_cluster import environment
from cluster import actors
from cluster.actors import map_over_actors, run_in_worker
from cluster.ray_internals import keep_credentials_from_trials
from cluster.resources import Share
from cluster.session import ray_session
from orchestrator.storage.faults import fault_text

pytestmark = pytest.mark.usefixtures("no_ray")


HOSTILE_START = """
import os, psutil, signal, sys
from cluster.actors import run_in_worker
from cluster.ending import signals_end_process
from cluster.session import RayFails, ray_session
try:
    with signals_end_process(), ray_session():
        print("answer", run_in_worker(lambda number: f"{number}", 17))
        below = psutil.Process().children(recursive=True)
        print(*(each.pid for each in below))
        print(*(each.name() for each in below))
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
except RayFails as error:
    sys.exit(f"decile: {error}")
"""
SLOW_AGENTS = """
import os, sys, time
if any(name in " ".join(sys.orig_argv) for name in ("dashboard", "runtime_env", "monitor")):
    raylet = os.getppid()
    for _ in range(250):
        time.sleep(0.1)
        if os.getppid() != raylet:
            os._exit(0)
"""


def hostile_start(folder: Path, *limits: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A session in a fresh process whose Ray has slow agents; it ends by SIGKILL."""
    (folder / "sitecustomize.py").write_text(SLOW_AGENTS)
    paths = f"{folder}{os.pathsep}{ROOT}"
    return subprocess.run(
        [*limits, sys.executable, "-c", HOSTILE_START],
        env=environment(PYTHONPATH=paths, **ONE_CPU, **variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_ray_starts_without_home_and_before_its_agents_are_ready_and_leaves_nothing(
    tmp_path: Path, short_folder: Path
) -> None:
    process = hostile_start(tmp_path, HOME="/dev/null/home", RAY_TMPDIR=str(short_folder))
    assert process.returncode == -signal.SIGKILL, process.stdout + process.stderr
    answer, pids, names = process.stdout.splitlines()[-3:]
    assert answer == "answer 17"
    assert {"gcs_server", "raylet"} <= {*names.split()}
    assert not {name for name in names.split() if "ashboard" in name or "onitor" in name}
    left = []
    for pid in map(int, pids.split()):
        with suppress(psutil.NoSuchProcess):
            left.append(psutil.Process(pid))
    wait_gone(left)


def test_a_process_of_ray_that_dies_at_the_start_is_named_with_its_cause(
    tmp_path: Path, short_folder: Path
) -> None:
    other = short_folder / "ray" / "session_2999-01-01_00-00-00_000000_1" / "logs"
    other.mkdir(parents=True)
    (other / "raylet.err").write_text(f"{TIMED_OUT}\n")
    small_files = ("prlimit", "--fsize=10000:10000")
    # Python would cut the bytecode that it keeps of libraries, too, and not notice (gh-126606).
    no_bytecode = {"PYTHONDONTWRITEBYTECODE": "1"}
    process = hostile_start(tmp_path, *small_files, RAY_TMPDIR=str(short_folder), **no_bytecode)
    assert process.returncode == 1, process.stdout + process.stderr
    [line] = process.stderr.splitlines()
    assert "the GCS server (process " in line and "signal 25: " in line and "ulimit -f" in line
    logs = line.rpartition("Ray's logs: ")[2]
    assert Path(logs, "gcs_server.out").stat().st_size == 10000


def test_the_error_of_an_actor_is_not_that_of_ray_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails:
        def __init__(self, at_start: bool) -> None:
            if at_start:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y")

        def __call__(self, batch: pa.Table) -> pa.Table:
            raise KeyError("x")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    texts, part = [], pa.table({"part": [1]})
    with ray_session():
        for at_start in (True, False):
            results = map_over_actors([part], Fails, {"at_start": at_start}, Share(1, 0.5, 0))
            with pytest.raises(Exception, match="Error") as caught:
                list(results)
            texts.append(fault_text(caught.value))
    assert texts[0].startswith("/x/y: ") and "(node " in texts[0]
    assert "KeyError: 'x' (node " in texts[1]


def test_a_local_ray_listens_on_loopback_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ray_session():
        assert run_in_worker(lambda number: f"{number}", 1) == "1"
        assert not caplog.messages
        monkeypatch.setattr(actors, "WAIT_SECONDS", 0.01)
        assert run_in_worker(lambda seconds: f"{time.sleep(seconds)}", 0.1) == "None"
        assert "0.01 s" in caplog.messages[0]
        own = psutil.Process()
        sockets = {
            (process.name(), connection.laddr.ip.removeprefix("::ffff:"))
            for process in (own, *own.children(recursive=True))
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
    assert {"raylet", "gcs_server"} <= {name for name, _ in sockets}
    assert {ip for _, ip in sockets} == {"127.0.0.1"}, sockets


def test_trials_get_no_credentials_in_a_runtime_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.tune.execution.class_cache import _ActorClassCache

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "sesame")

    class Trainable: ...

    keep_credentials_from_trials()
    assert "sesame" not in str(_ActorClassCache().get(Trainable)._default_options)
