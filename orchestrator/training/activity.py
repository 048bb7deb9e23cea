"""What a trial reports: every update, and its current activity between updates.

A large model's evaluation takes minutes.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NotRequired, TypedDict

from orchestrator.sampling.base import Listener, Listeners

ACTIVITY_SECONDS = 5.0  # between two reports, and after an update's


class UpdateReport(TypedDict):
    """After an update: metrics by their names in MLflow, a `Tally` as a dict, further events.

    A report for update 0 has no groups; it explains why no update has begun.
    """

    update: int
    metrics: dict[str, float]
    groups: NotRequired[dict[str, int | float]]
    explanation: str


class ActivityReport(TypedDict):
    """The progress of a trial's current activity."""

    activity: str
    done: int
    total: int


Report = Callable[[UpdateReport | ActivityReport], None]


class Activity:
    """Periodically reports the progress of a trial's current activity.

    Without `report` nothing is reported. Workers of a group have none, because their reports would
    wait for each other.
    """

    def __init__(self, report: Report | None) -> None:
        self._report, self._reported = report, time.monotonic()
        self._unfinished = ""  # the last reported activity, if it was unfinished

    def __call__(self, activity: str, done: int, total: int) -> None:
        """`done` of `total` is done. The end is reported at once if a part was reported."""
        ends = done >= total and activity == self._unfinished
        if self._report and (ends or time.monotonic() - self._reported >= ACTIVITY_SECONDS):
            self._report({"activity": activity, "done": min(done, total), "total": total})
            self.reported()
            self._unfinished = activity if done < total else ""

    def reported(self) -> None:
        """The trial has sent a different report."""
        self._reported, self._unfinished = time.monotonic(), ""

    def listener(self, activity: str, total: int) -> Listener:
        """Reports how many of `total` completions have ended."""
        ended = 0

        def on_ended(more: int) -> None:
            nonlocal ended
            ended += more
            self(activity, ended, total)

        return Listener(on_ended)

    def listeners(self, activity: str) -> Listeners:
        """Reports how many of the completions of this activity have ended."""
        return partial(self.listener, activity)
