"""Opens the files that users name: regular ones only, and no more of them than memory can hold.

Links are followed, since they are the user's own. A pipe is refused: it may never end, it blocks
whoever opens it, and a file is read twice, for its rows and for its hash.
"""

import glob
import gzip
import hashlib
import io
import logging
import os
import resource
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tasks.errors import TaskError

if TYPE_CHECKING:
    import pyarrow as pa

LOG = logging.getLogger(__name__)
MAX_SETTINGS = 4 * 2**20  # bytes of a file of settings; the largest that is known has 100,000
MAX_LINE = 256 * 2**20  # bytes of one row of JSON lines
MEMORY_PER_BYTE = 6  # of text that becomes rows of Python objects
LOOK_BYTES = 16 * 2**20  # of text, between two looks at the memory and the time
ANNOUNCE_SECONDS = 10.0
OBJECT = 64  # bytes that a value takes in Python beyond its content
BATCH_ROWS = 1_000  # of Parquet: a row that is stored once may be repeated any number of times
Files = str | Sequence[str]  # paths and globs of files whose rows follow one another
_KINDS = {
    stat.S_IFIFO: "is a pipe: write its content to a file first",
    stat.S_IFCHR: "is a device: write the path of a file",
    stat.S_IFBLK: "is a device: write the path of a file",
}


def exists(path: str) -> bool:
    """Whether there is such a file or folder, or one that a glob matches."""
    return any(map(os.path.lexists, matching(path)))


def open_file(path: str | Path) -> io.BufferedReader:
    """A regular file for reading in pieces. Raises TaskError for a pipe and the like, and OSError.

    Never waits, as for the other end of a pipe.
    """
    try:
        stream = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 (the caller closes it)
    except IsADirectoryError as error:
        raise TaskError(f"{path} is a folder: write the path of a file") from error
    kind = stat.S_IFMT(os.fstat(stream.fileno()).st_mode)
    if kind != stat.S_IFREG:
        stream.close()
        problem = _KINDS.get(kind, "is no regular file: write another path")
        raise TaskError(f"{path} {problem}")
    return stream


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def sha256_of(path: str | Path) -> str:
    """The hash of a file's content in hex digits. Raises as `open_file`."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def regular(path: str | Path) -> str:
    """The path, for a library that opens it. Raises as `open_file`."""
    open_file(path).close()
    return str(path)


def open_text(path: str | Path, most: int | None = None) -> io.BufferedReader:
    """The bytes of a file, of a .gz file expanded. Raises as `open_file`.

    Reading more than `most` bytes raises TaskError; by default, what rows of Python objects may
    take of the memory that is free.
    """
    return io.BufferedReader(_Limited(path, most), 2**20)


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of UTF-8 text with their numbers, as of `open_text`; split at newlines only."""
    with open_text(path) as stream:
        for number in count(1):
            line = stream.readline(MAX_LINE + 1)
            if len(line) > MAX_LINE:
                raise TaskError(f"{path}:{number} is longer than {size_text(MAX_LINE)}: write less")
            if not line:
                return
            if b"\0" in line:
                raise TaskError(f"{path}:{number} holds a null byte: write it as UTF-8 text")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")


def read_bytes(path: str | Path, most: int | None = None) -> bytes:
    """The whole content of a file, as of `open_text`."""
    with open_text(path, most) as stream:
        return stream.read()


class _Limited(io.RawIOBase):
    """A file that cannot be read beyond a number of bytes."""

    def __init__(self, path: str | Path, most: int | None) -> None:
        self._path, self._file = path, open_file(path)
        zipped = self._file.peek(2)[:2] == b"\x1f\x8b"  # whatever the file's name
        self._stream: Any = gzip.GzipFile(fileobj=self._file) if zipped else self._file
        self._free = free_memory() if most is None else None
        self._left = self._most = most or (self._free or 0) // MEMORY_PER_BYTE
        self._size = os.fstat(self._file.fileno()).st_size
        self._looked, self._announced = 0, time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = int(self._stream.readinto(buffer) or 0)  # None: a file of the kernel that waits
        self._left -= size
        if self._left < 0:
            raise too_large(self._path, self._most, self._free)
        self._looked += size
        if self._looked >= LOOK_BYTES:
            self._look()
        return size

    def _look(self) -> None:
        """Tell how much is read, and raise TaskError where the rows so far have taken too much."""
        self._looked = 0
        if self._free is None:
            return
        if free_memory() < self._free // 2:  # the rest is for their use
            raise too_large(self._path, self._most - self._left, self._free)
        if time.monotonic() - self._announced >= ANNOUNCE_SECONDS and self._size:
            self._announced = time.monotonic()
            LOG.warning("reading %s: %.0f %%", self._path, 100 * self._file.tell() / self._size)

    def close(self) -> None:
        self._file.close()
        super().close()


def too_large(path: str | Path, most: int, free: int | None = None) -> TaskError:
    """The error for a file that holds more than `most` bytes; `free`: of memory."""
    if free is None:
        return TaskError(f"{path} is larger than {size_text(most)}: write a smaller file")
    return TaskError(
        f"{path} holds more than {size_text(most)}, for which {size_text(free)} of free memory "
        "are too few: split the file, or run this on a machine with more memory"
    )


@contextmanager
def reading_parquet(path: str | Path, advice: str = "write a Parquet file") -> Iterator[None]:
    """Raise what Arrow raises for a damaged file of Parquet as TaskError, with what to do."""
    import pyarrow as pa

    try:
        yield
    except (UnicodeDecodeError, OverflowError) as error:  # of a text; of a time after 9999
        raise TaskError(f"{path} cannot be read ({error}): correct that value") from error
    except (OSError, pa.ArrowException) as error:
        raise TaskError(f"{path} is not Parquet ({error}): {advice}") from error


def parquet_schema(path: str | Path) -> "pa.Schema":
    """The schema of a Parquet file. Raises TaskError."""
    import pyarrow.parquet as pq

    with reading_parquet(path):
        schema = pq.read_schema(regular(path))
        _ = schema.names  # decodes them
        return schema


def record_batches(source: Any, path: str | Path) -> "Iterator[pa.RecordBatch]":
    """The rows of Parquet, a part at a time. Raises TaskError where memory cannot hold them all."""
    import pyarrow.parquet as pq

    free, size = free_memory(), 0
    with pq.ParquetFile(source) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            size += batch.num_rows * batch.num_columns * OBJECT
            size += sum(_expanded(column).nbytes for column in batch.columns)
            if size * 2 > free:
                raise too_large(path, free // 2, free)
            yield batch


def _expanded(column: "pa.Array") -> "pa.Array":
    """A column with its values once per row, as Python has them."""
    import pyarrow as pa

    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def free_memory() -> int:
    """Bytes of memory that this process may still take: of the machine, a container, ulimit -v."""
    free = psutil.virtual_memory().available
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        free = min(free, max(0, address_space - psutil.Process().memory_info().vms))
    with suppress(OSError, ValueError):  # no container, or no limit: `max` is no number
        most, used = (Path("/sys/fs/cgroup", f"memory.{n}").read_text() for n in ("max", "current"))
        free = min(free, max(0, int(most) - int(used)))
    return int(free)


def size_text(count: float) -> str:
    """`1536` -> `1.5 KiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def matching(path: str) -> list[str]:
    """The files that a glob such as `data/*.jsonl` matches, sorted; a path stands for itself."""
    if os.path.lexists(path) or glob.escape(path) == path or "\0" in path:
        return [path]
    return sorted(glob.glob(path, recursive=True))
