"""Reads the rows of tasks: from a local copy, or from the hub at a pinned revision."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from tasks.base import Marking, Task
from tasks.errors import TaskError
from tasks.prompts import Prompt
from tasks.sources.files import SUFFIXES, Row, Rows, check_columns, or_list, read_file
from tasks.sources.hub import NotCached, Repository, cached_folder, downloaded_folder

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable

REPEATED = "repeated"  # reasons for omitted rows
IN_TEST = "in the test set"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Source:
    """Where the rows of one split come from.

    `advice` is the setting that reads a local copy. `stems` are the possible names of a local file,
    without suffix. `configs` are read in order (None is the hub's default). `records` is the key of
    the list of rows if a JSON file is an object. `alone`: this is the only split, so a path may be
    the file itself.
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

    def repository(self, revision: str | None = None) -> Repository:
        """The data set on the hub at a commit, by default the pinned one. TaskError without one."""
        commit = revision or self.revision
        if commit is None or not _COMMIT.fullmatch(commit):
            raise TaskError(
                f"{self.hub} is only read at a fixed commit, and {commit!r} is not a commit: "
                f"write revision: COMMIT (40 hex digits), or {self.advice}"
            )
        return Repository("dataset", self.hub, commit)


def read_rows(
    source: Source, path: str | None, *, revision: str | None = None, partial: bool = False
) -> Rows:
    """The rows of one split, in the order of the files.

    `path` is a local folder (or a file, if the split is `alone`); without it, `revision` is read
    from the hub, by default the pinned one. Raises TaskError if a file, a column or the hub is
    missing, and if the number of rows is not the official one, unless `partial`.
    """
    if path is None:
        read = _from_hub(source, source.repository(revision))
    elif revision is not None:
        raise TaskError("revision is only read from the hub: leave it out, or leave path out")
    else:
        files = _files(source, Path(path))
        parts = [read_file(file, source.columns, source.records) for file in files]
        rows = [row for part in parts for row in part.rows]
        read = Rows(rows, "; ".join(part.origin for part in parts))
    count = len(read.rows)
    if source.count is None or count == source.count:
        return read
    name = re.sub(r" sha256:\w+", "", read.origin)
    note = f"{name} has {counted(count, 'row')}; the official number is {source.count:,}"
    if not partial:
        raise TaskError(f"{note}: write partial: true if that is intended")
    return read._replace(notes=(*read.notes, note))


def _files(source: Source, path: Path) -> list[Path]:
    """The local files of a split: by Decile's names, or as in a clone of the hub's repository."""
    if source.alone and not path.is_dir() and path.exists():
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
        raise TaskError(f"{path} has no {stems} as {or_list(SUFFIXES)}: write {source.advice}")
    return [file for files in shards for file in files]


def _from_hub(source: Source, repository: Repository) -> Rows:
    """The rows of a split in the files of exactly this commit.

    `datasets` reads the local folder: given the hub's id without a network, it would take the
    latest cached rows, regardless of the commit.
    """
    try:
        folder = downloaded_folder(repository)
    except TaskError as error:
        raise type(error)(f"{error}; to use a local copy, write {source.advice}") from error
    from datasets import load_dataset

    rows: list[Row] = []
    for config in source.configs:
        try:
            with TemporaryDirectory(prefix="decile-") as scratch:  # HF_HOME may be read-only
                settings = {"split": source.split, "streaming": True, "cache_dir": scratch}
                loaded = list(load_dataset(str(folder), config, **settings))
        except Exception as error:  # the library raises many types of errors
            part = f" ({config})" if config else ""
            message = (
                f"{repository}{part} cannot be loaded: {error}; "
                f"to use a local copy, write {source.advice}"
            )
            incomplete = cached_folder(repository) is None
            raise (NotCached if incomplete else TaskError)(message) from error
        for index, row in enumerate(loaded, 1):
            check_columns(f"{repository} row {index}", row, source.columns)
            rows.append(dict(row))
    return Rows(rows, str(repository))


class ReadTask(Task):
    """A task whose questions are read from files or the hub, once per instance and its copies.

    `notes` and `provenance` are complete once the questions have been read. `sources` are the
    places from which a class reads.
    """

    sources: ClassVar[tuple[Source, ...]] = ()
    by_question: ClassVar[bool] = True
    """Whether a training prompt with a test prompt's question is left out; else only by id."""

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
        self._rows: dict[str, RowCounts] = {}
        self._left_out: dict[str, PromptTable] = {}

    @abstractmethod
    def read(self) -> tuple[Sequence[Prompt], Sequence[Prompt]]:
        """The training pool and the test questions, before shared questions are removed."""

    def train(self) -> list[Prompt]:
        return list(self.prompt_table("train"))

    def test(self) -> list[Prompt]:
        return list(self.prompt_table("test"))

    def prompt_table(self, split: Literal["train", "test"]) -> "PromptTable":
        """The prompts of a split, in the order of the files."""
        return self._pools[split == "test"]

    @property
    def left_out(self) -> "PromptTable":
        """The training prompts that `prompt_table` lacks because they are in the test set."""
        from tasks.prompt_table import PromptTable

        _ = self._pools
        return PromptTable(batch for table in self._left_out.values() for batch in table.batches)

    def row_counts(self, prompts: int) -> RowCounts:
        """The rows that were read, and why all except `prompts` of them were left out.

        Prompts that are generated count as rows.
        """
        _ = self._pools
        counts = RowCounts.sum(self._rows.values())
        rest = counts.used - prompts
        if rest < 0:
            return replace(counts, read=counts.read - rest)
        left_out = {**counts.left_out, "not selected by the task's options": rest}
        return replace(counts, left_out=left_out)

    @property
    def provenance(self) -> dict[str, str]:
        """The source of each split: `hub@revision` or `file sha256:…`."""
        _ = self._pools
        return dict(self._origins)

    @property
    def downloads(self) -> list[Repository]:
        """The data sets on the hub that are read without a `path`."""
        if self.path is not None:
            return []
        return list(dict.fromkeys(source.repository(self.revision) for source in self.sources))

    @cached_property
    def _pools(self) -> "tuple[PromptTable, PromptTable]":
        from tasks.prompt_table import PromptTable  # pyarrow: not in processes that only mark

        train, test = map(PromptTable.of, self.read())
        distinct, tested = train.distinct(), test.distinct()
        repeated = len(test) - len(tested), len(train) - len(distinct)
        for split, count in zip(("test", "train"), repeated, strict=True):
            self._note_repeats(count, split)
        for split, table in (("train", distinct), ("test", tested)):
            if note := self.unread_golds(table.column("answer").to_pylist()):
                self.note(f"{split}: {note}")
        # Questions, not ids: a different gold answer does not make a different question.
        if self.by_question:
            shared = distinct.shares_question(tested)
        else:
            shared = tested.rows_of(distinct.column("prompt_id")) >= 0
        left_out = {REPEATED: sum(repeated), IN_TEST: int(shared.sum())}
        self._rows[""] = RowCounts(0, left_out)
        if not shared.any():
            return distinct, tested
        self._left_out[""] = distinct.filter(shared)
        self.dropped_prompts = len(self._left_out[""])
        dropped = counted(self.dropped_prompts, "prompt")
        self.note(f"train: {dropped} dropped, because the test set has the same")
        return distinct.filter(~shared), tested

    def rows(self, split: str, source: Source) -> list[Row]:
        """The rows of a split; its origin and notes are recorded."""
        read = read_rows(source, self.path, revision=self.revision, partial=self.partial)
        return self.keep(split, read)

    def keep(self, split: str, read: Rows) -> list[Row]:
        """Record the origin and the notes of rows, and return the rows."""
        self._origins[split] = read.origin
        self._rows[split] = RowCounts(len(read.rows))
        for note in read.notes:
            self.note(note)
        return read.rows

    def note(self, text: str) -> None:
        """Add a note on the data, once, however often it is read."""
        if text not in self.notes:
            self.notes.append(text)

    def _note_repeats(self, dropped: int, split: str) -> None:
        if dropped:
            self.note(f"{split}: {counted(dropped, 'repeated prompt')} dropped")
