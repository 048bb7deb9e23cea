"""Which errors of a cell are retried."""

import os
import pickle
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import killed_cells
import psutil
import pyarrow as pa
import pytest
from factories import small_plan
from sweeps import experiments, plan_of, store_of

from cluster.ray_internals import worker_failures
from cluster.session import RayFails
from orchestrator.planning.cells import Cell
from orchestrator.probing.samples import MarkingError
from orchestrator.storage.store import Store, StoreError
from orchestrator.training.micro_batch import SmallerBatch, shrink
from orchestrator.training.trial import Report
from orchestrator.training.tune_runner import (
    SameAgain,
    Train,
    deterministic_errors,
    is_deterministic,
    run_cells,
)


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def raised_after(error: Exception, earlier: Exception) -> Exception:
    error.__context__ = earlier
    return error


@pytest.mark.parametrize(
    ("error", "same_again"),
    [
        (ValueError("Unknown loss type"), True),
        (TypeError("unexpected keyword"), True),
        (KeyError("setting"), True),
        (AttributeError("no such method"), True),
        (FloatingPointError("NaN logits"), True),
        (NotImplementedError("not for this model"), True),
        (SmallerBatch("16: 8 from here on"), False),
        (pa.ArrowKeyError("torn file"), False),
        (RuntimeError("CUDA error"), False),
        (MemoryError(), False),
        (OSError("connection reset"), False),
        (StoreError("storage cannot be reached"), False),
        (raised_after(ValueError("no model"), pa.ArrowInvalid("torn file")), False),
        (caused_by(ValueError("model cannot be loaded"), OSError("no network")), False),
        (caused_by(ValueError("a"), caused_by(TypeError("b"), KeyError("c"))), True),
    ],
)
def test_a_wrong_value_is_the_same_every_time(error: Exception, same_again: bool) -> None:
    assert is_deterministic(error) == same_again


class Cells:
    """A source of some cells that keeps which attempts were repeated, and how the trials ended."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = [*cells]
        self.retries, self.ends = list[str](), list[str | None]()

    def next(self) -> Cell | None:
        return self.cells.pop(0) if self.cells else None

    def updated(self, cell: Cell, report: dict[str, Any]) -> None:
        """Nothing to keep."""

    def retried(self, cell: Cell, error: str) -> None:
        self.retries.append(error.splitlines()[-1])

    def ended(self, cell: Cell, error: str | None) -> None:
        self.ends.append(error and error.splitlines()[-1])


def refusing(log: str) -> Train:
    """Fails as TRL does for a wrong setting. A closure, so that workers need not import this."""

    def train(cell: Cell, storage: str, report: Report) -> None:
        with Path(log).open("a") as file:
            file.write(f"started in {Path.cwd()}\n")
        raise ValueError("Unknown loss type:\n drgrpo")

    return train


def test_a_deterministic_error_ends_a_cell_at_once_and_in_one_line(
    local_ray: Path, tmp_path: Path
) -> None:
    plan, log = small_plan(tmp_path), tmp_path / "log.txt"
    source = Cells(plan.cells[:1])
    run_cells(source, plan.cells[:1], 1, Store(str(tmp_path / "runs")), refusing(str(log)))
    assert source.ends == ["ValueError: Unknown loss type: drgrpo"]
    assert log.read_text() == f"started in {local_ray}\n", "where Ray has started"


def failing(log: str, sizes: Sequence[int]) -> Train:
    """Runs out of memory with each micro-batch, then fails for a reason that may pass."""

    def train(cell: Cell, storage: str, report: Report) -> None:
        with Path(log).open("a") as file:
            file.write("started\n")
        attempt = len(Path(log).read_text().splitlines())
        if attempt <= len(sizes):
            raise shrink(cell, Store(storage), sizes[attempt - 1])
        raise OSError("connection reset")

    return train


def test_four_attempts_besides_those_with_a_smaller_micro_batch(
    local_ray: Path, tmp_path: Path
) -> None:
    plan, log = small_plan(tmp_path), tmp_path / "log.txt"
    source = Cells(plan.cells[:1])
    store = Store(str(tmp_path / "runs"))
    run_cells(source, plan.cells[:1], 1, store, failing(str(log), [8, 4]))
    assert len(log.read_text().splitlines()) == 2 + 4
    assert [text.rpartition(" of ")[2] for text in source.retries[:2]] == [
        "8: 4 from here on",
        "4: 2 from here on",
    ]
    assert source.retries[2:] == ["OSError: connection reset"] * 3
    assert source.ends == ["OSError: connection reset"]


def test_cells_that_tune_leaves_out_are_an_error(local_ray: Path, tmp_path: Path) -> None:
    plan, driver = small_plan(tmp_path), os.getpid()

    def train(cell: Cell, storage: str, report: Report) -> None:
        os.kill(driver, signal.SIGUSR1)  # which Tune handles
        time.sleep(600)

    source = Cells(plan.cells[:2])
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(RayFails, match="2 of 2 cells; rerun"):
        run_cells(source, plan.cells[:2], 1, Store(str(tmp_path / "runs")), train)
    signal.signal(signal.SIGUSR1, before)
    assert source.ends == []


def test_what_a_worker_of_a_group_raised_is_read_from_the_groups_error() -> None:
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

    def failure(error: BaseException) -> BaseException:
        with pytest.raises((SameAgain, OSError, SmallerBatch)) as caught, deterministic_errors():
            raise error
        return pickle.loads(pickle.dumps(UserExceptionWithTraceback(caught.value, "its traceback")))

    failures = {
        0: failure(KeyError("beta")),
        1: failure(OSError("reset")),
        2: failure(MarkingError("3 of 3")),
        3: failure(SmallerBatch("8 from here on")),
    }
    group: Any = pickle.loads(pickle.dumps(WorkerGroupError("both failed", failures)))  # type: ignore[arg-type]
    assert [f"{type(e).__name__}: {e}" for e in worker_failures(group).values()] == [
        "SameAgain: KeyError: 'beta'",
        "OSError: reset",
        "SameAgain: MarkingError: 3 of 3",
        "SmallerBatch: 8 from here on",
    ]


def test_a_deterministic_error_ends_a_group_of_workers_at_once(
    local_ray: Path, tmp_path: Path
) -> None:
    plan = small_plan(tmp_path, resources={"workers": 2, "cpus": 0.5})
    cell = plan.cells[0]
    dataset = replace(cell.probe.dataset, options={"train": -5})
    probe = cell.probe.model_copy(update={"dataset": dataset})
    source = Cells([cell.model_copy(update={"probe": probe})])
    run_cells(source, [cell], 1, Store(str(tmp_path / "runs")))
    assert source.ends == ["TaskError: invalid train -5: write an integer ≥ 0"]


SLEEPY = """
import time
from pathlib import Path
import torch.distributed as dist
from tasks.shuffled_objects import ShuffledObjects


