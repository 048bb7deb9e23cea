"""How the completions of an update are divided among its prompts.

An allocation is called until all completions of an update are handed out. An allocation with a
`keep` method draws more completions than an update trains on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.plugins.counts import counted
from orchestrator.plugins.shares import largest_remainder
from policies.base import (
    Bools,
    Floats,
    Needs,
    PolicyError,
    Rows,
    check_count,
    check_share,
)
from policies.online import History

UNIFORM = "uniform"  # groups of one size, without an allocation
LEAST = 2  # completions of a group: a single one has no advantage


class Groups(NamedTuple):
    """The groups of an update while its completions are handed out; arrays have one entry per
    prompt [P]."""

    rate: Floats
    """Expected pass rates: the mean of a Beta posterior that begins uniform, after the samples of
    the probe, those of refreshes, and the completions of all earlier updates."""
    last: Floats
    """The latest known pass rates, of a prompt's last group or else the probe; nan if unknown."""
    drawn: Rows
    """Completions that this update has drawn so far."""
    correct: Rows
    """Correct completions among the drawn ones."""
    left: int
    """Completions that remain to be handed out."""
    size: int
    """`grpo.num_generations`: completions per prompt, on average."""
    update: int = 1
    """The update, counted from 1."""
    updates: int = 1
    """All updates of the cell."""
    columns: Mapping[str, npt.NDArray[Any]] = MappingProxyType({})
    """The columns of the user's data that the allocation reads, as text."""


Allocation = Callable[[Groups], npt.ArrayLike]  # -> further completions of each prompt [P]


def groups_of(history: History, rows: Rows, left: int, update: int) -> Groups:
    """The groups of an update of these rows before anything is drawn for it."""
    count = len(history.prompt_ids)
    right = history.successes[rows].astype(np.float64)
    total = history.samples[rows].astype(np.float64)
    for _, row, correct, marked in (history.drawn, history.refreshed):
        right += np.bincount(row, correct, count)[rows]
        total += np.bincount(row, marked, count)[rows]
    none = np.zeros(len(rows), np.int64)
    last = history.pass_rate[rows].astype(np.float64)
    return Groups(
        rate=(1 + right) / (2 + total),
        last=last,
        drawn=none,
        correct=none,
        left=left,
        size=history.group_size,
        update=update,
        updates=history.updates,
        columns={name: values[rows] for name, values in history.columns.items()},
    )


def checked_more(values: np.ndarray, name: str, groups: Groups) -> Rows:
    """The checked result of an allocation. Raises PolicyError if it is invalid for the groups."""
    count = len(groups.drawn)
    how = f"return a NumPy array with one whole number per prompt that sum to at most {groups.left}"
    if values.shape != (count,) or not np.issubdtype(values.dtype, np.integer):
        raise PolicyError(
            f"allocation {name!r} returned {values.dtype} of shape {values.shape} for "
            f"{counted(count, 'prompt')}: {how}"
        )
    total = int(values.sum())
    if values.min() < 0 or not 0 < total <= groups.left:
        raise PolicyError(
            f"allocation {name!r} returned {counted(total, 'completion')}, the "
            f"smallest {values.min()}: {how}"
        )
    sizes = groups.drawn + values
    if total == groups.left and sizes.min() < LEAST:
        raise PolicyError(
            f"allocation {name!r} leaves a prompt with {sizes.min()} of "
            f"{counted(sizes.sum(), 'completion')}: hand out at least {LEAST} to each prompt"
        )
    return np.asarray(values, np.int64)


def checked_kept(kept: Any, name: str, drawn: int, size: int) -> Bools:
    """The result of `keep`. PolicyError unless it has `drawn` booleans, `size` of them true."""
    values = np.asarray(kept)
    if values.shape != (drawn,) or values.dtype != np.bool_ or values.sum() != size:
        raise PolicyError(
            f"allocation {name!r}: keep returned {values.dtype} of shape {values.shape} for "
            f"{counted(drawn, 'completion')}: return a NumPy array of booleans, {size} of them true"
        )
    return values


def _evenly(count: int, total: int) -> Rows:
    """`total` in `count` parts that differ by at most one, larger ones first."""
    return total // count + (np.arange(count) < total % count)


def proportional(weights: Floats, total: int, floor: int) -> Rows:
    """`total` in proportion to the weights [P], which are above 0, at least `floor` for each.

    Whole numbers come from the largest remainders.
    """
    exact = np.full(len(weights), float(floor))  # [P]: each prompt's number, before rounding
    above = np.ones(len(weights), dtype=bool)  # [P]: prompts above the floor
    while above.any():  # prompts below the floor get the floor, the others the rest
        rest = total - floor * int((~above).sum())
        exact[above] = rest * weights[above] / weights[above].sum()
        low = above & (exact < floor - 1e-9)  # 1e-9: a share that is the floor but for rounding
        if not low.any():
            break
        exact[low] = floor
        above[low] = False
    return np.array(largest_remainder(exact, total))


def _check_least(name: str, option: str, value: Any, groups: Groups) -> None:
    if value > groups.size:
        raise PolicyError(
            f"{name}: {option} is {value}: write at most grpo.num_generations ({groups.size})"
        )


class SizeRule(ABC):
    """An allocation with options: it divides an update's completions among its prompts.

    Every row counts the same in an update, so a prompt is weighted by its number of completions. An
    allocation that depends on the pass rate therefore also weights prompts by it. Advantages are
    computed within the prompt's own group. All drawn completions count as rollouts.

    An allocation needs one worker, at least as many prompts as an update has, completions by
    Decile's decoder (not `rollouts: trl` or vLLM), one generation per update, and
    `multi_objective_aggregation: sum_then_normalize`. It works with static policies, and with
    online ones that discard no groups.
    """

    name: ClassVar[str]
    needs: ClassVar[Needs] = "all"
    """The part of the probe that it uses."""

    @abstractmethod
    def __call__(self, groups: Groups) -> Rows:
        """Additional completions of each prompt [P]."""


@dataclass(kw_only=True)
class Sqrt(SizeRule):
    """Completions in proportion to √(p·(1 − p)), at least `floor` per prompt.

    p is the expected pass rate, from the probe and all earlier groups: (1 + correct) ÷ (2 +
    completions). This is Neyman's allocation: it minimizes the variance of the sum of the prompts'
    mean rewards.

    Options:
        floor: the minimum number of completions per prompt (2).
    """

    name: ClassVar[str] = "sqrt"

    floor: int = LEAST

    def __post_init__(self) -> None:
        check_count(self.name, "floor", self.floor, LEAST)

    def __call__(self, groups: Groups) -> Rows:
        """All completions at once."""
        _check_least(self.name, "floor", self.floor, groups)
        return proportional(np.sqrt(groups.rate * (1 - groups.rate)), groups.left, self.floor)


@dataclass(kw_only=True)
class Knapsack(SizeRule):
    """Completions where they are most likely to teach something (arXiv 2509.25849).

    A prompt with the pass rate p and n completions has the value (1 − pⁿ − (1 − p)ⁿ)·p·(1 − p)²;
    sizes from `least` to `most` maximize the sum. p is the latest pass rate, from the last group or
    else from the probe. A prompt with an unknown pass rate gets `num_generations` completions.
    Together, the prompts with p between 0 and 1 get at most the sum of their costs, ln(1 −
    `alpha`)/ln(max(p, 1 − p)), beyond `least`. The rest is divided equally among the prompts that
    are never solved, or else among those that are always solved or unknown.

    Formulas and defaults follow the authors' code, with three differences. Its dynamic program
    values the initial completions of a prompt at 0, which overvalues the first additional one; here
    the sum itself is maximized. The code requires `most`, and exceeds it where costs are higher. It
    has no probe: a prompt is unknown until its first group.

    Options:
        least, most: the minimum (2) and the maximum number of completions per prompt (no limit).
        negative, positive: completions of a prompt that is never, or always, solved (`least`).
        alpha: the parameter of the costs (0.9).
    """

    name: ClassVar[str] = "knapsack"

    least: int = LEAST
    most: int | None = None
    alpha: float = 0.9
    negative: int | None = None
    positive: int | None = None

    def __post_init__(self) -> None:
        for option in ("least", "most", "negative", "positive"):
            if (value := getattr(self, option)) is not None:
                check_count(self.name, option, value, LEAST)
        check_share(self.name, "alpha", self.alpha, "a probability")
        if not 0 < self.alpha < 1:
            raise PolicyError(f"knapsack: alpha is {self.alpha}: write a number between 0 and 1")
        if self.most is not None and self.most < self.least:
            raise PolicyError(f"knapsack: most {self.most} is below least {self.least}: swap them")

    def __call__(self, groups: Groups) -> Rows:
        """All completions at once."""
        p, size = groups.last, groups.size
        negative = self.negative or self.least
        positive = self.positive or self.least
        for option, value in (("least", self.least), ("negative", negative)):
            _check_least(self.name, option, value, groups)
        _check_least(self.name, "positive", positive, groups)
        live = (p > 0) & (p < 1)  # [P]; L of them are
        count = int(live.sum())
        sizes = np.select([live, p == 0, p == 1], [self.least, negative, positive], size)  # [P]
        left = groups.left - int(sizes.sum())
        most = groups.left if self.most is None else self.most
        high = np.maximum(p[live], 1 - p[live])  # [L]
        further = np.minimum(most - self.least, np.log(1 - self.alpha) / np.log(high))  # [L]
        cost = int(further.astype(int).sum())
        dead = np.flatnonzero(p == 0)
        if not len(dead):
            dead = np.flatnonzero(~live)
        if left > cost and len(dead):
            sizes[dead] += _evenly(len(dead), left - cost)
            left = cost
        # [L, N]: the value of each additional completion, from the size n [N] on. It decreases with
        # n, so the largest values together are the optimum; ties go to the smaller sizes.
        n = np.arange(self.least, most)
        rate = p[live][:, None]
        gains = rate * (1 - rate) ** 2 * (rate**n * (1 - rate) + (1 - rate) ** n * rate)
        column = np.indices(gains.shape)[1]
        order = np.lexsort((column.ravel(), -gains.ravel()))[:left]
        given = np.bincount(order // max(1, len(n)), minlength=count)  # [L]: an entry's row
        sizes[live] += given[:count]
        rest = left - len(order)
        if rest and count:  # every size is at its limit
            sizes[live] += _evenly(count, rest)
        elif rest:
            sizes[dead] += _evenly(len(dead), rest)
        return np.asarray(sizes)


@dataclass(kw_only=True)
class UntilCorrect(SizeRule):
    """Additional completions for prompts without a correct one, at most `most` per prompt.

    Every prompt begins with `first` completions. Each prompt without a correct one then gets
    `first` more, smallest groups first, up to `most`. The rest goes to the smallest groups, so that
    every update has the same number of completions. A group that stops at its first correct
    completion has a mean reward that is higher than the prompt's pass rate.

    Options:
        first: completions of a round (half of `num_generations`).
        most: completions of a prompt (4 · `num_generations`).
    """

    name: ClassVar[str] = "until_correct"
    needs: ClassVar[Needs] = "nothing"

    first: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.first is not None:
            check_count(self.name, "first", self.first, LEAST)
        if self.most is not None:
            check_count(self.name, "most", self.most, self.first or LEAST)

    def __call__(self, groups: Groups) -> Rows:
        """One round."""
        drawn = groups.drawn
        most = self.most or 4 * groups.size
        first = self.first or min(most, max(LEAST, groups.size // 2))
        _check_least(self.name, "first", first, groups)
        wanted = np.where(groups.correct == 0, np.clip(most - drawn, 0, first), 0)
        if not wanted.any():
            return smallest_first(drawn, groups.left)
        more = np.zeros(len(drawn), np.int64)
        left = groups.left
        for place in np.argsort(drawn, kind="stable"):
            more[place] = min(wanted[place], left)
            left -= more[place]
        return more


def smallest_first(sizes: Rows, total: int) -> Rows:
    """The growth of each size when `total` completions go, one by one, to the smallest size."""
    more = np.zeros(len(sizes), np.int64)
    for _ in range(total):
        more[np.argmin(sizes + more)] += 1
    return more


@dataclass(kw_only=True)
class Pods(SizeRule):
    """Draws `times` the completions, and trains on those with the most varied rewards.

    PODS (arXiv 2504.13818): of each prompt's `times` · `num_generations` completions, an update
    trains on the `num_generations` whose rewards have the largest variance: the i highest and the
    remaining lowest ones, for the smallest such i. Advantages are computed from these alone; all
    completions count as rollouts. The authors' code breaks ties arbitrarily; here, equal rewards
    are taken as low from the first drawn, and as high from the last drawn.

    Options:
        times: completions drawn as a multiple of those trained on (4, as in the authors' runs).
    """

    name: ClassVar[str] = "pods"
    needs: ClassVar[Needs] = "nothing"

    times: int = 4

    def __post_init__(self) -> None:
        check_count(self.name, "times", self.times, 2)

    def __call__(self, groups: Groups) -> Rows:
        """The same number for each prompt."""
        return _evenly(len(groups.drawn), groups.left)

    def keep(self, rewards: Floats, size: int) -> Bools:
        """Which of a prompt's completions to train on."""
        order = np.argsort(rewards, kind="stable")  # [drawn], lowest first
        # One choice of `size` rows for each number of the highest rewards, from none to all.
        choices = [
            np.concatenate([order[: size - high], order[len(order) - high :]])
            for high in range(size + 1)
        ]
        # Rounded, so that equal variances tie, and the fewest of the highest rewards win.
        variances = [np.var(rewards[rows]).round(12) for rows in choices]
        kept = np.zeros(len(rewards), dtype=bool)
        kept[choices[int(np.argmax(variances))]] = True
        return kept
