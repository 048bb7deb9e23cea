"""Online policies that draw additional groups until an update is full."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from policies.base import Bools, Floats, Needs, Rows, check_band, check_count, check_share
from policies.online import MAX_DRAWS, History, OnlinePolicy, least_drawn, some
from policies.pass_rate import NEAR


@dataclass(kw_only=True)
class Dynamic(OnlinePolicy):
    """Draws groups until an update is full of live ones (DAPO, arXiv 2503.14476 §3.2).

    A group is live if its rewards differ. Prompts come in random order, each once before any is
    repeated. An update draws as many groups as it still lacks.

    Options:
        max_draws: an update draws at most this multiple of its prompts (4). It then trains on the
            live groups that it has.
    """

    name: ClassVar[str] = "dynamic"
    needs: ClassVar[Needs] = "nothing"
    cost: ClassVar[str] = "the rollouts of discarded groups"

    max_draws: int = MAX_DRAWS

    def __post_init__(self) -> None:
        check_count(self.name, "max_draws", self.max_draws)

    def next(self, update: int, history: History) -> pa.Array:
        """Random prompts, those drawn least often first."""
        return history.ids(least_drawn(history, history.fresh(update)))

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """Groups whose rewards differ."""
        return (correct > 0) & (correct < marked)


@dataclass(kw_only=True)
class Balanced(Dynamic):
    """Draws groups until an update is full of live ones with a pass rate from `low` to `high`.

    Balanced online filtering (arXiv 2504.03380). Groups whose rewards are all equal are discarded
    regardless of the band.

    Options:
        low, high: the ends of the band (0.2, 0.8), both included.
        max_draws: as for `dynamic`.
    """

    name: ClassVar[str] = "balanced"

    low: float = 0.2
    high: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_band(self.name, self.low, self.high)

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """Live groups within the band."""
        in_band = (correct >= marked * (self.low - NEAR)) & (correct <= marked * (self.high + NEAR))
        return super().keep(correct, marked) & in_band


@dataclass(kw_only=True)
class Greso(Dynamic):
    """As `dynamic`, but mostly skips prompts whose last groups taught nothing (arXiv 2506.02177).

    Prompts come in epochs, each in a random order. A prompt whose last n groups were all correct is
    submitted with probability `p_easy`^n, and one whose last n were all wrong with `p_hard`^n, at
    least 0.01. Otherwise it is skipped until the next epoch. From the second epoch on, an update
    lowers `p_easy` by 0.01 if the share of its groups that are all correct is at least
    `target_easy`, and raises it otherwise, between 0.05 and 0.95. `p_hard` is adjusted likewise.

    The floor, the limits and the defaults follow the authors' code; its thresholds of the mean
    reward (0.98 and 0.11) are "all correct" and "all wrong" here. There are three other
    differences. An update draws as many additional prompts as it lacks (the code estimates more,
    and drops the surplus). The skips of an update depend on the groups of earlier updates only. If
    an update crosses the end of an epoch, the new epoch passes over prompts that it already has.

    Options:
        p_easy, p_hard: the probabilities at the start (0.5, 0.5).
        target_easy, target_hard: the target shares of all-correct and all-wrong groups (1/12, 1/6).
        max_draws: as for `dynamic`.
    """

    name: ClassVar[str] = "greso"
    version: ClassVar[int] = 2

    p_easy: float = 0.5
    p_hard: float = 0.5
    target_easy: float = 1 / 12
    target_hard: float = 1 / 6

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("p_easy", "p_hard"):
            check_share(self.name, option, getattr(self, option), "a probability")
        for option in ("target_easy", "target_hard"):
            check_share(self.name, option, getattr(self, option), "a share")
        # State after the updates until `_done`, easy and hard: probabilities, and streaks by
        # prompt.
        self._done = 0
        self._epoch = 0
        self._place = 0
        self._chances = [self.p_easy, self.p_hard]
        self._streaks: list[Rows] = []
        self._orders: dict[int, tuple[Rows, Floats]] = {}

    def next(self, update: int, history: History) -> pa.Array:
        """The next prompts of the epoch that are not skipped."""
        if not self._streaks:
            self._streaks = [np.zeros(len(history.prompt_ids), np.int64) for _ in range(2)]
        at, row, correct, marked = history.drawn
        for past in np.unique(at[(at > self._done) & (at < update)]).tolist():
            of = slice(*np.searchsorted(at, [past, past + 1]))
            _, self._epoch, self._place = self._submit(of.stop - of.start, history)
            rows, marks = row[of], marked[of]
            flat = [correct[of] == marks, correct[of] == 0]
            for i, target in enumerate((self.target_easy, self.target_hard)):
                uniform, streak = flat[i] & (marks > 0), self._streaks[i]
                streak[rows] = np.where(marks > 0, uniform * (streak[rows] + 1), streak[rows])
                if self._epoch:
                    step = -0.01 if uniform.mean() >= target else 0.01
                    self._chances[i] = min(0.95, max(0.05, self._chances[i] + step))
            self._done = past
        drawn = int(np.count_nonzero(at == update))
        return history.ids(self._submit(drawn + history.size, history)[0][drawn:])

    def _submit(self, count: int, history: History) -> tuple[Rows, int, int]:
        """The next `count` distinct rows from the current place on, and the place after them."""
        epoch, place = self._epoch, self._place
        pool = len(history.prompt_ids)
        rows = np.empty(0, np.int64)
        while missing := count - len(rows):
            if place == pool:
                epoch, place = epoch + 1, 0
            if epoch not in self._orders:
                rng = history.stream("greso", epoch)
                # This epoch and the one before, between which an update may lie.
                self._orders = {e: o for e, o in self._orders.items() if e == epoch - 1}
                self._orders[epoch] = rng.permutation(pool), rng.random(pool)
            order, luck = (
                values[place : place + 4 * missing + 64] for values in self._orders[epoch]
            )
            parts = zip(self._chances, self._streaks, strict=True)
            chances = [np.maximum(float(p) ** streak[order], 0.01) for p, streak in parts]
            submitted = np.flatnonzero((luck < chances[0] * chances[1]) & ~np.isin(order, rows))
            submitted = submitted[:missing]
            full = len(submitted) == missing
            place += int(submitted[-1]) + 1 if full else len(order)
            rows = np.concatenate([rows, order[submitted]])
        return rows, epoch, place


@dataclass(kw_only=True)
class Lilo(OnlinePolicy):
    """Draws `ratio` times an update's prompts, and trains on the most varied (arXiv 2502.12272).

    Prompts are drawn at random. An update trains on the groups with the largest p·(1 − p), where p
    is the share correct. Ties go to the group drawn first, an order that the seed decides. Groups
    that are all correct or all wrong are included if there are too few others. All groups drawn
    count as rollouts. Groups are chosen by the same completions that are trained on, so their p is
    nearer to 0.5 than the prompt's own. Built from the paper's description, which leaves ties open.

    Options:
        ratio: the number of prompts drawn, as a multiple of the update's prompts (4).
    """

    name: ClassVar[str] = "lilo"
    needs: ClassVar[Needs] = "nothing"
    cost: ClassVar[str] = "the rollouts of discarded groups"

    ratio: int = 4

    def __post_init__(self) -> None:
        check_count(self.name, "ratio", self.ratio)
        self._missing: int | None = None

    @property
    def max_draws(self) -> int:
        """The number of prompts drawn for an update, as a multiple of its size."""
        return self.ratio

    @property
    def at_once(self) -> int:
        """All of them are drawn before any is discarded."""
        return self.ratio

    def next(self, update: int, history: History) -> pa.Array:
        self._missing = history.missing
        fresh = np.flatnonzero(history.fresh(update))
        return history.ids(history.rng.permutation(some(fresh, history.size, history.rng)))

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """The most varied groups, as many as the update lacks."""
        rate = correct / np.maximum(marked, 1)
        score = np.where(marked > 0, (rate * (1 - rate)).round(12), -1)
        kept = np.zeros(len(correct), dtype=bool)
        kept[np.argsort(-score, kind="stable")[: self._missing]] = True
        return kept
