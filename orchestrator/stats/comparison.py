"""Pairwise comparisons of policies: effect, interval, p value, verdict. Pure.

Inputs are accuracies as shares (0 to 1); effects and intervals are in percentage points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import inf, nan
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.stats.inference import (
    LEVEL,
    SeedSpread,
    Variances,
    holm,
    mcnemar_p,
    mean_effect,
    mean_squares,
    permutation_p,
    variances,
)
from orchestrator.stats.power import Needed, needed

# seed -> (item ids, the mean correctness of each item's samples in [0, 1]), of one policy
Run = tuple[Sequence[str], np.ndarray]
RunScores = Mapping[int, Run]
Verdict = Literal["a", "b", "inconclusive"]
Item = Literal["question", "update"]


@dataclass(frozen=True)
class Comparison:
    """Policy `a` minus policy `b`, in points.

    effect, low, high: the mean difference and its 95 % interval, for new seeds and new items; with
        one seed and no `spread`, for new items under that seed only. Without shared items: nan, −∞
        and ∞.
    p, p_holm: two-sided, uncorrected and corrected for all `tests` comparisons; computed by `test`.
    p_runs: conditional on these runs, from permuting items, or McNemar's test.
    left_out: items that were not scored in every run of both policies.
    same_seeds: False where some runs are paired by rank because too few seeds are shared.
    variances: components of the differences (as shares, not points).
    item: what an item is: a test "question", or an "update" of training.
    spread: with one seed, the variance between seeds, where other cells determine it.
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
    seeds: int
    items: int
    left_out: int
    same_seeds: bool
    verdict: Verdict
    variances: Variances
    tests: int = 1
    item: Item = "question"
    spread: SeedSpread | None = None

    @property
    def covers_seeds(self) -> bool:
        """Whether the interval holds for other training seeds; otherwise nothing is decided."""
        return self.seeds > 1 or self.spread is not None

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
        level = LEVEL / self.tests
        return needed(self.variances, self.effect / 100, self.seeds, self.items, level)

    def oriented(self, first: str) -> tuple[float, float, float]:
        """effect, low and high of `first` minus the other policy."""
        if first == self.a:
            return self.effect, self.low, self.high
        return -self.effect, -self.high, -self.low


def compare_policies(
    scores_by_policy: Mapping[str, RunScores], spread: SeedSpread | None = None
) -> list[Comparison]:
    """All pairs of policies of one (model, dataset), in the given order, Holm-corrected together.

    Runs are paired by seed and item. Seeds that only one policy has are paired by rank, which
    widens the interval but does not bias it. A pair without a shared item is inconclusive, and so
    is a pair with one seed, unless `spread` says how much results vary between seeds.
    Raises ValueError where a policy has no run, or a run contains an item twice.
    """
    pairs = combinations(scores_by_policy.items(), 2)
    return adjust([_compare(a, b, one, two, spread) for (a, one), (b, two) in pairs])


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

    With two seeds or more the interval is over seeds. A pair with one seed is compared by its live
    groups, paired by update: that interval covers other updates (groups) of this seed only, unless
    `spread` (of learnable shares) is known.
    """
    pairs = []
    for c in compare_numbers(percentages, spread):
        if c.seeds == 1:
            [(seed_a, seed_b)] = pair_seeds(list(percentages[c.a]), list(percentages[c.b]))
            run_a, run_b = (
                (list(map(str, shares)), np.array(list(shares.values())))
                for shares in (live_shares[c.a][seed_a], live_shares[c.b][seed_b])
            )
            by_update = _compare(c.a, c.b, {0: run_a}, {0: run_b}, spread, "update")
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


def _compare(
    a: str,
    b: str,
    scores_a: RunScores,
    scores_b: RunScores,
    spread: SeedSpread | None = None,
    item: Item = "question",
) -> Comparison:
    pairs = paired(a, scores_a, b, scores_b)
    seeds, items = pairs.differences.shape
    if not items:
        return Comparison(
            *(a, b, nan, -inf, inf, 1.0, 1.0, 1.0, "none", seeds, 0, pairs.left_out),
            same_seeds=pairs.same_seeds,
            verdict="inconclusive",
            variances=Variances(0.0, 0.0, 0.0),
            item=item,
        )
    spread = spread if seeds == 1 else None
    mean = mean_effect(pairs.differences, spread)
    test, p_runs = _test(pairs.first, pairs.second, item)
    if spread is not None:
        test = f"t over {item}s, seeds as in {spread.cells} cells"
    effect, low, high = (100 * x for x in (mean.mean, mean.low, mean.high))
    p = p_runs if seeds == 1 and spread is None else mean.p
    return Comparison(
        *(a, b, effect, low, high, p, p, p_runs, test, seeds, items, pairs.left_out),
        same_seeds=pairs.same_seeds,
        verdict="inconclusive",
        variances=variances(mean_squares(pairs.differences)),
        item=item,
        spread=spread,
    )


class Paired(NamedTuple):
    """Runs of two sides, paired by seed and item: values [seeds, items] of each.

    left_out: items that were not scored in every run of both. same_seeds: False where some runs are
    paired by the rank of their seeds.
    """

    first: np.ndarray
    second: np.ndarray
    left_out: int
    same_seeds: bool

    @property
    def differences(self) -> np.ndarray:
        """First minus second."""
        return np.asarray(self.first - self.second)


def paired(a: str, scores_a: RunScores, b: str, scores_b: RunScores) -> Paired:
    """The values of the items that were scored in every run of both sides.

    `a` and `b` name the sides in errors. Raises ValueError where a side has no run, or a run
    contains an item twice.
    """
    seed_pairs = pair_seeds(list(scores_a), list(scores_b))
    sides: list[list[dict[str, float]]] = [[], []]
    for side, (policy, scores) in enumerate(((a, scores_a), (b, scores_b))):
        for pair in seed_pairs:
            ids, values = scores[pair[side]]
            sides[side].append(dict(zip(ids, values, strict=True)))
            if len(sides[side][-1]) != len(ids):
                raise ValueError(f"{policy}: a run contains the same question twice")
    item_sets = [set(run) for side in sides for run in side]
    shared = sorted(set.intersection(*item_sets))
    first, second = (np.array([[run[i] for i in shared] for run in side], float) for side in sides)
    left_out = len(set.union(*item_sets)) - len(shared)
    return Paired(first, second, left_out, all(s == t for s, t in seed_pairs))


def pair_seeds(seeds_a: Sequence[int], seeds_b: Sequence[int]) -> list[tuple[int, int]]:
    """Shared seeds with themselves, the others by rank until one side has none left."""
    shared = sorted(set(seeds_a) & set(seeds_b))
    rest = (sorted(set(seeds) - set(shared)) for seeds in (seeds_a, seeds_b))
    pairs = [(s, s) for s in shared] + list(zip(*rest, strict=False))
    if not pairs:
        raise ValueError("a policy without any finished run cannot be compared")
    return pairs


def _test(first: np.ndarray, second: np.ndarray, item: Item) -> tuple[str, float]:
    """The name of the test, and its p conditional on these runs."""
    seeds, items = first.shape
    if seeds * items == 1:
        return "none", 1.0
    if items == 1:
        return "t over seeds", 1.0
    if seeds == 1 and np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all():
        return "McNemar", mcnemar_p(first[0], second[0])
    test = f"permutation of {item}s" if seeds == 1 else f"t over seeds and {item}s"
    return test, permutation_p(first - second)
