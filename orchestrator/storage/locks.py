"""Locks on local folders, which the kernel releases when their holder dies.

Each is an flock on a file. NFS refuses an exclusive one on a file that is open for reading only,
and a shared one on a file that is open for writing only.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.storage.entries import is_regular
from orchestrator.storage.errors import UserError, naming

NAME = ".lock"


def open_lock(file: Path) -> int:
    """A descriptor that NFS can lock exclusively; creates the file if needed."""
    if os.path.lexists(file) and not is_regular(file):
        raise UserError(f"{file} is not a regular file: remove it")
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


@contextmanager
def exclusive(folder: Path, waits: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold a local folder's lock; blocks while another process holds it.

    Before it blocks, calls `waits` with the other's process id.

    The kernel releases the lock when its holder dies, so a kill leaves nothing to clean up. The
    file `.lock` contains the holder's process id.
    """
    file = folder / NAME
    with os.fdopen(open_lock(file), "r+") as lock:
        with naming(file):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits(lock.read().strip())
                fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            lock.truncate()
            print(os.getpid(), file=lock, flush=True)
        yield


def is_held(folder: Path) -> bool:
    """Whether another process holds a local folder's lock. Raises NotADirectoryError for a file."""
    file = folder / NAME
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(file).st_mode):
            with naming(file), file.open() as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
    return False
