"""Connecting to a cluster that is absent or not a Ray cluster: a clear error, and nothing runs."""

import os
from pathlib import Path

import pytest
from sweeps import refused

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
