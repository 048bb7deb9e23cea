"""Prompts compared with themselves at their earlier visits. Pure.

Prompts differ in difficulty, and many runs draw them in an order that follows it: that the mean of
an update falls is not evidence against a run. So visits are compared within prompts.

A lasting fall is a fall over pairs of visits. If a prompt is solved as often at both visits, the
sign of their difference is a fair coin; if the run learns, falls are rarer still. The sum of n such
differences is at least t times the root of the sum of their squares with a probability of at most
exp(-t²/2) (Hoeffding 1963, theorem 2).

A sudden fall is a fall of the visits in neighbouring updates, each from the visit before. It is
compared with the largest such fall of the run after permuting the visits of each prompt.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.plugins.streams import generator

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Chance that a check of a run without a fault finds one, at all places together. A comparison has
# .05 (`stats.inference.ALPHA`): one is planned. A run has twenty checks, and a sound one is silent.
ALPHA = 1e-3
PERMUTATIONS = 999  # none of which has such a step: ALPHA
MOST_PERMUTED = 20_000  # groups
PLACES = 100  # updates, at most, at which a lasting fall is looked for
SIDE_UPDATES, SIDE_GROUPS = 3, 32  # at least on each side of a fall
# Shares of the level at first visits, from which on a fall leads back to it: if later visits rise
# again, and if there are none.
BACK, BACK_AT_END = 0.65, 0.85
LEARNS = -1.0  # score of the later visits, at most
FALL = 1.5  # factor by which the odds of quality fall at least; learning fluctuates by less
LEAST = 1e-12  # below which differences are 0 apart from rounding


class Pairs(NamedTuple):
    """Pairs of visits of the same prompts: before an update, and from it on.

    before, after: the means of both. score: the sum of the falls in roots of the sum of their
    squares; negative for a rise.
    """

    update: int
    before: float
    after: float
    number: int
    score: float

    def falls(self, looks: int = 1) -> bool:
        """Beyond chance, by ALPHA divided among the looks."""
        return self.score >= threshold(looks)

    def rises(self) -> bool:
        """Beyond chance, by ALPHA."""
        return self.score <= -threshold(1)

    @property
    def is_rising(self) -> bool:
        """Whether it rises by at least half of what is beyond chance."""
        return self.score <= -threshold(1) / 2


def threshold(looks: int) -> float:
    """The score that chance reaches with a probability of at most ALPHA in this many looks."""
    return float(np.sqrt(2 * np.log(looks / ALPHA)))


def pairs_needed(looks: int) -> int:
    """Pairs from which on a fall of all of them is beyond chance."""
    return int(np.ceil(threshold(looks) ** 2))


class Step(NamedTuple):
    """A sudden fall: visits from an update on, and the last ones of the same prompts before.

    back: whether it leads back to the level at the first visits, from which the run learns again.
    """

    update: int
    before: float
    after: float
    back: bool


class Visits:
    """The visits of a run: values of groups by prompt, and the scans for falls among them.

    update, prompt, values: [groups], in any order; those without a value are left out. `span`: the
    values for nothing solved and for everything solved.
    """

    def __init__(
        self, update: Integers, prompt: Integers, values: Floats, span: tuple[float, float]
    ) -> None:
        order = np.lexsort((update, prompt))
        order = order[np.isfinite(values[order])]
        self.update, self.values, self.span = update[order], values[order], span
        _, first, self.prompt, self.count = np.unique(
            prompt[order], return_index=True, return_inverse=True, return_counts=True
        )
        self.first = first.astype(np.int64)
        updates, self.row = np.unique(self.update, return_inverse=True)
        self.updates = updates.astype(np.int64)

    @cached_property
    def places(self) -> Integers:
        """The updates before which a lasting fall is looked for."""
        inner = self.updates[SIDE_UPDATES : 1 - SIDE_UPDATES]
        chosen = np.linspace(0, len(inner) - 1, min(PLACES, len(inner)))
        return np.asarray(inner[np.unique(chosen.astype(int))])

    @property
    def looks(self) -> int:
        """How many comparisons the scan for a lasting fall makes."""
        return max(1, len(self.places))

    @property
    def needed(self) -> int:
        """Pairs that the scan needs."""
        return pairs_needed(self.looks)

    @cached_property
    def available(self) -> int:
        """Pairs at the place with the most."""
        return max((pairs.number for pairs in self._all), default=0)

    @cached_property
    def _all(self) -> list[Pairs]:
        return [self._at(place) for place in self.places.tolist()]

    @cached_property
    def lasting(self) -> list[Pairs]:
        """The falls by the visits from a place on."""
        return [
            pairs
            for pairs in self._all
            if pairs.falls(self.looks) and self._is_large(pairs.before, pairs.after)
        ]

    def _is_large(self, before: float, after: float) -> bool:
        low, high = self.span
        return (before - low) * (high - after) >= FALL * (after - low) * (high - before)

    def _at(self, place: int) -> Pairs:
        """The i-th last visit before a place with the i-th from it on.

        A policy may redraw prompts that happened to be solved, which are then solved less often
        without any fall. That explains at most their earlier lead over all prompts.
        """
        earlier = np.bincount(self.prompt[self.update < place], minlength=len(self.count))
        number = np.minimum(earlier, self.count - earlier)
        middle = self.first + earlier
        last, again = self.values[(middle - 1)[earlier > 0]], number[earlier > 0] > 0
        chosen = max(0.0, float(last[again].mean() - last.mean())) if again.any() else 0.0
        step = _numbered(number)
        middle = np.repeat(middle, number)
        return _paired(place, self.values[middle - 1 - step] - chosen, self.values[middle + step])

    @cached_property
    def trend(self) -> Pairs:
        """The i-th visit of each prompt with its i-th last, whenever they were."""
        number = self.count // 2
        step = _numbered(number)
        start = np.repeat(self.first, number)
        end = np.repeat(self.first + self.count - 1, number)
        return _paired(0, self.values[start + step], self.values[end - step])

    @cached_property
    def step(self) -> Step | None:
        """The largest sudden fall, if it is beyond chance: larger than in all permuted runs.

        The visits of each prompt are permuted after subtracting the mean by number of the visit,
        which is learning.
        """
        share = -(-len(self.values) // MOST_PERMUTED)
        if 1 < share < len(self.count):  # a part of the prompts is enough
            some = self.prompt % share == 0
            return Visits(self.update[some], self.prompt[some], self.values[some], self.span).step
        if self.available < self.needed:
            return None
        width = -(-SIDE_GROUPS * len(self.updates) // len(self.values))
        width = max(SIDE_UPDATES, min(width, len(self.updates) // 4))
        total, count = self._since_last_visit(self.values, width)
        means = np.divide(total, count, out=np.zeros(len(total)), where=count > 0)
        # A policy may redraw prompts that happened to be solved, throughout a run.
        scores = (means - max(0.0, float(np.median(means)))) * np.sqrt(count)
        at = int(np.argmax(scores))
        inside = (self.row >= at) & (self.row < at + width) & self.again
        after = float(self.values[inside].mean()) if inside.any() else np.nan
        if not self._is_large(after + means[at], after):
            return None
        number = _numbered(self.count)
        noise = self.values - (np.bincount(number, self.values) / np.bincount(number))[number]
        rng = generator("permuted visits")
        for _ in range(PERMUTATIONS):
            order = np.lexsort((rng.random(len(noise)), self.prompt))
            total, count = self._since_last_visit(noise[order], width)
            if (total / np.sqrt(np.maximum(1, count))).max() >= scores[at]:
                return None
        visit, low = np.flatnonzero(inside), self.span[0]
        first = self.first[self.prompt[visit]]
        last = first + self.count[self.prompt[visit]] - 1
        fallen = (after - low) / max(LEAST, float(self.values[first].mean()) - low)
        later = last > visit
        again = _paired(0, self.values[visit[later]], self.values[last[later]])
        learns = again.score <= LEARNS
        back = fallen >= BACK and learns if later.any() else fallen >= BACK_AT_END
        return Step(int(self.updates[at]), after + float(means[at]), after, back)

    @cached_property
    def again(self) -> npt.NDArray[np.bool_]:
        """Which visits are not the first of their prompt."""
        return _numbered(self.count) > 0

    def _since_last_visit(self, values: Floats, width: int) -> tuple[Floats, Floats]:
        """Per window of updates, the sum of the falls since a prompt's last visit.

        Also the number of such visits; both are [updates - width + 1].
        """
        falls, row = (values[:-1] - values[1:])[self.again[1:]], self.row[self.again]
        rows = len(self.updates)
        both = np.bincount(row, falls, rows), np.bincount(row, minlength=rows)
        total, count = (np.convolve(each, np.ones(width), "valid") for each in both)
        return total, count


def _numbered(number: Integers) -> Integers:
    """0, 1, …, n - 1 for each number n."""
    return np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)


def _paired(update: int, before: Floats, after: Floats) -> Pairs:
    if not len(before):
        return Pairs(update, float("nan"), float("nan"), 0, 0.0)
    falls = before - after
    size = float(np.sqrt((falls**2).sum()))
    score = float(falls.sum()) / size if size > LEAST else 0.0
    return Pairs(update, float(before.mean()), float(after.mean()), len(falls), score)
