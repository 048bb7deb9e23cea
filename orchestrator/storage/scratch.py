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
from orchestrator.storage.errors import UserError
from orchestrator.storage.locks import NAME, open_lock


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder in TMPDIR, deleted at the end. Deletes those of killed processes first.

    A process holds a lock on a file in its folder, which the kernel releases when the process dies.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if left.is_symlink():
            continue
        with suppress(OSError, UserError):
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
        with suppress(FileNotFoundError):  # another process deleted the folder
            lock = _lock(folder, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(lock), (folder / NAME).stat()):
                return folder, lock
            os.close(lock)


def _lock(folder: Path, operation: int) -> int:
    """A descriptor that holds the lock. Of the folder itself, NFS would refuse one."""
    descriptor = open_lock(folder / NAME)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
