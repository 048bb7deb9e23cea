"""The error that every command turns into one message and exit code 2."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.terminal import PlainError, printable

MAX_WORD = 200  # characters; a path may be long


class UserError(PlainError):
    """Invalid input: the message says what is wrong, where, and what to write instead.

    `code` names the kind of mistake for programs, where it has one.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


def shortened(value: Any, limit: int = 80) -> str:
    """The value as Python writes it, cut at `limit` characters, for error messages."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def one_line(message: str) -> str:
    """The message as one printable line; words that are too long to read are cut."""
    text = printable(" ".join(message.split()))
    # What closes a quoted value stays: it separates the value from the remedy.
    return re.sub(rf"(\S{{{MAX_WORD}}})\S+?(['\")]{{0,3}}[:;,.]?)(?!\S)", r"\1…\2", text)


@contextmanager
def naming(file: str | Path) -> Iterator[None]:
    """Add the name of an open file to errors of reading, writing or locking it, which have none."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(file)
        raise


class StoreError(PlainError, ValueError):
    """The storage cannot be used; the message says what to write instead."""
