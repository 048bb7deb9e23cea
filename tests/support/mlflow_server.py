"""A real MLflow server for tests: `decile ui` of a store, on loopback, in its own process."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from processes import free_port, listens, wait_until
from sweeps import command

from benchmarks.local_cluster import ROOT
from orchestrator.storage.store import Store


@contextmanager
def serving(store: Store) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server's address and its process, which ends with the context."""
    port = free_port()
    process = subprocess.Popen(
        command("ui", "--storage", store.root, "--port", str(port)),
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
