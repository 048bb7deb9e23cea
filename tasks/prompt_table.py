"""The prompts of a pool as Arrow columns. A `Prompt` object is created only when it is read.

Record batches of a large pool are memory-mapped temporary files: the kernel keeps as much of them
in memory as there is room for.
"""

import hashlib
import logging
import mmap
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Self, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.base import Task
from tasks.errors import TaskError
from tasks.prompts import Prompt

LEAST = 128 * 2**20  # bytes of a file; smaller pools stay in memory

log = logging.getLogger(__name__)


def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; those of a large pool are read from temporary files.

    The files are unnamed and disappear with the process, however it ends. If they cannot be
    written, the batches stay in memory.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= LEAST:
            yield from _written(waiting)
            waiting, size = [], 0
    yield from waiting


def _written(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    try:
        with tempfile.TemporaryFile() as file:
            with pa.ipc.new_file(pa.PythonFile(file, "w"), batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        folder = tempfile.gettempdir()
        log.warning("%s: a large pool stays in memory (%s); set TMPDIR", folder, error)
        return batches
    reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(content)))
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SCHEMA = pa.schema({name: pa.string() for name in Prompt.__slots__})
ROWS = 65_536  # of a batch
_READ = 4_096  # prompts that are made at once when all are read
_ID = 16  # hex digits of an id that `make_prompt` made


class PromptTable(Sequence[Prompt]):
    """A sequence of prompts with distinct ids, in Arrow record batches of the schema SCHEMA.

    A slice shares the columns without a copy; all rows as objects would take twenty times the
    memory of their text. Large results of reading, taking and filtering are mapped from a file.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch] = ()) -> None:
        self.batches = [batch for batch in batches if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self.batches)])

    @classmethod
    def of(cls, prompts: Iterable[Prompt]) -> Self:
        """The same prompts as a table. Raises TaskError for a text that is not Unicode."""
        if isinstance(prompts, cls):
            return prompts
        remaining = iter(prompts)
        return cls(mapped(map(_batch, iter(lambda: list(islice(remaining, ROWS)), []))))

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Prompt | Self:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            parts = zip(self.batches, self._starts[:-1].tolist(), strict=True)
            return type(self)(
                batch.slice(max(0, start - first), max(0, stop - max(start, first)))
                for batch, first in parts
                if first < stop and first + batch.num_rows > start
            )
        row = range(len(self))[index]
        chunk = int(np.searchsorted(self._starts, row, "right")) - 1
        batch = self.batches[chunk]
        row = row - int(self._starts[chunk])
        return Prompt(*(column[row].as_py() for column in batch.columns))

    def __iter__(self) -> Iterator[Prompt]:
        for batch in self.batches:
            for start in range(0, batch.num_rows, _READ):
                columns = batch.slice(start, _READ).columns
                yield from map(Prompt, *(column.to_pylist() for column in columns))

    def __eq__(self, other: object) -> bool:
        """Whether a sequence has the same prompts in the same order."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows."""
        index = SCHEMA.get_field_index(name)
        return pa.chunked_array([batch.column(index) for batch in self.batches], pa.string())

    def take(self, rows: Ints) -> Self:
        """The prompts of these rows, in their order."""
        rows = np.asarray(rows, dtype=np.int64)
        parts = (rows[i : i + ROWS] for i in range(0, len(rows), ROWS))
        return type(self)(mapped(map(self._taken, parts)))

    def filter(self, kept: Bools | Sequence[bool]) -> Self:
        """The prompts of the rows that are kept, in their order."""
        kept = np.asarray(kept, dtype=bool)
        ends = zip(self.batches, self._starts[:-1], self._starts[1:], strict=True)
        return type(self)(mapped(batch.filter(pa.array(kept[a:b])) for batch, a, b in ends))

    @property
    def question_lengths(self) -> Ints:
        """The characters of each question."""
        lengths = pc.utf8_length(self.column("question"))
        return np.asarray(lengths.to_numpy(), dtype=np.int64)

    def distinct(self) -> Self:
        """The first prompt of each id, in their order."""
        order = self.order
        ids = self.keys if self.keys is not None else self.column("prompt_id").to_numpy()
        repeats = order[1:][ids[order[1:]] == ids[order[:-1]]]
        if not len(repeats):
            return self
        kept = np.ones(len(self), dtype=bool)
        kept[repeats] = False
        return self.filter(kept)

    def shares_question(self, others: Self) -> Bools:
        """One boolean per prompt: whether the other table has its question."""
        questions = others.column("question").unique()
        shared = pc.is_in(self.column("question"), value_set=questions).to_numpy()
        return np.asarray(shared, dtype=bool)

    def without_questions(self, others: Self) -> Self:
        """The prompts whose question is not in the other table."""
        shared = self.shares_question(others)
        return self.filter(~shared) if shared.any() else self

    @cached_property
    def keys(self) -> npt.NDArray[np.uint64] | None:
        """The ids as numbers in the order of the ids; None if an id does not have 16 hex digits."""
        parts = [hex_numbers(batch.column(0)) for batch in self.batches]
        if any(part is None for part in parts):
            return None
        return np.concatenate([np.empty(0, np.uint64), *(p for p in parts if p is not None)])

    @cached_property
    def order(self) -> Ints:
        """The rows in the order of their ids."""
        if self.keys is not None:
            return np.argsort(self.keys, kind="stable")
        ids = self.column("prompt_id").to_numpy()
        return np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)

    def ids(self, rows: Ints) -> pa.Array:
        """The ids of these rows, in their order."""
        if self.keys is not None:
            return hex_ids(self.keys[rows])
        return self.column("prompt_id").combine_chunks().take(pa.array(rows))

    def rows_of(self, ids: pa.Array | pa.ChunkedArray) -> Ints:
        """The row of each id; -1 if it is not in the table."""
        if self.keys is None or not len(self):
            rows = (self._row_of.get(i, -1) for i in ids.to_pylist())
            return np.fromiter(rows, dtype=np.int64, count=len(ids))
        chunks = ids.chunks if isinstance(ids, pa.ChunkedArray) else [ids]
        return np.concatenate([np.empty(0, np.int64), *map(self._rows_of_chunk, chunks)])

    def with_ids(self, ids: Iterable[str]) -> "dict[str, Prompt]":
        """The prompts of these ids, by id; those that are not in the table are left out."""
        rows = self.rows_of(pa.array([*ids], pa.string()))
        return {prompt.prompt_id: prompt for prompt in self.take(rows[rows >= 0])}

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {i: row for row, i in enumerate(self.column("prompt_id").to_pylist())}

    @cached_property
    def _sorted_keys(self) -> npt.NDArray[np.uint64]:
        assert self.keys is not None
        return self.keys[self.order]

    def _rows_of_chunk(self, ids: pa.Array) -> Ints:
        numbers = hex_numbers(ids)
        if numbers is None:  # an id has a different form than those of the table
            each = [pa.array([id_.as_py()], pa.string()) for id_ in ids]
            rows = [[-1] if hex_numbers(i) is None else self._rows_of_chunk(i) for i in each]
            return np.concatenate(rows)
        by_number = np.argsort(numbers)  # in random order, every search step misses the cache
        at = np.empty(len(numbers), np.int64)
        at[by_number] = np.searchsorted(self._sorted_keys, numbers[by_number])
        at = np.minimum(at, len(self) - 1)
        return np.where(self._sorted_keys[at] == numbers, self.order[at], -1)

    def _taken(self, rows: Ints) -> pa.RecordBatch:
        """Rows of any batches as one batch. `Table.take` would copy whole columns first."""
        chunk = np.searchsorted(self._starts, rows, "right") - 1
        by_chunk = np.argsort(chunk, kind="stable")  # rows of one batch together
        chunks, first = np.unique(chunk[by_chunk], return_index=True)
        parts = [
            self.batches[c].take(pa.array(rows[of_chunk] - self._starts[c]))
            for c, of_chunk in zip(chunks, np.split(by_chunk, first[1:]), strict=True)
        ]
        taken = pa.concat_batches(parts)
        if len(parts) == 1:
            return taken
        back = np.empty(len(rows), dtype=np.int64)
        back[by_chunk] = np.arange(len(rows))
        return taken.take(pa.array(back))


