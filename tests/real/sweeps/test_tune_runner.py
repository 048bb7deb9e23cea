"""Which errors of a cell are retried."""

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
