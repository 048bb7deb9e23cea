"""Errors that every command turns into one message and exit code 2."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.terminal import PlainError, printable

MAX_WORD = 200  # characters; a path may be long


class UserError(PlainError):
    """Invalid input: the message states what is wrong, where, and what to write instead.

    code: the kind of mistake for programs, if it has one.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


def shortened(value: Any, limit: int = 80) -> str:
    """The repr of a value, cut at `limit` characters, for error messages."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def one_line(message: str) -> str:
    """The message as one printable line; very long words are cut."""
    text = printable(" ".join(message.split()))
    # Closing quotes stay, because they separate the value from the remedy.
    return re.sub(rf"(\S{{{MAX_WORD}}})\S+?(['\")]{{0,3}}[:;,.]?)(?!\S)", r"\1…\2", text)


@contextmanager
def naming(file: str | Path) -> Iterator[None]:
    """Add the name of an open file to errors of reading, writing or locking it, which lack it."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(file)
        raise


class StoreError(PlainError, ValueError):
    """The storage cannot be used; the message states what to write instead."""
