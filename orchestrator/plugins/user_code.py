"""Locates failures in a user's own code, so that errors are one line."""

import inspect
import os
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from os.path import isabs, join
from traceback import walk_tb
from typing import Any

from orchestrator.plugins.project_modules import PACKAGES, ROOT

LENGTH = 300  # characters of an error's own message
_OURS = tuple(join(ROOT, name, "") for name in PACKAGES)
_INSTALLED = tuple({join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")})
_LIBRARIES = (join(sysconfig.get_path("stdlib"), ""), *_INSTALLED)


def place_of(error: BaseException) -> str:
    """`file:line` of the user's innermost line in the traceback; "" if there is none.

    A plugin that is installed among the libraries counts as the user's if no other file does.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    # A relative path belongs to a compiled library, or is not a file.
    theirs = [(file, n) for file, n in frames if isabs(file) and not file.startswith(_OURS)]
    own = [place for place in theirs if not place[0].startswith(_LIBRARIES)]
    installed = [place for place in theirs if place[0].startswith(_INSTALLED)]
    file, line = next(reversed(own or installed), ("", 0))
    return f"{file}:{line}" if file else ""


def describe(error: BaseException) -> str:
    """The error in one line, with its place in the user's code."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 of a user's class
        message = "its message cannot be read"
    text = " ".join(f"{type(error).__name__}: {message}".split())
    text = text if len(text) <= LENGTH else f"{text[:LENGTH]}…"
    place = place_of(error)
    return f"{text} ({place})" if place else text


def is_own(plugin: Any) -> bool:
    """Whether a class, a function (with options bound) or an object's class is Decile's own."""
    plugin = plugin.func if isinstance(plugin, partial) else plugin
    if not (inspect.isclass(plugin) or inspect.isroutine(plugin)):
        plugin = type(plugin)  # an object may compute attributes, and fail
    return str(plugin.__module__).partition(".")[0] in PACKAGES


_leave = os._exit
_calling = threading.local()  # pid: of the process, while this thread calls a user's code


def _exit(status: int) -> None:
    """Like `os._exit`, but raises if a user's code calls it, since it would end the command."""
    if getattr(_calling, "pid", None) == os.getpid():
        raise SystemExit(f"os._exit({status})")
    _leave(status)


@contextmanager
def _one_process() -> Iterator[None]:
    """Prevent a user's code in this block from ending this process or continuing in a fork."""
    pid, before = os.getpid(), getattr(_calling, "pid", None)
    os._exit, _calling.pid = _exit, pid  # type: ignore[assignment]
    try:
        yield
    finally:
        if os.getpid() != pid:
            _leave(0)
        _calling.pid = before


@contextmanager
def user_errors(what: str, refused: type[Exception], plugin: object = None) -> Iterator[None]:
    """Turn exceptions of a user's code into `refused`, with `what` raised it, and the place.

    If the `plugin` is Decile's own, the exception is a bug and keeps its traceback.
    """
    try:
        with _one_process():
            yield
    except refused:
        raise
    except (Exception, SystemExit) as error:
        if plugin is not None and is_own(plugin):
            raise
        raise refused(f"{what} raised {describe(error)}") from error
