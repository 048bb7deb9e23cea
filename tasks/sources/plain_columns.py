"""Reads files of plain questions and answers by columns, without a Python object per row.

A file is plain if each column that is read has text or whole numbers in every row. Any other file,
and any file with an error, is left to `files.read_file`, which reads it row by row and reports the
place of the error.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from tasks.errors import TaskError
from tasks.prompt_table import ROWS, PromptTable, hashed_prompts
from tasks.prompts import Prompt
from tasks.sources.answer_kinds import STRUCTURES
from tasks.sources.chat_templates import MARKS
from tasks.sources.media import LINKS, TAGS
from tasks.sources.texts import CHAT_TEXT, FORMS, PLACEHOLDERS
from tasks.sources.user_files import free_memory, open_file, regular, too_large

BLOCK = 8 * 2**20  # bytes of a JSON file that are parsed at once

# Texts that are their own gold answer; the patterns of `numbers` accept more.
_GOLDS = {
    "number": r"^[-+]?[0-9]+(\.[0-9]+)?$",
    "expression": r"(?s)^[!-~]$|^[!-~].*[!-~]$",
    "text": r"(?s)^[!-~]$|^[!-~].*[!-~]$",
}
# Texts that contain a gold answer, or may not be an answer.
_PLACEHOLDER = "|".join(map(re.escape, PLACEHOLDERS))
_SOLUTION = rf"####|\\boxed|{FORMS}|{STRUCTURES}|^[\[(<{{]? *(?i:{_PLACEHOLDER}) *[\])>}}]?$"
_INSTRUCTION = r"(?i)boxed|####|remember to put your answer"  # a question may end with one
_MISSING = r"^\s*(?i:nan|null|none|n/a)\s*$"  # a missing question
_READABLE = "[A-Za-z0-9]"


class NotPlain(Exception):
    """A file that must be read row by row."""


class PlainFile:
    """The columns of a JSON lines or Parquet file, and its origin (`NAME sha256:…`).

    kept: columns that are also read and may be null; in a Parquet file they may have any type.
    """

    def __init__(self, path: str, columns: Sequence[str], kept: Sequence[str] = ()) -> None:
        """Raises NotPlain."""
        self.path, self.columns = Path(path), list(dict.fromkeys(columns))
        self.kept = list(dict.fromkeys(kept))
        if not self.path.name.endswith((".jsonl", ".parquet")):
            raise NotPlain
        self.parquet = self.path.name.endswith(".parquet")
        try:
            self.origin, self.lines = _digest(self.path)
        except (OSError, TaskError) as error:
            raise NotPlain from error

    def names(self) -> list[str]:
        """The columns of the file; for JSON lines, those of the first row. Raises NotPlain."""
        try:
            if self.parquet:
                return list(pq.read_schema(regular(self.path)).names)
            with open_file(self.path) as stream:
                first = json.loads(stream.readline(BLOCK).decode())
        except (pa.ArrowException, OSError, ValueError, RecursionError, TaskError) as error:
            raise NotPlain from error
        return [*first] if isinstance(first, dict) else []

    def place(self, row: int) -> str:
        """The place of a row, counted from 0, for messages."""
        return f"{self._place}{row + 1}"

    def places(self, first: int, count: int) -> pa.Array:
        """The places of `count` rows from the row `first` on."""
        numbers = pa.array(np.arange(first + 1, first + count + 1)).cast(pa.string())
        return pc.binary_join_element_wise(self._place, numbers, "")

    @property
    def _place(self) -> str:
        return f"{self.path} row " if self.parquet else f"{self.path}:"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The columns of the rows, in order. Raises NotPlain, possibly after some batches.

        Raises TaskError if they do not fit into memory.
        """
        rows, size, free = 0, 0, free_memory()
        try:
            for batch in self._parquet() if self.parquet else self._json():
                batch.validate(full=True)
                if any(batch.column(name).null_count for name in self.columns):
                    raise NotPlain
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if size * 2 > free:
                    raise too_large(self.path, free // 2, free)
                yield batch
        except TaskError:
            raise
        except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
            raise NotPlain from error
        if not rows or (rows != self.lines and not self.parquet):
            raise NotPlain

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        file = pq.ParquetFile(regular(self.path), memory_map=True)
        schema = file.schema_arrow
        for name in self.columns:
            if schema.names.count(name) != 1 or "." in name:
                raise NotPlain
            kind = schema.field(name).type
            if kind not in (pa.string(), pa.large_string()) and not pa.types.is_integer(kind):
                raise NotPlain
        if any(schema.names.count(name) != 1 for name in self.kept):
            raise NotPlain
        for batch in file.iter_batches(ROWS, columns=self._all):
            yield batch.select(self._all)

    def _json(self) -> Iterator[pa.RecordBatch]:
        with open_file(self.path) as stream:
            first = json.loads(stream.readline(BLOCK).decode())
        types = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64()}
        if not isinstance(first, dict) or any(type(first.get(n)) not in types for n in self._all):
            raise NotPlain
        if any(type(first[name]) not in (str, int) for name in self.columns):
            raise NotPlain
        schema = pa.schema({name: types[type(first[name])] for name in self._all})
        options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        with pj.open_json(regular(self.path), pj.ReadOptions(block_size=BLOCK), options) as reader:
            for batch in reader:
                yield batch.select(self._all)

    @property
    def _all(self) -> list[str]:
        return [*dict.fromkeys([*self.columns, *self.kept])]