class Sleepy(ShuffledObjects):
    \"\"\"Questions that worker 1 does not render: once, it sleeps instead.\"\"\"

    def messages_of(self, question, info=None):
        if dist.is_initialized() and dist.get_rank() == 1:
            try:
                Path({flag!r}).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                time.sleep(100_000)
        return super().messages_of(question, info)
"""


def test_a_worker_that_sleeps_is_named_and_ended_and_its_cell_is_retried(
    local_ray: Path, tmp_path: Path
) -> None:
    """In the first rollouts, while worker 0 waits in a collective of gloo."""
    flag = tmp_path / "asleep"
    (local_ray / "sleepy_task.py").write_text(SLEEPY.format(flag=str(flag)))
    resources = {"workers": 2, "cpus": 0.5, "timeout": 20}
    grpo = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 4}
    grpo |= {"max_completion_length": 8, "save_steps": 1}
    evaluate = {"every": 2, "samples": 1, "max_completion_length": 8}
    file = experiments(tmp_path, resources=resources, grpo=grpo, evaluate=evaluate)
    file.write_text(file.read_text().replace("task: shuffled_objects", "task: sleepy_task:Sleepy"))
    cell = plan_of(file).cells[0]
    killed_cells.prepare(cell.model_dump_json(), str(tmp_path / "runs"))
    source = Cells([cell])
    run_cells(source, [cell], 1, store_of(file))
    assert flag.exists()
    assert source.ends == [None], "the retry finishes the cell"
    [line] = [line for line in source.retries if "Hang: " in line]
    assert re.search(
        r"worker 0 \(node \S+, process \d+\) waited 20 s for worker 1 \(node \S+, process (\d+)\) "
        r"at \S+/sleepy_task.py:\d+ in messages_of: ",
        line,
    )
    process = int(re.findall(r"process (\d+)", line)[1])
    assert not psutil.pid_exists(process), "the sleeping worker is ended"
