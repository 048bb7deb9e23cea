"""How fast work goes, and how much time is left of it. Pure."""

from dataclasses import dataclass
from math import exp, inf
from typing import NamedTuple

LATE = 0.25  # expected further seconds per second by which a report is late


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

    def _with(self, measured: float, expected: float) -> tuple[float, float]:
        fades = exp(-expected / self.horizon) if self.horizon > 0 else 1.0
        return fades * self._sums[0] + measured, fades * self._sums[1] + expected

    def add(self, measured: float, expected: float) -> None:
        """Work of so many estimated seconds took so long."""
        self._sums = self._with(measured, expected)

    @property
    def correction(self) -> float:
        """1 before anything is measured."""
        return self.correction_with(0.0, 0.0)

    def correction_with(self, measured: float, expected: float) -> float:
        """The same if work of so many estimated seconds had taken so long, too."""
        total, estimated = self._with(measured, expected)
        return total / estimated if estimated > 0 else 1.0
