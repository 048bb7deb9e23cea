"""A cluster whose autoscaler starts from no worker at all: real nodes of Ray on this machine."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sweeps import (
    NAME,
    command,
    end_processes,
    environment,
    evaluations,
    experiments,
    groups,
    plan_of,
    store_of,
)

BIN = Path(sys.executable).parent
WORKER = {
    "resources": {"CPU": 1, "object_store_memory": 10**8},
    "node_config": {},
    "min_workers": 0,
    "max_workers": 2,
}


# What Ray's launcher would fill in.
NOTHING: dict[str, object] = {
    "auth": {},
    "file_mounts": {},
    "cluster_synced_files": [],
    "rsync_exclude": [],
    "rsync_filter": [],
    "file_mounts_sync_continuously": False,
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
    "upscaling_speed": 10.0,
}


def free_port() -> int:
    for port in range(28379, 29379):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")


@pytest.fixture
def growing() -> Iterator[str]:
    """A head that computes nothing, and an autoscaler of up to two nodes; gives the address."""
    home = Path("/tmp") / f"decile-grow-{os.getpid()}"
    home.mkdir()
    port = free_port()
    provider = {
        "type": "fake_multinode",
        "gcs_address": f"127.0.0.1:{port}",
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    config = {
        **NOTHING,
        "cluster_name": "growing",
        "max_workers": 2,
        "provider": provider,
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": WORKER,
        },
        "head_node_type": "ray.head.default",
        "idle_timeout_minutes": 5,
    }
    (home / "config.json").write_text(json.dumps(config))
    more = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "HOME": str(home)}
    before = set(psutil.pids())
    subprocess.run(
        [
            str(BIN / "ray"),
            "start",
            "--head",
            "--port",
            str(port),
            "--num-cpus",
            "0",
            "--temp-dir",
            str(home / "ray"),
            "--object-store-memory",
            "100000000",
            "--include-dashboard",
            "false",
            f"--autoscaling-config={home / 'config.json'}",
        ],
        env=environment(**more),
        check=True,
        capture_output=True,
        timeout=120,
    )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        end_processes(set(psutil.pids()) - before, str(home))
        shutil.rmtree(home, ignore_errors=True)


def decile(file: Path, address: str, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command("run", str(file), "-e", NAME, *more),
        cwd=file.parent,
        env=environment(RAY_ADDRESS=address),
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_a_sweep_makes_a_cluster_grow_from_nothing(
    growing: str, finished: Path, tmp_path: Path
) -> None:
    file = experiments(tmp_path)
    refused = decile(file, growing)
    assert refused.returncode == 2
    assert "--cpus and --gpus of a cluster that grows" in refused.stderr
    done = decile(file, growing, "--cpus", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for cell in plan_of(finished).cells:
        for table in (groups, evaluations):
            assert table(store_of(file), cell.cell_id) == table(store_of(finished), cell.cell_id)
