"""A cluster whose autoscaler starts without workers: real nodes of Ray on this machine."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from processes import LIMIT
from sweeps import experiments, run, same_results

from benchmarks.local_cluster import BIN, environment, free_ray_port, kill_cluster

WORKER = {
    "resources": {"CPU": 1, "object_store_memory": 10**8},
    "node_config": {},
    "min_workers": 0,
    "max_workers": 2,
}

# What Ray's launcher would fill in.
DEFAULTS: dict[str, object] = {
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


@pytest.fixture
def growing() -> Iterator[str]:
    """The address of a head node without CPUs, with an autoscaler of up to two nodes."""
    home = Path("/tmp") / f"decile-grow-{os.getpid()}"
    home.mkdir()
    port = free_ray_port(28379)
    provider = {
        "type": "fake_multinode",
        "gcs_address": f"127.0.0.1:{port}",
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    config = {
        **DEFAULTS,
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
    variables = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "HOME": str(home)}
    before = set(psutil.pids())
    subprocess.run(
        [
            *(str(BIN / "ray"), "start", "--head", "--port", str(port), "--num-cpus", "0"),
            *("--temp-dir", str(home / "ray"), "--object-store-memory", "100000000"),
            *("--include-dashboard", "false"),
            f"--autoscaling-config={home / 'config.json'}",
        ],
        env=environment(**variables),
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        kill_cluster(set(psutil.pids()) - before, str(home))
        shutil.rmtree(home, ignore_errors=True)


def test_a_sweep_scales_a_cluster_up_from_zero_workers(
    growing: str, finished: Path, tmp_path: Path
) -> None:
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]}
    file = experiments(tmp_path, grid=grid)
    text = run(file, expect=2, RAY_ADDRESS=growing)
    assert "autoscaler's limit as --cpus and --gpus" in text
    run(file, "--cpus", "2", RAY_ADDRESS=growing)
    assert same_results(file, finished)
