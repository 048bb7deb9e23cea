"""Pairwise comparisons of policies: effect, interval, p value, verdict. Pure.

Inputs are accuracies as shares (0 to 1); effects and intervals are in percentage points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, compress
from math import ceil, inf, nan
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.plugins.counts import counted
from orchestrator.stats.inference import (
    ALPHA,
    Available,
    Effect,
    SeedSpread,
    Variances,
    available,
    by_group,
    difference_effect,
    group_codes,
    holm,
    mcnemar_p,
    permutation_p,
    residual,
    seed_spread,
)
from orchestrator.stats.power import Design, Needed, needed, needed_range


class ItemScores(NamedTuple):
    """One run's scores: for each item the mean over its samples, in [0, 1]; nan without any score.

    low: the same if every missing score were 0. missing: the share of the item's samples without a
    score; exactly 0 if all have one. None: items have a score for all samples or none.
    """

    items: Sequence[str]
    scores: np.ndarray
    low: np.ndarray | None = None
    missing: np.ndarray | None = None

    @classmethod
    def of_counts(
        cls, counts: Mapping[str, tuple[int, float]], samples: int | np.ndarray
    ) -> "ItemScores":
        """From item -> number of scored samples, and their sum; `samples`: of each, or of all."""
        scored, total = np.array([*counts.values()], float).reshape(-1, 2).T
        means = np.divide(total, scored, out=np.full(len(total), nan), where=scored > 0)
        every = np.maximum(scored, samples)
        return cls([*counts], means, total / every, (every - scored) / every)

    @classmethod
    def weighted(cls, runs: Sequence["ItemScores"], weights: Sequence[float]) -> "ItemScores":
        """The weighted sum of runs with bounds, for the items that all have."""
        places = [{item: place for place, item in enumerate(run.items)} for run in runs]
        shared = [item for item in runs[0].items if all(item in each for each in places)]
        scores, low, missing = np.zeros((3, len(shared)))
        for (_, *own), place, weight in zip(runs, places, weights, strict=True):
            columns = np.array([place[item] for item in shared], int)
            own_scores, own_low, own_missing = (np.asarray(each)[columns] for each in own)
            scores += weight * own_scores
            # For a negative weight, the lower bound comes from the upper one.
            low += weight * (own_low if weight >= 0 else own_low + own_missing)
            missing += abs(weight) * own_missing
        return cls(shared, scores, low, missing)

    def scaled(self, factor: float, less: float) -> "ItemScores":
        """A run with bounds and the scores (score − less) × factor."""
        scores, low, missing = (np.asarray(each) for each in self[1:])
        return ItemScores(
            self.items, factor * (scores - less), factor * (low - less), factor * missing
        )


ROUNDING = 1e-8  # a smaller mean difference of shares is due to rounding
# seed -> the run, of one policy; the bounds of a run may be left out
RunScores = Mapping[int, ItemScores | tuple[Sequence[str], np.ndarray]]
Verdict = Literal["a", "b", "inconclusive"]
Item = Literal["question", "update", "run"]
Scope = Literal["models", "policies"]


@dataclass(frozen=True)
class Comparison:
    """Policy `a` minus policy `b`, in points.

    effect, low, high: the mean difference and its 95 % interval, for new seeds and new items; with
        one seed of unknown `spreads`, for new items with that seed only. It contains zero if p is
        above .05. Without shared items: nan, −∞ and ∞. If the policies differ in missing scores,
        interval and p allow for all values of these.
    p, p_holm: two-sided, uncorrected and corrected for all `tests` comparisons; computed by `test`.
    p_runs: conditional on these runs, from permuting items, or McNemar's test.
    runs: training seeds of each policy; they are not paired.
    left_out: items without a score in any run of one of the policies.
    variances: components of the difference of two single runs (as shares, not points).
    item: the kind of items: a test "question", an "update" of training, or the "run", with one
        number each.
    spreads: the variance of each policy's results between seeds; None if it is unknown.
    groups: number of groups of related items, which are the items of the test; None without any.
    missing: the share of each policy's samples without a score. missing_p: p for equal missingness,
        from permuting items. bounds: the ends of the interval for all possible missing scores.
        missing_runs: runs of each policy without any score.
    level: the largest Holm's p of a verdict; above it, the interval contains zero.
    scope: of the verdict: these "models" on new questions, which single runs decide, or "policies"
        on new questions and with new seeds, which need several runs of each.
    """

    a: str
    b: str
    runs: tuple[int, int]
    items: int
    left_out: int
    effect: float = nan
    low: float = -inf
    high: float = inf
    p: float = 1.0
    p_holm: float = 1.0
    p_runs: float = 1.0
    test: str = "none"
    verdict: Verdict = "inconclusive"
    variances: Variances = Variances(0.0, 0.0, 0.0)
    tests: int = 1
    item: Item = "question"
    spreads: tuple[SeedSpread | None, SeedSpread | None] = (None, None)
    groups: int | None = None
    missing: tuple[float, float] = (0.0, 0.0)
    missing_p: float = 1.0
    bounds: tuple[float, float] = (-inf, inf)
    missing_runs: tuple[int, int] = (0, 0)
    level: float = ALPHA
    scope: Scope = "policies"

    @property
    def leader_first(self) -> "Comparison":
        """The same with the leading policy as `a`."""
        return self.reversed if self.effect < 0 else self

    @property
    def reversed(self) -> "Comparison":
        """The same with `a` and `b` swapped."""
        verdicts: dict[Verdict, Verdict] = {"a": "b", "b": "a", "inconclusive": "inconclusive"}
        return replace(
            self,
            a=self.b,
            b=self.a,
            effect=-self.effect,
            low=-self.high,
            high=-self.low,
            bounds=(-self.bounds[1], -self.bounds[0]),
            runs=self.runs[::-1],
            spreads=self.spreads[::-1],
            missing=self.missing[::-1],
            missing_runs=self.missing_runs[::-1],
            verdict=verdicts[self.verdict],
        )

    def times(self, factor: float) -> "Comparison":
        """The same with effect and interval in another unit."""
        effect, low, high = (factor * x for x in (self.effect, self.low, self.high))
        return replace(self, effect=effect, low=low, high=high)

    @property
    def misses_unlike(self) -> bool:
        """Whether runs are missing, or the policies differ in missing scores beyond chance."""
        return any(self.missing_runs) or self.missing_p <= ALPHA

    @property
    def bounds_span_zero(self) -> bool:
        """Whether the missing scores could make the interval contain zero."""
        return self.bounds[0] <= 0 <= self.bounds[1]

    @property
    def seeds(self) -> int:
        """Training seeds of the policy with fewer."""
        return min(self.runs)

    @property
    def whole_range(self) -> bool:
        """Whether the interval contains all possible differences of shares."""
        return self.low <= -100 and self.high >= 100

    @property
    def covers_seeds(self) -> bool:
        """Whether the interval covers other training seeds, as a verdict on policies requires."""
        return None not in self.spreads

    @property
    def stored(self) -> dict[str, SeedSpread]:
        """By policy: a variance between seeds from more runs than those compared."""
        return {
            policy: spread
            for policy, spread, runs in zip((self.a, self.b), self.spreads, self.runs, strict=True)
            if spread is not None and spread.cells > runs
        }

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero and Holm's p is at most `level`."""
        return not self.spans_zero and self.p_holm <= self.level

    @property
    def spans_zero(self) -> bool:
        """Whether the interval contains zero."""
        return self.low <= 0 <= self.high

    @cached_property
    def needed(self) -> Needed:
        """Sample sizes that detect a true difference of this size with 80 % power.

        At the strictest of Holm's levels, since a verdict must survive the correction.
        """
        return self._in_items(needed(self.variances, self.effect / 100, self._design))

    @cached_property
    def needed_range(self) -> tuple[Needed, Needed]:
        """The lower and upper bounds of `needed` that are compatible with these results."""
        least, most = needed_range(self.variances, self.effect / 100, self._design)
        return self._in_items(least), self._in_items(most)

    @property
    def _design(self) -> Design:
        df = min(0.0 if s is None else s.df for s in self.spreads)
        return Design(self.seeds, self.groups or self.items, self.level / self.tests, df)

    def _in_items(self, needed: Needed) -> Needed:
        """Sample sizes in groups converted to items, for groups of the same mean size."""
        if self.groups is None:
            return needed
        seeds, items, both = needed
        size = self.items / self.groups
        more = None if items is None else ceil(items * size)
        return Needed(seeds, more, None if both is None else (both[0], ceil(both[1] * size)))

    def oriented(self, first: str) -> tuple[float, float, float]:
        """effect, low and high of `first` minus the other policy."""
        if first == self.a:
            return self.effect, self.low, self.high
        return -self.effect, -self.high, -self.low


