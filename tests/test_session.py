"""Connecting to Ray: clear errors without a cluster; a local one is private to this machine."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from processes import wait_gone
from remedies import refused
from sweeps import ONE_CPU

from benchmarks.local_cluster import environment
from cluster import actors, session
from cluster.actors import map_over_actors, run_in_worker
from cluster.ray_internals import first_error, keep_credentials_from_trials
from cluster.resources import ResourceError, Share
from cluster.session import RayFails, ray_session
from cluster.watchdog import Watchdog
from orchestrator.storage.faults import fault_text

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


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


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
    paths = f"{folder}{os.pathsep}{Path(__file__).parents[1]}"
    return subprocess.run(
        [*limits, sys.executable, "-c", HOSTILE_START],
        env=environment(PYTHONPATH=paths, **ONE_CPU, **variables),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.cluster
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


@pytest.mark.cluster
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


START = "[2026-11-25 15:35:58,765 C 12 12] (raylet) node_manager.cc:3576:  "
TIMED_OUT = (
    f"{START}An unexpected system state has occurred. You have likely discovered a bug in Ray. "
    "Please report this issue at https://x and we'll work with you to fix it. Check failed: "
    "s.has_value() Timed out waiting for file /x/metrics_agent_port"
)
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


@pytest.mark.cluster
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
