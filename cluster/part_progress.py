"""How far actors are with their parts, while Ray Data returns nothing of a part before its end.

Each actor keeps one short text in the cluster's GCS server, which the driver reads from time to
time: there is no further process, and what is lost is a count.
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
    """In an actor: counts what has ended of one part after the other.

    Without a `channel`, as outside of Ray, nobody reads it.
    """

    def __init__(self, channel: str = "") -> None:
        self.channel, self.key = channel, f"{channel}/{os.uname().nodename}-{os.getpid()}"
        self._part, self._count, self._reported = "", 0, 0.0

    def start(self, part: str) -> bool:
        """From now on, counts are of this part; returns whether it was begun before.

        An actor that has died since may have stored some of it.
        """
        self._part, self._count = part, 0
        if not self.channel:
            return False
        # Where they cannot be read, what is stored twice does no harm.
        texts = notes(self.channel, REPORT_SECONDS) or []
        begun = any(json.loads(text)[0] == part for text in texts)
        self._put()
        return begun

    def add(self, count: int) -> None:
        """So many more have ended."""
        self._count += count
        if self.channel and time.monotonic() - self._reported >= REPORT_SECONDS:
            self._put()

    def _put(self) -> None:
        self._reported = time.monotonic()
        put_note(self.key, json.dumps([self._part, self._count]), REPORT_SECONDS)


@contextmanager
def following(on_counts: Callable[[Mapping[str, int]], None]) -> Iterator[str]:
    """Yield a channel for reporters; `on_counts` gets the latest count of each part they are at.

    It is called in a thread, which has ended when the block is left. Needs a connected Ray.
    """
    channel, ended = f"decile-progress-{uuid4().hex}", threading.Event()

    def follow() -> None:
        while not ended.wait(REPORT_SECONDS):
            counts: dict[str, int] = {}
            texts = notes(channel, REPORT_SECONDS)
            for part, count in map(json.loads, texts or ()):
                counts[part] = max(count, counts.get(part, 0))  # of an actor that died, too
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