def compare_policies(
    scores_by_policy: Mapping[str, RunScores],
    stored: Mapping[str, SeedSpread] = MappingProxyType({}),
    item: Item = "question",
    groups: Mapping[str, str] = MappingProxyType({}),
    missing_runs: Mapping[str, int] = MappingProxyType({}),
    level: float = ALPHA,
) -> list[Comparison]:
    """All pairs of policies of one (model, dataset), in the given order, Holm-corrected together.

    Runs are paired by item. All runs of both policies count; an item counts if some run of each
    policy has its score. The variance between seeds is each policy's own, or the one in `stored` if
    it is from more runs of the same policy with these settings. A pair is inconclusive without
    shared items, with one shared question, or if a policy's variance between seeds is unknown.
    groups: item -> the group of related items that it belongs to. missing_runs: planned runs of a
    policy beyond these; they count as runs with unknown scores. level: of the intervals. Raises
    ValueError if a policy has no run, or a run contains an item twice.
    """
    sides = {
        policy: _side(policy, scores, missing_runs.get(policy, 0))
        for policy, scores in scores_by_policy.items()
    }
    spreads = {}
    for policy, side in sides.items():
        own, known = seed_spread([*map(float, side.run_means)]), stored.get(policy)
        spreads[policy] = known if known and (own is None or known.df > own.df) else own
    return adjust(
        [
            _compare(_Pair(a, b, sides[a], sides[b], (spreads[a], spreads[b]), item, level), groups)
            for a, b in combinations(sides, 2)
        ],
        level,
    )


