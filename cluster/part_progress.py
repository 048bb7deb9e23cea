"""The progress of actors within parts, since Ray Data returns nothing before a part's end.

Each actor keeps one short text in the cluster's GCS server, which the driver reads periodically.
This needs no further process, and only counts can be lost.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

from cluster.ray_internals import delete_notes, notes, put_note

REPORT_SECONDS = 2.0  # between two reports of an actor, and between two readings


class PartReporter:
    """In an actor: counts ended samples of one part after another.

    Without a `channel`, as outside Ray, counts are not read.
    """

    def __init__(self, channel: str = "") -> None:
        self.channel, self.key = channel, f"{channel}/{os.uname().nodename}-{os.getpid()}"
        self._part, self._count, self._reported = "", 0, 0.0

    def start(self, part: str) -> bool:
        """Start counting this part; returns whether it was begun before.

        An actor that has died since may have stored some of it.
        """
        self._part, self._count = part, 0
        if not self.channel:
            return False
        # If they cannot be read, storing samples twice is harmless.
        texts = notes(self.channel, REPORT_SECONDS) or []
        begun = any(json.loads(text)[0] == part for text in texts)
        self._put()
        return begun

    def add(self, count: int) -> None:
        """Count further ended samples."""
        self._count += count
        if self.channel and time.monotonic() - self._reported >= REPORT_SECONDS:
            self._put()

    def _put(self) -> None:
        self._reported = time.monotonic()
        put_note(self.key, json.dumps([self._part, self._count]), REPORT_SECONDS)


@contextmanager
def following(on_counts: Callable[[Mapping[str, int]], None]) -> Iterator[str]:
    """Yield a channel for reporters; `on_counts` gets the latest count of each current part.

    It is called in a thread, which has ended when the block is left. Needs a connected Ray.
    """
    channel, ended = f"decile-progress-{uuid4().hex}", threading.Event()

    def follow() -> None:
        while not ended.wait(REPORT_SECONDS):
            counts: dict[str, int] = {}
            texts = notes(channel, REPORT_SECONDS)
            for part, count in map(json.loads, texts or ()):
                counts[part] = max(count, counts.get(part, 0))  # possibly of a dead actor
            if texts is not None and not ended.is_set():
                on_counts(counts)

    thread = threading.Thread(target=follow, daemon=True, name="part-progress")
    thread.start()
    try:
        yield channel
    finally:
        ended.set()
        thread.join()
        delete_notes(channel, REPORT_SECONDS)
