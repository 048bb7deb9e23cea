"""What a trial reports: every update, and what it is at between two.

A large model's evaluation takes minutes.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NotRequired, TypedDict

from orchestrator.sampling.base import Listener, Listeners

ACTIVITY_SECONDS = 5.0  # between two reports, and after an update's


class UpdateReport(TypedDict):
    """After an update: metrics by their names in MLflow, a `Tally` as a dict, what else happened.

    Update 0 says, without groups, why none has begun.
    """

    update: int
    metrics: dict[str, float]
    groups: NotRequired[dict[str, int | float]]
    explanation: str


class ActivityReport(TypedDict):
    """How much of what a trial does is done."""

    activity: str
    done: int
    total: int


Report = Callable[[UpdateReport | ActivityReport], None]


class Activity:
    """Reports how far a trial is with what it does, from time to time.

    Without `report`, as for one of several workers, whose reports would wait for each other,
    nothing is.
    """

    def __init__(self, report: Report | None) -> None:
        self._report, self._reported = report, time.monotonic()
        self._unfinished = ""  # what was reported last, if it was not done by then

    def __call__(self, activity: str, done: int, total: int) -> None:
        """So much of it is done. Its end is reported at once if a part of it was."""
        ends = done >= total and activity == self._unfinished
        if self._report and (ends or time.monotonic() - self._reported >= ACTIVITY_SECONDS):
            self._report({"activity": activity, "done": min(done, total), "total": total})
            self.reported()
            self._unfinished = activity if done < total else ""

    def reported(self) -> None:
        """The trial has reported something else."""
        self._reported, self._unfinished = time.monotonic(), ""

    def listener(self, activity: str, total: int) -> Listener:
        """Reports how many of so many completions have ended."""
        ended = 0

        def on_ended(more: int) -> None:
            nonlocal ended
            ended += more
            self(activity, ended, total)

        return Listener(on_ended)

    def listeners(self, activity: str) -> Listeners:
        """Reports how many of the completions of this activity have ended."""
        return partial(self.listener, activity)
