"""Lines at the bottom of a terminal that are redrawn in place; everything else prints above them.

rich renders the lines, but its `Live` does not place them. When a terminal becomes narrower it
wraps the lines of the last frame; `Live` still moves up by their former number, and parts of that
frame stay on the screen. It also hides the cursor, which a killed process cannot undo.
"""

import io
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.text import Text

REDRAW_SECONDS = 0.5
FALLBACK_SIZE = (80, 24)
CLEAR_ROW_ABOVE = "\x1b[1A\x1b[2K"  # clearing the screen at once, tmux would keep a copy

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


class LiveRegion:
    """A frame that a thread redraws until `stop`, so that times count down and resizes show.

    Until then, whole lines that are written to sys.stdout and sys.stderr go above the frame. Text
    that another process writes to the terminal is not caught.
    """

    def __init__(self, out: TextIO, frame: Frame) -> None:
        self._out, self._frame = out, frame
        self._console = Console(file=io.StringIO(), force_terminal=True, highlight=False)
        self._widths: list[int] = []  # of the lines of the last frame
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="progress")
        self._streams: list[tuple[str, Any, LinesAbove]] = []

    @property
    def active(self) -> bool:
        """Whether the frame is still drawn."""
        return not self._stopped.is_set()

    def start(self) -> None:
        """Draw the frame, and redirect the standard streams that are terminals."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream.isatty():
                above = LinesAbove(stream, self)
                self._streams.append((name, stream, above))
                setattr(sys, name, above)
        self.print("")
        self._thread.start()

    def stop(self) -> None:
        """Erase the frame and give the standard streams back."""
        for _, _, above in self._streams:
            above.close_line()
        self._stopped.set()
        self._thread.join()  # it erases the frame, and unlike this one it cannot be interrupted
        for name, stream, above in self._streams:
            if getattr(sys, name) is above:
                setattr(sys, name, stream)

    def print(self, text: str) -> None:
        """Print complete lines above the frame; once stopped, in its place."""
        with self._lock:
            self._out.write(self._erased() + text + (self._drawn() if self.active else ""))
            self._out.flush()

    def _redraw(self) -> None:
        """Until `stop`, or until an interrupt has ended the main thread before it called that."""
        with suppress(OSError):  # the terminal was closed
            while not self._stopped.wait(REDRAW_SECONDS) and threading.main_thread().is_alive():
                self.print("")
            self._stopped.set()
            self.print("")

    def _erased(self) -> str:
        """Clears the last frame; the cursor is where its first line began.

        Terminals wrap lines that a resize made too long, so a line may cover several rows now.
        """
        columns, lines = terminal_size(self._out)
        rows = sum(max(1, -(-width // columns)) for width in self._widths)
        self._widths = []
        return "\r" + CLEAR_ROW_ABOVE * min(rows, lines - 1) if rows else ""

    def _drawn(self) -> str:
        """The frame, one column narrower than the terminal: a full line may wrap the cursor."""
        columns, lines = terminal_size(self._out)
        columns, lines = max(1, columns - 1), max(1, lines - 1)
        self._console.size = ConsoleDimensions(columns, lines)
        with self._console.capture() as capture:
            self._console.print(self._frame(columns, lines))
        drawn = [line.rstrip() for line in capture.get().splitlines()[-lines:]]
        self._widths = [Text.from_ansi(line).cell_len for line in drawn]
        return "".join(f"{line}\n" for line in drawn)


class LinesAbove(io.TextIOBase):
    """Stands in for a standard stream; prints complete lines above a region."""

    def __init__(self, stream: Any, region: LiveRegion) -> None:
        self._stream, self._region = stream, region
        self._line = ""  # not complete yet
        self._process = os.getpid()

    def write(self, text: str, /) -> int:
        """Print the lines that this completes; as is once the region has stopped.

        A forked process has the region's lock, but not the thread that may hold it.
        """
        if os.getpid() != self._process:
            return int(self._stream.write(text))
        if not self._region.active:
            self._region.print("")
            return int(self._stream.write(text))
        complete, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._region.print(complete + newline)
        return len(text)

    def close_line(self) -> None:
        """Print an incomplete line as a line."""
        if self._line:
            self.write("\n")

    def writelines(self, lines: Iterable[str], /) -> None:  # type: ignore[override]
        """Write each."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        """Whatever else a library uses of a stream, such as `buffer`."""
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Like the stream."""
        return bool(self._stream.isatty())

    def fileno(self) -> int:
        """Like the stream."""
        return int(self._stream.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Like the stream."""
        return str(self._stream.encoding)
