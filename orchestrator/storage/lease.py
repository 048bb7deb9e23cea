"""One driver per experiment of a storage: a lease that the driver holds while it works.

In a folder, the lease is a lock on a file, which the kernel releases when its holder dies. An
object store has no locks, and pyarrow cannot write objects conditionally (no `If-None-Match`).
There, every driver that wants the lease writes its own claim, then lists all claims, and withdraws
its own if another one is current. Of two drivers, the one that lists last sees the other's claim,
because stores list everything written before. So two drivers cannot both obtain the lease. A claim
is current while it is renewed. Its age is the difference between two times of the store: of the
claim, and of the claim that was just written.
"""

import fcntl
import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict, cast

import psutil
import pyarrow.fs as pafs

from cluster import ending
from cluster.terminal import PlainError
from orchestrator.storage.errors import StoreError, naming
from orchestrator.storage.locks import open_lock
from orchestrator.storage.store import Store, moved

TERM_SECONDS = 60.0  # after which a claim that was not renewed is void
RENEWAL_SECONDS = 15.0
LOOK_SECONDS = 1.0  # between two checks that a folder was not moved
WAIT_SECONDS = 2.0  # between two attempts of a waiting driver
MAX_BYTES = 4096  # of a driver's description
MAX_PROCESS = 2**31 - 1
ATTEMPTS = 4  # two drivers that start at once may each see the other's claim

Say = Callable[[str], None]


class Driver(TypedDict, total=False):
    """A driver, as in its lease. ids: the scope of its process id; held: it has the lease."""

    host: str
    pid: int
    since: str
    ids: str
    held: bool


class LeaseHeld(PlainError, RuntimeError):
    """Another driver is running the experiment; the message identifies it."""


@contextmanager
def driver_lease(store: Store, experiment: str, say: Say, *, wait: bool = False) -> Iterator[None]:
    """Hold the lease of an experiment. Raises LeaseHeld if another driver holds it.

    With `wait`, reports who holds it, and waits.
    """
    lease = FolderLease(store, experiment) if store.local else ObjectLease(store, experiment)
    announced = ""
    while (holder := lease.acquire()) is not None:
        text = (
            f"another driver runs {experiment} in {store.uri} (host {holder.get('host', '?')}, "
            f"process {holder.get('pid', '?')}, since {holder.get('since', '?')})"
        )
        if not wait:
            raise LeaseHeld(f"{text}: wait until it ends, or pass --wait (in Python wait=True)")
        if text != announced:
            say(f"{text}; waiting until it ends")
            announced = text
        time.sleep(WAIT_SECONDS)
    with ending.at_end(lease.release):
        before, store.before_write = store.before_write, lease.check
        try:
            yield
        finally:
            store.before_write = before
            lease.release()


def _this_driver() -> Driver:
    now = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    return {"host": socket.gethostname(), "pid": os.getpid(), "since": now, "ids": _pid_space()}


def _pid_space() -> str:
    """An id of the boot and the container, within which process ids are unique."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    return ""


def _read_driver(data: bytes) -> Driver:
    """The driver that another process wrote; empty if it cannot be read."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):  # incomplete, or written by something else
        return {}
    kinds, items = Driver.__annotations__, values.items() if isinstance(values, dict) else ()
    return cast(Driver, {name: each for name, each in items if type(each) is kinds.get(name)})


def _is_dead(holder: Driver) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    if not holder.get("ids") or holder["ids"] != _pid_space():
        return False
    process = holder.get("pid", 0)
    return 0 < process <= MAX_PROCESS and not psutil.pid_exists(process)


