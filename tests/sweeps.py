"""Real sweeps for tests: a small experiments.yaml on the embedded model, and the command itself."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import yaml

from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.storage.schema import EVALUATIONS, GROUPS
from orchestrator.storage.store import Store

ROOT = Path(__file__).parents[1]
NAME = "small"


def experiments(folder: Path, *, storage: str | None = None, **changes: object) -> Path:
    """A file with one small sweep of two cells; `changes` replace blocks of the experiment."""
    content = {
        "storage": storage or "./runs",
        "models": {"tiny": {"embedded": "tiny"}},
        "datasets": {
            "few": {"task": "shuffled_objects", "options": {"train": 64, "test": 16}},
            "far": {"task": "arithmetic", "options": {"train": 0, "test": 6}},
        },
        "experiments": {
            NAME: {
                "grid": {"model": ["tiny"], "dataset": ["few"], "policy": ["hard", "random"]},
                "budget": 0.25,
                "probe": {"samples": 4, "max_completion_length": 48},
                "grpo": {
                    "max_steps": 12,
                    "num_generations": 4,
                    "per_device_train_batch_size": 16,
                    "max_completion_length": 48,
                    "learning_rate": 1e-3,
                    "save_steps": 2,
                },
                "lora": {"r": 4},
                "evaluate": {"every": 6, "samples": 2, "greedy": True, "ood": ["far"]},
            }
            | changes
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def command(*arguments: str) -> list[str]:
    """`decile …` in this interpreter."""
    return [sys.executable, "-m", "orchestrator", *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's environment without any Ray cluster of somebody else's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | more


def run(file: Path, expect: int = 0) -> str:
    """Run the sweep of a file to its end; returns all that it printed."""
    done = subprocess.run(
        command("run", str(file), "-e", NAME),
        cwd=file.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    text = done.stdout + done.stderr
    assert done.returncode == expect, text
    return text


def start(file: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the sweep of a file in the background; its output goes to `log`."""
    with log.open("wb") as out:
        return subprocess.Popen(
            command("run", str(file), "-e", NAME),
            cwd=file.parent,
            env=environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def wait_for(what: Callable[[], object], driver: subprocess.Popen[bytes], log: Path) -> object:
    """Poll until `what` gives something true; fails when the driver ends or 300 s are over."""
    for _ in range(6000):
        if found := what():
            return found
        assert driver.poll() is None, f"the driver ended early:\n{log.read_text()}"
        time.sleep(0.05)
    raise AssertionError(f"waited in vain:\n{log.read_text()}")


def workers(driver: subprocess.Popen[bytes], title: str) -> list[psutil.Process]:
    """The Ray workers of a driver whose process title holds `title`."""
    found = []
    for process in psutil.Process(driver.pid).children(recursive=True):
        try:
            if title in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def end_processes(pids: set[int], mark: str) -> None:
    """End only what this cluster started: its command line or environment names its folder.

    And their children, whose titles hide both: an agent outlives its raylet and keeps its port.
    """
    ours: set[psutil.Process] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            process = psutil.Process(pid)
            if mark in " ".join(process.cmdline()) or process.environ().get("HOME") == mark:
                ours |= {process, *process.children(recursive=True)}
    for process in ours:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def refused(folder: Path, address: str) -> str:
    """What `decile run` says when it does not get the Ray cluster at `address`."""
    done = subprocess.run(
        command("run", str(experiments(folder)), "-e", NAME),
        cwd=folder,
        env=environment(RAY_ADDRESS=address),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def plan_of(file: Path) -> Plan:
    """The plan of a file's sweep."""
    return make_plan(load_config(file), NAME)


def store_of(file: Path) -> Store:
    """The store of a file's sweep."""
    return Store(str(file.parent / load_config(file).config.storage))


def groups(store: Store, cell_id: str) -> pa.Table:
    """The recorded groups of a finished cell."""
    table = store.read_table(GROUPS, "cells", cell_id, "groups.parquet")
    assert table is not None
    return table


def evaluations(store: Store, cell_id: str) -> pa.Table:
    """The recorded evaluations of a finished cell."""
    table = store.read_table(EVALUATIONS, "cells", cell_id, "evaluations.parquet")
    assert table is not None
    return table
