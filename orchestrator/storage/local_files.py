"""Files of this machine: whether one can be written, and writing it."""

import os
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from orchestrator.storage.errors import UserError, naming, shortened


def replace_file(target: Path, data: bytes | pa.Buffer) -> None:
    """Write a local file atomically; its folder is created if needed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with naming(target), temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


MAX_NAME_BYTES = 200  # file systems allow 255, and files are written under longer temporary names


def check_output(
    file: str | Path, suffixes: Sequence[str] = ("",), inputs: Iterable[str | Path] = ()
) -> None:
    """Raise UserError unless a regular file with one of these suffixes can be written there.

    It must not be one of the `inputs`. Missing folders are created when the file is written.
    """
    file = Path(file)
    shown = shortened(str(file))[1:-1] if len(str(file)) > MAX_NAME_BYTES else str(file)
    reason = _problem(file)
    if reason:
        raise UserError(f"output {shown} {reason}: write the name of a new file")
    if not file.name.endswith(tuple(suffixes)):
        raise UserError(f"output {shown}: unknown file type: write a {' or '.join(suffixes)} file")
    real = os.path.realpath(file)
    if any("\0" not in str(each) and os.path.realpath(each) == real for each in inputs):
        raise UserError(f"output {shown} is read by this command: write the name of another file")


def check_new(file: str | Path, option: str) -> None:
    """Raise UserError for a file that exists; `option` is the one that names it."""
    if os.path.islink(file) or os.path.isfile(file):
        raise UserError(
            f"output {file} exists: write {option} with another name, or --force to replace it",
            "output-exists",
        )


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
