"""A real MLflow server for tests: `decile ui` of a store, on loopback, as its own process."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.storage.store import Store

SERVE = (
    "import sys; from orchestrator.storage.store import Store\n"
    "from orchestrator.tracking import serve_ui\n"
    "serve_ui(Store(sys.argv[1]), port=int(sys.argv[2]))\n"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def serving(store: Store) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server's address and its process, which ends with the context."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, store.root, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[1],
    )
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the MLflow server did not start")
