"""Which errors of a cell are retried."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from factories import small_plan

from cluster.session import ray_session
from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store, StoreError
from orchestrator.training.trial import Report
from orchestrator.training.tune_runner import Train, is_deterministic, run_cells


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
            file.write("started\n")
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
    assert log.read_text() == "started\n"
