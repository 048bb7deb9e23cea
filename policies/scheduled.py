"""Online policies that follow the order of difficulty, or the last pass rates."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.plugins.shares import SLACK, Places
from policies.base import (
    Floats,
    PolicyError,
    Rows,
    check_band,
    check_count,
    check_share,
)
from policies.online import History, OnlinePolicy, rates_of, some


@dataclass(kw_only=True)
class Curriculum(OnlinePolicy):
    """Prompts in the order of their pass rates in the probe, beginning with `first` (easy or hard).

    The prompts of an update are adjacent in that order. The first update takes one end and the last
    update the other; the updates between are evenly spaced.

    Options:
        first: `easy` (the default) or `hard`.
    """

    name: ClassVar[str] = "curriculum"
    version: ClassVar[int] = 2

    first: str = "easy"

    def __post_init__(self) -> None:
        if self.first not in ("easy", "hard"):
            raise PolicyError(f"curriculum: first is {self.first!r}: write easy or hard")
        if self.first == "hard":
            self.easier = "start with first: easy"
        else:
            self.harder = "start with first: hard"
        self._order: Rows | None = None

    def next(self, update: int, history: History) -> pa.Array:
        """The prompts at this update's place in the order."""
        if self._order is None:
            rates = rates_of(history).round(12)
            ranks = history.stream("curriculum").permutation(len(rates))
            # nan, an unknown rate, comes last either way.
            self._order = np.lexsort((ranks, rates if self.first == "hard" else -rates))
        progress = (update - 1) / max(1, history.updates - 1)
        begin = round(progress * (len(self._order) - history.size))
        return history.ids(self._order[begin : begin + history.size])


@dataclass(kw_only=True)
class Pools(OnlinePolicy):
    """Easy, normal and hard pools by the last pass rates, drawn by shares; solved prompts retire.

    A prompt is hard below `low`, easy above `high`, and otherwise normal, by its last group or else
    the probe. The shares of all prompts drawn are exact to one prompt at any time. If a pool has
    too few prompts, the others make up for it.

    Options:
        easy, normal, hard: the shares (0.1, 0.8, 0.1), which sum to 1.
        low, high: the pass rates that separate the pools (0.2, 0.8).
        retire: a prompt retires after this many entirely correct groups in a row (2), unless too
            few others are left.
    """

    name: ClassVar[str] = "pools"
    version: ClassVar[int] = 2

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
        self._places, self._given = Places(3), 0

    def next(self, update: int, history: History) -> pa.Array:
        rates, rng = history.pass_rate, history.rng
        retired = history.solved >= self.retire
        hard = rates < np.float32(self.low)
        easy = rates > np.float32(self.high)
        pools = {"normal": ~(hard | easy), "hard": hard, "easy": easy}
        rows = {name: np.flatnonzero(pool & ~retired) for name, pool in pools.items()}
        shares = np.array([getattr(self, name) for name in pools])
        self._places.give(shares, history.groups_drawn - self._given)
        self._given = history.groups_drawn
        counts = self._places.next(shares, history.size)
        chosen = [some(rows[name], n, rng) for name, n in zip(pools, counts, strict=True)]
        missing = history.size - sum(map(len, chosen))
        for others in (*rows.values(), np.flatnonzero(retired)):
            if missing:
                left = np.setdiff1d(others, np.concatenate(chosen), assume_unique=True)
                chosen.append(some(left, missing, rng))
                missing -= len(chosen[-1])
        return history.ids(np.concatenate(chosen))


