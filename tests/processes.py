"""Processes and ports of tests, and a limit that ends a test that hangs."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

ROOT = Path(__file__).parents[1]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with `variables` added, and without any running Ray cluster."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return inherited | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | variables


def free_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def free_ray_port(first: int) -> int:
    """A free port at or above `first`; Ray gives 10002 to 19999 to its workers."""
    for port in range(first, first + 1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError(f"no free port from {first} to {first + 999}")


def listens(port: int) -> bool:
    """Whether a server on loopback accepts connections."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(
    condition: Callable[[], object],
    running: Callable[[], bool] = lambda: True,
    seconds: float = 300,
) -> object:
    """Poll until `condition` returns a true value, and return that.

    Fails when `running` is false or the time is over.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        assert running(), "the process ended early"
        time.sleep(0.05)
    raise AssertionError(f"timed out after {seconds:g} s")


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill those that still run."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def kill_cluster(pids: Iterable[int], home: str) -> None:
    """Of `pids`, kill the processes of the Ray cluster with this home folder, and their children.

    A process belongs to it when its command line or its HOME names the folder. The titles of
    children hide both, and an agent that outlives its raylet keeps its port.
    """
    cluster: set[psutil.Process] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            process = psutil.Process(pid)
            if home in " ".join(process.cmdline()) or process.environ().get("HOME") == home:
                cluster |= {process, *process.children(recursive=True)}
    kill_all(cluster)


@contextmanager
def hang_limit(seconds: float = 120) -> Iterator[None]:
    """Fail a test that hangs, even inside a regular expression. Not a measurement of speed."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
