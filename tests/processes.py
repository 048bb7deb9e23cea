"""Ports and waiting for tests, and a limit that ends a test that hangs."""

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


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
