"""Standard output and error that pass on only printable text, also of other libraries."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from cluster.terminal import printable


class PrintableStream:
    """Passes text written to a stream through `printable`; the rest is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the printable text."""
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each text."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def unfiltered(stream: Any) -> Any:
    """The stream behind a `PrintableStream`, for Decile's own escape sequences."""
    return stream.stream if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_streams() -> Iterator[None]:
    """Pass on only printable text, also of logging, warnings and other libraries."""
    streams: Any = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(PrintableStream, streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
