"""Runs cells of code in a Jupyter kernel, as a notebook does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from processes import LIMIT

Output = dict[str, Any]


def run_cells(cells: Sequence[str], folder: Path) -> list[list[Output]]:
    """The outputs of each cell; an error ends none of them. `folder`: the kernel's."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        allow_errors=True,
        timeout=LIMIT,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return [cell.outputs for cell in notebook.cells]


def code_cells(file: Path) -> list[str]:
    """The code of a notebook file."""
    cells = nbformat.read(file, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]
