"""Every policy against every other: effect and interval first, p second. Pure.

Accuracies come in as shares, as evaluations hold them; what comes out is in points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import floor, isfinite, log10
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
Scores = Mapping[int, tuple[Sequence[str], np.ndarray]]
Verdict = Literal["a", "b", "cannot tell"]


@dataclass(frozen=True)
class Comparison:
    """Policy `a` minus policy `b`, in points.

    effect, low, high: the mean difference and its 95 % interval, for new seeds and new questions;
        with one seed, for new questions under that seed only.
    p, p_holm: two-sided, alone and among all `tests` comparisons of the family, by `test`.
    p_runs: of these very runs, whatever other seeds would do: permutation of questions, or McNemar.
    bootstrap: percentile bootstrap over seeds and questions, the resampling counterpart.
    left_out: questions that not every run of both has. same_seeds: False where some runs are
        paired in the order of their seeds, because the policies share too few.
    parts: what the differences (shares, not points) vary by.
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
    parts: Variances
    tests: int = 1

    @property
    def spans_zero(self) -> bool:
        """Whether the interval holds zero."""
        return self.low <= 0 <= self.high

    @cached_property
    def needed(self) -> Needed:
        """With which a true difference of this size would be found in 80 % of sweeps.

        At the strictest of Holm's levels, since a verdict has to pass the correction.
        """
        level = LEVEL / self.tests
        return needed(self.parts, self.effect / 100, self.seeds, self.items, level)


def compare_policies(scores_by_policy: Mapping[str, Scores]) -> list[Comparison]:
    """All pairs of policies of one (model, dataset), in the given order; Holm over these pairs.

    Pairs are made at shared questions and shared seeds. Seeds that only one side has are paired
    in their order: a run's luck is then not shared, which costs width, not truth.
    Raises ValueError where a pair shares no question, or a run names a question twice.
    """
    pairs = combinations(scores_by_policy.items(), 2)
    return adjust([_compare(a, b, one, two) for (a, one), (b, two) in pairs])


