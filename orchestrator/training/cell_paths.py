"""The places of cells in a storage."""

from pathlib import Path

CELLS = "cells"  # in a store, the folder of all cells
RESULT = "result.json"  # written last of all; the manifest of the cell


def is_cell(folder: Path) -> bool:
    """Whether a local folder is where a storage has its cells."""
    return folder.resolve().parent.name == CELLS
