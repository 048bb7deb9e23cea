"""Seconds from `ray job submit` to the first marked sample in the store, on a one-node cluster.

Starts a head with token authentication on loopback, submits a small probe of the embedded model,
and watches the storage. Prints when the job was accepted, when the driver printed its first line,
and when the first part of samples was written. Later jobs only profit from the file cache.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from benchmarks.command_line import benchmark_parser
from benchmarks.local_cluster import BIN, ROOT, token_head

PACKAGES = ("decile", "orchestrator", "tasks", "policies", "cluster")


def main() -> None:
    """Start a head, submit the jobs one after the other, and stop the head."""
    parser = benchmark_parser("submit", __doc__)
    parser.add_argument(
        "--repeats", type=int, default=2, help="number of jobs, one after the other (default 2)"
    )
    arguments = parser.parse_args()
    home = Path("/tmp") / f"decile-submit-{os.getpid()}"
    home.mkdir()
    try:
        project = copy_project(home / "project")
        with token_head(home) as env:
            time.sleep(10)  # its job agent starts late
            print(f"{'job':>4} {'accepted s':>11} {'driver output s':>16} {'first sample s':>15}")
            for number in range(1, arguments.repeats + 1):
                times = submit_job(env, project, home / f"runs-{number}")
                print(f"{number:>4} {times[0]:11.1f} {times[1]:16.1f} {times[2]:15.1f}", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def copy_project(project: Path) -> Path:
    """Write a user's job: the packages, and a file with one small probe."""
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


def submit_job(env: dict[str, str], project: Path, storage: Path) -> tuple[float, float, float]:
    """Seconds until the job was accepted, its driver printed a line, and a part was written."""
    command = [
        *(str(BIN / "ray"), "job", "submit", "--working-dir", str(project), "--"),
        *("python", "-m", "orchestrator", "probe", "experiments.yaml", "-e", "first"),
        *("--storage", str(storage)),
    ]
    log = storage.with_suffix(".log")
    start_time = time.monotonic()
    with log.open("w") as out:
        job = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        return (
            wait_seconds(start_time, job, log, lambda: "submitted successfully" in log.read_text()),
            wait_seconds(start_time, job, log, lambda: "marker of few" in log.read_text()),
            wait_seconds(start_time, job, log, lambda: any(storage.glob("probes/*/*.parquet"))),
        )
    finally:
        job.wait()


def wait_seconds(
    start_time: float, job: "subprocess.Popen[bytes]", log: Path, condition: Callable[[], bool]
) -> float:
    """Seconds from `start_time` until `condition` is true."""
    while not condition():
        if job.poll() is not None and not condition():
            raise RuntimeError(f"the job ended early:\n{log.read_text()}")
        time.sleep(0.05)
    return time.monotonic() - start_time


if __name__ == "__main__":
    main()
