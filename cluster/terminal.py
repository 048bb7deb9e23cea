"""The output of commands. Every text passes through `printable`.

A file's name, a column's value or a library's message may contain control characters: escape
sequences that change a terminal's title, hide lines or send input, and marks that change the
displayed order of a text. No other module writes to standard output or error.
"""

import unicodedata
from typing import TextIO

_KEPT = "\t\u200c\u200d"  # the last two join letters and emoji


def printable(text: str) -> str:
    r"""The text with every character that is not printable as \u001b and the like; newlines stay.

    JSON keeps its meaning: only its strings can contain such characters, with the same escapes.
    """
    lines = text.split("\n")
    return "\n".join(s if s.isprintable() else "".join(map(_spelled, s)) for s in lines)


def _spelled(character: str) -> str:
    if character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"


def printable_line(text: str) -> str:
    r"""The text as one line with newlines as \n: a name must not look like two lines."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


class PlainError(Exception):
    """An error with a message that is sufficient for the user."""

    def _render_traceback_(self) -> list[str]:
        """The text that IPython shows in place of a traceback."""
        return [printable_line(f"{type(self).__name__}: {self}")]


def echo(text: str, file: TextIO | None = None) -> None:
    """Print lines to standard output, or to another stream."""
    print(printable(text), file=file, flush=True)


def ask(question: str) -> str:
    """The user's reply in the terminal. Raises EOFError without one."""
    return input(printable(question))  # the terminal's own library writes it, not sys.stdout
