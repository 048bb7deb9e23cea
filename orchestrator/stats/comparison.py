"""Pairwise comparisons of policies: effect, interval, p value, verdict. Pure.

Inputs are accuracies as shares (0 to 1); effects and intervals are in percentage points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import floor, inf, isfinite, log10, nan
from typing import Literal

import numpy as np

from orchestrator.stats.inference import (
    LEVEL,
    Interval,
    Variances,
    hierarchical_bootstrap,
    holm,
    mcnemar_p,
    mean_effect,
    mean_squares,
    permutation_p,
    variances,
)
from orchestrator.stats.power import Needed, needed

RESAMPLES = 2000

# seed -> (item ids, the mean correctness of each item's samples in [0, 1]), of one policy
Run = tuple[Sequence[str], np.ndarray]
Scores = Mapping[int, Run]
Verdict = Literal["a", "b", "inconclusive"]
Item = Literal["question", "update"]


@dataclass(frozen=True)
class Comparison:
    """Policy `a` minus policy `b`, in points.

    effect, low, high: the mean difference and its 95 % interval, for new seeds and new items; with
        one seed, for new items under that seed only. Without shared items: nan, −∞ and ∞.
    p, p_holm: two-sided, uncorrected and corrected for all `tests` comparisons; computed by `test`.
    p_runs: conditional on these runs, from permuting items, or McNemar's test.
    bootstrap: percentile bootstrap over seeds and items, as a cross-check of low and high.
    left_out: items that were not scored in every run of both policies.
    same_seeds: False where some runs are paired by rank because too few seeds are shared.
    variances: components of the differences (as shares, not points).
    item: what an item is: a test "question", or an "update" of training.
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
    bootstrap: Interval
    variances: Variances
    tests: int = 1
    item: Item = "question"

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


def compare_policies(scores_by_policy: Mapping[str, Scores]) -> list[Comparison]:
    """All pairs of policies of one (model, dataset), in the given order, Holm-corrected together.

    Runs are paired by seed and item. Seeds that only one policy has are paired by rank, which
    widens the interval but does not bias it. A pair without a shared item is inconclusive.
    Raises ValueError where a policy has no run, or a run contains an item twice.
    """
    pairs = combinations(scores_by_policy.items(), 2)
    return adjust([_compare(a, b, scores_a, scores_b) for (a, scores_a), (b, scores_b) in pairs])


def compare_numbers(numbers: Mapping[str, Mapping[int, float]]) -> list[Comparison]:
    """The same for one number per run in points (learnable %): policy -> seed -> number.

    Only seeds vary: a t interval over paired seeds, infinite with one seed.
    """
    scores = {
        policy: {seed: (("",), np.array([value / 100])) for seed, value in by_seed.items()}
        for policy, by_seed in numbers.items()
    }
    return compare_policies(scores)


