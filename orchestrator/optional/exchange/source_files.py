"""A file of another tool, read as rows."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.optional.exchange.inspect_logs import read_log
from orchestrator.optional.exchange.placed_rows import PlacedRow, Row, objects
from tasks import TaskError
from tasks.sources.files import parse_json, read_file
from tasks.sources.user_files import read_bytes, sha256_of

_IN_FOLDERS = ("results.json", "traces.jsonl", "results.jsonl")


@dataclass(frozen=True)
class SourceFile:
    """A source's rows, or the single object that rLLM writes, with the file.

    `layout` is set if the file's form alone decides it.
    """

    file: Path
    origin: str
    rows: Sequence[PlacedRow]
    rllm_run: Row | None = None
    layout: str | None = None

    @property
    def columns(self) -> list[str]:
        """Every column that any row has, in the order of the first occurrence."""
        return [*dict.fromkeys(name for _, row in self.rows for name in row)]

    @property
    def count(self) -> int:
        """The number of its rows; for rLLM's object, of its items."""
        if self.rllm_run is None:
            return len(self.rows)
        return len(objects(self.rllm_run.get("items")))


def read_source(source: Path) -> SourceFile:
    """Read a file, or the file in a run's folder. Raises TaskError if it cannot be read."""
    file = source
    if os.path.isdir(source):  # also False if the name is too long
        files = [source / name for name in _IN_FOLDERS if (source / name).is_file()]
        if not files:
            raise TaskError(f"{source} has no {', '.join(_IN_FOLDERS)}: write a file's path")
        file = files[0]
    if file.name.endswith((".json", ".eval")) and os.path.exists(file):
        origin = f"{file.name} sha256:{sha256_of(file)}"
        content = None if file.suffix == ".eval" else json_content(file)
        if isinstance(content, dict) and "items" in content:
            return SourceFile(file, origin, [], content, "rllm")
        if (samples := read_log(file, content)) is not None:
            if not samples:
                raise TaskError(f"{file} has no samples: write a log of a finished evaluation")
            return SourceFile(file, origin, samples, layout="inspect")
    read = read_file(file, [])
    if not read.rows:
        raise TaskError(f"{file} has no rows: write one row per prompt")
    line, row = f"{file}:", f"{file} "  # prefixes of places in JSON lines and in other files
    places = [p.replace(line, "line ", 1).removeprefix(row) for p in read.places]
    return SourceFile(file, read.origin, [*map(PlacedRow, places, read.rows)])


def json_content(file: Path) -> Any:
    """The content of a .json file; None if it has several values, such as JSON lines."""
    with suppress(TaskError):
        return parse_json(read_bytes(file), str(file))
    return None


def located(file: Path, error: TaskError) -> TaskError:
    """The error of a row as FILE:LINE, or with the file before it."""
    text = str(error)
    if text.startswith(f"{file.parent}/"):  # of a different file in the same folder
        return error
    number = text.removeprefix("line ")
    return TaskError(f"{file}: {text}" if number == text else f"{file}:{number}")
