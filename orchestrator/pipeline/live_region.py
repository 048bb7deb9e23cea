"""Lines that rich redraws in place: at the bottom of a terminal, or in a notebook's output.

All other output is printed above them.
"""

import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cluster.printable_streams import PrintableStream, unfiltered
from cluster.terminal import printable

REDRAWS = 2.0  # per second
FALLBACK_SIZE = (80, 24)
NOTEBOOK_LINES = 10  # printed lines above a frame
NOTEBOOK_HTML = '<pre style="overflow: auto; max-height: 30em">{code}</pre>'

# Called with the columns and lines that the frame may fill.
Frame = Callable[[int, int], RenderableType]


def is_notebook(out: TextIO) -> bool:
    """Whether a stream is that of a Jupyter kernel, whose frontends can update an output."""
    return type(out).__module__.startswith("ipykernel.")


def progress_stream() -> TextIO:
    """Standard error, or standard output in a notebook, which shows standard error in red."""
    return sys.stdout if is_notebook(sys.stdout) else sys.stderr


def open_region(out: TextIO, frame: Frame) -> "LiveRegion | NotebookRegion | None":
    """A region that shows the frame until `stop`; None if nothing can be redrawn."""
    if not is_notebook(out) and not can_redraw(out):
        return None
    region = NotebookRegion(frame) if is_notebook(out) else LiveRegion(out, frame)
    region.start()
    return region


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
            file=unfiltered(out), force_terminal=True, highlight=False, markup=False, soft_wrap=True
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
        """Draw the frame. Other output is made printable before rich reads its styles."""
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


class NotebookRegion:
    """A frame in the output of a notebook's cell, which a thread redraws until `stop`.

    It is an IPython display that is replaced: every frontend supports these, without ipywidgets.
    The last printed lines stay above the frame, and all of them once it has ended.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame, self._lines, self._shown = frame, list[str](), dict[str, str]()
        self._stopped, self._lock = threading.Event(), threading.Lock()

    def start(self) -> None:
        """Display the frame below the cell that runs."""
        from IPython.display import display

        shown: Callable[..., Any] = display  # untyped
        self._handle = shown({"text/plain": ""}, raw=True, display_id=True)
        self.refresh()
        self._thread = threading.Thread(target=self._redraw, daemon=True)
        self._thread.start()

    def print(self, text: str) -> None:
        """Print lines above the frame."""
        self._lines += printable(text).split("\n")
        self.refresh()

    def stop(self) -> None:
        """Leave the printed lines alone."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._thread.join()
            self.refresh()

    def _redraw(self) -> None:
        while not self._stopped.wait(1 / REDRAWS):
            self.refresh()

    def refresh(self) -> None:
        """Replace the display, if it changes."""
        with self._lock:
            columns, lines = FALLBACK_SIZE
            console = Console(
                record=True, file=io.StringIO(), width=columns, force_jupyter=False, highlight=False
            )
            ended = self._stopped.is_set()
            for line in self._lines if ended else self._lines[-NOTEBOOK_LINES:]:
                console.print(Text(printable(line)))
            if not ended:
                console.print(self._frame(columns, lines))
            content = {
                "text/html": console.export_html(
                    inline_styles=True, code_format=NOTEBOOK_HTML, clear=False
                ),
                "text/plain": console.export_text(),
            }
            if content != self._shown:
                self._shown = content
                self._handle.update(content, raw=True)
