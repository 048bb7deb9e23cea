"""Real sweeps for tests: a small experiments.yaml on the embedded model, and the command itself."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import psutil
import pyarrow as pa
import yaml
from filelock import FileLock
from processes import LIMIT, wait_until

from benchmarks.local_cluster import environment
from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.storage.schema import EVALUATIONS, GROUPS
from orchestrator.storage.store import Store

NAME = "small"
# One sampler and one trial at a time: each process imports torch and TRL, which takes longer than
# the training of most sweeps here.
ONE_CPU = {"RAY_OVERRIDE_RESOURCES": '{"CPU": 1}'}
shared_folder = Path()  # set in conftest.py


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
    if storage is None and not (folder / "runs" / "mlflow.db").exists():
        (folder / "runs").mkdir(exist_ok=True)
        shutil.copyfile(empty_database(), folder / "runs" / "mlflow.db")
    return file


def empty_database() -> Path:
    """An MLflow database without runs, which is made once for all processes of the tests."""
    from mlflow import MlflowClient

    file = shared_folder / "mlflow.db"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            part = file.with_suffix(".part")
            MlflowClient(f"sqlite:///{part}").search_experiments()
            part.rename(file)
    return file


def probed(finished: Path, folder: Path, **changes: object) -> Path:
    """As `experiments`, with the probes and subsets of the finished sweep stored already."""
    for name in ("probes", "subsets"):
        shutil.copytree(finished.parent / "runs" / name, folder / "runs" / name)
    return experiments(folder, **changes)


def command(*arguments: str) -> list[str]:
    """`decile …` in this interpreter."""
    return [sys.executable, "-m", "orchestrator", *arguments]


def decile(
    *arguments: str, folder: Path, parallel: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `decile …` in `folder` to its end; `variables` are added to its environment."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**{} if parallel else ONE_CPU, **variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def decile_here(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As `decile`, in this process, hence on the Ray of the fixture `local_ray`."""
    from orchestrator.cli.main import main

    out, error = StringIO(), StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(error):
        code = main(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())


def run(
    file: Path,
    *arguments: str,
    expect: int = 0,
    here: bool = False,
    parallel: bool = False,
    **variables: str,
) -> str:
    """Run the sweep of a file to its end, `here` in this process; returns all that it printed."""
    arguments = ("run", str(file), "-e", NAME, *arguments)
    if here:
        process = decile_here(*arguments, folder=file.parent)
    else:
        process = decile(*arguments, folder=file.parent, parallel=parallel, **variables)
    text = process.stdout + process.stderr
    assert process.returncode == expect, text
    return text


def start(
    file: Path,
    log: Path,
    *arguments: str,
    verb: str = "run",
    parallel: bool = False,
    **variables: str,
) -> subprocess.Popen[bytes]:
    """Start the sweep of a file in the background; its output goes to `log`."""
    with log.open("wb") as out:
        return subprocess.Popen(
            command(verb, str(file), "-e", NAME, *arguments),
            cwd=file.parent,
            env=environment(**{} if parallel else ONE_CPU, **variables),
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def wait_for(condition: Callable[[], object], driver: subprocess.Popen[bytes], log: Path) -> object:
    """Poll until `condition` returns a true value; fails with the log when the driver ends."""
    try:
        return wait_until(condition, running=lambda: driver.poll() is None)
    except AssertionError as error:
        raise AssertionError(f"{error}:\n{log.read_text()}") from None


def workers(pid: int, title: str) -> list[psutil.Process]:
    """The Ray workers below a process (a driver or a raylet) whose title contains `title`."""
    matching = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if title in " ".join(process.cmdline()):
                matching.append(process)
    return matching


def refused(folder: Path, address: str) -> str:
    """The error of `decile run` when it cannot use the Ray cluster at `address`."""
    text = run(experiments(folder), expect=2, RAY_ADDRESS=address)
    assert "Traceback" not in text
    return text


def same_results(file: Path, reference: Path) -> bool:
    """Whether the cells of a sweep recorded the same tables as those of that name in another."""
    others = {cell.name: cell for cell in plan_of(reference).cells}
    return all(
        table(store_of(file), cell.cell_id) == table(store_of(reference), others[cell.name].cell_id)
        for cell in plan_of(file).cells
        for table in (groups, evaluations)
    )


def plan_of(file: Path) -> Plan:
    """The plan of a file's sweep."""
    return make_plan(load_config(file), NAME)


def store_of(file: Path) -> Store:
    """The store of a file's sweep."""
    return Store(load_config(file).config.storage)


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
