"""How fast work goes, and how much time is left of it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, inf
from typing import NamedTuple

LATE = 0.25  # expected further seconds per second by which a report is late
STALL = 10.0  # times as long as usual: from there on, a delay says nothing about the speed

Sums = tuple[float, float]


class TimeLeft(NamedTuple):
    """Seconds left at a time, and when the next report is due; times of time.monotonic()."""

    seconds: float
    at: float
    due: float = inf

    def seconds_at(self, now: float) -> float:
        """The same at a later time, if there has been no report since."""
        late = max(0.0, now - max(self.at, self.due))
        return max(0.0, self.seconds - (now - self.at - late)) + LATE * late


def left_between_reports(seconds: float, step: float, since: float, now: float) -> TimeLeft:
    """What is left of work that had `seconds` left at its last report, `since` seconds ago.

    `step`: the seconds from that report to the next one.
    """
    late = max(0.0, since - step)
    left = max(0.0, seconds - (since - late)) + LATE * late
    return TimeLeft(left, now, now + max(0.0, step - since))


@dataclass
class Speed:
    """Measured seconds per estimated second, as a moving average.

    prior: estimated seconds, as if these had been measured as estimated. horizon: estimated seconds
    after which a measurement counts 1/e; the prior fades in the same way.
    """

    prior: float
    horizon: float

    def __post_init__(self) -> None:
        self._sums = self.prior, self.prior  # measured and estimated

    def _added(self, sums: Sums, measured: float, expected: float) -> Sums:
        if min(sums) > 0:
            measured = min(measured, STALL * expected * sums[0] / sums[1])
        fades = exp(-expected / self.horizon) if self.horizon > 0 else 1.0
        return fades * sums[0] + measured, fades * sums[1] + expected

    def assume(self, correction: float) -> None:
        """What the prior says, if not that the estimate is right."""
        self._sums = self.prior * correction, self.prior

    def add(self, measured: float, expected: float) -> None:
        """Work of so many estimated seconds took so long."""
        self._sums = self._added(self._sums, measured, expected)

    @property
    def correction(self) -> float:
        """1 before anything is measured."""
        return self.correction_with([])

    def correction_with(self, running: Iterable[tuple[float, float]]) -> float:
        """The same if work that takes longer than usual had just ended: (seconds, estimate)."""
        sums = self._sums
        for measured, expected in running:
            if sums[1] > 0 and measured * sums[1] > expected * sums[0]:
                sums = self._added(sums, measured, expected)
        return sums[0] / sums[1] if sums[1] > 0 else 1.0


def duration(seconds: float) -> str:
    """`75` -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
