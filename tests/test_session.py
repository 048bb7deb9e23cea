"""A Ray cluster that is not there, or wants a token, is said so; nothing is computed."""

import os
from pathlib import Path

import pytest
from sweeps import refused

from cluster.resources import ResourceError
from cluster.session import ray_session


@pytest.mark.cluster
def test_a_cluster_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    said = refused(tmp_path, "127.0.0.1:1")
    assert "no Ray cluster answers at RAY_ADDRESS=127.0.0.1:1: start one, or unset" in said


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "nobody.invalid:6379"])
def test_nothing_is_asked_of_a_closed_port(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ResourceError, match="no Ray cluster answers"), ray_session():
        raise AssertionError(f"a cluster at {os.environ['RAY_ADDRESS']}?")


def test_an_address_for_jobs_is_not_one_to_connect_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(ResourceError, match="write ray job submit"), ray_session():
        raise AssertionError("connected?")
