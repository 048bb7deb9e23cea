"""Fresh interpreters, ports and waiting for tests, and a limit that ends a test that hangs."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import psutil
from paths import ROOT

LIMIT = 900  # seconds until what a test waits for counts as hanging, also on a busy machine


def output_of(code: str) -> str:
    """What the code prints in a fresh interpreter, run in the root of the repository."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


# Prints the top-level modules that are loaded.
LOADED = """
import sys
print(*{name.partition(".")[0] for name in sys.modules})
"""


def loaded_libraries(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after it ran the code."""
    return {*output_of(code + LOADED).splitlines()[-1].split()}


@contextmanager
def used_port() -> Iterator[int]:
    """A port of loopback on which a socket listens in the meantime."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def free_port() -> int:
    """A port of loopback on which nothing listens."""
    with used_port() as port:
        return port


def listens(port: int) -> bool:
    """Whether a server on loopback accepts connections."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(
    condition: Callable[[], object],
    running: Callable[[], bool] = lambda: True,
    seconds: float = LIMIT,
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


def wait_gone(processes: list[psutil.Process], seconds: float = LIMIT) -> None:
    """Fail unless every process ends in this time."""

    def remaining() -> list[str]:
        names = []
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    names.append(process.name())
        return names

    try:
        wait_until(lambda: not remaining(), seconds=seconds)
    except AssertionError:
        raise AssertionError(f"still running after {seconds:g} s: {remaining()}") from None


@contextmanager
def hang_limit(seconds: float = LIMIT) -> Iterator[None]:
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
