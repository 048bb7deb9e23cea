"""A terminal for tests: the part of one that Decile's output needs, and commands that run in it."""

import codecs
import io
import os
import pty
import re
import subprocess
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.local_cluster import environment

PARTIAL = re.compile(r"(\x1b\[?[0-9;]*)?$")
TOKENS = re.compile(r"\x1b\[1?A|\x1b\[2K|\x1b\[[0-9;]*m|\r|\n|[^\x00-\x1f\x7f]")


class Screen:
    """Rows of text that wrap, scroll and, when the width changes, are wrapped again.

    Any other control sequence, and moving above the screen, is an AssertionError.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.rows, self.wrapped = [""], [False]  # also those that scrolled out; continues below
        self.row = self.column = 0
        self.pending = ""

    @property
    def top(self) -> int:
        """The first row on the screen."""
        return max(0, len(self.rows) - self.lines)

    @property
    def shown(self) -> list[str]:
        """What is on the screen."""
        return [row.rstrip() for row in self.rows[self.top :]]

    @property
    def printed(self) -> str:
        """Everything that is or was on the screen, without what was erased."""
        return "\n".join(self._logical_lines()).rstrip()

    def feed(self, text: str) -> None:
        """Print text with control sequences; one that is not complete waits for the rest."""
        text, place = self.pending + text, 0
        self.pending = PARTIAL.search(text)[0]
        text = text.removesuffix(self.pending)
        for token in TOKENS.finditer(text):
            assert token.start() == place, f"unknown control sequence: {text[place:][:20]!r}"
            place = token.end()
            self._apply(token[0])
        assert place == len(text), f"unknown control sequence: {text[place:][:20]!r}"

    def resize(self, columns: int, lines: int) -> None:
        """Wrap all rows again; the cursor stays in its line."""
        line = sum(not wrapped for wrapped in self.wrapped[: self.row])
        starts = [0, *(i + 1 for i, wrapped in enumerate(self.wrapped) if not wrapped)]
        offset = (self.row - starts[line]) * self.columns + self.column
        lines_before = self._logical_lines()
        self.rows, self.wrapped = [], []
        for number, text in enumerate(lines_before):
            if number == line:
                self.row, self.column = len(self.rows) + offset // columns, offset % columns
            chunks = [text[i : i + columns] for i in range(0, len(text), columns)] or [""]
            self.rows += chunks
            self.wrapped += [True] * (len(chunks) - 1) + [False]
        self.columns, self.lines = columns, lines

    def _logical_lines(self) -> list[str]:
        lines = [""]
        for row, wrapped in zip(self.rows, self.wrapped, strict=True):
            lines[-1] += row.ljust(self.columns) if wrapped else row.rstrip()
            lines += [] if wrapped else [""]
        return lines[:-1]

    def _apply(self, token: str) -> None:
        if token == "\r":
            self.column = 0
        elif token == "\n":
            self._down(wrapped=False)
        elif token in ("\x1b[1A", "\x1b[A"):
            assert self.row > self.top, "moves above the screen"
            self.row -= 1
        elif token == "\x1b[2K":
            self.rows[self.row], self.wrapped[self.row] = "", False
        elif not token.startswith("\x1b"):
            if self.column == self.columns:
                self._down(wrapped=True)
                self.column = 0
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + token + row[self.column + 1 :]
            self.column += 1

    def _down(self, wrapped: bool) -> None:
        self.wrapped[self.row] = wrapped
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")
            self.wrapped.append(False)


class FakeTerminal(io.StringIO):
    """A stream whose text appears on a screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def write(self, text: str, /) -> int:
        self.screen.feed(text.replace("\n", "\r\n"))  # as a terminal driver does
        return len(text)

    def isatty(self) -> bool:
        return True


def run_in_terminal(
    command: Sequence[str],
    screen: Screen,
    folder: Path,
    watch: Callable[[Screen, subprocess.Popen[bytes]], tuple[int, int] | None] = lambda *_: None,
    **variables: str,
) -> int:
    """Run a command in a pseudo-terminal to its end; returns its exit code.

    After each output `watch` may return a new (columns, lines) for the terminal.
    """
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (screen.lines, screen.columns))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment(**variables), "TERM": "xterm-256color", **variables},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while data := os.read(master, 65536):
            screen.feed(decoder.decode(data))
            if size := watch(screen, process):
                screen.resize(*size)
                termios.tcsetwinsize(master, (size[1], size[0]))
    except OSError:  # Linux's end of file of a pseudo-terminal
        pass
    finally:
        os.close(master)
    return process.wait(60)
