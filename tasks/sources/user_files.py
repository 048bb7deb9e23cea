"""Opens the files that users name: only regular files, and only as much as memory can hold.

Links are followed, because they are the user's own. A pipe is rejected: it may never end, opening
it may block, and a file is read twice, for its rows and for its hash.
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
MAX_SETTINGS = 4 * 2**20  # bytes of a settings file; the largest known one has 100,000
MAX_LINE = 256 * 2**20  # bytes of one row of JSON lines
MEMORY_PER_BYTE = 6  # for text that becomes rows of Python objects
LOOK_BYTES = 16 * 2**20  # of text, between two checks of memory and time
ANNOUNCE_SECONDS = 10.0
OBJECT = 64  # bytes of a Python value beyond its content
BATCH_ROWS = 1_000  # of Parquet: a row that is stored once may be repeated any number of times
Files = str | Sequence[str]  # paths and globs of files whose rows follow one another
_KINDS = {
    stat.S_IFIFO: "is a pipe: write its content to a file first",
    stat.S_IFCHR: "is a device: write the path of a file",
    stat.S_IFBLK: "is a device: write the path of a file",
}


def exists(path: str) -> bool:
    """Whether the file or folder exists, or a glob matches any."""
    return any(map(os.path.lexists, matching(path)))


def open_file(path: str | Path) -> io.BufferedReader:
    """A regular file for reading in pieces. Raises TaskError for pipes and devices, and OSError.

    Never blocks, for instance on a pipe.
    """
    try:
        stream = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 (the caller closes it)
    except IsADirectoryError as error:
        raise TaskError(f"{path} is a folder: write the path of a file") from error
    kind = stat.S_IFMT(os.fstat(stream.fileno()).st_mode)
    if kind != stat.S_IFREG:
        stream.close()
        problem = _KINDS.get(kind, "is not a regular file: write a different path")
        raise TaskError(f"{path} {problem}")
    return stream


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def sha256_of(path: str | Path) -> str:
    """The hash of a file's content in hex digits. Raises the errors of `open_file`."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def regular(path: str | Path) -> str:
    """The path, for a library that opens it. Raises the errors of `open_file`."""
    open_file(path).close()
    return str(path)


def open_text(path: str | Path, most: int | None = None) -> io.BufferedReader:
    """The bytes of a file; .gz files are decompressed. Raises the errors of `open_file`.

    Reading more than `most` bytes raises TaskError. By default, the limit is the free memory that
    rows of Python objects may take.
    """
    return io.BufferedReader(_Limited(path, most), 2**20)


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of UTF-8 text with their numbers, as by `open_text`; split only at newlines."""
    with open_text(path) as stream:
        for number in count(1):
            line = stream.readline(MAX_LINE + 1)
            if len(line) > MAX_LINE:
                raise TaskError(f"{path}:{number} is longer than {size_text(MAX_LINE)}: shorten it")
            if not line:
                return
            if b"\0" in line:
                raise TaskError(f"{path}:{number} holds a null byte: write it as UTF-8 text")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")


def read_bytes(path: str | Path, most: int | None = None) -> bytes:
    """The whole content of a file, as by `open_text`."""
    with open_text(path, most) as stream:
        return stream.read()


class _Limited(io.RawIOBase):
    """A file that cannot be read beyond a limit of bytes."""

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
        size = int(self._stream.readinto(buffer) or 0)  # None: a kernel file without data yet
        self._left -= size
        if self._left < 0:
            raise too_large(self._path, self._most, self._free)
        self._looked += size
        if self._looked >= LOOK_BYTES:
            self._look()
        return size

    def _look(self) -> None:
        """Report how much is read, and raise TaskError if the rows so far take too much memory."""
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
    """The error for a file with more than `most` bytes; `free`: bytes of free memory."""
    if free is None:
        return TaskError(f"{path} is larger than {size_text(most)}: write a smaller file")
    return TaskError(
        f"{path} has more than {size_text(most)}, for which {size_text(free)} of free memory are "
        f"not enough: split the file, or run this on a machine with more memory"
    )


@contextmanager
def reading_parquet(path: str | Path, advice: str = "write a Parquet file") -> Iterator[None]:
    """Raise Arrow's errors for a damaged Parquet file as TaskError, with a remedy."""
    import pyarrow as pa

    try:
        yield
    except (UnicodeDecodeError, OverflowError) as error:  # in a text; for a time after 9999
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
    """The rows of Parquet, a part at a time. Raises TaskError if they do not fit into memory."""
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
    """A column with its values once per row, as Python values."""
    import pyarrow as pa

    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def free_memory() -> int:
    """Bytes of memory that this process may still take: limits of machine, container, ulimit -v."""
    free = psutil.virtual_memory().available
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        free = min(free, max(0, address_space - psutil.Process().memory_info().vms))
    with suppress(OSError, ValueError):  # no container, or no limit: `max` is not a number
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
    """The files that a glob such as `data/*.jsonl` matches, sorted; a plain path is unchanged."""
    if os.path.lexists(path) or glob.escape(path) == path or "\0" in path:
        return [path]
    return sorted(glob.glob(path, recursive=True))
