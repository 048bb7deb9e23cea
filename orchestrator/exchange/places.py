"""Where a file may be written, in the same words for imports and exports."""

from collections.abc import Sequence
from pathlib import Path

from tasks import TaskError


def write_place(out: Path, suffixes: Sequence[str]) -> None:
    """TaskError unless a file of one of these kinds can be written under that name."""
    if not out.name.endswith(tuple(suffixes)):
        kinds = " or ".join(suffixes)
        raise TaskError(f"output {out} is of another kind: write a {kinds} file")
    if out.is_dir() or any(folder.is_file() for folder in out.parents):
        raise TaskError(f"output {out} is no place for a file: write a new file's name")
