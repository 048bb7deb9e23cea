"""Child processes that are killed and replaced if they hang, crash or run out of memory.

Time limits by signals only work in the main thread, so a verifier that uses them fails, or kills
its host, inside Ray workers. A child process can be killed from any thread of any process. Calls
and replies are lines of JSON over pipes; nothing is pickled and nothing is forked.
"""

import atexit
import fcntl
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

from orchestrator.plugins.project_modules import ROOT, add_project, project_folders
from orchestrator.plugins.user_code import describe, place_of


class Reply(NamedTuple):
    """The result of one call: a JSON value, or the reason for a failure.

    `failure` is the type of an exception, `time-limit`, `crashed`, or `not-tried`; `detail` is the
    place of an exception in the user's code, or how the child ended.
    """

    value: Any
    failure: str | None = None
    detail: str = ""

    @property
    def reason(self) -> str:
        """The failure and its place, in the form of rules of marks."""
        place = os.path.basename(self.detail)
        return f"{self.failure}@{place}" if place else str(self.failure)


def serve() -> None:
    """The main loop of a child: read calls, reply to each, exit with the owner."""
    calls = os.fdopen(os.dup(0))
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # calls must not read the owner's next message
    os.dup2(2, 1)  # output of calls must not become a reply
    lifeline, path, project, target, memory, setup = json.loads(calls.readline())
    _end_with_owner(lifeline)
    sys.path[:] = path  # references name the same modules as in the owner's process
    add_project(reversed(project))
    try:
        module, _, name = target.partition(":")
        function = getattr(import_module(module), name)
        if setup is not None:
            function = function(*setup)
    except BaseException as error:  # noqa: BLE001 a user's module may raise anything
        _write(replies, Reply(None, "start", describe(error)))
        return
    _limit_memory(memory)
    _write(replies, Reply(None))
    folder, pid = os.open(".", os.O_RDONLY), os.getpid()
    for line in calls:
        for arguments in json.loads(line):
            try:
                reply = Reply(function(*arguments))
            except BaseException as error:  # noqa: BLE001 SystemExit and KeyboardInterrupt, too
                reply = Reply(None, type(error).__name__, place_of(error))
            if os.getpid() != pid:  # the call forked: only one of the two continues
                os._exit(0)
            signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm belongs to one call only
            with suppress(OSError):  # the call closed it
                os.fchdir(folder)
            _write(replies, reply)


def _write(replies: TextIO, reply: Reply) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _limit_memory(memory: int) -> None:
    """Limit the growth of the address space to this many bytes; works only on Linux."""
    with suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _end_with_owner(lifeline: int) -> None:
    """Kill this process, and all processes that it started, when the owner's end of a pipe closes.

    This works however the owner ends. On Linux the kernel does it, whatever the process is doing.
    Elsewhere a thread does it, which needs the interpreter's lock.
    """
    os.set_inheritable(lifeline, False)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
        return

    def watch() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


START_LIMIT = 600.0  # seconds for a child's imports; 120 were too few at a load of 30
MEMORY = 2 * 2**30  # bytes of address space beyond what the imports need
RECYCLE = 20_000  # calls after which a child is replaced, so that its caches stay bounded
CHUNK = 64  # calls sent at once
REPLY = 2**28  # bytes of a reply; a child that writes more is replaced
WALL = 10  # a call may take this multiple of its limit by the clock, on a busy machine


NOT_TRIED = Reply(None, "not-tried")


class Call(NamedTuple):
    """One call of a `map`: its place among the calls, its arguments, and its limit in seconds."""

    place: int
    arguments: Sequence[Any]
    limit: float


class ChildError(RuntimeError):
    """A child cannot start, for this `reason`."""

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(target, reason)  # copies and pickles are made from these arguments
        self.target, self.reason = target, reason

    def __str__(self) -> str:
        return f"{self.target} {self.reason}"


