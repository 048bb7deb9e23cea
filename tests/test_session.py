"""Connecting to Ray: clear errors without a cluster; a local one is private to this machine."""

import os
from pathlib import Path

import psutil
import pytest
from sweeps import refused

from cluster.actors import run_in_worker
from cluster.ray_internals import keep_credentials_from_trials
from cluster.resources import ResourceError
from cluster.session import ray_session


@pytest.mark.cluster
def test_an_absent_cluster_is_an_immediate_error(tmp_path: Path) -> None:
    message = refused(tmp_path, "127.0.0.1:1")
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


@pytest.mark.cluster
def test_a_local_ray_listens_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ray_session():
        assert run_in_worker(lambda number: f"{number}", 1) == "1"
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
