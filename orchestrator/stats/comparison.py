"""Pairwise comparisons of policies: effect, interval, p value, verdict. Pure.

Inputs are accuracies as shares (0 to 1); effects and intervals are in percentage points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import inf, nan
from typing import Literal

import numpy as np

from orchestrator.plugins.counts import counted
from orchestrator.stats.inference import (
    LEVEL,
    SeedSpread,
    Variances,
    difference_effect,
    holm,
    mcnemar_p,
    permutation_p,
    residual,
    seed_spreads,
)
from orchestrator.stats.power import Grid, Needed, needed, needed_range

# seed -> (item ids, the mean correctness of each item's samples in [0, 1]), of one policy
Run = tuple[Sequence[str], np.ndarray]
RunScores = Mapping[int, Run]
Verdict = Literal["a", "b", "inconclusive"]
Item = Literal["question", "update"]


@dataclass(frozen=True)
class Comparison:
    """Policy `a` minus policy `b`, in points.

    effect, low, high: the mean difference and its 95 % interval, for new seeds and new items; with
        one seed of unknown `spreads`, for new items under that seed only. It contains zero where p
        is above .05. Without shared items: nan, −∞ and ∞.
    p, p_holm: two-sided, uncorrected and corrected for all `tests` comparisons; computed by `test`.
    p_runs: conditional on these runs, from permuting items, or McNemar's test.
    runs: training seeds of each policy; they are not paired.
    left_out: items that were not scored in every run of both policies.
    variances: components of the difference of two single runs (as shares, not points).
    item: what an item is: a test "question", or an "update" of training.
    spreads: the variance of each policy's results between seeds, its own or that of all alike.
    arms: policies whose seeds determine it: its degrees of freedom grow with the seeds of all.
    """

    a: str
    b: str
    effect: float
    low: float
    high: float
    p: float
    p_holm: float
    p_runs: float
    test: str
    runs: tuple[int, int]
    items: int
    left_out: int
    verdict: Verdict
    variances: Variances
    tests: int = 1
    item: Item = "question"
    spreads: tuple[SeedSpread | None, SeedSpread | None] = (None, None)
    arms: int = 2

    @property
    def seeds(self) -> int:
        """Training seeds of the policy that has fewer."""
        return min(self.runs)

    @property
    def covers_seeds(self) -> bool:
        """Whether the interval holds for other training seeds; otherwise nothing is decided."""
        return None not in self.spreads

    @property
    def borrowed(self) -> SeedSpread | None:
        """The variance between seeds that both share with runs of other policies, if they do."""
        one, two = self.spreads
        return one if one is not None and one == two and one.cells > sum(self.runs) else None

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero and Holm's p is at most .05."""
        return not self.spans_zero and self.p_holm <= LEVEL

    @property
    def spans_zero(self) -> bool:
        """Whether the interval contains zero."""
        return self.low <= 0 <= self.high

    @cached_property
    def needed(self) -> Needed:
        """Sample sizes that detect a true difference of this size with 80 % power.

        At the strictest of Holm's levels, since a verdict has to survive the correction.
        """
        return needed(self.variances, self.effect / 100, self._grid)

    @cached_property
    def needed_range(self) -> tuple[Needed, Needed]:
        """The least and the most of `needed` that these results leave possible."""
        return needed_range(self.variances, self.effect / 100, self._grid)

    @property
    def _grid(self) -> Grid:
        df = min((s.df for s in self.spreads if s is not None), default=0)
        return Grid(self.seeds, self.items, LEVEL / self.tests, self.arms, df)

    def oriented(self, first: str) -> tuple[float, float, float]:
        """effect, low and high of `first` minus the other policy."""
        if first == self.a:
            return self.effect, self.low, self.high
        return -self.effect, -self.high, -self.low


def compare_policies(
    scores_by_policy: Mapping[str, RunScores],
    spread: SeedSpread | None = None,
    item: Item = "question",
) -> list[Comparison]:
    """All pairs of policies of one (model, dataset), in the given order, Holm-corrected together.

    Runs are paired by item; all runs of both policies count. The variance between seeds is that of
    all policies whose seeds vary alike, or `spread`, that of more runs with these settings. A pair
    without a shared item is inconclusive, and so is a pair with one seed where neither says how
    much results vary between seeds. Raises ValueError where a policy has no run, or a run contains
    an item twice.
    """
    sides = {policy: _side(policy, scores) for policy, scores in scores_by_policy.items()}
    means = {policy: [*map(float, side.run_means)] for policy, side in sides.items()}
    spreads = seed_spreads(means, spread)
    alike = [policy for policy, side in sides.items() if len(side.runs) > 1]
    arms = max(2, len(alike))
    return adjust(
        [
            _compare(a, b, sides, (spreads[a], spreads[b]), item, arms)
            for a, b in combinations(sides, 2)
        ]
    )


def compare_numbers(
    numbers: Mapping[str, Mapping[int, float]], spread: SeedSpread | None = None
) -> list[Comparison]:
    """The same for one number per run in points (learnable %): policy -> seed -> number.

    Only seeds vary: a t interval over paired seeds; infinite with one seed, unless their spread is
    known.
    """
    scores = {
        policy: {seed: (("",), np.array([value / 100])) for seed, value in by_seed.items()}
        for policy, by_seed in numbers.items()
    }
    return compare_policies(scores, spread)


