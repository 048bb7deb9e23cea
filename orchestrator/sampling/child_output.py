"""What this process and its children print meanwhile, so that an error of a child can be named.

An engine's processes report why they do not start in their own output only.
"""

import os
import re
import sys
import threading
from collections import deque
from types import TracebackType
from typing import Self

MAX_LINES = 2_000
_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception)): (.+)")
# Errors that only point to the one before them.
_POINTERS = ("initialization failed", "See stack trace", "root cause above")


class CapturedOutput:
    """Copies standard output and error of this process and its children; all of it passes on."""

    def __enter__(self) -> Self:
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        sys.stdout.flush()
        sys.stderr.flush()
        self._saved = os.dup(1), os.dup(2)
        read, write = os.pipe()
        # The children keep the pipe after the block: it is read until the last of them ends.
        self._reader = threading.Thread(target=self._copy, args=(read, os.dup(2)), daemon=True)
        self._reader.start()
        for standard in (1, 2):
            os.dup2(write, standard)
        os.close(write)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for standard, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, standard)
            os.close(saved)

    def root_cause(self) -> str:
        """The first error that was printed and does not point to another; empty without one.

        One of a line that is logged as an error, if there is any: warnings quote errors as well.
        """
        self._reader.join(timeout=1)  # ends with the children
        lines = [line for line in self.lines if not any(words in line for words in _POINTERS)]
        for candidates in ([line for line in lines if "ERROR" in line], lines):
            for line in candidates:
                if match := _ERROR.search(line):
                    return f"{match[1]}: {match[2].strip()}"
        return ""

    def _copy(self, read: int, onward: int) -> None:
        with os.fdopen(read, "rb") as stream, os.fdopen(onward, "wb", buffering=0) as copy:
            for line in stream:
                self.lines.append(line.decode(errors="replace"))
                copy.write(line)