def adjust(comparisons: Sequence[Comparison], level: float = ALPHA) -> list[Comparison]:
    """Holm's correction over all given comparisons, for example those of a whole report.

    A policy is the better one if the interval excludes zero and Holm's p is at most `level`, but
    not with a single seed of unknown spread, unless the scope is these models.
    """
    adjusted = []
    for c, p in zip(comparisons, holm([c.p for c in comparisons]), strict=True):
        c = replace(c, p_holm=p, tests=len(comparisons), level=level)
        better: Verdict = "a" if c.effect > 0 else "b"
        decided = c.significant and (c.covers_seeds or c.scope == "models")
        adjusted.append(replace(c, verdict=better if decided else "inconclusive"))
    return adjusted


@dataclass(frozen=True)
class _Side:
    """Runs of one policy: each a mapping of items to values, lowest values and missing shares.

    missing_runs: the number of further runs without any score.
    """

    runs: tuple[Mapping[str, float], ...]
    lows: tuple[Mapping[str, float], ...]
    missing: tuple[Mapping[str, float], ...]
    missing_runs: int

    @cached_property
    def available(self) -> Available:
        """The items with a score in some run, and their values [runs, items]."""
        return available(self.runs)

    @cached_property
    def every(self) -> frozenset[str]:
        """The items of any run, with or without a score."""
        return frozenset(set.union(*map(set, self.runs)))

    @property
    def run_means(self) -> np.ndarray:
        """[runs]: means over `available`; empty without items."""
        values = self.available.values
        return values.mean(axis=1) if values.size else np.array([])

    @cached_property
    def within_unit(self) -> bool:
        """Whether all values are shares."""
        return all(not (value < 0 or value > 1) for run in self.runs for value in run.values())

    def bounds(self, items: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Lowest values and missing shares, [runs, items]; 0 and 1 if a run lacks an item."""
        none: list[Mapping[str, float]] = [{}] * self.missing_runs
        low = np.array([[run.get(i, 0.0) for i in items] for run in (*self.lows, *none)], float)
        missing = [[run.get(i, 1.0) for i in items] for run in (*self.missing, *none)]
        return low, np.array(missing, float)


def _side(policy: str, scores: RunScores, missing_runs: int) -> _Side:
    if not scores:
        raise ValueError(f"{policy} has no finished run: it cannot be compared")
    sides: tuple[list[dict[str, float]], ...] = ([], [], [])
    for run in scores.values():
        ids, values, low, missing = ItemScores(*run)
        low = np.nan_to_num(values, nan=0.0) if low is None else low
        missing = np.isnan(values) if missing is None else missing
        for side, numbers in zip(sides, (values, low, missing), strict=True):
            side.append(dict(zip(ids, map(float, numbers), strict=True)))
        if len(sides[0][-1]) != len(ids):
            raise ValueError(f"{policy}: a run contains the same question twice")
    scored = [any(value == value for value in run.values()) for run in sides[0]]
    if any(scored):
        sides = tuple([*compress(side, scored)] for side in sides)
        missing_runs += scored.count(False)
    runs, lows, missing_shares = map(tuple, sides)
    return _Side(runs, lows, missing_shares, missing_runs)


@dataclass(frozen=True)
class _Pair:
    """Two policies to compare."""

    a: str
    b: str
    first: _Side
    second: _Side
    spreads: tuple[SeedSpread | None, SeedSpread | None]
    item: Item
    level: float

    @property
    def runs(self) -> tuple[int, int]:
        """Of each policy."""
        return len(self.first.runs), len(self.second.runs)

    def judge(
        self, first: np.ndarray, second: np.ndarray, groups: np.ndarray | None
    ) -> tuple[Effect, str, float]:
        """The effect of values [runs, items], the name of the test, and p for these runs."""
        if first.shape[1] == 1 and self.item != "run":  # no information about other items
            return Effect(float(first.mean() - second.mean()), -inf, inf, 1.0), "none", 1.0
        effect = difference_effect(first, second, self.spreads, groups, self.level)
        test, p_runs = _test(first, second, "group" if groups is not None else self.item, groups)
        mean, low, high, p = effect
        if abs(mean) < ROUNDING:
            mean, p, p_runs = 0.0, 1.0, 1.0
        if self.runs == (1, 1) and None in self.spreads:
            p = p_runs
        elif self.runs == (1, 1) and first.shape[1] > 1:  # varying seeds do not make p smaller
            p = max(p, p_runs)
        if p > self.level:  # the exact test takes precedence
            low, high = min(low, 0.0), max(high, 0.0)
        effect = Effect(mean, low, high, p)
        shares = self.first.within_unit and self.second.within_unit
        return effect.within(-1.0, 1.0) if shares else effect, test, p_runs


def _compare(pair: _Pair, groups: Mapping[str, str]) -> Comparison:
    a, b, spreads = pair.first, pair.second, pair.spreads
    items = sorted({*a.available.items} & {*b.available.items})
    codes = group_codes(items, groups)
    nothing = Comparison(
        a=pair.a,
        b=pair.b,
        runs=pair.runs,
        items=len(items),
        left_out=len(a.every | b.every) - len(items),
        item=pair.item,
        spreads=spreads,
        groups=None if codes is None else int(codes.max()) + 1,
        missing_runs=(a.missing_runs, b.missing_runs),
        level=pair.level,
    )
    if not items:
        return nothing
    first, second = a.available.of(items), b.available.of(items)
    effect, test, p_runs = pair.judge(first, second, codes)
    if cells := sum(spread.cells for spread in nothing.stored.values()):
        noun = pair.item if codes is None else "group"
        test = f"t over {noun}s, seeds as in {counted(cells, 'stored run')}"
    compared = replace(
        nothing,
        effect=100 * effect.mean,
        low=100 * effect.low,
        high=100 * effect.high,
        p=effect.p,
        p_holm=effect.p,
        p_runs=p_runs,
        test=test,
        variances=_components(by_group(first, codes), by_group(second, codes), spreads),
        bounds=(100 * effect.low, 100 * effect.high),
    )
    return _with_bounds(compared, pair, groups)


def _with_bounds(compared: Comparison, pair: _Pair, groups: Mapping[str, str]) -> Comparison:
    """The comparison with bounds for missing scores.

    Scores that are missing equally for both policies are ignored. Otherwise they may hide or cause
    a difference: interval and p are then the widest over all possible values (Horowitz and Manski
    2000).
    """
    items = sorted(pair.first.every & pair.second.every)
    (low_a, missing_a), (low_b, missing_b) = pair.first.bounds(items), pair.second.bounds(items)
    missing = float(missing_a.mean()), float(missing_b.mean())
    if not any(missing):
        return compared
    codes = group_codes(items, groups)
    unlike = missing_a.mean(axis=0) - missing_b.mean(axis=0)
    worst = _judge_filled(pair, low_a, low_b + missing_b, codes)
    best = _judge_filled(pair, low_a + missing_a, low_b, codes)
    bounds = min(compared.low, 100 * worst.low), max(compared.high, 100 * best.high)
    compared = replace(
        compared, missing=missing, missing_p=permutation_p(unlike, groups=codes), bounds=bounds
    )
    if not compared.misses_unlike:
        return compared
    p = 1.0 if worst.mean <= 0 <= best.mean else max(compared.p, worst.p, best.p)
    return replace(compared, low=bounds[0], high=bounds[1], p=p, p_holm=p)


def _judge_filled(
    pair: _Pair, first: np.ndarray, second: np.ndarray, codes: np.ndarray | None
) -> Effect:
    """The effect with values in place of missing scores; added runs vary between seeds."""
    if pair.first.missing_runs or pair.second.missing_runs:
        spreads = seed_spread([*first.mean(axis=1)]), seed_spread([*second.mean(axis=1)])
        pair = replace(pair, spreads=spreads)
    return pair.judge(first, second, codes)[0]


def _components(
    first: np.ndarray, second: np.ndarray, spreads: tuple[SeedSpread | None, SeedSpread | None]
) -> Variances:
    """Variances of the difference of two single runs; with unknown seeds, all is between items."""
    items = first.shape[1]
    rests = residual(first), residual(second)
    item = 0.0
    if items > 1:
        by_item = first.mean(axis=0) - second.mean(axis=0)
        item = float(by_item.var(ddof=1)) - rests[0] / len(first) - rests[1] / len(second)
    seed = sum(s.variance for s in spreads if s is not None) - sum(rests) / items
    return Variances(max(0.0, seed), max(0.0, item), sum(rests))


def _test(
    first: np.ndarray, second: np.ndarray, noun: str, groups: np.ndarray | None
) -> tuple[str, float]:
    """The name of the test, and its p conditional on these runs."""
    single = len(first) == len(second) == 1
    if first.shape[1] == 1:
        return "none" if single else "t over seeds", 1.0
    if single and groups is None and np.isin([*first, *second], (0, 1)).all():
        return "McNemar", mcnemar_p(first[0], second[0])
    test = f"permutation of {noun}s" if single else f"t over seeds and {noun}s"
    return test, permutation_p(first.mean(axis=0) - second.mean(axis=0), groups=groups)
