"""Lines at the bottom of a terminal that rich redraws in place; all else prints above them."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cluster.terminal import PrintableStream, printable, unfiltered

REDRAWS = 2.0  # per second
FALLBACK_SIZE = (80, 24)

# Called with the columns and lines that the frame may fill.
Frame = Callable[[int, int], RenderableType]


def can_redraw(out: TextIO) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    return out.isatty() and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


def terminal_size(out: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal behind a stream."""
    with suppress(OSError, ValueError):
        columns, lines = os.get_terminal_size(out.fileno())
        if columns and lines:
            return columns, lines
    return FALLBACK_SIZE


def styled(text: str, style: str = "") -> Text:
    """A printable text in one line of a frame; cut where it does not fit."""
    return Text(printable(text), style, no_wrap=True, overflow="ellipsis")


class _Terminal(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Leave it visible: a killed process could not show it again."""
        return False


class LiveRegion(Live):
    """A frame that a thread redraws until `stop`, so that times count down.

    Until then, whole lines that are written to sys.stdout and sys.stderr go above the frame, if
    they are terminals. Text that another process writes to the terminal is not caught. A terminal
    that becomes narrower wraps the last frame, and may keep parts of it.
    """

    def __init__(self, out: TextIO, frame: Frame) -> None:
        console = _Terminal(
            file=unfiltered(out),
            force_terminal=True,
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        super().__init__(
            console=console,
            get_renderable=lambda: frame(max(1, console.width - 1), max(1, console.height - 1)),
            refresh_per_second=REDRAWS,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._streams = sys.stdout, sys.stderr
        os.register_at_fork(after_in_child=self._write_directly)

    def _write_directly(self) -> None:
        """A forked process has the locks, but not the thread that may hold them."""
        if self.is_started:
            sys.stdout, sys.stderr = self._streams

    def print(self, text: str) -> None:
        """Print lines above the frame; once stopped, in its place."""
        self.console.print(Text(printable(text)))
        if self.is_started:
            self.refresh()

    def start(self, refresh: bool = False) -> None:
        """Draw the frame. What others write is made printable before rich reads its styles."""
        super().start(refresh)
        self._proxies = PrintableStream(sys.stdout), PrintableStream(sys.stderr)
        sys.stdout, sys.stderr = self._proxies

    def stop(self) -> None:
        """Erase the frame and give the standard streams back."""
        if self.is_started:
            for stream in self._proxies:
                stream.flush()  # prints an incomplete line as a line
            super().stop()
            sys.stdout, sys.stderr = self._streams
