"""Which errors of a cell are retried."""

import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import killed_cells
import psutil
import pytest
from factories import small_plan
from sweeps import experiments, plan_of, store_of
from tune_runner_cases import Cells

from cluster.session import RayFails
from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.training.micro_batch import shrink
from orchestrator.training.trial import Report
from orchestrator.training.tune_runner import (
    Train,
    run_cells,
)


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
        r"worker 0 \(node \S+, process \d+\) timed out after 20 s waiting for "
        r"worker 1 \(node \S+, process (\d+)\), "
        r"which was at \S+/sleepy_task.py:\d+ in messages_of: ",
        line,
    )
    process = int(re.findall(r"process (\d+)", line)[1])
    assert not psutil.pid_exists(process), "the sleeping worker is ended"


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