class PlainPrompts(NamedTuple):
    """Rows as prompts; `others` are rows that are not plain and have no gold answer yet."""

    questions: pa.Array
    golds: pa.Array
    tiers: pa.Array
    others: npt.NDArray[np.int64]


def plain_prompts(
    batch: pa.RecordBatch, columns: Sequence[str], marker: str, *, bare: bool
) -> PlainPrompts:
    """Rows as prompts: question, answer and tier are the `columns`, or all have the tier "all".

    A row is plain if its question and its answer certainly remain unchanged. `bare`: instructions
    in a question also remain.
    """
    questions, answers, *tiers = (batch.column(name).cast(pa.string()) for name in columns)
    is_gold = pc.match_substring_regex(answers, _GOLDS[marker])
    is_gold = pc.and_not(is_gold, pc.match_substring_regex(answers, _SOLUTION))
    golds = pc.if_else(is_gold, answers, pa.scalar(None, pa.string()))
    plain = pc.and_(pc.match_substring_regex(questions, _READABLE), golds.is_valid())
    plain = pc.and_not(plain, pc.match_substring_regex(questions, f"^{CHAT_TEXT.pattern}"))
    for marks in (MARKS, TAGS, LINKS, _MISSING):  # noted or rejected
        plain = pc.and_not(plain, pc.match_substring_regex(questions, marks))
    if not bare:
        plain = pc.and_not(plain, pc.match_substring_regex(questions, _INSTRUCTION))
    tier = tiers[0] if tiers else pa.repeat("all", batch.num_rows)
    others = np.flatnonzero(~plain.to_numpy(zero_copy_only=False))
    return PlainPrompts(questions, golds, tier, others)


def replaced(
    rows: PlainPrompts,
    others: Sequence[Prompt | None],
    task: str,
    travelling: Mapping[str, pa.Array],
) -> PromptTable:
    """The rows as prompts of the task, with these prompts for the other rows; None drops a row.

    travelling: columns of prompts that do not depend on question and answer.
    """
    dropped = np.zeros(len(rows.questions), dtype=bool)
    dropped[rows.others] = [prompt is None for prompt in others]
    other = np.zeros(len(dropped), dtype=bool)
    other[rows.others] = True
    read = [prompt for prompt in others if prompt is not None]
    kept = pa.array(~dropped)
    mask = pa.array(other[~dropped])
    questions = pc.replace_with_mask(
        rows.questions.filter(kept), mask, pa.array([p.question for p in read], pa.string())
    )
    golds = pc.replace_with_mask(
        rows.golds.filter(kept), mask, pa.array([p.answer for p in read], pa.string())
    )
    further = {name: column.filter(kept) for name, column in travelling.items()}
    return PromptTable([hashed_prompts(task, questions, golds, rows.tiers.filter(kept), further)])


def _digest(file: Path) -> tuple[str, int]:
    """The origin of a file, and its number of lines; -1 unless each starts with an object.

    Arrow accepts two objects on one line. If each line has one, two would be a row too many.
    """
    digest, lines, objects, last = hashlib.sha256(), 0, 0, b"\n"
    with open_file(file) as stream:
        while block := stream.read(2**20):
            digest.update(block)
            lines += block.count(b"\n")
            objects += block.count(b"\n{") + (last == b"\n" and block[:1] == b"{")
            last = block[-1:]
    lines += last != b"\n"
    return f"{file.name} sha256:{digest.hexdigest()}", lines if lines == objects else -1