def labelled(prompts: PromptTable, task: Task) -> Bools:
    """Whether each prompt [N] of a task has a gold answer, or does not need one."""
    if not task.optional_answers:
        return np.ones(len(prompts), dtype=bool)
    answered = pc.not_equal(prompts.column("answer"), "")
    needless = pc.is_in(
        prompts.column("source"), value_set=pa.array(task.labelled_sources, pa.string())
    )
    return np.asarray(pc.or_(answered, needless).to_numpy(), dtype=bool)


def _batch(prompts: Sequence[Prompt]) -> pa.RecordBatch:
    columns = ([getattr(prompt, name) for prompt in prompts] for name in SCHEMA.names)
    try:
        return pa.record_batch([pa.array(column, pa.string()) for column in columns], SCHEMA)
    except UnicodeEncodeError as error:
        raise TaskError(f"a prompt holds half of a surrogate pair: remove it ({error})") from error


def hashed_prompts(
    task: str,
    questions: pa.Array,
    answers: pa.Array,
    tiers: pa.Array,
    others: Mapping[str, pa.Array] | None = None,
) -> pa.RecordBatch:
    """Prompts of a task with the ids that `make_prompt` gives them.

    others: further columns of SCHEMA; omitted columns are empty.
    """
    start = f"{task}\x1f".encode()
    texts = (column.cast(pa.binary()).to_pylist() for column in (questions, answers))
    hashes = (
        hashlib.sha256(b"%b%b\x1f%b" % (start, question, answer)).hexdigest()[:_ID]
        for question, answer in zip(*texts, strict=True)
    )
    ids = pa.array(hashes, pa.string())
    own = {"prompt_id": ids, "question": questions, "answer": answers, "tier": tiers}
    columns = own | dict(others or {})
    empty = pa.repeat(pa.scalar(""), len(ids))
    return pa.record_batch([columns.get(name, empty) for name in SCHEMA.names], SCHEMA)


def hex_numbers(ids: pa.Array) -> npt.NDArray[np.uint64] | None:
    """Ids as numbers; None unless each has 16 hex digits, as `make_prompt` gives them."""
    if not len(ids):
        return np.empty(0, np.uint64)
    if ids.null_count or not pc.all(pc.match_substring_regex(ids, "^[0-9a-f]{16}$")).as_py():
        return None
    _, offsets, data = ids.buffers()
    first = np.frombuffer(offsets, np.int32)[ids.offset]
    digits = data[first : first + _ID * len(ids)].to_pybytes()
    return np.frombuffer(bytes.fromhex(digits.decode()), ">u8").astype(np.uint64)


def hex_ids(numbers: npt.NDArray[np.uint64]) -> pa.Array:
    """The ids of these numbers: the inverse of `hex_numbers`."""
    digits = numbers.astype(">u8").tobytes().hex().encode()
    offsets = np.arange(0, _ID * len(numbers) + 1, _ID, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    )
