"""Every client of a network, at servers that never finish an answer: each call ends."""

import ast
import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from factories import small_plan
from httpx2 import HTTPError
from huggingface_hub import constants
from import_graph import nodes, source_modules
from paths import ROOT
from s3_server import KEYS
from slow_servers import SERVERS, slow_server

import tasks.sources.hub
from benchmarks.local_cluster import environment
from orchestrator import tracking
from orchestrator.optional.server import Endpoint
from orchestrator.plugins.deadlines import MAX_REPLY
from orchestrator.sampling.base import SamplingError
from orchestrator.storage import remote
from orchestrator.storage.store import Store
from tasks.sources.hub import (
    HubFails,
    Repository,
    current_commit,
    list_snapshot,
    unreachable,
    verify_snapshot,
)

LIMIT = 0.25  # seconds, in place of every deadline
PATIENCE = 30.0  # of the test: a call that never ends takes longer on any machine


def mlflow_server(port: int, folder: Path) -> None:
    import mlflow  # noqa: F401 - it takes longer than the deadline

    own = Store(str(folder))
    tracker = tracking.Tracker(f"http://127.0.0.1:{port}", own, small_plan(folder))
    assert not tracker.enabled


def hub_listing(port: int, folder: Path) -> None:
    with pytest.raises(HubFails):
        list_snapshot(Repository("model", "org/name", "a" * 40))


def hub_hashes(port: int, folder: Path) -> None:
    with pytest.raises(HubFails):
        verify_snapshot(Repository("model", "org/name", "a" * 40))


def hub_commit(port: int, folder: Path) -> None:
    with pytest.raises((OSError, ValueError, HTTPError)):
        current_commit("org/name")


def hub_reach(port: int, folder: Path) -> None:
    unreachable()  # it answers with a status, or it does not


def object_store(port: int, folder: Path) -> None:
    query = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    own = Store(f"s3://bucket/runs?{query}")
    for call in (
        lambda: own.names("cells"),
        lambda: own.write_json({}, "key.json"),
        lambda: own.rename("new.json", "key.json"),
    ):
        with pytest.raises(OSError, match="no complete answer"):
            call()


def served_models(port: int, folder: Path) -> None:
    with pytest.raises(SamplingError):
        asyncio.run(Endpoint(f"http://127.0.0.1:{port}", timeout=LIMIT).models())


def served_adapters(port: int, folder: Path) -> None:
    with pytest.raises(SamplingError):
        asyncio.run(Endpoint(f"http://127.0.0.1:{port}", timeout=LIMIT).load_adapter("x", folder))


# Which modules open connections, and the calls that are tried.
CLIENTS: dict[str, list[Callable[[int, Path], None]]] = {
    "orchestrator.tracking.client": [mlflow_server],
    "tasks.sources.hub": [hub_listing, hub_hashes, hub_commit, hub_reach],
    "orchestrator.storage.store": [object_store],
    "orchestrator.optional.server": [served_models, served_adapters],
}


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (call, kind)
        for call in chain(*CLIENTS.values())
        for kind in SERVERS
        # Arrow's client keeps all of a reply in memory, without a limit: no endless ones.
        if call is not object_store or kind in ("silent", "a byte now and then")
    ],
)
def test_a_call_ends(
    call: Callable[[int, Path], None], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "VIEW_SECONDS", LIMIT)
    monkeypatch.setattr(remote, "CALL_SECONDS", LIMIT)
    for name in ("STALL_SECONDS", "REACH_SECONDS"):
        monkeypatch.setattr(tasks.sources.hub, name, LIMIT)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with slow_server(kind) as port:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.monotonic()
        call(port, tmp_path)
        assert time.monotonic() - started < PATIENCE
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < 8 * MAX_REPLY


COMMAND = """
from orchestrator.cli import main
from orchestrator.storage import remote

remote.CALL_SECONDS = 0.25
main.process()
"""


def test_a_command_ends_while_a_call_goes_on(tmp_path: Path) -> None:
    """Arrow would wait for the call before the process ends."""
    (tmp_path / "experiments.yaml").write_bytes((ROOT / "experiments.yaml").read_bytes())
    with slow_server("a byte now and then") as port:
        query = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        command = [
            "report",
            "experiments.yaml",
            "-e",
            "quickstart",
            "--storage",
            f"s3://b/runs?{query}",
        ]
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *command],
            cwd=tmp_path,
            env=environment(**KEYS),
            capture_output=True,
            text=True,
            timeout=PATIENCE * 4,
        )
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr


# Modules that name such a library, and open no connection.
OTHERS = {
    "orchestrator.cli.fetch",  # classes of the hub's library
    "orchestrator.plugins.deadlines",
    "orchestrator.storage.lease",  # through its store
    "orchestrator.tracking.mlflow_internals",
    "orchestrator.tracking.runs",  # with the client of orchestrator.tracking.client
}
LIBRARIES = ("huggingface_hub", "openai", "requests", "httpx", "mlflow", "pyarrow.fs", "boto3")
LIBRARIES += ("aiohttp", "urllib3", "http.client", "urllib.request", "fsspec", "s3fs", "paramiko")


def test_every_module_that_opens_connections_is_tried() -> None:
    """Another client of a network is to be added here."""
    users = {
        module
        for module, file in source_modules().items()
        for node in nodes(file)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        if name.startswith(LIBRARIES)
    }
    assert users == {*CLIENTS, *OTHERS}