class _Child:
    """One process that handles a few calls, one after the other."""

    def __init__(
        self, target: str, memory: int, setup: Sequence[Any] | None, environment: Mapping[str, str]
    ) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        lifeline, self._lifeline = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from tasks.children import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
                start_new_session=True,  # Ctrl-C stops the sweep, not the call in progress
                pass_fds=[lifeline],
            )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)
        self.calls: deque[Call] = deque()  # sent, and not replied to
        self.ready = False
        self.sent = 0
        self._partial: list[bytes] = []  # of a line that has not arrived whole
        self._size = 0
        self.began = time.monotonic()
        self.deadline = self.began + START_LIMIT
        self._waiting = _Waiting(self.process.pid)
        with suppress(OSError):  # it has already exited, which `receive` reports
            path = [str(folder) or os.getcwd() for folder in sys.path]
            self._write([lifeline, path, project_folders(), target, memory, setup])

    def send(self, calls: Sequence[Call]) -> None:
        """Send calls to an idle child. Raises OSError if it has exited."""
        self._write([call.arguments for call in calls])
        self.calls.extend(calls)
        self.sent += len(calls)
        self.start_clock()

    def start_clock(self) -> None:
        """The child begins its first call."""
        if self.calls:
            self.began = time.monotonic()
            self.deadline = self.began + self.calls[0].limit
            self._waiting.start()

    def extend(self) -> bool:
        """Whether its call has time left; if so, move the deadline.

        Time that the child spent waiting for a processor does not count.
        """
        now, limit = time.monotonic(), self.calls[0].limit
        spent = now - self.began
        left = min(limit - (spent - self._waiting.seconds(spent)), WALL * limit - spent)
        self.deadline = now + left
        return left > 0

    def _write(self, message: Sequence[Any]) -> None:
        """Send one line. The child reads it whole before it acts, so neither side blocks."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> list[bytes] | None:
        """The complete lines that have arrived; None if it has exited or its line never ends."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self._partial.append(data)
        self._size += len(data)
        if not data or self._size > REPLY:
            return None
        if b"\n" not in data:
            return []
        *lines, rest = b"".join(self._partial).split(b"\n")
        self._partial, self._size = [rest], len(rest)
        return lines

    def kill(self) -> str:
        """Kill the process and all that it started, close the pipes, and return how it ended."""
        with suppress(ProcessLookupError, PermissionError):  # macOS: of a group of zombies
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        os.close(self._lifeline)
        self._waiting.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # unsent data of a child that has exited
                pipe.close()
        return f"exit-code-{code}" if code >= 0 else signal.Signals(-code).name