class FolderLease:
    """A locked file in a folder; its content describes the holder.

    A file that was renamed or deleted with its storage stays locked, so the holder also checks that
    the file of that name is the locked one.
    """

    def __init__(self, store: Store, experiment: str) -> None:
        self._file = store.local_path("sweeps") / f".{experiment}.lease"
        self._descriptor, self._holder = -1, b""
        self._store, self._experiment = store, experiment
        self._released = threading.Event()

    def acquire(self) -> Driver | None:
        """Take the lease; returns who holds it, or None once it is held by this process."""
        descriptor = open_lock(self._file)
        with naming(self._file):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)  # the holder writes its description right after locking the file
                holder = _read_driver(os.read(descriptor, MAX_BYTES))
                os.close(descriptor)
                return holder
            self._holder = json.dumps(_this_driver() | {"id": uuid.uuid4().hex}).encode()
            os.ftruncate(descriptor, 0)
            os.write(descriptor, self._holder)
        self._descriptor = descriptor
        threading.Thread(target=self._watch, name="lease", daemon=True).start()
        return None

    def check(self) -> None:
        """Raise StoreError if the storage is no longer in its place."""
        holder = self._holder
        with suppress(OSError):  # of the network
            try:
                holder = self._file.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                holder = b""
        if holder != self._holder:
            raise moved(self._store, f"{self._experiment} runs")

    def _watch(self) -> None:
        """End the process once the storage is no longer in its place: workers also write."""
        while not self._released.wait(LOOK_SECONDS):
            try:
                self.check()
            except StoreError as error:
                if not self._released.is_set():
                    ending.end_process(1, str(error))
                return

    def release(self) -> None:
        """Release the lease; the file stays, since two drivers could lock it after a deletion."""
        self._released.set()
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


class ObjectLease:
    """A claim in an object store, renewed by a thread."""

    def __init__(self, store: Store, experiment: str) -> None:
        self._store, self._folder = store, ("sweeps", f"{experiment}.lease")
        self._name = f"{uuid.uuid4().hex}.json"
        self._claim = _this_driver()
        self._released = threading.Event()
        self._writing = threading.Lock()

    def acquire(self) -> Driver | None:
        """Take the lease; returns who holds it, or None once it is held by this process."""
        holder: Driver | None = None
        for _ in range(ATTEMPTS):
            self._write()
            holder = self._other_claim()
            if holder is None:
                self._claim["held"] = True
                self._write()
                threading.Thread(target=self._renew, name="lease", daemon=True).start()
                return None
            self._store.delete(*self._folder, self._name)
            if holder.get("held"):
                break
            time.sleep(random.uniform(0.5, 3))
        return holder

    def check(self) -> None:
        """Nothing to do: the renewing thread ends the process if it loses the claim."""

    def release(self) -> None:
        """Withdraw the claim."""
        with self._writing:
            if not self._released.is_set():
                self._released.set()
                self._store.delete(*self._folder, self._name)

    def _write(self) -> None:
        with self._writing:
            if not self._released.is_set():
                self._store.write_bytes(json.dumps(self._claim).encode(), *self._folder, self._name)

    def _other_claim(self) -> Driver | None:
        """A current claim of another driver; deletes void ones."""
        selector = pafs.FileSelector(self._store.path(*self._folder), allow_not_found=True)
        infos = {info.base_name: info for info in self._store.fs.get_file_info(selector)}
        if self._name not in infos:
            raise FileNotFoundError(f"the claim {self._name} was deleted")
        now = infos.pop(self._name).mtime.timestamp()
        current: Driver | None = None
        for name, info in infos.items():
            claim: Driver = {}
            with suppress(OSError):  # just withdrawn: it counts, to be safe
                data = self._store.read_bytes(*self._folder, name, most=MAX_BYTES)
                claim = _read_driver(data)
            if now - info.mtime.timestamp() > TERM_SECONDS or _is_dead(claim):
                self._store.delete(*self._folder, name)
            elif current is None or claim.get("held"):
                current = claim
        return current

    def _renew(self) -> None:
        renewed = time.monotonic()
        while not self._released.wait(RENEWAL_SECONDS):
            with suppress(OSError):  # a network fault; the term allows for several
                overdue = time.monotonic() - renewed > TERM_SECONDS
                if overdue and not self._store.exists(*self._folder, self._name):
                    self._end()
                self._write()
                if overdue and self._other_claim() is not None:
                    self._end()
                renewed = time.monotonic()

    def _end(self) -> None:
        self._released.set()
        ending.end_process(
            1,
            f"the lease {self._store.path(*self._folder)} was not renewed for {TERM_SECONDS:g} s, "
            "and another driver has taken it: that driver continues the run",
        )
