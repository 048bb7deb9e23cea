"""A Ray head node of our own on loopback, with token authentication."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from processes import environment, free_ray_port, kill_cluster

BIN = Path(sys.executable).parent


@contextmanager
def token_head(home: Path) -> Iterator[dict[str, str]]:
    """Start a head with its files in `home`; yields the environment of its users.

    There RAY_ADDRESS is the address for jobs and HEAD the one to connect to. `home` must be a
    short path: sockets are created in it.
    """
    port, dashboard, agent = map(free_ray_port, (26379, 27379, 28379))
    path = f"{BIN}:{os.environ['PATH']}"
    env = environment(HOME=str(home), RAY_AUTH_MODE="token", PATH=path, RAY_USAGE_STATS_ENABLED="0")
    env.pop("PYTHONPATH")
    ray(env, "get-auth-token", "--generate")
    before = set(psutil.pids())
    ray(
        env,
        *("start", "--head", "--port", str(port), "--dashboard-host", "127.0.0.1"),
        *("--dashboard-port", str(dashboard), "--temp-dir", str(home / "ray"), "--num-cpus", "2"),
        *("--dashboard-agent-listen-port", str(agent), "--object-store-memory", "200000000"),
    )
    try:
        addresses = {"RAY_ADDRESS": f"http://127.0.0.1:{dashboard}", "HEAD": f"127.0.0.1:{port}"}
        yield env | addresses
    finally:
        kill_cluster(set(psutil.pids()) - before, str(home))


def ray(env: dict[str, str], *arguments: str) -> str:
    """Run `ray …` and return its output; retried while the head's job agent starts."""
    for _ in range(20):
        process = subprocess.run(
            [str(BIN / "ray"), *arguments], env=env, capture_output=True, text=True, timeout=600
        )
        if "No available agent" not in process.stderr:
            break
        time.sleep(3)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout
