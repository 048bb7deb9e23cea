"""What the tests of tune runner share."""

from collections.abc import Sequence
from typing import Any

from orchestrator.planning.cells import Cell


class Cells:
    """A source of some cells that keeps which attempts were repeated, and how the trials ended."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = [*cells]
        self.retries, self.ends = list[str](), list[str | None]()

    def waits(self) -> bool:
        return False

    def next(self) -> Cell | None:
        return self.cells.pop(0) if self.cells else None

    def updated(self, cell: Cell, report: dict[str, Any]) -> None:
        """Nothing to keep."""

    def retried(self, cell: Cell, error: str) -> None:
        self.retries.append(error.splitlines()[-1])

    def ended(self, cell: Cell, error: str | None) -> None:
        self.ends.append(error and error.splitlines()[-1])
