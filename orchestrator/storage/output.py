"""Checks on a file that a command is to write, before it does any work."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.storage.errors import UserError, shortened

MAX_NAME_BYTES = 200  # file systems allow 255, and files are written under longer temporary names


def check_output(file: Path, suffixes: Sequence[str] = ("",)) -> None:
    """Raise UserError unless a regular file with one of these suffixes can be written there.

    Folders that do not exist yet are created when the file is written.
    """
    shown = shortened(str(file))[1:-1] if len(str(file)) > MAX_NAME_BYTES else str(file)
    if not file.name.endswith(tuple(suffixes)):
        raise UserError(f"output {shown}: unknown file type: write a {' or '.join(suffixes)} file")
    reason = _problem(file)
    if reason:
        raise UserError(f"output {shown} {reason}: write the name of a new file")


def _problem(file: Path) -> str | None:
    """Why the file cannot be written; None if it can."""
    if any("\0" in part or len(os.fsencode(part)) > MAX_NAME_BYTES for part in file.parts):
        return f"has a name that is not valid or longer than {MAX_NAME_BYTES} bytes"
    try:
        if file.is_dir() or not file.name:
            return "is a folder"
        if file.exists() and not file.is_file():
            return "is not a regular file"
        folder = next(parent for parent in file.absolute().parents if parent.exists())
    except OSError as error:
        return f"cannot be written ({error.strerror})"
    if not folder.is_dir():
        return f"cannot be written ({folder} is not a folder)"
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"cannot be written ({folder}: {error.strerror})"
    return None
