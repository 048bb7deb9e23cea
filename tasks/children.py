"""Child processes that may hang, crash or eat memory, and are then killed and replaced.

Time limits by signals work in no thread but the main one, so a verifier that uses them fails, or
kills its host, inside Ray workers. A child process can be ended from any thread of any process.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

START_LIMIT = 120.0  # seconds for a child to import what it needs, on a machine that is busy
MEMORY = 2 * 2**30  # bytes of address space
RECYCLE = 20_000  # calls after which a child is replaced, so that caches cannot grow for ever
_ROOT = str(Path(__file__).resolve().parents[1])


class Reply(NamedTuple):
    """What came of one call: a JSON value, or why there is none."""

    value: Any
    failure: str | None = None


class _Child:
    """One process; at most one call is with it at any time."""

    def __init__(self, target: str, memory: int, cpu_seconds: int) -> None:
        program = f"from tasks.children import serve; serve({target!r}, {memory}, {cpu_seconds})"
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C ends the sweep, not the answer in work
        )
        self.call: int | None = None
        self.ready = False
        self.calls = 0
        self.deadline = time.monotonic() + START_LIMIT
        self._buffer = b""

    def send(self, call: int, arguments: Sequence[Any], limit: float) -> None:
        """Hand over one call. Raises OSError where the child is gone."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self.process.stdin.flush()
        self.call, self.calls, self.deadline = call, self.calls + 1, time.monotonic() + limit

    def receive(self) -> str | None:
        """The next whole line, "" while it is incomplete, None at the child's end."""
        assert self.process.stdout is not None
        read = os.read(self.process.stdout.fileno(), 65536)
        if not read:
            return None
        self._buffer += read
        if not self._buffer.endswith(b"\n"):
            return ""
        line, self._buffer = self._buffer, b""
        return line.decode()

    def end(self) -> None:
        """Kill, and let go of the pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what was unsent belonged to a child that is gone
                pipe.close()


class Children:
    """Up to `count` children that call `target` ("package.module:function").

    `limit` seconds is the time for one call; a child that needs more is killed, and the call's
    reply says so. May be used from any thread; one `map` runs at a time.
    """

    def __init__(self, target: str, count: int, limit: float, memory: int = MEMORY) -> None:
        self.target, self.count, self.limit, self.memory = target, count, limit, memory
        self._children: list[_Child] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def map(self, calls: Sequence[Sequence[Any]]) -> list[Reply]:
        """One reply per call, in order. Raises RuntimeError where no child can start."""
        replies: list[Reply | None] = [None] * len(calls)
        with self._lock:
            self._run(deque(enumerate(calls)), replies)
        return [reply for reply in replies if reply is not None]

    def close(self) -> None:
        """End all children."""
        for child in self._children:
            child.end()
        self._children.clear()

    def _run(self, owed: deque[tuple[int, Sequence[Any]]], replies: list[Reply | None]) -> None:
        while owed or any(child.call is not None for child in self._children):
            while len(self._children) < min(self.count, len(owed)):
                self._children.append(_Child(self.target, self.memory, int(self.limit) + 2))
            self._hand_out(owed)
            for child in self._wait():
                self._hear(child, replies)
            self._end_overdue(replies)

    def _hand_out(self, owed: deque[tuple[int, Sequence[Any]]]) -> None:
        idle = [c for c in self._children if c.ready and c.call is None]
        for child in idle:
            if not owed:
                return
            if child.calls >= RECYCLE:
                self._drop(child)
                continue
            call, arguments = owed.popleft()
            try:
                child.send(call, arguments, self.limit)
            except OSError:  # it died while idle: the call is not to blame
                owed.appendleft((call, arguments))
                self._drop(child)

    def _wait(self) -> list[_Child]:
        """The children that have something to say, or none when the next deadline comes first."""
        busy = [c for c in self._children if c.call is not None or not c.ready]
        if not busy:
            return []
        with selectors.DefaultSelector() as selector:
            for child in busy:
                assert child.process.stdout is not None
                selector.register(child.process.stdout, selectors.EVENT_READ, child)
            left = min(child.deadline for child in busy) - time.monotonic()
            return [key.data for key, _ in selector.select(max(0.0, left))]

    def _hear(self, child: _Child, replies: list[Reply | None]) -> None:
        line = child.receive()
        if line == "":
            return
        if line is None:
            if not child.ready:
                raise RuntimeError(f"{self.target} cannot start; python -c 'import …' says why")
            self._fail(child, "crashed", replies)
        elif not child.ready:
            child.ready = True
        else:
            assert child.call is not None
            replies[child.call] = Reply(*json.loads(line))
            child.call = None

    def _end_overdue(self, replies: list[Reply | None]) -> None:
        now = time.monotonic()
        for child in list(self._children):
            if now < child.deadline:
                continue
            if child.call is not None:
                self._fail(child, "time-limit", replies)
            elif not child.ready:
                self._drop(child)
                raise RuntimeError(f"{self.target} did not start within {START_LIMIT:g} s")

    def _fail(self, child: _Child, why: str, replies: list[Reply | None]) -> None:
        if child.call is not None:
            replies[child.call] = Reply(None, why)
        self._drop(child)

    def _drop(self, child: _Child) -> None:
        self._children.remove(child)
        child.end()


def serve(target: str, memory: int, cpu_seconds: int) -> None:
    """What a child does: read calls, answer them, end with its parent.

    The kernel's own limits bound it too, should the parent be killed while it hangs.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no reply
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
        replies.write(json.dumps(_answer(function, json.loads(line))) + "\n")
        replies.flush()


def _answer(function: Callable[..., Any], arguments: Sequence[Any]) -> Reply:
    try:
        return Reply(function(*arguments))
    except (Exception, RecursionError, MemoryError) as error:  # noqa: BLE001 all are the answer's
        return Reply(None, type(error).__name__)
