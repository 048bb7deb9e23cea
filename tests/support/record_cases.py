"""What the tests of record share."""

from pathlib import Path

from factories import cell_record, small_plan

from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder, Checkpoint
from orchestrator.training.record import CellRecord


def one_cell(folder: Path, **settings: object) -> tuple[Store, Cell, CellRecord]:
    """A store, the only cell of a small plan, and its record."""
    plan = small_plan(folder, policies=["hard"], **settings)
    [cell] = plan.cells
    return Store(str(folder / "runs")), cell, cell_record(plan, cell)


def latest(store: Store, cell: Cell) -> Checkpoint:
    checkpoint = CellFolder(store, cell.cell_id).latest()
    assert checkpoint is not None
    return checkpoint
