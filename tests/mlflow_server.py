"""A real MLflow server for tests: `decile ui` of a store, on loopback, in its own process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from processes import free_port, listens, wait_until

from benchmarks.local_cluster import ROOT
from orchestrator.storage.store import Store

SERVE = (
    "import sys; from orchestrator.storage.store import Store\n"
    "from orchestrator.tracking import serve_ui\n"
    "serve_ui(Store(sys.argv[1]), port=int(sys.argv[2]))\n"
)


@contextmanager
def serving(store: Store) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server's address and its process, which ends with the context."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, store.root, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        wait_until(lambda: listens(port), running=lambda: process.poll() is None)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(30)
