"""Reads the rows of tasks: from a local copy, or from the hub at a pinned revision."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.base import Marking, Prompt, Task, TaskError
from tasks.files import SUFFIXES, Row, Rows, check_columns, or_list, read_file

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Source:
    """Where the rows of one split come from.

    `advice` is the setting that reads a local copy. `stems` are the names, without suffix, that a
    local file may have. `configs` are read in order (None is the hub's default). `records` is the
    key of the list of rows if a JSON file is an object. `alone`: this is the only split, so a path
    may be the file itself.
    """

    hub: str
    revision: str | None
    split: str
    stems: tuple[str, ...]
    columns: tuple[str, ...]
    advice: str
    count: int | None = None
    configs: tuple[str | None, ...] = (None,)
    records: str | None = None
    alone: bool = False


def read_rows(
    source: Source, path: str | None, *, revision: str | None = None, partial: bool = False
) -> Rows:
    """The rows of one split, in the order of the files.

    `path` is a local folder (or a file, if the split is `alone`); without it, `revision` is read
    from the hub, by default the pinned one. Raises TaskError if a file, a column or the hub is
    missing, and if the number of rows is not the official one, unless `partial`.
    """
    if path is None:
        read = _from_hub(source, revision or source.revision)
    elif revision is not None:
        raise TaskError("revision is only read from the hub: leave it out, or leave path out")
    else:
        files = _files(source, Path(path))
        parts = [read_file(file, source.columns, source.records) for file in files]
        rows = [row for part in parts for row in part.rows]
        read = Rows(rows, "; ".join(part.origin for part in parts))
    return _check_count(source, read, partial)


def _files(source: Source, path: Path) -> list[Path]:
    """The local files of a split: by our names, or as in a clone of the hub's repository."""
    if path.is_file() and source.alone:
        return [path]
    if not path.is_dir():
        raise TaskError(f"{path} is not a folder: write {source.advice}")
    for stem in source.stems:
        for suffix in SUFFIXES:
            if (path / f"{stem}{suffix}").is_file():
                return [path / f"{stem}{suffix}"]
    shards = [
        sorted((path / (config or "data")).glob(f"{source.split}-*-of-*.parquet"))
        for config in source.configs
    ]
    if not all(shards):
        stems = or_list(source.stems)
        raise TaskError(f"{path} holds no {stems} as {or_list(SUFFIXES)}: write {source.advice}")
    return [file for files in shards for file in files]


def _from_hub(source: Source, revision: str | None) -> Rows:
    if revision is None or not _COMMIT.fullmatch(revision):
        raise TaskError(
            f"{source.hub} is read at a fixed commit only, which {revision!r} is not: "
            f"write revision: COMMIT (40 hex digits), or {source.advice}"
        )
    if Path(source.hub).exists():  # `datasets` would load it instead, whatever the revision
        raise TaskError(
            f"{source.hub} would load the local {Path(source.hub).resolve()} instead of the hub's "
            f"data: rename it or run from another folder, or write {source.advice} to use it"
        )
    origin = f"{source.hub}@{revision}"
    rows: list[Row] = []
    for config in source.configs:
        for index, row in enumerate(_load_config(source, config, revision), 1):
            check_columns(f"{origin} row {index}", row, source.columns)
            rows.append(dict(row))
    return Rows(rows, origin)


def _load_config(source: Source, config: str | None, revision: str) -> Iterable[Any]:
    from datasets import load_dataset

    try:
        rows: Iterable[Any] = load_dataset(
            source.hub, config, split=source.split, revision=revision
        )
    except Exception as error:  # the hub's client raises many types of errors
        part = f" ({config})" if config else ""
        raise TaskError(
            f"{source.hub}@{revision}{part} cannot be loaded: {error}. "
            f"To use a local copy: write {source.advice}"
        ) from error
    return rows


def _check_count(source: Source, read: Rows, partial: bool) -> Rows:
    rows = len(read.rows)
    if source.count is None or rows == source.count:
        return read
    name = re.sub(r" sha256:\w+", "", read.origin)
    note = f"{name} holds {rows:,} rows; the official number is {source.count:,}"
    if not partial:
        raise TaskError(f"{note}: write partial: true if that is intended")
    return read._replace(notes=(*read.notes, note))


class ReadTask(Task):
    """A task whose questions are read from files or the hub, once per instance and its copies.

    `notes` and `provenance` are complete once the questions have been read.
    """

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        path: str | None = None,
        revision: str | None = None,
        partial: bool = False,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt)
        self.path, self.revision, self.partial = path, revision, partial
        self._origins: dict[str, str] = {}

    @abstractmethod
    def read(self) -> tuple[list[Prompt], list[Prompt]]:
        """The training pool and the test questions, before shared questions are removed."""

    def train(self) -> list[Prompt]:
        """The training pool, in the order of the files."""
        return list(self._pools[0])

    def test(self) -> list[Prompt]:
        """The test questions, in the order of the files."""
        return list(self._pools[1])

    @property
    def provenance(self) -> dict[str, str]:
        """The source of each split: `hub@revision` or `file sha256:…`."""
        _ = self._pools
        return dict(self._origins)

    @cached_property
    def _pools(self) -> tuple[list[Prompt], list[Prompt]]:
        train, test = self.read()
        test = self._distinct(test, "test")
        return self._without_test(self._distinct(train, "train"), test), test

    def rows(self, split: str, source: Source) -> list[Row]:
        """The rows of a split; its origin and notes are recorded."""
        read = read_rows(source, self.path, revision=self.revision, partial=self.partial)
        return self.keep(split, read)

    def keep(self, split: str, read: Rows) -> list[Row]:
        """Record the origin and the notes of rows, and return the rows."""
        self._origins[split] = read.origin
        for note in read.notes:
            self.note(note)
        return read.rows

    def note(self, text: str) -> None:
        """Add a note on the data, once, however often it is read."""
        if text not in self.notes:
            self.notes.append(text)

    def _distinct(self, prompts: Sequence[Prompt], split: str) -> list[Prompt]:
        kept: dict[str, Prompt] = {}
        for prompt in prompts:
            kept.setdefault(prompt.prompt_id, prompt)
        if dropped := len(prompts) - len(kept):
            self.note(f"{split}: {dropped:,} repeated prompts dropped")
        return list(kept.values())

    def _without_test(self, train: list[Prompt], test: list[Prompt]) -> list[Prompt]:
        """Compares questions, not ids: another gold answer does not make another question."""
        questions = {prompt.question for prompt in test}
        kept = [prompt for prompt in train if prompt.question not in questions]
        if dropped := len(train) - len(kept):
            self.note(f"train: {dropped:,} prompts dropped that are in the test set")
        return kept