def compare_numbers(numbers: Mapping[str, Mapping[int, float]]) -> list[Comparison]:
    """The same for one number per run in points (learnable %): policy -> seed -> number.

    Seeds alone vary: a t interval over paired seeds; one seed says nothing (it is infinite).
    """
    scores = {
        policy: {seed: (("",), np.array([value / 100])) for seed, value in by_seed.items()}
        for policy, by_seed in numbers.items()
    }
    return compare_policies(scores)


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Holm over one family, for example the pairs of all models and datasets of a report.

    A verdict names a policy where the interval leaves out zero and Holm's p is at most .05.
    """
    adjusted = holm([c.p for c in comparisons])
    return [
        replace(c, p_holm=p, verdict=_verdict(c, p), tests=len(comparisons))
        for c, p in zip(comparisons, adjusted, strict=True)
    ]


def _verdict(comparison: Comparison, p_holm: float) -> Verdict:
    if comparison.spans_zero or p_holm > LEVEL:
        return "cannot tell"
    return "a" if comparison.effect > 0 else "b"


def _compare(a: str, b: str, one: Scores, two: Scores) -> Comparison:
    seeds = pair_seeds(list(one), list(two))
    runs = [(one[s], two[t]) for s, t in seeds]
    first, second, left_out = _aligned(f"{a} and {b}", runs)
    differences = first - second
    found = mean_effect(differences)
    test, p_runs = _test(first, second)
    effect, low, high = (100 * x for x in (found.mean, found.low, found.high))
    p = found.p if len(seeds) > 1 else p_runs
    rng = np.random.default_rng(0)
    ends = hierarchical_bootstrap(differences, RESAMPLES, rng)
    count, items = differences.shape
    return Comparison(
        *(a, b, effect, low, high, p, p, p_runs, test, count, items, left_out),
        same_seeds=all(s == t for s, t in seeds),
        verdict="cannot tell",
        bootstrap=Interval(100 * ends.low, 100 * ends.high),
        parts=variances(mean_squares(differences)),
    )


def pair_seeds(one: Sequence[int], two: Sequence[int]) -> list[tuple[int, int]]:
    """Shared seeds with themselves; what is left over in order, as far as it goes."""
    shared = sorted(set(one) & set(two))
    rest = (sorted(set(seeds) - set(shared)) for seeds in (one, two))
    pairs = [(s, s) for s in shared] + list(zip(*rest, strict=False))
    if not pairs:
        raise ValueError("a policy without any finished run cannot be compared")
    return pairs


Run = tuple[Sequence[str], np.ndarray]


def _aligned(who: str, runs: Sequence[tuple[Run, Run]]) -> tuple[np.ndarray, np.ndarray, int]:
    """Both sides as [seeds, items] at the questions of every run, and how many others there are."""
    sides = [[_by_item(who, *pair[side]) for pair in runs] for side in (0, 1)]
    known = [set(table) for side in sides for table in side]
    shared = sorted(set.intersection(*known))
    if not shared:
        raise ValueError(f"{who} share no test question")
    first, second = (np.array([[t[i] for i in shared] for t in side], float) for side in sides)
    return first, second, len(set.union(*known)) - len(shared)


def _by_item(who: str, ids: Sequence[str], values: np.ndarray) -> dict[str, float]:
    table = dict(zip(ids, values, strict=True))
    if len(table) != len(ids):
        raise ValueError(f"{who}: a run names a question twice")
    return table


def _test(first: np.ndarray, second: np.ndarray) -> tuple[str, float]:
    """The name of the test, and the p of these very runs."""
    seeds, items = first.shape
    if seeds * items == 1:
        return "none", 1.0
    if items == 1:
        return "t over seeds", 1.0
    if seeds == 1 and np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all():
        return "McNemar", mcnemar_p(first[0], second[0])
    test = "permutation of questions" if seeds == 1 else "t over seeds and questions"
    return test, permutation_p(first - second)


def sentence(comparison: Comparison, dataset: str = "") -> str:
    """One comparison in words: the effect, its interval, the sample, p; and what is missing."""
    c = comparison
    on = f" on {dataset}" if dataset else ""
    alone = "; one seed says nothing of other seeds" if c.seeds == 1 else ""
    if c.spans_zero:
        size = f"{in_points(c.effect)} points [{in_points(c.low)}, {in_points(c.high)}]"
        inside = f"{size}, {_sample(c)}"
        return f"{c.a} against {c.b}{on}: cannot tell ({inside}); {_wanted(c)}{alone}"
    better, worse, size = _turned(c)
    if c.verdict == "cannot tell":
        return (
            f"{better} leads {worse} by {size}{on}, but {_but(c)}: cannot tell ({_sample(c)}); "
            f"{_wanted(c)}{alone}"
        )
    return f"{better} beats {worse} by {size}{on} ({_sample(c)}){alone}"


def _turned(c: Comparison) -> tuple[str, str, str]:
    """The policy that is ahead, the other one, and by how much."""
    flip = 1 if c.effect > 0 else -1
    low, high = sorted((flip * c.low, flip * c.high))
    ends = ", ".join(in_points(end, plus=False) for end in (low, high))
    size = f"{abs(c.effect):.1f} points [{ends}]"
    return (c.a, c.b, size) if flip == 1 else (c.b, c.a, size)


def _sample(c: Comparison) -> str:
    """Seeds, questions, and both p."""
    sample = _count(c.seeds, "seed")
    if c.items > 1:
        sample += f" × {_count(c.items, 'question')}"
    return f"{sample}, p {_p(c.p)}, Holm {_p(c.p_holm, sign=False)}"


def _but(c: Comparison) -> str:
    """Why an interval that leaves out zero decides nothing."""
    if c.p > LEVEL:
        return f"not by the exact test ({c.test})"
    return f"not after Holm's correction over {c.tests:,} comparisons"


def _wanted(c: Comparison) -> str:
    """What would be needed to tell a difference of the size seen."""
    if not isfinite(c.high):
        return "two seeds are the least that says anything"
    if c.effect == 0:
        return "no difference was seen, so no number of seeds or questions follows"
    ways = []
    if c.needed.seeds is not None:
        ways.append(f"{max(c.needed.seeds, c.seeds + 1):,} seeds")
    if c.needed.items is not None:
        ways.append(f"{_rounded(max(c.needed.items, c.items + 1)):,} questions")
    if ways:
        return f"about {' or '.join(ways)} would be needed"
    if c.needed.both is None:
        ways = ["seeds"] * (c.seeds > 1) + ["questions"] * (c.items > 1)
        return f"no number of {' and '.join(ways)} within reason would do"
    seeds, items = c.needed.both
    return f"about {seeds:,} seeds × {_rounded(items):,} questions would be needed"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _rounded(number: int) -> int:
    """Two digits are all that such an estimate has."""
    unit: int = 10 ** max(0, floor(log10(number)) - 1)
    return -(-number // unit) * unit


def in_points(value: float, plus: bool = True) -> str:
    """One digit, a true minus, and no minus before zero."""
    rounded = round(value, 1) + 0.0
    text = f"{rounded:+.1f}" if plus else f"{rounded:.1f}"
    return text.replace("-", "−").replace("inf", "∞")


def _p(value: float, sign: bool = True) -> str:
    """As in journals: = .003, < .001."""
    if value < 0.001:
        return "< .001"
    text = "1" if round(value, 3) == 1 else f"{value:.3f}".lstrip("0")
    return f"= {text}" if sign else text
