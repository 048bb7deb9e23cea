"""From `ray job submit` to the first marked sample in the store, on a one-node cluster of our own.

Starts a head with token authentication on loopback, submits a small probe of the embedded model,
and watches the storage. Prints when the job was accepted, when the driver first spoke, and when the
first part of samples had its name; the second job finds nothing warm but the files.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PACKAGES = ("orchestrator", "tasks", "policies", "cluster")


def main() -> None:
    """Start a head, submit twice, end it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.submit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=2, help="jobs, one after the other (2)")
    wanted = parser.parse_args()
    home = Path("/tmp") / f"decile-submit-{os.getpid()}"  # short: sockets lie in it
    home.mkdir()
    try:
        project = copied(home / "project")
        with head(home) as env:
            print(f"{'job':>4} {'accepted s':>11} {'driver speaks s':>16} {'first sample s':>15}")
            for number in range(1, wanted.repeats + 1):
                at = submitted(env, project, home / f"runs-{number}")
                print(f"{number:>4} {at[0]:11.1f} {at[1]:16.1f} {at[2]:15.1f}", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def copied(project: Path) -> Path:
    """What a user would submit: the packages, and a file with one small probe."""
    for package in PACKAGES:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, project / package, ignore=ignore)
    content = {
        "models": {"tiny": {"embedded": "tiny"}},
        "datasets": {"few": {"task": "shuffled_objects", "options": {"train": 64, "test": 16}}},
        "experiments": {
            "first": {
                "grid": {"model": ["tiny"], "dataset": ["few"], "policy": ["random"]},
                "budget": 16,
                "probe": {"samples": 1, "max_completion_length": 32},
            }
        },
    }
    (project / "experiments.yaml").write_text(yaml.safe_dump(content))
    return project


@contextmanager
def head(home: Path) -> Iterator[dict[str, str]]:
    """A head node; gives the environment of its users, and ends what it started."""
    port, dashboard = free_port(26379), free_port(27379)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") and k != "PYTHONPATH"}
    env = kept | {
        "HOME": str(home),
        "RAY_AUTH_MODE": "token",
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }
    before = set(psutil.pids())
    ray(env, "get-auth-token", "--generate")
    ray(
        env,
        *("start", "--head", "--port", str(port), "--dashboard-host", "127.0.0.1"),
        *("--dashboard-port", str(dashboard), "--temp-dir", str(home / "ray"), "--num-cpus", "2"),
        *("--object-store-memory", "200000000"),
    )
    time.sleep(10)  # its job agent starts late
    try:
        yield env | {"RAY_ADDRESS": f"http://127.0.0.1:{dashboard}"}
    finally:
        for pid in set(psutil.pids()) - before:
            end(pid, str(home))


def end(pid: int, mark: str) -> None:
    """End a process of this head only: its command line or environment names its folder."""
    try:
        process = psutil.Process(pid)
        if mark in " ".join(process.cmdline()) or process.environ().get("HOME") == mark:
            process.kill()
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return


def free_port(first: int) -> int:
    """A port that nobody listens on."""
    for port in range(first, first + 1000):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no free port")


def ray(env: dict[str, str], *arguments: str) -> None:
    """`ray …`, quietly."""
    subprocess.run([str(BIN / "ray"), *arguments], env=env, check=True, capture_output=True)


def submitted(env: dict[str, str], project: Path, storage: Path) -> tuple[float, float, float]:
    """Seconds from the command until it was accepted, the driver spoke, and a sample was there."""
    command = [
        str(BIN / "ray"),
        "job",
        "submit",
        "--working-dir",
        str(project),
        "--",
        "python",
        "-m",
        "orchestrator",
        "probe",
        "experiments.yaml",
        "-e",
        "first",
        "--storage",
        str(storage),
    ]
    log = storage.with_suffix(".log")
    began = time.monotonic()
    with log.open("w") as out:
        job = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        return (
            waited(began, job, log, lambda: "submitted successfully" in log.read_text()),
            waited(began, job, log, lambda: "marker of few" in log.read_text()),
            waited(began, job, log, lambda: any(storage.glob("probes/*/*.parquet"))),
        )
    finally:
        job.wait()


def waited(
    began: float, job: "subprocess.Popen[bytes]", log: Path, what: Callable[[], bool]
) -> float:
    """Seconds from `began` until `what` is true."""
    while not what():
        if job.poll() is not None and not what():
            raise RuntimeError(f"the job ended early:\n{log.read_text()}")
        time.sleep(0.05)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
