"""Every policy against every other: effect and interval first, p second. Pure.

Accuracies come in as shares, as evaluations hold them; what comes out is in points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import floor, isfinite, log10
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.power import Needed, needed
from orchestrator.report.statistics import (
    LEVEL,
    Interval,
    hierarchical_bootstrap,
    holm,
    mcnemar_p,
    mean_effect,
    mean_squares,
    permutation_p,
    variances,
)

RESAMPLES = 2000

# seed -> (item ids, the mean correctness of each item's samples in [0, 1]), of one policy
Scores = Mapping[int, tuple[Sequence[str], np.ndarray]]
Verdict = Literal["a", "b", "cannot tell"]


@dataclass(frozen=True)
class Comparison:
    """Policy `a` minus policy `b`, in points.

    effect, low, high: the mean difference and its 95 % interval, for new seeds and new questions;
        with one seed, for new questions under that seed only.
    p, p_holm: two-sided, alone and among all comparisons of the family, by `test`.
    p_runs: of these very runs, whatever other seeds would do: permutation of questions, or McNemar.
    bootstrap: percentile bootstrap over seeds and questions, the resampling counterpart.
    left_out: questions that not every run of both has. same_seeds: False where some runs are
        paired in the order of their seeds, because the policies share too few.
    needed: with which a true difference of this size would be found in 80 % of sweeps.
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
    needed: Needed
    bootstrap: Interval


class Steps(NamedTuple):
    """At which update a mark is reached, with a 95 % interval; None: not within the run.

    `reached` is the share of resamples in which it is reached at all.
    """

    update: float | None
    low: float | None
    high: float | None
    reached: float


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
        replace(c, p_holm=p, verdict=_verdict(c, p))
        for c, p in zip(comparisons, adjusted, strict=True)
    ]


def _verdict(comparison: Comparison, p_holm: float) -> Verdict:
    if comparison.low <= 0 <= comparison.high or p_holm > LEVEL:
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
    parts, (count, items) = variances(mean_squares(differences)), differences.shape
    return Comparison(
        *(a, b, effect, low, high, p, p, p_runs, test, count, items, left_out),
        same_seeds=all(s == t for s, t in seeds),
        verdict="cannot tell",
        needed=needed(parts, found.mean, count, items),
        bootstrap=Interval(100 * ends.low, 100 * ends.high),
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
    """One comparison in words: the effect, its interval, the sample, p."""
    c = comparison
    on = f" on {dataset}" if dataset else ""
    sample = _count(c.seeds, "seed")
    if c.items > 1:
        sample += f" × {_count(c.items, 'question')}"
    ps = f"p {_p(c.p)}, Holm {_p(c.p_holm, sign=False)}"
    alone = "; one seed says nothing of other seeds" if c.seeds == 1 else ""
    if c.verdict == "cannot tell":
        size = f"{_points(c.effect)} points [{_points(c.low)}, {_points(c.high)}]"
        return f"{c.a} against {c.b}{on}: cannot tell ({size}, {sample}, {ps}); {_wanted(c)}{alone}"
    flip = -1 if c.verdict == "b" else 1
    better, worse = (c.a, c.b) if flip == 1 else (c.b, c.a)
    low, high = sorted((flip * c.low, flip * c.high))
    return (
        f"{better} beats {worse} by {abs(c.effect):.1f} points [{_points(low, plus=False)}, "
        f"{_points(high, plus=False)}]{on} ({sample}, {ps}){alone}"
    )


def _wanted(c: Comparison) -> str:
    """What would be needed to tell a difference of the size seen."""
    ways = []
    if c.needed.seeds is not None and c.needed.seeds > c.seeds:
        ways.append(f"{c.needed.seeds:,} seeds")
    if c.needed.items is not None and c.needed.items > c.items:
        ways.append(f"{_rounded(c.needed.items):,} questions")
    if ways:
        return f"about {' or '.join(ways)} would be needed"
    if not isfinite(c.high):
        return "two seeds are the least that says anything"
    if not (c.low <= 0 <= c.high):
        return "it would not hold among so many comparisons"
    return "neither more seeds nor more questions alone would do"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _rounded(number: int) -> int:
    """Two digits are all that such an estimate has."""
    unit: int = 10 ** max(0, floor(log10(number)) - 1)
    return -(-number // unit) * unit


def _points(value: float, plus: bool = True) -> str:
    text = f"{value:+.1f}" if plus else f"{value:.1f}"
    return text.replace("-", "−").replace("inf", "∞")


def _p(value: float, sign: bool = True) -> str:
    """As in journals: = .003, < .001."""
    if value < 0.001:
        return "< .001"
    text = "1" if round(value, 3) == 1 else f"{value:.3f}".lstrip("0")
    return f"= {text}" if sign else text


def steps_to_match(
    curve: Mapping[int, np.ndarray], target: np.ndarray, resamples: int = 4000
) -> Steps:
    """At which update a policy's accuracy first reaches a mark: paper B's "45 % of the steps".

    curve: update -> [items], the mean correctness of each question (over samples, and seeds) after
    that update; target: [items], the same of the full pool's final evaluation, same questions.
    Between two evaluations the curve is a straight line. Whole questions are resampled, in curve
    and target alike: the interval speaks of new questions, under these seeds. The first crossing
    of a noisy curve comes early: evaluate with enough questions.
    Raises ValueError on unequal lengths or an empty curve.
    """
    updates = sorted(curve)
    if not updates or any(curve[u].shape != target.shape for u in updates):
        raise ValueError("curve and target need the same questions, after one update or more")
    lead = np.array([curve[u] - target for u in updates])  # [updates, items]
    rng, marks = np.random.default_rng(0), np.array(updates, float)
    means = np.empty((resamples, len(updates)))
    for start in range(0, resamples, 100):
        rows = rng.integers(0, len(target), size=(min(100, resamples - start), len(target)))
        means[start : start + len(rows)] = lead[:, rows].mean(axis=2).T
    drawn = _crossings(marks, means)
    ends = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2], method="inverted_cdf")
    first = _crossings(marks, lead.mean(axis=1)[None, :])[0]
    update, low, high = (float(x) if isfinite(x) else None for x in (first, *ends))
    return Steps(update, low, high, float(np.isfinite(drawn).mean()))


def _crossings(updates: np.ndarray, lead: np.ndarray) -> np.ndarray:
    """[rows]: the update where each row of lead [rows, updates] first is zero or more, else inf."""
    above = lead >= -1e-12
    first = above.argmax(axis=1)
    rows, before = np.arange(len(lead)), np.maximum(first - 1, 0)
    low, high = lead[rows, before], lead[rows, first]
    share = np.where(first > 0, -low / np.where(high > low, high - low, 1), 0.0)
    at = updates[before] + np.clip(share, 0, 1) * (updates[first] - updates[before])
    return np.asarray(np.where(above.any(axis=1), at, np.inf))
