"""The inside of a child process (`tasks.children`): calls in, replies out, as lines of JSON."""

import fcntl
import json
import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tasks.user_code import describe, place_of


class Reply(NamedTuple):
    """The result of one call: a JSON value, or the reason for a failure.

    `failure` is the type of an exception, `time-limit`, `crashed`, or `not-tried`; `detail` is the
    place of an exception in the user's code, or how the child ended.
    """

    value: Any
    failure: str | None = None
    detail: str = ""


def serve() -> None:
    """The main loop of a child: read calls, reply to each, exit with the owner."""
    calls, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what calls read is not the owner's next message
    os.dup2(2, 1)  # what they print is not a reply
    lifeline, target, memory, setup = json.loads(calls.readline())
    _end_with_owner(lifeline)
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
            reply = _call(function, arguments)
            if os.getpid() != pid:  # the call forked: only one of the two goes on
                os._exit(0)
            signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm is of one call only
            with suppress(OSError):  # the call closed it
                os.fchdir(folder)
            _write(replies, reply)


def _call(function: Callable[..., Any], arguments: Sequence[Any]) -> Reply:
    try:
        return Reply(function(*arguments))
    except BaseException as error:  # noqa: BLE001 SystemExit and KeyboardInterrupt, too
        return Reply(None, type(error).__name__, place_of(error))


def _write(replies: TextIO, reply: Reply) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _limit_memory(memory: int) -> None:
    """Let the address space grow by so many bytes; only Linux says how much is in use."""
    with suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _end_with_owner(lifeline: int) -> None:
    """Kill this process, and all that it started, when the owner's end of a pipe closes.

    That is so however the owner ends. On Linux the kernel does it, whatever the process is doing;
    elsewhere a thread, which needs the interpreter's lock.
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