def compare_learnable(
    percentages: Mapping[str, Mapping[int, float]],
    live_shares: Mapping[str, Mapping[int, Mapping[int, float]]],
) -> list[Comparison]:
    """Learnable % of all pairs: policy -> seed -> percentage; … -> update -> share of live groups.

    With two seeds or more the interval is over seeds. A pair with one seed is compared by its live
    groups, paired by update: that interval covers other updates (groups) of this seed only.
    """
    pairs = []
    for c in compare_numbers(percentages):
        if c.seeds == 1:
            [(seed_a, seed_b)] = pair_seeds(list(percentages[c.a]), list(percentages[c.b]))
            run_a, run_b = (
                (list(map(str, shares)), np.array(list(shares.values())))
                for shares in (live_shares[c.a][seed_a], live_shares[c.b][seed_b])
            )
            by_update = _compare(c.a, c.b, {0: run_a}, {0: run_b}, "update")
            c = by_update if by_update.items > 1 else c
        pairs.append(c)
    return adjust(pairs)


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Holm's correction over all given comparisons, for example those of a whole report.

    A policy is named the better one where the interval excludes zero and Holm's p is at most .05.
    """
    adjusted = holm([c.p for c in comparisons])
    verdicts: list[Verdict] = [
        "inconclusive" if c.spans_zero or p > LEVEL else "a" if c.effect > 0 else "b"
        for c, p in zip(comparisons, adjusted, strict=True)
    ]
    return [
        replace(c, p_holm=p, verdict=verdict, tests=len(comparisons))
        for c, p, verdict in zip(comparisons, adjusted, verdicts, strict=True)
    ]


def _compare(
    a: str, b: str, scores_a: Scores, scores_b: Scores, item: Item = "question"
) -> Comparison:
    seed_pairs = pair_seeds(list(scores_a), list(scores_b))
    sides = [
        [_by_item(policy, *scores[pair[side]]) for pair in seed_pairs]
        for side, (policy, scores) in enumerate(((a, scores_a), (b, scores_b)))
    ]
    item_sets = [set(run) for side in sides for run in side]
    shared = sorted(set.intersection(*item_sets))
    left_out = len(set.union(*item_sets)) - len(shared)
    same_seeds = all(s == t for s, t in seed_pairs)
    if not shared:
        return Comparison(
            *(a, b, nan, -inf, inf, 1.0, 1.0, 1.0, "none", len(seed_pairs), 0, left_out),
            same_seeds=same_seeds,
            verdict="inconclusive",
            bootstrap=Interval(-inf, inf),
            variances=Variances(0.0, 0.0, 0.0),
            item=item,
        )
    first, second = (np.array([[run[i] for i in shared] for run in side], float) for side in sides)
    differences = first - second
    mean = mean_effect(differences)
    test, p_runs = _test(first, second, item)
    effect, low, high = (100 * x for x in (mean.mean, mean.low, mean.high))
    p = mean.p if len(seed_pairs) > 1 else p_runs
    seeds, items = differences.shape
    ends = hierarchical_bootstrap(differences, RESAMPLES, np.random.default_rng(0))
    return Comparison(
        *(a, b, effect, low, high, p, p, p_runs, test, seeds, items, left_out),
        same_seeds=same_seeds,
        verdict="inconclusive",
        bootstrap=Interval(100 * ends.low, 100 * ends.high),
        variances=variances(mean_squares(differences)),
        item=item,
    )


def pair_seeds(seeds_a: Sequence[int], seeds_b: Sequence[int]) -> list[tuple[int, int]]:
    """Shared seeds with themselves, the others by rank until one side has none left."""
    shared = sorted(set(seeds_a) & set(seeds_b))
    rest = (sorted(set(seeds) - set(shared)) for seeds in (seeds_a, seeds_b))
    pairs = [(s, s) for s in shared] + list(zip(*rest, strict=False))
    if not pairs:
        raise ValueError("a policy without any finished run cannot be compared")
    return pairs


def _by_item(policy: str, ids: Sequence[str], values: np.ndarray) -> dict[str, float]:
    table = dict(zip(ids, values, strict=True))
    if len(table) != len(ids):
        raise ValueError(f"{policy}: a run contains the same question twice")
    return table


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


def sentence(comparison: Comparison, dataset: str = "") -> str:
    """One comparison in words: effect, interval, sample, p; where inconclusive, what is needed."""
    c = comparison
    on = f" on {dataset}" if dataset else ""
    if not c.items:
        return f"{c.a} vs. {c.b}{on}: inconclusive (no question was scored in every run of both)"
    sample = _count(c.seeds, "seed")
    if c.items > 1:
        sample += f" × {_count(c.items, c.item)}"
    sample += f", p {_p(c.p)}, Holm {_p(c.p_holm, sign=False)}"
    if c.spans_zero:
        size = f"{in_points(c.effect)} points [{in_points(c.low)}, {in_points(c.high)}]"
        return f"{c.a} vs. {c.b}{on}: inconclusive ({size}, {sample}); {_required_sample(c)}"
    better, worse = (c.a, c.b) if c.effect > 0 else (c.b, c.a)
    effect, low, high = (in_points(x, plus=False) for x in c.oriented(better))
    size = f"{effect} points [{low}, {high}]"
    if c.verdict != "inconclusive":
        return f"{better} beats {worse} by {size}{on} ({sample})"
    obstacle = (
        f"by the exact test ({c.test})"
        if c.p > LEVEL
        else f"after Holm's correction over {c.tests:,} comparisons"
    )
    return (
        f"{better} is ahead of {worse} by {size}{on}, but not significantly {obstacle}: "
        f"inconclusive ({sample}); {_required_sample(c)}"
    )


def _required_sample(c: Comparison) -> str:
    """The sample sizes that would detect a difference of the observed size."""
    if not isfinite(c.high):
        return "at least two seeds are needed"
    if c.effect == 0:
        return "no difference was observed, so the sample size needed cannot be estimated"
    options = []
    if c.needed.seeds is not None:
        options.append(f"{max(c.needed.seeds, c.seeds + 1):,} seeds")
    if c.needed.items is not None:
        options.append(f"{_two_digits(max(c.needed.items, c.items + 1)):,} {c.item}s")
    if options:
        return f"about {' or '.join(options)} would be needed"
    if c.needed.both is None:
        kinds = ["seeds"] * (c.seeds > 1) + [f"{c.item}s"] * (c.items > 1)
        return f"no realistic number of {' and '.join(kinds)} would be enough"
    seeds, items = c.needed.both
    return f"about {seeds:,} seeds × {_two_digits(items):,} {c.item}s would be needed"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _two_digits(number: int) -> int:
    """Rounded up to two significant digits, the precision of such an estimate."""
    unit: int = 10 ** max(0, floor(log10(number)) - 1)
    return -(-number // unit) * unit


def in_points(value: float, plus: bool = True) -> str:
    """One decimal, with a typographic minus, and no minus before zero."""
    rounded = round(value, 1) + 0.0
    text = f"{rounded:+.1f}" if plus else f"{rounded:.1f}"
    return text.replace("-", "−").replace("inf", "∞")


def _p(value: float, sign: bool = True) -> str:
    """As in journals: = .003, < .001."""
    if value < 0.001:
        return "< .001"
    text = "1" if round(value, 3) == 1 else f"{value:.3f}".lstrip("0")
    return f"= {text}" if sign else text
