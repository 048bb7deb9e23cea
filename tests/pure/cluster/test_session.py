"""Connecting to Ray: clear errors without a cluster; a local one is private to this machine."""

import errno
import os
import resource
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from remedies import refused
from session_cases import (
    TIMED_OUT,
    short_folder,  # noqa: F401 (fixtures)
)

from cluster import session
from cluster.ray_internals import first_error
from cluster.resources import ResourceError
from cluster.session import RayFails, ray_session
from cluster.watchdog import Watchdog

LIMITS = ("RLIMIT_AS", "RLIMIT_NOFILE", "RLIMIT_NPROC")
pytestmark = pytest.mark.usefixtures("no_ray")


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        *((address, "start") for address in ("127.0.0.1:1", "[::1]:1", "nobody.invalid:6379")),
        ("http://127.0.0.1:8265", "ray job submit"),
    ],
)
def test_ray_does_not_retry_a_closed_port_or_an_address_of_jobs(
    address: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with refused(f"RAY_ADDRESS={address}", remedy, by=ResourceError), ray_session():
        raise AssertionError(f"a cluster at {os.environ['RAY_ADDRESS']}?")


@pytest.mark.parametrize(
    ("limits", "values"),
    [
        ({"RLIMIT_AS": 3 * 2**30}, ("ulimit -v", "3 GiB")),
        ({"RLIMIT_NOFILE": 40}, ("ulimit -n", "40", "100")),
        ({"RLIMIT_NPROC": 80}, ("ulimit -u", "80")),
        ({"free": 10**6}, ("1 MB", "100 MB", "RAY_TMPDIR")),
        ({"f_favail": 30}, ("30 files", "200", "RAY_TMPDIR")),
    ],
)
def test_a_local_ray_does_not_start_where_it_would_hang(
    monkeypatch: pytest.MonkeyPatch,
    short_folder: Path,
    limits: dict[str, int],
    values: tuple[str, ...],
) -> None:
    def limit(number: int) -> tuple[int, int]:
        name = next(name for name in LIMITS if getattr(resource, name) == number)
        return (limits.get(name, resource.RLIM_INFINITY),) * 2

    files = SimpleNamespace(f_files=10**6, f_favail=limits.get("f_favail", 10**6))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder / "new" / "folder"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # the kernel limits no threads of root
    monkeypatch.setattr(os, "statvfs", lambda _: files)
    monkeypatch.setattr(resource, "getrlimit", limit)
    free = SimpleNamespace(free=limits.get("free", 10**12))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with refused(*values, by=RayFails), ray_session():
        raise AssertionError("started?")


@pytest.mark.parametrize("name", ["bücher", "it's", "back\\slash", "x" * 80, "file"])
def test_a_folder_that_ray_cannot_use_is_refused_or_replaced(
    monkeypatch: pytest.MonkeyPatch, short_folder: Path, name: str
) -> None:
    folder = short_folder / name
    if name == "file":
        folder.write_text("")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    with refused(folder, "RAY_TMPDIR", by=RayFails), ray_session():
        raise AssertionError("started?")
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))  # of the user, who did not mean Ray
    assert session.ray_folder() == "/tmp/ray"
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    assert session.ray_folder() == f"{short_folder}/ray"


FULL = "[2026-11-25 15:35:59,865 E 4 4] (gcs_server) logging.cc:118: Unhandled exception: open: Too"
TRACE = "[2026-11-25 15:35:59,865 E 4 4] (gcs_server) logging.cc:474: *** SIGABRT received at time"
AGENT = (
    "[2026-11-25 15:35:57,000 E 1 2] (raylet) agent_manager.cc:87: The raylet exited immediately "
    "because one Ray agent failed, agent_name = runtime_env_agent."
)


@pytest.mark.parametrize(
    ("logs", "cause"),
    [
        ({"gcs_server.err": f"{TRACE}\n{FULL}"}, "Unhandled exception: open: Too"),
        (
            {"gcs_server.err": FULL, "raylet.err": f"text\n{TIMED_OUT}\n"},
            "Check failed: s.has_value() Timed out waiting for file /x/metrics_agent_port",
        ),
        (
            {"raylet.out": AGENT, "gcs_server.err": FULL, "runtime_env_agent.err": "  x\nE: y\n\n"},
            "E: y",
        ),
        ({"raylet.out": AGENT, "runtime_env_agent.err": ""}, AGENT.partition("cc:87: ")[2]),
        ({"raylet.out": AGENT}, AGENT.partition("cc:87: ")[2]),
    ],
)
def test_the_first_error_in_rays_logs_is_the_cause(
    tmp_path: Path, logs: dict[str, str], cause: str
) -> None:
    for name, text in logs.items():
        (tmp_path / name).write_bytes(text.encode() and b"\xff\n" + text.encode())
    assert first_error(str(tmp_path)) == cause


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (f"what(): {os.strerror(errno.EAGAIN)}", "ulimit -u"),
        (str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x")), "free some space"),
        (str(OSError(errno.EACCES, os.strerror(errno.EACCES), "/x/ray")), "correct"),
        (f"signal_set_service pipe: {os.strerror(errno.EMFILE)}", "ulimit -n"),
        ("the raylet (process 7) was killed by signal 9", "memory"),
        ("Timed out waiting for file /x", "wait until"),
        ("the raylet (process 7) is not ready", "wait until"),
    ],
)
def test_the_remedy_fits_the_cause(
    monkeypatch: pytest.MonkeyPatch, short_folder: Path, cause: str, remedy: str
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder))
    text = session.no_local_ray(RuntimeError(cause))
    assert remedy in text.partition(f"{cause}: ")[2]
    assert "logs" not in text, "there is no session"
    assert not {"space", "memory"} & {*session.no_local_ray(KeyError("x")).split()}


@pytest.mark.parametrize(
    ("free", "started", "lost"), [(0, True, True), (0, False, False), (10**7, True, False)]
)
def test_a_full_disk_of_a_local_ray_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, started: bool, lost: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    watched: Any = SimpleNamespace(_started={"raylet": 1} if started else {}, _logs=str(tmp_path))
    problem = Watchdog._full_disk(watched)
    assert problem.startswith(f"{tmp_path}: ") if lost else not problem
    watched._logs = str(tmp_path / "deleted")
    monkeypatch.undo()
    assert Watchdog._full_disk(watched) == ""
