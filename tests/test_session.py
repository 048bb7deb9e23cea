"""Connecting to Ray: clear errors without a cluster; a local one is private to this machine."""

import os
import resource
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from sweeps import experiments, run

from cluster import actors
from cluster.actors import map_over_actors, run_in_worker
from cluster.ray_internals import keep_credentials_from_trials
from cluster.resources import ResourceError, Share
from cluster.session import RayFails, ray_session
from cluster.watchdog import Watchdog
from orchestrator.storage.faults import fault_text

pytestmark = pytest.mark.usefixtures("no_ray")


@pytest.mark.cluster
def test_an_absent_cluster_is_an_immediate_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    message = run(experiments(tmp_path), expect=2, here=True)
    assert "Traceback" not in message
    assert "cannot connect to a Ray cluster at RAY_ADDRESS=127.0.0.1:1: start one" in message


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "nobody.invalid:6379"])
def test_ray_does_not_retry_a_closed_port(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ResourceError, match="cannot connect to a Ray cluster"), ray_session():
        raise AssertionError(f"a cluster at {os.environ['RAY_ADDRESS']}?")


def test_a_job_submission_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(ResourceError, match="run ray job submit"), ray_session():
        raise AssertionError("connected?")


@pytest.mark.parametrize(
    ("address_space", "free", "words"),
    [
        (3 * 2**30, 10**12, "ulimit -v allows this process 3 GiB of address space, and Ray's "),
        (resource.RLIM_INFINITY, 10**6, "has 1 MB of free space, and Ray needs 100 MB there: free"),
    ],
)
def test_a_local_ray_does_not_start_where_it_would_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address_space: int, free: int, words: str
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "new" / "folder"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (address_space, -1))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(RayFails, match=words), ray_session():
        raise AssertionError("started?")


@pytest.mark.parametrize(
    ("free", "started", "lost"), [(0, True, True), (0, False, False), (10**7, True, False)]
)
def test_a_full_disk_of_a_local_ray_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, started: bool, lost: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    watched: Any = SimpleNamespace(_started={"raylet": 1} if started else {}, _logs=str(tmp_path))
    text = f"{tmp_path}: no space left on the device: free some"
    assert Watchdog._full_disk(watched) == (text if lost else "")
    watched._logs = str(tmp_path / "deleted")
    monkeypatch.undo()
    assert Watchdog._full_disk(watched) == ""


@pytest.mark.cluster
def test_the_error_of_an_actor_is_not_that_of_ray_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails:
        def __init__(self, at_start: bool) -> None:
            if at_start:
                raise OSError(28, "No space left on device", "/x/y")

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
    assert texts[0].startswith("/x/y: no space left on the device (node ")
    assert texts[1].startswith("unexpected error: KeyError: 'x' (node ")


@pytest.mark.cluster
def test_a_local_ray_listens_on_loopback_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ray_session():
        assert run_in_worker(lambda number: f"{number}", 1) == "1"
        assert not caplog.messages
        monkeypatch.setattr(actors, "WAIT_SECONDS", 0.01)
        assert run_in_worker(lambda seconds: f"{time.sleep(seconds)}", 0.1) == "None"
        assert caplog.messages[0].startswith("no answer from a Ray worker for 0.01 s: it waits ")
        own = psutil.Process()
        sockets = {
            (process.name(), connection.laddr.ip.removeprefix("::ffff:"))
            for process in (own, *own.children(recursive=True))
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
    assert {"raylet", "gcs_server"} <= {name for name, _ in sockets}
    assert {ip for _, ip in sockets} == {"127.0.0.1"}, sockets


@pytest.mark.slow
def test_trials_get_no_credentials_in_a_runtime_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.tune.execution.class_cache import _ActorClassCache

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "sesame")

    class Trainable: ...

    keep_credentials_from_trials()
    assert "sesame" not in str(_ActorClassCache().get(Trainable)._default_options)
