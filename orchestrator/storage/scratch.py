"""Temporary folders that do not outlive their process for long, even one that is killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cluster.ending import at_end


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder in TMPDIR, deleted at the end. Deletes those of killed processes first.

    A process holds a lock on its folder, which the kernel releases when the process dies.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            lock = _lock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    folder, lock = _locked_folder(prefix)
    delete = partial(shutil.rmtree, folder, ignore_errors=True)
    try:
        with at_end(delete):
            yield folder
    finally:
        delete()
        os.close(lock)


def _locked_folder(prefix: str) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):
            lock = _lock(folder, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return folder, lock
            os.close(lock)  # another process deleted the folder before it was locked


def _lock(folder: Path, operation: int) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
