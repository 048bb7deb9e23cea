"""Names the place where a user's own code failed, so that their error is one line."""

import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from os.path import isabs
from pathlib import Path
from traceback import walk_tb

from tasks.base import Task, TaskError

LENGTH = 300  # characters of an error's own message
_ROOT = Path(__file__).resolve().parents[1]
_OURS = tuple(f"{_ROOT / name}/" for name in ("orchestrator", "tasks", "policies", "cluster"))
_LIBRARIES = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")})


def place_of(error: BaseException) -> str:
    """`file:line` of the user's innermost line on the way to the error; "" where there is none.

    A plugin that is installed among the libraries counts as the user's where no other file does.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    # A path that is not absolute is of a compiled library, or of no file.
    theirs = [(file, n) for file, n in frames if isabs(file) and not file.startswith(_OURS)]
    own = [place for place in theirs if not place[0].startswith(_LIBRARIES)]
    file, line = next(reversed(own or theirs), ("", 0))
    return f"{file}:{line}" if file else ""


def describe(error: BaseException) -> str:
    """The error in one line, with its place in the user's code."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = text if len(text) <= LENGTH else f"{text[:LENGTH]}…"
    place = place_of(error)
    return f"{text} ({place})" if place else text


def title_of(task: Task) -> str:
    """How messages name a task of the user's own."""
    return f"task {type(task).__module__}:{type(task).__qualname__}"


@contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Turn whatever a user's code raises into a TaskError that says `what` raised it, and where."""
    try:
        yield
    except TaskError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(f"{what} raised {describe(error)}") from error
