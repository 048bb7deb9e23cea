"""Locks on local folders, which the kernel releases when their holder dies."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(folder: Path, waits: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold a local folder's lock; blocks while another process holds it.

    Before it blocks, calls `waits` with the other's process id.

    The kernel releases the lock when its holder dies, so a kill leaves nothing to clean up. The
    file `.lock` contains the holder's process id.
    """
    with (folder / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            waits(lock.read().strip())
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
        yield


def is_held(folder: Path) -> bool:
    """Whether another process holds a local folder's lock."""
    try:
        with (folder / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