@dataclass(kw_only=True)
class Predicted(OnlinePolicy):
    """The prompts whose groups are most likely to be live, by a running estimate of each pass rate.

    A Beta posterior per prompt begins with the probe's counts. Every group and every refresh adds
    its counts, and counts lose weight with each update. For each of at most 16,384 random prompts,
    one Thompson draw p gives the learnability 1 − (1−p)^G − p^G; an update takes the prompts with
    the highest (compare MoPPS, and DARE, arXiv 2605.09188).

    Without a model of drift, a prompt that no update has seen keeps the estimate of the base model.
    With `drift: shift`, earlier counts are moved to the current model. All prompts share one shift
    of the logit since the probe, fitted to the groups and refreshes of probed prompts (logistic
    likelihood, their probe's rates (c+1)/(n+2) as offsets, a standard normal prior). Counts seen at
    a shift s then keep their number, and the logit of their rate (c+1)/(n+2) moves by the shift
    since then. One shared shift cannot express that some prompts are learned faster.

    Options:
        discount: the weight that counts keep with each update (0.98).
        drift: `shift`, or omit it.
        drift_discount: the weight that older completions keep with each update in the fit of the
            shift (0.8).
    """

    name: ClassVar[str] = "predicted"
    candidates: ClassVar[int] = 16_384

    discount: float = 0.98
    drift: str | None = None
    drift_discount: float | None = None

    def __post_init__(self) -> None:
        if self.drift not in (None, "shift"):
            raise PolicyError(f"predicted: drift is {self.drift!r}: write shift, or leave it out")
        if self.drift_discount is not None and self.drift is None:
            raise PolicyError(
                "predicted: drift_discount needs drift: write drift: shift beside it, or remove it"
            )
        for option in ("discount", "drift_discount"):
            value: Any = getattr(self, option)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 < value <= 1) and (value is not None or option == "discount"):
                raise PolicyError(
                    f"predicted: {option} is {value!r}: write a number above 0, at most 1 "
                    "(no discount)"
                )
        # Prompts with the same counts in the probe share a level [N]. Per level: the logit, and
        # correct and marked completions. Per update, from 0: the shift.
        self._levels: tuple[Rows, Floats, Floats, Floats] | None = None
        self._shifts = [0.0]

    def next(self, update: int, history: History) -> pa.Array:
        """The highest learnabilities of Thompson draws."""
        count = len(history.pass_rate)
        most = min(count, max(self.candidates, history.size))
        rows = np.arange(count)
        if most < count:
            rows = np.sort(history.rng.choice(count, most, replace=False))
        a, b = self.posterior(rows, update, history)
        rates = history.rng.beta(a, b)
        learnability = 1 - rates**history.group_size - (1 - rates) ** history.group_size
        best = np.argsort(-learnability, kind="stable")[: history.size]
        return history.ids(rows[best])

    def posterior(self, rows: Rows, update: int, history: History) -> tuple[Floats, Floats]:
        """a and b of the Beta posterior of each of these prompts before an update."""
        count, most = len(history.pass_rate), len(rows)
        place_of = np.full(count, -1, np.int32)
        place_of[rows] = np.arange(most)
        shifts = self.shifts(update, history) if self.drift else np.zeros(update + 1)
        samples = history.samples[rows]
        successes = history.successes[rows]
        of_probe = self.discount ** (update - 1.0)
        right = moved(successes, samples, np.full(most, shifts[-1]))
        a = 1 + of_probe * right
        b = 1 + of_probe * (samples - right)
        # A shift includes the refresh of its own update, and the groups of the update before.
        for later, (at, row, correct, marked) in enumerate((history.refreshed, history.drawn)):
            place = place_of[row]
            known = np.flatnonzero(place >= 0)
            place = place[known]
            at = at[known]
            marked = marked[known]
            weight = self.discount ** np.maximum(update - 1.0 - at, 0)
            since = shifts[-1] - shifts[np.minimum(at + later, update)]
            right = moved(correct[known], marked, since)
            a += np.bincount(place, weight * right, most)
            b += np.bincount(place, weight * (marked - right), most)
        return a, b

    def shifts(self, update: int, history: History) -> Floats:
        """The common shift of the logit before each update [update + 1]; 0 for the first two."""
        if self._levels is None:
            most = int(history.samples.max(initial=0)) + 1
            codes = history.samples.astype(np.int64) * most + history.successes
            levels, level = np.unique(codes, return_inverse=True)
            rates = (levels % most + 1) / (levels // most + 2)
            zeros = np.zeros(len(levels))
            self._levels = (level, np.log(rates / (1 - rates)), zeros, zeros.copy())
        level, logits, right, total = self._levels
        discount = 0.8 if self.drift_discount is None else self.drift_discount
        for now in range(len(self._shifts), update + 1):
            right *= discount
            total *= discount
            for seen, (at, row, correct, marked) in (
                (now, history.refreshed),
                (now - 1, history.drawn),
            ):
                of = slice(*np.searchsorted(at, [seen, seen + 1]))
                own = np.flatnonzero(history.samples[row[of]] > 0)
                at_level = level[row[of][own]]
                right += np.bincount(at_level, correct[of][own], len(right))
                total += np.bincount(at_level, marked[of][own], len(total))
            low, high = -MOST_SHIFT, MOST_SHIFT
            while high - low > 1e-9:  # the posterior is concave
                middle = (low + high) / 2
                slope = np.sum(right - total / (1 + np.exp(-(logits + middle)))) - middle
                low, high = (middle, high) if slope > 0 else (low, middle)
            self._shifts.append((low + high) / 2 if total.any() else 0.0)
        return np.array(self._shifts[: update + 1])


MOST_SHIFT = 20.0  # of a logit: rates within 2e-9 of 0 and 1, which no counts tell apart


def moved(correct: npt.ArrayLike, marked: npt.ArrayLike, shift: Floats) -> Floats:
    """The correct completions [n] of the marked ones, had they been drawn after a logit shift.

    Without a shift they are unchanged.
    """
    total = np.asarray(marked, float)
    rate = (np.asarray(correct) + 1) / (total + 2)
    change = 1 / (1 + (1 / rate - 1) * np.exp(-shift)) - rate
    return np.clip(correct + total * np.where(shift == 0, 0, change), 0, total)
