"""Record batches of a large pool in temporary files, mapped into memory.

The kernel keeps as much of them in memory as there is room for; they never fill it.
"""

import logging
import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

LEAST = 128 * 2**20  # bytes of a file; less than that stays in memory

log = logging.getLogger(__name__)


def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; those of a large pool are read from temporary files.

    The files have no name: they end with the process, however it ends. Where they cannot be
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
