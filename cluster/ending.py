"""Ends a command from any thread: on a signal, or because Ray is lost.

The main thread may be inside C++ code for minutes, and Ray and Tune install their own signal
handlers. Signals are therefore blocked in every thread, and one thread waits for them. That thread
ends the process: it prints one line, runs the registered actions, kills every process that this one
started, and exits without unwinding the main thread. Stored files are complete at any time.
"""

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cluster.terminal import printable

INTERRUPTED = "interrupted; rerun the same command to resume"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
LOOK_SECONDS = 0.05  # between two checks for a signal
ACTIONS_SECONDS = 2.0  # `ray job stop` sends SIGKILL after 3 s
KILL_SECONDS = 5.0  # killed processes that hold much memory need a moment
_PR_SET_CHILD_SUBREAPER = 36

_actions: list[Callable[[], None]] = []
_displays: list[Callable[[], None]] = []
_ends = threading.Lock()  # taken once, by the thread that ends the process
_blocked: set[signal.Signals] = set()  # by this process, for the waiting thread
_ignored: set[signal.Signals] = set()  # by the parent process
_enabled = False


def enabled() -> bool:
    """Whether this process is a command, which may be ended; False for Decile as a library."""
    return _enabled


@contextmanager
def signals_end_process() -> Iterator[None]:
    """Inside this block, each of SIGNALS ends the process with exit code 128 + signal.

    A command enters it in its main thread, before it starts other threads. Signals that the parent
    process ignores (nohup) remain ignored, even if a library installs a handler. Ray's processes
    start with unblocked signals, and become children of this process when their own parent dies.
    """
    global _enabled
    _ignored.update(s for s in SIGNALS if signal.getsignal(s) is signal.SIG_IGN)
    _blocked.update(set(SIGNALS) - _ignored)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.register_at_fork(after_in_child=_restore_signals)
    _adopt_orphans(True)
    done = threading.Event()

    def wait() -> None:
        while not done.wait(LOOK_SECONDS):  # macOS has no sigtimedwait
            if pending := signal.sigpending() & _blocked:
                end_process(128 + min(pending), INTERRUPTED)

    _enabled = True
    threading.Thread(target=wait, name="signals", daemon=True).start()
    try:
        yield
    finally:
        _stay_if_ending()
        done.set()
        _enabled = False
        _adopt_orphans(False)
        _ignore_again()
        _blocked.clear()
        _ignored.clear()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def at_end(action: Callable[[], None], *, before_message: bool = False) -> Iterator[None]:
    """Run `action` if the process is ended inside this block; newest first, within seconds.

    Actions that stop drawing on the terminal run `before_message`.
    """
    actions = _displays if before_message else _actions
    actions.append(action)
    try:
        yield
    except BaseException:
        _stay_if_ending()
        raise
    finally:
        actions.remove(action)


def end_process(exit_code: int, text: str, *, kill_first: bool = False) -> None:
    """Print one line, run the actions, kill every process that this one started, and exit.

    With `kill_first`, kill before the actions, because Ray may exit at any time without its raylet.
    A pending signal has precedence, since a signal to the process group also ends Ray's processes.
    Does not return; a second call waits for the exit. If Decile is used as a library, it only logs.
    """
    if not _enabled:
        logging.getLogger(__name__).error(text)
        return
    if pending := signal.sigpending() & _blocked:
        exit_code, text = 128 + min(pending), INTERRUPTED
    if not _ends.acquire(blocking=False):
        threading.Event().wait()
    try:
        worker = threading.Thread(target=_run_actions, args=[text], daemon=True)
        worker.start()
        if kill_first:
            kill_descendants()
        worker.join(ACTIONS_SECONDS)
        kill_descendants()
    finally:
        os._exit(exit_code)


def kill_descendants() -> None:
    """Kill all descendants of this process, including those with a dead parent."""
    import psutil

    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        alive = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
                    process.kill()
        if not alive:
            return
        time.sleep(0.02)


def _run_actions(text: str) -> None:
    _run(_displays)
    with suppress(OSError, ValueError):  # the terminal may be gone
        sys.stdout.flush()
        terminal = os.dup(2)
        with suppress(OSError):  # further output of other threads is a consequence of the end
            null = os.open(os.devnull, os.O_WRONLY)
            for descriptor in (1, 2):
                os.dup2(null, descriptor)
        os.write(terminal, f"decile: {printable(text)}\n".encode())
    _run(_actions)


def _run(actions: list[Callable[[], None]]) -> None:
    for action in reversed(actions):
        with suppress(Exception):  # the process is ending: errors cannot be handled
            action()


def _stay_if_ending() -> None:
    """Wait for the exit if another thread ends the process: failures are then a consequence."""
    if _ends.locked():
        threading.Event().wait()


def _ignore_again() -> None:
    """Discard pending signals that were ignored at the start, and handlers of libraries."""
    for number in _ignored:
        signal.signal(number, signal.SIG_IGN)


def _restore_signals() -> None:
    _ignore_again()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_blocked, *_ignored})


def _adopt_orphans(adopt: bool) -> None:
    """Make this process the parent of its orphaned descendants, in place of init. Linux only."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
