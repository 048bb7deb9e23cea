"""Which errors of a cell are retried."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from factories import small_plan

from cluster.ray_internals import worker_failures
from cluster.session import ray_session
from orchestrator.planning.cells import Cell
from orchestrator.probing.samples import MarkingError
from orchestrator.storage.store import Store, StoreError
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


@pytest.mark.parametrize(
    ("error", "same_again"),
    [
        (ValueError("Unknown loss type"), True),
        (TypeError("unexpected keyword"), True),
        (KeyError("setting"), True),
        (RuntimeError("CUDA error"), False),
        (MemoryError(), False),
        (OSError("connection reset"), False),
        (StoreError("storage cannot be reached"), False),
        (pa.ArrowInvalid("torn file"), False),
        (caused_by(ValueError("model cannot be loaded"), OSError("no network")), False),
        (caused_by(ValueError("a"), caused_by(TypeError("b"), KeyError("c"))), True),
    ],
)
def test_a_wrong_value_is_the_same_every_time(error: Exception, same_again: bool) -> None:
    assert is_deterministic(error) == same_again


class OneCell:
    """A source of one cell that keeps how its trial ended."""

    def __init__(self, cell: Cell) -> None:
        self.cells, self.ends = [cell], list[str | None]()

    def next(self) -> Cell | None:
        return self.cells.pop() if self.cells else None

    def updated(self, cell: Cell, report: dict[str, Any]) -> None:
        """Nothing to keep."""

    def ended(self, cell: Cell, error: str | None) -> None:
        self.ends.append(error)


def refusing(log: str) -> Train:
    """Fails as TRL does for a wrong setting. A closure, so that workers need not import this."""

    def train(cell: Cell, storage: str, report: Report) -> None:
        with Path(log).open("a") as file:
            file.write(f"started in {Path.cwd()}\n")
        raise ValueError("Unknown loss type:\n drgrpo")

    return train


@pytest.mark.cluster
def test_a_deterministic_error_ends_a_cell_at_once_and_in_one_line(tmp_path: Path) -> None:
    plan, log = small_plan(tmp_path), tmp_path / "log.txt"
    source = OneCell(plan.cells[0])
    with ray_session():
        store = Store(str(tmp_path / "runs"))
        run_cells(source, plan.cells[:1], 1, store, refusing(str(log)))
    assert source.ends == ["ValueError: Unknown loss type: drgrpo"]
    assert log.read_text() == f"started in {Path.cwd()}\n", "relative paths of data sets hold there"


def test_what_a_worker_of_a_group_raised_is_read_from_the_groups_error() -> None:
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

    def failure(error: BaseException) -> BaseException:
        with pytest.raises((SameAgain, OSError, MarkingError)) as caught, deterministic_errors():
            raise error
        return pickle.loads(pickle.dumps(UserExceptionWithTraceback(caught.value, "its traceback")))

    failures = {
        0: failure(KeyError("beta")),
        1: failure(OSError("reset")),
        2: failure(MarkingError("3 of 3")),
    }
    group: Any = pickle.loads(pickle.dumps(WorkerGroupError("both failed", failures)))  # type: ignore[arg-type]
    assert [f"{type(e).__name__}: {e}" for e in worker_failures(group)] == [
        "SameAgain: KeyError: 'beta'",
        "OSError: reset",
        "SameAgain: MarkingError: 3 of 3",
    ]


@pytest.mark.cluster
def test_a_deterministic_error_ends_a_group_of_workers_at_once(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, resources={"workers": 2, "cpus": 0.5})
    cell = plan.cells[0]
    dataset = replace(cell.probe.dataset, options={"train": -5})
    probe = cell.probe.model_copy(update={"dataset": dataset})
    source = OneCell(cell.model_copy(update={"probe": probe}))
    with ray_session():
        run_cells(source, [cell], 1, Store(str(tmp_path / "runs")))
    assert source.ends == ["TaskError: invalid train -5: write an integer ≥ 0"]
