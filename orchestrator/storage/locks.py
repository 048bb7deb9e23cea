"""Locks on local folders, which the kernel releases when their holder dies.

Each is an flock on a file. NFS refuses an exclusive one on a file that is only open for reading,
and a shared one on a file that is only open for writing.

Such locks also identify temporary folders of killed processes, which are then deleted.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cluster.ending import at_end
from orchestrator.storage.entries import is_regular
from orchestrator.storage.errors import UserError, naming

NAME = ".lock"
MAX_DIGITS = 20  # of a process id


def open_lock(file: Path) -> int:
    """A descriptor that NFS can lock exclusively; the file is created if needed."""
    if os.path.lexists(file) and not is_regular(file):
        raise UserError(f"{file} is not a regular file: remove it")
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


@contextmanager
def exclusive(folder: Path, waits: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold a local folder's lock; blocks while another process holds it.

    Before it blocks, calls `waits` with the holder's process id.

    The kernel releases the lock when its holder dies, so a kill leaves nothing to clean up. The
    file `.lock` contains the holder's process id.
    """
    file = folder / NAME
    with os.fdopen(open_lock(file), "r+", errors="replace") as lock:
        with naming(file):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits(lock.read(MAX_DIGITS).strip())
                fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            lock.truncate()
            lock.write(f"{os.getpid()}\n")
            lock.flush()
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
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):  # another process deleted the folder
            lock = _lock(folder, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(lock), (folder / NAME).stat()):
                break
            os.close(lock)
    delete = partial(shutil.rmtree, folder, ignore_errors=True)
    try:
        with at_end(delete):
            yield folder
    finally:
        delete()
        os.close(lock)


def _lock(folder: Path, operation: int) -> int:
    """A descriptor that holds the lock. NFS would refuse a lock on the folder itself."""
    descriptor = open_lock(folder / NAME)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
