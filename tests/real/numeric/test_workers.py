"""Several workers of one cell start from the checkpoint that rank 0 reads from the store."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from factories import cell_record, small_plan
from processes import wait_until
from two_workers import two_workers

from orchestrator.planning.cells import Cell
from orchestrator.storage.locks import exclusive
from orchestrator.storage.store import Store
from orchestrator.training import trial
from orchestrator.training.record import finish
from orchestrator.training.trial import Trial, run_cell


def two_worker_cell(folder: Path) -> tuple[Store, Cell]:
    """A cell of two workers with complete checkpoints of updates 2 and 3."""
    plan = small_plan(folder, policies=["hard"], resources={"workers": 2})
    store, [cell] = Store(str(folder / "runs")), plan.cells
    record = cell_record(plan, cell)
    for update in (2, 3):
        record.save(store, cell.cell_id, update)
    return store, cell


def stale(method: Any, hidden: str) -> Any:
    """A method of the store that does not see one name yet."""

    def read(self: Store, *parts: str) -> Any:
        value = method(self, *parts)
        if isinstance(value, list):
            return [name for name in value if name != hidden]
        return value and parts[-1] != hidden

    return read


def unreadable(self: Store, *parts: str) -> bool:
    raise OSError("the store is down")


def worker(rank: int, folder: Path, cell_json: str, hidden: str) -> None:
    """Run the cell as one of two workers; the training is replaced by a record of its start."""
    if rank == 1:
        for name in ("folders", "exists"):
            setattr(Store, name, stale(getattr(Store, name), hidden))
    if rank == 0 and hidden == "everything":
        Store.exists = unreadable  # type: ignore[method-assign]

    def train(trial: Trial) -> None:
        dist.barrier()
        rows = len(trial.record.groups.rows)
        start = [trial.checkpoint, trial.grpo["per_device_train_batch_size"], rows]
        (folder / f"start-{rank}.json").write_text(json.dumps(start))

    Trial.run = train  # type: ignore[method-assign]

    def report(values: dict[str, Any]) -> None:
        (folder / f"report-{rank}").write_text(values["explanation"])

    trial.BUSY_SECONDS = 0.1
    try:
        run_cell(Cell.model_validate_json(cell_json), f"{folder}/runs", report)
    except (OSError, RuntimeError) as error:
        (folder / f"error-{rank}").write_text(str(error))


def starts(folder: Path, cell: Cell, hidden: str) -> list[Any]:
    """Where each worker starts that trains, while rank 1 does not see `hidden`."""
    two_workers(worker, folder, cell.model_dump_json(), hidden)
    return [json.loads(file.read_text()) for file in sorted(folder.glob("start-*.json"))]


@pytest.mark.parametrize("hidden", ["checkpoint-3", "micro_batch.json"])
def test_all_workers_start_from_the_checkpoint_of_rank_0(tmp_path: Path, hidden: str) -> None:
    store, cell = two_worker_cell(tmp_path)
    store.write_json({"micro_batch": 4}, "cells", cell.cell_id, "micro_batch.json")
    first, second = starts(tmp_path, cell, hidden)
    assert first == second
    assert first[0] == 3 and first[1] == 4 and first[2] > 0


def test_no_worker_trains_a_cell_that_rank_0_finds_finished(tmp_path: Path) -> None:
    store, cell = two_worker_cell(tmp_path)
    plan = small_plan(tmp_path, policies=["hard"], resources={"workers": 2})
    finish(store, cell, cell_record(plan, cell), {})
    assert starts(tmp_path, cell, "result.json") == []
    assert not list(tmp_path.glob("error-*"))


def test_an_error_in_rank_0_ends_the_other_workers(tmp_path: Path) -> None:
    _, cell = two_worker_cell(tmp_path)
    assert starts(tmp_path, cell, "everything") == []
    errors = [(tmp_path / f"error-{rank}").read_text() for rank in (0, 1)]
    assert errors == ["the store is down", "worker 0 failed: OSError: the store is down"]


def test_workers_wait_in_steps_for_another_process_that_trains_the_cell(tmp_path: Path) -> None:
    """Each wait of worker 1 for worker 0 is short: a limit does not end them."""
    store, cell = two_worker_cell(tmp_path)
    release = threading.Event()

    def other_process() -> None:
        with exclusive(Path(store.path("cells", cell.cell_id))):
            release.wait()

    holder = threading.Thread(target=other_process)
    holder.start()

    def reported() -> bool:
        return len([*tmp_path.glob("report-*")]) == 2

    releaser = threading.Thread(target=lambda: (wait_until(reported), release.set()))
    releaser.start()
    try:
        first, second = starts(tmp_path, cell, "nothing")
    finally:
        release.set()
        holder.join()
        releaser.join()
    assert first == second and first[0] == 3
    texts = {(tmp_path / f"report-{rank}").read_text() for rank in (0, 1)}
    assert len(texts) == 1 and "waiting for process" in texts.pop()
