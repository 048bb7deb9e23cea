"""Workers of one cell that wait for each other too long, described in one line."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.ray_internals import (
    WorkerPlace,
    places_callback,
    places_of_nccl,
    read_places,
    worker_failures,
)

NAMED = 2  # workers that a line names with node and process
GRACE = 120  # seconds after which torch ends what Ray's detector for NCCL has not ended
# Messages of torch (gloo, NCCL, the rendezvous store) and Ray about an endless wait.
_TIMEOUT = re.compile(
    r"Timed out waiting \d+ ?ms for|[Ww]ait timeout after|Timed out after \d+ seconds waiting for"
    r"|timeout caused pair closure|collective operation time(d )?out|timed out in blocking wait"
)


class Hang(RuntimeError):
    """Workers have waited for each other longer than `resources.timeout`."""


def is_timeout(error: BaseException) -> bool:
    """Whether a worker's error is from a wait for other workers, according to its text.

    Errors of files or networks are not: they may come from the user's own server.
    """
    return not isinstance(error, OSError) and bool(_TIMEOUT.search(str(error)))


class GroupWatch:
    """Determines why a Ray Train group has failed. folder: of the run, on the driver's node."""

    def __init__(self, folder: Path, function: str, timeout: int, *, nccl: bool) -> None:
        self.folder = folder
        self.timeout = timeout
        self.nccl = nccl
        self.file = folder / "places.json"
        self.callback: Any = places_callback(self.file, function)

    def hang(self, error: BaseException) -> Hang | None:
        """The hang behind an error of the group; None for other errors."""
        failures = worker_failures(error)
        places = places_of_nccl(self.folder)
        if not places:
            quiet, places = read_places(self.file)
            # A wait in NCCL ends the process after this time.
            died = self.nccl and quiet > self.timeout
            if not failures:  # before they run
                if not is_timeout(error):
                    return None
            elif not died and not all(map(is_timeout, failures.values())):
                return None
        for place in places:
            if place.stack:  # for the log file
                error.add_note(f"Stack of worker {place.rank}:\n{place.stack}")
        return Hang(hang_line(places, self.timeout))


def hang_line(places: Sequence[WorkerPlace], timeout: int) -> str:
    """Which workers waited for which, and what to do."""
    remedy = "was making progress, increase resources.timeout"
    waiting = [place for place in places if place.failed or place.waits]
    others = [place for place in places if not (place.failed or place.waits)]
    if not others:  # all that have not failed are in an exchange, if any
        waiting = [place for place in places if place.failed]
        others = [place for place in places if not place.failed]
    if not others:
        return f"all workers timed out after {timeout} s waiting for each other: if one {remedy}"
    which = _named(others)
    if not others[0].line and not others[0].stack:
        which += ", which does not respond"
    elif others[0].line:
        which += f", which was at {others[0].line}"
    return f"{_named(waiting)} timed out after {timeout} s waiting for {which}: if it {remedy}"


def _named(places: Sequence[WorkerPlace]) -> str:
    named = [f"worker {p.rank} (node {p.node}, process {p.process})" for p in places[:NAMED]]
    more = [f"{len(places) - NAMED} more"] if len(places) > NAMED else []
    return ", ".join(named + more) or "a worker"