def compare_learnable(
    percentages: Mapping[str, Mapping[int, float]],
    live_shares: Mapping[str, Mapping[int, Mapping[int, float]]],
    spread: SeedSpread | None = None,
) -> list[Comparison]:
    """Learnable % of all pairs: policy -> seed -> percentage; … -> update -> share of live groups.

    The interval is over seeds. A pair with one seed each and no known `spread` (of learnable
    shares) is compared by its live groups, paired by update: that covers other updates of this seed
    only.
    """
    pairs = []
    for c in compare_numbers(percentages, spread):
        if c.runs == (1, 1) and not c.covers_seeds:
            run_a, run_b = (
                (list(map(str, shares)), np.array(list(shares.values())))
                for shares in (next(iter(live_shares[policy].values())) for policy in (c.a, c.b))
            )
            [by_update] = compare_policies({c.a: {0: run_a}, c.b: {0: run_b}}, item="update")
            c = by_update if by_update.items > 1 else c
        pairs.append(c)
    return adjust(pairs)


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Holm's correction over all given comparisons, for example those of a whole report.

    A policy is named the better one where the interval excludes zero and Holm's p is at most .05,
    but never by a single seed whose spread is unknown.
    """
    adjusted = []
    for c, p in zip(comparisons, holm([c.p for c in comparisons]), strict=True):
        c = replace(c, p_holm=p, tests=len(comparisons))
        better: Verdict = "a" if c.effect > 0 else "b"
        decided = c.significant and c.covers_seeds
        adjusted.append(replace(c, verdict=better if decided else "inconclusive"))
    return adjusted


@dataclass(frozen=True)
class _Side:
    """Runs of one policy: each a mapping of items to values."""

    runs: tuple[Mapping[str, float], ...]

    @cached_property
    def shared(self) -> frozenset[str]:
        """The items of every run."""
        return frozenset(set.intersection(*map(set, self.runs)))

    @cached_property
    def every(self) -> frozenset[str]:
        """The items of any run."""
        return frozenset(set.union(*map(set, self.runs)))

    @property
    def run_means(self) -> np.ndarray:
        """[runs]: over `shared`; of nothing, none."""
        return self.values(sorted(self.shared)).mean(axis=1) if self.shared else np.array([])

    def values(self, items: Sequence[str]) -> np.ndarray:
        """[runs, items]."""
        return np.array([[run[i] for i in items] for run in self.runs], float)


def _side(policy: str, scores: RunScores) -> _Side:
    if not scores:
        raise ValueError(f"{policy} has no finished run: it cannot be compared")
    runs = []
    for ids, values in scores.values():
        runs.append(dict(zip(ids, map(float, values), strict=True)))
        if len(runs[-1]) != len(ids):
            raise ValueError(f"{policy}: a run contains the same question twice")
    return _Side(tuple(runs))


def _compare(
    a: str,
    b: str,
    sides: Mapping[str, _Side],
    spreads: tuple[SeedSpread | None, SeedSpread | None],
    item: Item,
    arms: int,
) -> Comparison:
    items = sorted(sides[a].shared & sides[b].shared)
    nothing = Comparison(
        a=a,
        b=b,
        effect=nan,
        low=-inf,
        high=inf,
        p=1.0,
        p_holm=1.0,
        p_runs=1.0,
        test="none",
        runs=(len(sides[a].runs), len(sides[b].runs)),
        items=len(items),
        left_out=len(sides[a].every | sides[b].every) - len(items),
        verdict="inconclusive",
        variances=Variances(0.0, 0.0, 0.0),
        item=item,
        spreads=spreads,
        arms=arms,
    )
    if not items:
        return nothing
    first, second = sides[a].values(items), sides[b].values(items)
    mean = difference_effect(first, second, spreads)
    test, p_runs = _test(first, second, item)
    if nothing.borrowed is not None:
        test = f"t over {item}s, seeds as in {counted(nothing.borrowed.cells, 'run')}"
    p = mean.p
    if nothing.runs == (1, 1) and not nothing.covers_seeds:
        p = p_runs
    elif nothing.runs == (1, 1) and len(items) > 1:  # seeds that vary, too, make p no smaller
        p = max(p, p_runs)
    effect, low, high = (100 * x for x in mean[:3])
    if p > LEVEL:  # the exact test is what counts
        low, high = min(low, 0.0), max(high, 0.0)
    components = _components(first, second, spreads)
    return replace(
        nothing,
        effect=effect,
        low=low,
        high=high,
        p=p,
        p_holm=p,
        p_runs=p_runs,
        test=test,
        variances=components,
    )


def _components(
    first: np.ndarray, second: np.ndarray, spreads: tuple[SeedSpread | None, SeedSpread | None]
) -> Variances:
    """Of the difference of two single runs; where seeds are unknown, all of it is between items."""
    items = first.shape[1]
    rests = residual(first), residual(second)
    item = 0.0
    if items > 1:
        by_item = first.mean(axis=0) - second.mean(axis=0)
        item = float(by_item.var(ddof=1)) - rests[0] / len(first) - rests[1] / len(second)
    seed = sum(s.variance for s in spreads if s is not None) - sum(rests) / items
    return Variances(max(0.0, seed), max(0.0, item), sum(rests))


def _test(first: np.ndarray, second: np.ndarray, item: Item) -> tuple[str, float]:
    """The name of the test, and its p conditional on these runs."""
    items, single = first.shape[1], len(first) == len(second) == 1
    if items == 1:
        return "none" if single else "t over seeds", 1.0
    if single and np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all():
        return "McNemar", mcnemar_p(first[0], second[0])
    test = f"permutation of {item}s" if single else f"t over seeds and {item}s"
    return test, permutation_p(first.mean(axis=0) - second.mean(axis=0))
