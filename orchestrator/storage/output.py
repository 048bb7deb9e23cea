"""Checks on a file that a command is to write, before it does any work."""

from collections.abc import Sequence
from pathlib import Path

from orchestrator.storage.errors import UserError


def check_output(file: Path, suffixes: Sequence[str]) -> None:
    """Raise UserError unless a file with one of these suffixes can be written there."""
    if not file.name.endswith(tuple(suffixes)):
        raise UserError(f"output {file}: unknown file type: write a {' or '.join(suffixes)} file")
    if file.is_dir() or any(folder.is_file() for folder in file.parents):
        raise UserError(f"output {file} is not a writable file path: write the name of a new file")
