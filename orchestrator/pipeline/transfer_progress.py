"""Progress of files that are checked or downloaded: a bar on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from contextlib import ExitStack
from typing import Self, TextIO

from rich.console import RenderableType

from cluster.ending import at_end
from orchestrator.cost.forecast import TimeLeft
from orchestrator.pipeline.live_region import LiveRegion, can_redraw
from orchestrator.pipeline.progress_frame import Phase, phase_row, time_left

UNITS = ("B", "kB", "MB", "GB", "TB")


class TransferProgress:
    """Bytes done of a total, with the time left at the speed so far.

    As a context manager it draws a bar if `out` is a terminal; elsewhere it prints a line from time
    to time. `done` bytes at the start count as no time. Several threads may call `advance`.
    """

    def __init__(
        self, label: str, total: int, done: int = 0, out: TextIO | None = None, every: float = 10.0
    ) -> None:
        self.label, self.total, self.done = label, total, done
        self._first, self._start = done, time.monotonic()
        self._out = out or sys.stderr
        self._every, self._last_line = every, self._start
        self._lock = threading.Lock()
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        if can_redraw(self._out):
            region = LiveRegion(self._out, self._frame)
            region.start()
            self._ending.callback(region.stop)
            self._ending.enter_context(at_end(region.stop, before_message=True))
            self._every = float("inf")
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def advance(self, count: int) -> None:
        """Count more bytes; fewer if some were lost."""
        with self._lock:
            self.done += count
            now = time.monotonic()
            if now - self._last_line < self._every:
                return
            self._last_line = now
        phase = self._phase()
        text = f"{phase.label}: {phase.detail}, ETA {time_left(phase.left)}"
        print(text, file=self._out, flush=True)

    def _phase(self) -> Phase:
        now = time.monotonic()
        gained, missing = self.done - self._first, self.total - self.done
        left = TimeLeft((now - self._start) * missing / gained, now) if gained > 0 else None
        share = min(1.0, self.done / self.total) if self.total else 1.0
        detail = f"{size_text(self.done)} of {size_text(self.total)}"
        return Phase(self.label, share, detail, left)

    def _frame(self, columns: int, lines: int) -> RenderableType:
        """Called by the thread that redraws."""
        return phase_row(self._phase())


def size_text(size: float) -> str:
    """`8045000000` -> `8.05 GB`: three digits of the largest unit that is not below 1."""
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    digits = 0 if unit == 0 or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {UNITS[unit]}"