class _Waiting:
    """Measures how long a process, or one that it waits for, has waited for a processor."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._before = 0.0
        try:
            self._file = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not Linux, or a kernel that does not count it
            self._file = -1

    def start(self) -> None:
        """Count from here."""
        self._before = self._own()

    def seconds(self, spent: float) -> float:
        """The seconds spent waiting since the start, out of `spent`.

        If the system does not count them: the seconds in which no processor was used.
        """
        import psutil

        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            programs = process.children(recursive=True)
            if self._file < 0:
                return spent - sum(sum(p.cpu_times()[:2]) for p in [process, *programs])
            waited = [self._own() - self._before]
            for program in programs:
                with suppress(OSError):
                    text = Path(f"/proc/{program.pid}/schedstat").read_text("ascii")
                    waited.append(_waited(text))
            return max(waited)
        return 0.0

    def _own(self) -> float:
        with suppress(OSError):  # it has exited
            return _waited(os.pread(self._file, 100, 0).decode("ascii"))
        return self._before

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _waited(schedstat: str) -> float:
    """The second of its fields: nanoseconds on the run queue."""
    return int(schedstat.split()[1]) / 1e9


class _Batch:
    """The calls of one `map`, abandoned after more than `tolerated` failures (None: never)."""

    def __init__(self, calls: Sequence[Call], tolerated: float | None) -> None:
        self.pending = deque(calls)
        self.replies = [NOT_TRIED] * len(calls)
        self.failures, self.tolerated = 0, tolerated

    def settle(self, call: Call, reply: Reply) -> None:
        self.replies[call.place] = reply
        self.failures += reply.failure is not None

    @property
    def given_up(self) -> bool:
        return self.tolerated is not None and self.failures > self.tolerated


class Children:
    """Up to `count` children that call `target` ("package.module:function").

    With `setup`, each child first calls `target(*setup)`, which returns the function to call.
    `limit` is the time for one call in seconds, without time spent waiting for a processor. A child
    that takes longer, or WALL times as long by the clock, is killed, and the call's reply has the
    failure `time-limit`. `environment` is added to this process's environment. Children start when
    first needed; a forked process starts its own. Usable from any thread; one `map` runs at a time.
    """

    def __init__(
        self,
        target: str,
        count: int,
        limit: float,
        memory: int = MEMORY,
        setup: Sequence[Any] | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.target = target
        self.count = count
        self.limit = limit
        self.memory = memory
        self.setup, self.environment = setup, environment
        self._children: list[_Child] = []
        self._lock = threading.Lock()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """In a forked process: another thread of the parent may have the lock."""
        self._of_parent, self._children = self._children, []  # not closed: their pipes are shared
        self._lock = threading.Lock()

    def map(
        self,
        calls: Sequence[Sequence[Any]],
        tolerated: float | None = None,
        weights: Sequence[int] | None = None,
    ) -> list[Reply]:
        """One reply per call, in order.

        After more than `tolerated` failures, the remaining calls have the failure `not-tried`. A
        call of weight w may take w times the limit. Raises ChildError if no child can start.
        """
        pairs = zip(calls, weights or [1] * len(calls), strict=True)
        batch = _Batch([Call(i, c, w * self.limit) for i, (c, w) in enumerate(pairs)], tolerated)
        with self._lock:
            try:
                self._run(batch)
            except BaseException:
                self.close()  # a reply to an abandoned call must not reach the next batch
                raise
        return batch.replies

    def close(self) -> None:
        """Kill all children."""
        while self._children:
            self._children.pop().kill()

    def _run(self, batch: _Batch) -> None:
        while batch.pending or any(child.calls for child in self._children):
            while len(self._children) < min(self.count, len(batch.pending)):
                self._children.append(
                    _Child(self.target, self.memory, self.setup, self.environment)
                )
            self._assign(batch.pending)
            for child in self._readable():
                self._receive(child, batch)
            now = time.monotonic()
            for child in [child for child in self._children if now >= child.deadline]:
                if child.calls:
                    if not child.extend():
                        self._fail(child, "time-limit", batch)
                elif not child.ready:
                    raise ChildError(self.target, f"did not start within {START_LIMIT:g} s")
            if batch.given_up:
                for child in [child for child in self._children if child.calls]:
                    self._drop(child)
                return

    def _assign(self, pending: deque[Call]) -> None:
        """Send calls to the idle children."""
        for child in [c for c in self._children if c.ready and not c.calls]:
            if not pending:
                return
            if child.sent >= RECYCLE:
                self._drop(child)
                continue
            size = max(1, min(CHUNK, len(pending) // (2 * self.count)))
            calls = [pending.popleft() for _ in range(size)]
            try:
                child.send(calls)
            except OSError:  # it exited while idle: not caused by a call
                pending.extendleft(reversed(calls))
                self._drop(child)

    def _readable(self) -> list[_Child]:
        """The children with output to read, or none if the next deadline comes first."""
        busy = [c for c in self._children if c.calls or not c.ready]
        if not busy:
            return []
        with selectors.DefaultSelector() as selector:
            for child in busy:
                assert child.process.stdout is not None
                selector.register(child.process.stdout, selectors.EVENT_READ, child)
            seconds = min(child.deadline for child in busy) - time.monotonic()
            return [key.data for key, _ in selector.select(max(0.0, seconds))]

    def _receive(self, child: _Child, batch: _Batch) -> None:
        lines = child.receive()
        if lines is None:
            self._fail(child, "crashed", batch)
            return
        for line in lines:
            try:
                reply = Reply(*json.loads(line))
            except (ValueError, TypeError, RecursionError):  # it wrote to the pipe itself
                self._fail(child, "crashed", batch)
                return
            if not child.ready:
                if reply.failure:
                    raise ChildError(self.target, f"cannot start: {reply.detail}")
                child.ready = True
                continue
            if not child.calls:  # it wrote more than its replies
                self._drop(child)
                return
            batch.settle(child.calls.popleft(), reply)
            child.start_clock()
            if reply.failure == "MemoryError":  # its memory may stay full
                self._fail(child, None, batch)
                return

    def _fail(self, child: _Child, failure: str | None, batch: _Batch) -> None:
        """Replace a child; its first call caused the failure, the others are repeated."""
        end = self._drop(child)
        if not child.ready:
            raise ChildError(self.target, f"ended while it started ({end})")
        if failure is not None:
            detail = end if failure == "crashed" else ""
            batch.settle(child.calls.popleft(), Reply(None, failure, detail))
        batch.pending.extendleft(reversed(child.calls))

    def _drop(self, child: _Child) -> str:
        self._children.remove(child)
        return child.kill()
