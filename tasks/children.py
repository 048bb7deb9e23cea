"""Child processes that may hang, crash or run out of memory, and are then killed and replaced.

Time limits by signals work in the main thread only, so a verifier that uses them fails, or kills
its host, inside Ray workers. A child process can be killed from any thread of any process.
Calls and replies are lines of JSON over pipes; nothing is pickled and nothing is forked.
"""

import atexit
import json
import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

START_LIMIT = 120.0  # seconds for a child's imports on a busy machine
MEMORY = 2 * 2**30  # bytes of address space
RECYCLE = 20_000  # calls after which a child is replaced, so that its caches stay bounded
_ROOT = str(Path(__file__).resolve().parents[1])


class Reply(NamedTuple):
    """The result of one call: a JSON value, or the reason for a failure."""

    value: Any
    failure: str | None = None


class _Child:
    """One process, which handles at most one call at a time."""

    def __init__(self, target: str, memory: int, cpu_seconds: int) -> None:
        program = f"from tasks.children import serve; serve({target!r}, {memory}, {cpu_seconds})"
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C stops the sweep, not the call in progress
        )
        self.call: int | None = None
        self.ready = False
        self.calls = 0
        self.deadline = time.monotonic() + START_LIMIT
        self._buffer = b""

    def send(self, call: int, arguments: Sequence[Any], limit: float) -> None:
        """Send one call. Raises OSError if the child has exited."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self.process.stdin.flush()
        self.call, self.calls, self.deadline = call, self.calls + 1, time.monotonic() + limit

    def receive(self) -> str | None:
        """The next complete line, "" while it is incomplete, None when the child has exited."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 65536)
        if not data:
            return None
        self._buffer += data
        if not self._buffer.endswith(b"\n"):
            return ""
        line, self._buffer = self._buffer, b""
        return line.decode()

    def kill(self) -> None:
        """Kill the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # unsent data of a child that has exited
                pipe.close()


class Children:
    """Up to `count` children that call `target` ("package.module:function").

    `limit` is the time for one call in seconds; a child that needs more is killed, and the call's
    reply has the failure `time-limit`. Usable from any thread; one `map` runs at a time.
    """

    def __init__(self, target: str, count: int, limit: float, memory: int = MEMORY) -> None:
        self.target, self.count, self.limit, self.memory = target, count, limit, memory
        self._children: list[_Child] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def map(self, calls: Sequence[Sequence[Any]]) -> list[Reply]:
        """One reply per call, in order. Raises RuntimeError if no child can start."""
        replies: list[Reply | None] = [None] * len(calls)
        with self._lock:
            self._run(deque(enumerate(calls)), replies)
        return [reply for reply in replies if reply is not None]

    def close(self) -> None:
        """Kill all children."""
        for child in self._children:
            child.kill()
        self._children.clear()

    def _run(self, pending: deque[tuple[int, Sequence[Any]]], replies: list[Reply | None]) -> None:
        while pending or any(child.call is not None for child in self._children):
            while len(self._children) < min(self.count, len(pending)):
                self._children.append(_Child(self.target, self.memory, int(self.limit) + 2))
            self._assign(pending)
            for child in self._readable():
                self._receive(child, replies)
            self._kill_overdue(replies)

    def _assign(self, pending: deque[tuple[int, Sequence[Any]]]) -> None:
        """Send calls to the idle children."""
        idle = [c for c in self._children if c.ready and c.call is None]
        for child in idle:
            if not pending:
                return
            if child.calls >= RECYCLE:
                self._drop(child)
                continue
            call, arguments = pending.popleft()
            try:
                child.send(call, arguments, self.limit)
            except OSError:  # it exited while idle, so the call is not the cause
                pending.appendleft((call, arguments))
                self._drop(child)

    def _readable(self) -> list[_Child]:
        """The children with output to read, or none if the next deadline comes first."""
        busy = [c for c in self._children if c.call is not None or not c.ready]
        if not busy:
            return []
        with selectors.DefaultSelector() as selector:
            for child in busy:
                assert child.process.stdout is not None
                selector.register(child.process.stdout, selectors.EVENT_READ, child)
            seconds = min(child.deadline for child in busy) - time.monotonic()
            return [key.data for key, _ in selector.select(max(0.0, seconds))]

    def _receive(self, child: _Child, replies: list[Reply | None]) -> None:
        line = child.receive()
        if line == "":
            return
        if line is None:
            if not child.ready:
                raise RuntimeError(f"{self.target} cannot start: import its module to see why")
            self._fail(child, "crashed", replies)
        elif not child.ready:
            child.ready = True
        else:
            assert child.call is not None
            replies[child.call] = Reply(*json.loads(line))
            child.call = None

    def _kill_overdue(self, replies: list[Reply | None]) -> None:
        now = time.monotonic()
        for child in list(self._children):
            if now < child.deadline:
                continue
            if child.call is not None:
                self._fail(child, "time-limit", replies)
            elif not child.ready:
                self._drop(child)
                raise RuntimeError(f"{self.target} did not start within {START_LIMIT:g} s")

    def _fail(self, child: _Child, failure: str, replies: list[Reply | None]) -> None:
        if child.call is not None:
            replies[child.call] = Reply(None, failure)
        self._drop(child)

    def _drop(self, child: _Child) -> None:
        self._children.remove(child)
        child.kill()


def serve(target: str, memory: int, cpu_seconds: int) -> None:
    """The main loop of a child: read calls, answer them, exit with the parent.

    Kernel limits also bound it, in case the parent is killed while the child hangs.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library's output is not a reply
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
        arguments = json.loads(line)
        try:
            reply = Reply(function(*arguments))
        except (Exception, RecursionError, MemoryError) as error:  # noqa: BLE001 the answer's fault
            reply = Reply(None, type(error).__name__)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
