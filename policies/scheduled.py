"""Online policies that follow the order of difficulty, or the last pass rates."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from policies.base import (
    SLACK,
    PolicyError,
    Rows,
    check_band,
    check_count,
    check_share,
    largest_remainder,
)
from policies.online import History, OnlinePolicy, rates_of, some


@dataclass(kw_only=True)
class Curriculum(OnlinePolicy):
    """Prompts in the order of their pass rates in the probe, from `first` (easy or hard) on.

    The prompts of an update are neighbours in that order. The first update takes one end, the last
    update the other; the updates between are evenly spaced.
    """

    name: ClassVar[str] = "curriculum"

    first: str = "easy"

    def __post_init__(self) -> None:
        if self.first not in ("easy", "hard"):
            raise PolicyError(f"curriculum: first is {self.first!r}: write easy or hard")
        self._order: Rows | None = None

    def next(self, update: int, history: History) -> pa.Array:
        """The prompts at this update's place in the order."""
        if self._order is None:
            rates = rates_of(history).round(12)
            ranks = np.random.default_rng(history.seed).permutation(len(rates))
            # nan, an unknown rate, comes last either way.
            self._order = np.lexsort((ranks, rates if self.first == "hard" else -rates))
        progress = (update - 1) / max(1, history.updates - 1)
        begin = round(progress * (len(self._order) - history.size))
        return history.ids(self._order[begin : begin + history.size])


@dataclass(kw_only=True)
class Pools(OnlinePolicy):
    """Easy, normal and hard pools by the last pass rates, drawn by shares; solved prompts retire.

    A prompt is hard below `low`, easy above `high`, otherwise normal, by its last group or else the
    probe. `easy`, `normal` and `hard` are the shares of an update; a pool with too few prompts is
    made up for by the others. A prompt retires after `retire` entirely correct groups in a row,
    unless too few others are left.
    """

    name: ClassVar[str] = "pools"

    easy: float = 0.1
    normal: float = 0.8
    hard: float = 0.1
    low: float = 0.2
    high: float = 0.8
    retire: int = 2

    def __post_init__(self) -> None:
        for option in ("easy", "normal", "hard"):
            check_share(self.name, option, getattr(self, option), "a share")
        if abs(self.easy + self.normal + self.hard - 1) > SLACK:
            total = self.easy + self.normal + self.hard
            raise PolicyError(f"pools: easy, normal and hard sum to {total:g}: write shares of 1")
        check_band(self.name, self.low, self.high)
        check_count(self.name, "retire", self.retire)

    def next(self, update: int, history: History) -> pa.Array:
        """Random prompts of each pool."""
        rates, rng = history.pass_rate, history.rng
        retired = history.solved >= self.retire
        hard, easy = rates < np.float32(self.low), rates > np.float32(self.high)
        pools = {"normal": ~(hard | easy), "hard": hard, "easy": easy}
        rows = {name: np.flatnonzero(pool & ~retired) for name, pool in pools.items()}
        chosen = [some(rows[name], count, rng) for name, count in self._counts(history.size)]
        missing = history.size - sum(map(len, chosen))
        for others in (*rows.values(), np.flatnonzero(retired)):
            if missing:
                left = np.setdiff1d(others, np.concatenate(chosen), assume_unique=True)
                chosen.append(some(left, missing, rng))
                missing -= len(chosen[-1])
        return history.ids(np.concatenate(chosen))

    def _counts(self, size: int) -> list[tuple[str, int]]:
        """Prompts of each pool: largest remainder method."""
        names = ("normal", "hard", "easy")
        exact = np.array([getattr(self, name) for name in names]) * size
        counts = largest_remainder(exact / (exact.sum() / size), size)
        return [*zip(names, counts, strict=True)]


@dataclass(kw_only=True)
class Predicted(OnlinePolicy):
    """The prompts whose groups are most likely live, by a running estimate of each pass rate.

    A Beta posterior per prompt begins with the probe's counts; every group adds its own, and counts
    lose `discount` of their weight with each update. An update takes the prompts with the highest
    learnability 1 − (1−p)^G − p^G of one Thompson draw p each, among at most 16,384 random prompts
    (compare MoPPS, and DARE, arXiv 2605.09188).
    """

    name: ClassVar[str] = "predicted"
    candidates: ClassVar[int] = 16_384

    discount: float = 0.98

    def __post_init__(self) -> None:
        value: Any = self.discount
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise PolicyError(
                f"predicted: discount is {value!r}: write a number above 0, at most 1 (no discount)"
            )

    def next(self, update: int, history: History) -> pa.Array:
        """The highest learnabilities of Thompson draws."""
        count = len(history.pass_rate)
        most = min(count, max(self.candidates, history.size))
        rows = np.arange(count)
        if most < count:
            rows = np.sort(history.rng.choice(count, most, replace=False))
        at, row, correct, marked = history.drawn
        place = np.minimum(np.searchsorted(rows, row), most - 1)
        known = rows[place] == row
        weight = self.discount ** (update - 1.0 - at) * known
        of_probe = self.discount ** (update - 1.0)
        failures = history.samples[rows] - history.successes[rows]
        a = 1 + of_probe * history.successes[rows] + np.bincount(place, weight * correct, most)
        b = 1 + of_probe * failures + np.bincount(place, weight * (marked - correct), most)
        rates = history.rng.beta(a, b)
        learnability = 1 - rates**history.group_size - (1 - rates) ** history.group_size
        best = np.argsort(-learnability, kind="stable")[: history.size]
        return history.ids(rows[best])
