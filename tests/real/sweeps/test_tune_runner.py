"""Which errors of a cell are retried, and when the next cell starts."""

from collections.abc import Sequence
from pathlib import Path

from factories import small_plan
from tune_runner_cases import Cells

from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.training.trial import Report
from orchestrator.training.tune_runner import (
    Train,
    run_cells,
)


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


def instant() -> Train:
    def train(cell: Cell, storage: str, report: Report) -> None:
        report({"update": 1, "metrics": {}, "groups": {}, "explanation": ""})

    return train


class OneByOne(Cells):
    """Waits while a cell runs, and keeps what happened."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        super().__init__(cells)
        self.events: list[str] = []

    def waits(self) -> bool:
        return self.events.count("start") > len(self.ends)

    def next(self) -> Cell | None:
        cell = super().next()
        if cell is not None:
            self.events.append("start")
        return cell

    def ended(self, cell: Cell, error: str | None) -> None:
        super().ended(cell, error)
        self.events.append("end")


def test_a_source_that_waits_is_asked_again_later(local_ray: Path, tmp_path: Path) -> None:
    """Though two cells may run at once."""
    plan = small_plan(tmp_path)
    source = OneByOne(plan.cells)
    run_cells(source, plan.cells, 2, Store(str(tmp_path / "runs")), instant())
    assert source.ends == [None, None]
    assert source.events == ["start", "end", "start", "end"]
