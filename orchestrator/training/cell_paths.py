"""Where a storage holds its cells."""

from pathlib import Path

CELLS = "cells"  # in a store, the folder of all cells
RESULT = "result.json"  # written last of all; the manifest of the cell


def is_cell(folder: Path) -> bool:
    """Whether a local folder lies where the cells of a storage do."""
    return folder.resolve().parent.name == CELLS
