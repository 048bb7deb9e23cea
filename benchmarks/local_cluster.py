"""Ray clusters on this machine for benchmarks and tests."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with `variables` added, and without any running Ray cluster.

    Python may cache bytecode: a sweep starts six processes, and each would compile all modules.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    return inherited | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | variables


def free_ray_port(first: int) -> int:
    """A free port at or above `first`; Ray gives 10002 to 19999 to its workers."""
    for port in range(first, first + 1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError(f"no free port from {first} to {first + 999}")


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes that still run."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def kill_cluster(pids: Iterable[int], home: str) -> None:
    """Kill processes in `pids` of the Ray cluster with this home folder, and their children.

    A process belongs to it if its command line or its HOME names the folder. The titles of children
    hide both, and an agent that outlives its raylet keeps its port.
    """
    cluster: set[psutil.Process] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            process = psutil.Process(pid)
            if home in " ".join(process.cmdline()) or process.environ().get("HOME") == home:
                cluster |= {process, *process.children(recursive=True)}
    kill_all(cluster)


@contextmanager
def token_head(home: Path, cpus: int = 2) -> Iterator[dict[str, str]]:
    """Start a head with its files in `home`; yields the environment of its users.

    In it, RAY_ADDRESS is the address for jobs and HEAD the address to connect to. `home` must be a
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
        "start",
        "--head",
        f"--port={port}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
        f"--temp-dir={home / 'ray'}",
        f"--num-cpus={cpus}",
        f"--dashboard-agent-listen-port={agent}",
        "--object-store-memory=200000000",
    )
    try:
        addresses = {"RAY_ADDRESS": f"http://127.0.0.1:{dashboard}", "HEAD": f"127.0.0.1:{port}"}
        yield env | addresses
    finally:
        kill_cluster(set(psutil.pids()) - before, str(home))


def ray(env: dict[str, str], *arguments: str) -> str:
    """Run `ray …` and return its output; retried while the head's job agent starts."""
    for _ in range(40):
        process = subprocess.run(
            [str(BIN / "ray"), *arguments], env=env, capture_output=True, text=True, timeout=600
        )
        if "No available agent" not in process.stderr:
            break
        time.sleep(3)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout
