"""Online policies of published papers that choose by difficulty, without discarding groups.

Rewards are 0 or 1. Each class describes what its paper or the authors' code leaves open or does
differently.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from policies.base import (
    Floats,
    Needs,
    PolicyError,
    Rows,
    check_count,
    check_positive,
    check_share,
    lowest,
    tie_breakers,
)
from policies.online import History, OnlinePolicy, rates_of


@dataclass(kw_only=True)
class Adarft(OnlinePolicy):
    """Prompts closest to a target difficulty that follows the mean reward (arXiv 2504.05520).

    A prompt's difficulty is 100·(1 − its pass rate in the probe). The target starts at 0; after an
    update with the mean reward R it is target + `eta`·tanh(`alpha`·(R − `beta`)), at least 0 and at
    most 100. An update takes the prompts with the smallest distance to it; prompts without a probed
    pass rate come last. Defaults are those of the paper.

    At the same distance, prompts with the fewest groups come first, and then the seed decides. The
    authors' code takes them in the order of the file, so that the same prompts return while the
    target does not move.

    Options:
        eta, alpha, beta: the parameters of the target's step (50, 2, 0.5).
    """

    name: ClassVar[str] = "adarft"
    version: ClassVar[int] = 2

    eta: float = 50
    alpha: float = 2
    beta: float = 0.5

    def __post_init__(self) -> None:
        check_positive(self.name, "eta", self.eta)
        check_positive(self.name, "alpha", self.alpha)
        check_share(self.name, "beta", self.beta, "a mean reward")
        self._pool: tuple[Floats, Rows, list[Rows]] | None = None

    def next(self, update: int, history: History) -> pa.Array:
        """The prompts closest to the target of this update."""
        if self._pool is None:
            levels, level = np.unique(100 * (1 - rates_of(history)), return_inverse=True)
            ranks = tie_breakers(len(level), history.stream("adarft"))
            ends = np.bincount(level).cumsum()[:-1]
            self._pool = (levels, ranks, np.split(np.argsort(level, kind="stable"), ends))
        levels, ranks, rows_of_level = self._pool
        # Distances to either side of the target may differ only by rounding.
        distance = np.abs(levels - self.target(history)).round(9)
        distance[np.isnan(distance)] = np.inf
        chosen = np.empty(0, np.int64)
        for nearest in np.unique(distance):
            rows = np.concatenate([rows_of_level[i] for i in np.flatnonzero(distance == nearest)])
            take = min(history.size - len(chosen), len(rows))
            every = np.ones(len(rows), dtype=bool)
            first = lowest(history.groups[rows], ranks[rows], every, take)
            chosen = np.concatenate([chosen, rows[first]])
            if len(chosen) == history.size:
                break
        return history.ids(chosen)

    def target(self, history: History) -> float:
        """The target after the updates of the history, 0 to 100."""
        at, _, correct, marked = history.drawn
        target = 0.0
        for right, total in zip(np.bincount(at, correct), np.bincount(at, marked), strict=True):
            if total:
                step = self.eta * math.tanh(self.alpha * (right / total - self.beta))
                target = min(100.0, max(0.0, target + step))
        return target


@dataclass(kw_only=True)
class TierPolicy(OnlinePolicy):
    """Draws a tier for each place of an update, and takes the tier's next prompt.

    There are `tiers` tiers of equal size (to one prompt), from easy to hard, by the pass rates in
    the probe; equal rates are ordered by the seed, and unknown ones are the hardest. Each tier has
    its own order by the seed, which repeats at its end. If an update draws more prompts of a tier
    than it has, other tiers make up for it.

    Options:
        tiers: the number of tiers (4).
    """

    name: ClassVar[str]
    version: ClassVar[int] = 2

    tiers: int = 4

    def __post_init__(self) -> None:
        check_count(self.name, "tiers", self.tiers)
        self._tiers: tuple[list[Rows], Rows] | None = None

    @abstractmethod
    def chances(self, update: int, tier: Rows, history: History) -> Floats:
        """The probability of each tier [K], from easy to hard; `tier` is that of each prompt [N].

        K is `tiers`, or the number of prompts if that is smaller.
        """

    def next(self, update: int, history: History) -> pa.Array:
        """The next prompts of the drawn tiers."""
        if self._tiers is None:
            rng = history.stream("tiers")
            count = len(history.prompt_ids)
            order = np.lexsort((rng.permutation(count), -rates_of(history).round(12)))
            parts = [rng.permutation(p) for p in np.array_split(order, min(self.tiers, count))]
            tier = np.empty(count, np.int64)
            for number, part in enumerate(parts):
                tier[part] = number
            self._tiers = (parts, tier)
        parts, tier = self._tiers
        sizes = np.array([len(part) for part in parts])
        chances = self.chances(update, tier, history)
        taken = np.zeros(len(parts), np.int64)
        while missing := history.size - int(taken.sum()):
            weights = np.where(taken < sizes, chances, 0)
            if not weights.any():
                weights = (taken < sizes).astype(float)
            drawn = history.rng.choice(len(parts), missing, p=weights / weights.sum())
            taken = np.minimum(taken + np.bincount(drawn, minlength=len(parts)), sizes)
        begin = np.bincount(tier[history.drawn[1]], minlength=len(parts))
        places = [(b + np.arange(t)) % s for b, t, s in zip(begin, taken, sizes, strict=True)]
        rows = [part[place] for part, place in zip(parts, places, strict=True)]
        return history.ids(np.concatenate(rows))


@dataclass(kw_only=True)
class E2h(TierPolicy):
    """Tiers from easy to hard, with probabilities that move to the hard ones (arXiv 2506.06632).

    With t of T updates done, `schedule: cosine` draws tier i of K (from 0) in proportion to w·(K −
    i) + (1 − w)·(i + 1), w = (1 + cos(π·t/T))/2. `gaussian` draws it in proportion to exp(−(i −
    m)²/(2·`sigma`²)), m = (K − 1)·(t/T)^`mu_exp`. Formulas and defaults follow the authors' code.
    Its levels are labels of the data; here they are quantiles of the probe.

    Options:
        schedule: `cosine` (the default) or `gaussian`.
        mu_exp, sigma: the parameters of `gaussian` (0.5, 0.5).
        min_prob: with `gaussian`, every tier has at least the probability 2/(K·(K + 1)) (true).
        tiers: the number of tiers of equal size by pass rate (4).
    """

    name: ClassVar[str] = "e2h"

    schedule: str = "cosine"
    mu_exp: float = 0.5
    sigma: float = 0.5
    min_prob: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule not in ("cosine", "gaussian"):
            raise PolicyError(f"e2h: schedule is {self.schedule!r}: write cosine or gaussian")
        check_positive(self.name, "mu_exp", self.mu_exp)
        check_positive(self.name, "sigma", self.sigma)
        if not isinstance(self.min_prob, bool):
            raise PolicyError(f"e2h: min_prob is {self.min_prob!r}: write true or false")

    def chances(self, update: int, tier: Rows, history: History) -> Floats:
        """By the schedule."""
        count = int(tier.max()) + 1
        level, done = np.arange(count), (update - 1) / history.updates
        if self.schedule == "cosine":
            easy = (1 + math.cos(math.pi * done)) / 2
            weights = easy * (count - level) + (1 - easy) * (level + 1)
            return np.asarray(weights / weights.sum())
        mean = done**self.mu_exp * (count - 1)
        exponent = -((level - mean) ** 2) / (2 * self.sigma**2)
        weights = np.exp(exponent - exponent.max())
        least = 2 / (count * (count + 1)) if self.min_prob else 0.0
        return np.asarray(least + (1 - count * least) * weights / weights.sum())


@dataclass(kw_only=True)
class Sec(TierPolicy):
    """A bandit over tiers that prefers those with the largest advantages (arXiv 2505.14970).

    A tier is drawn in proportion to exp(Q/`tau`). Q starts at 0; after an update, Q ← (1 − `lr`)·Q
    + `lr`·r, where r is the mean absolute advantage of the tier's rollouts: 2·p·(1 − p) for a group
    with the share p correct, or 2·√(p·(1 − p)) with `normalized`.

    Defaults are those of the code; the authors' runs have `lr` 0.5 and `tau` from 0.2 to 1. The
    code also lowers the Q of a tier without prompts in an update, as if its r were 0; here it does
    not change.

    Options:
        tau: the temperature (1).
        lr: the learning rate of Q (0.1).
        normalized: whether advantages are divided by the group's standard deviation (false).
        tiers: the number of tiers of equal size by pass rate (4).
    """

    name: ClassVar[str] = "sec"

    tau: float = 1.0
    lr: float = 0.1
    normalized: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.name, "tau", self.tau)
        check_positive(self.name, "lr", self.lr)
        check_share(self.name, "lr", self.lr, "a number")
        if not isinstance(self.normalized, bool):
            raise PolicyError(f"sec: normalized is {self.normalized!r}: write true or false")

    def chances(self, update: int, tier: Rows, history: History) -> Floats:
        """Softmax of the tiers' values."""
        exponent = self.values(update, tier, history) / self.tau
        weights = np.exp(exponent - exponent.max())
        return np.asarray(weights / weights.sum())

    def values(self, update: int, tier: Rows, history: History) -> Floats:
        """Q of each tier [K]."""
        at, row, correct, marked = history.drawn
        count = int(tier.max()) + 1
        rate = correct / np.maximum(marked, 1)
        spread = rate * (1 - rate)
        reward = marked * 2 * (np.sqrt(spread) if self.normalized else spread)
        cell, cells = at * count + tier[row], (update + 1) * count
        total = np.bincount(cell, marked, cells).reshape(-1, count)
        present = total > 0
        mean = np.bincount(cell, reward, cells).reshape(-1, count) / np.maximum(total, 1)
        later = present[::-1].cumsum(0)[::-1] - present  # updates of the tier after this one
        return np.asarray((present * mean * self.lr * (1.0 - self.lr) ** later).sum(0))


@dataclass(kw_only=True)
class Mopps(OnlinePolicy):
    """Pass rates closest to 0.5 in Thompson draws from Beta posteriors (MoPPS, arXiv 2507.04632).

    An update takes `ratio` times its prompts at random and draws a pass rate from the posterior
    Beta(a, b) of each; it trains on those with the smallest distance to 0.5. Both begin at 1; a
    group with c of m completions correct makes them a ← `lam`·a + (1 − `lam`) + c and b ← `lam`·b +
    (1 − `lam`) + m − c. Prompts without a group do not change. This is the update of the paper; the
    authors' code differs only for groups of one completion. Defaults are those of the code for MATH
    (its other runs have `lam` 0.5 and `ratio` 8). The code takes the next candidates of a shuffled
    epoch; here they are drawn anew.

    Options:
        ratio: candidates per prompt of an update (16).
        lam: below 1, the posterior forgets (1).
        warm_start: the weight of the probe's counts: a begins at 1 + `warm_start`·correct, and b at
            1 + `warm_start`·wrong (0). The code has an option that does this only for a, with the
            weight 3.
    """

    name: ClassVar[str] = "mopps"
    needs: ClassVar[Needs] = "nothing"

    lam: float = 1.0
    ratio: int = 16
    warm_start: float = 0.0

    def __post_init__(self) -> None:
        check_share(self.name, "lam", self.lam, "a number")
        check_count(self.name, "ratio", self.ratio)
        if self.warm_start != 0:
            check_positive(self.name, "warm_start", self.warm_start)
            vars(self)["needs"] = "all"

    def next(self, update: int, history: History) -> pa.Array:
        """The candidates whose Thompson draws are closest to 0.5."""
        count = len(history.prompt_ids)
        most = min(count, self.ratio * history.size)
        rows = np.sort(history.rng.choice(count, most, replace=False))
        a, b = self.posterior(rows, update, history)
        distance = np.abs(history.rng.beta(a, b) - 0.5)
        return history.ids(rows[np.argsort(distance, kind="stable")[: history.size]])

    def posterior(self, rows: Rows, update: int, history: History) -> tuple[Floats, Floats]:
        """a and b of some prompts, whose rows are sorted, before an update."""
        _, row, correct, marked = history.drawn
        place = np.minimum(np.searchsorted(rows, row), len(rows) - 1)
        known = np.flatnonzero(rows[place] == row)
        known = known[np.argsort(place[known], kind="stable")]  # by prompt, then by update
        place, correct, marked = place[known], correct[known], marked[known]
        groups = np.bincount(place, minlength=len(rows))
        later = np.cumsum(groups)[place] - 1 - np.arange(len(place))
        weight = float(self.lam) ** later
        of_probe = self.warm_start * float(self.lam) ** groups
        successes, samples = history.successes[rows], history.samples[rows]
        a = np.bincount(place, weight * correct, len(rows)) + of_probe * successes
        b = np.bincount(place, weight * (marked - correct), len(rows))
        b = b + of_probe * (samples - successes)
        return np.asarray(1 + a, np.float64), np.asarray(1 + b, np.float64)


@dataclass(kw_only=True)
class Pairs(OnlinePolicy):
    """Half the lowest pass rates above 0, half the highest below 1 (arXiv 2602.03452).

    Pass rates are the latest known ones, from a prompt's last group or else the probe. Half of an
    update are the hardest prompts that were solved, the other half are the easiest that are not
    always solved; the halves take an odd prompt in turn. At equal rates, prompts with the fewest
    groups come first, and then the seed decides. A prompt whose last group was all wrong, or all
    correct, is left out unless there are too few others: then come prompts with unknown rates,
    prompts at 0, and prompts at 1.

    Built from the paper's abstract, which pairs two prompts for an update. The paper's weights of
    rare outcomes are not part of this policy.
    """

    name: ClassVar[str] = "pairs"
    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self._ranks: Rows | None = None

    def next(self, update: int, history: History) -> pa.Array:
        """The hardest and the easiest of the prompts that are sometimes solved."""
        rates, size, count = history.pass_rate, history.size, len(history.prompt_ids)
        if self._ranks is None:
            self._ranks = tie_breakers(count, history.stream("pairs"))
        live = (rates > 0) & (rates < 1)
        dead = np.where(np.isnan(rates), -1, rates)
        parts = ((live, rates, (size + update % 2) // 2), (live, -rates, size), (~live, dead, size))
        chosen, free = np.empty(0, np.int64), np.ones(count, dtype=bool)
        for allowed, score, until in parts:
            if len(chosen) == until:
                continue
            rows = np.flatnonzero(allowed & free)
            if take := min(until - len(chosen), len(rows)):
                ranks = history.groups[rows].astype(np.int64) * count + self._ranks[rows]
                every = np.ones(len(rows), dtype=bool)
                new = rows[lowest(score[rows], ranks, every, take)]
                free[new] = False
                chosen = np.concatenate([chosen, new])
        return history.ids(chosen)
