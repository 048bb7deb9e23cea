"""Tests a claim, stated before the sweep ran, against a measured difference. Pure."""

from collections.abc import Mapping, Sequence
from math import inf, isnan, nan
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.config.claims import CORRELATION, Claim, side_text
from orchestrator.plugins.counts import counted
from orchestrator.stats.comparison import Comparison, RunScores, compare_policies
from orchestrator.stats.inference import (
    FEWEST_POINTS,
    LEVEL,
    SMALLEST_BLOCK,
    Effect,
    SeedSpread,
    available,
    group_codes,
    mean_effect,
    r_squared,
)
from orchestrator.stats.sentences import in_digits, in_points, missing_text

Conclusion = Literal["supported", "refuted", "inconclusive"]
Item = Literal["question", "update", "run", "policy"]


class Measured(NamedTuple):
    """What a claim is judged by: its first side minus its second in points, or R².

    effect, low, high: the value and its 95 % interval. runs: training seeds of each side. items:
    questions, updates of one seed, or of R² the points: policies, each the mean over its seeds, in
    so many blocks. left_out: items without a score on one of the sides. groups: of related items,
    where there are any. missing: how the sides miss scores unlike each other, in words.
    stored_runs: those that a variance between seeds rests on, where they are more than the compared
    ones. covers_seeds: whether the interval holds for other seeds. level: the interval is one of
    1 − level.
    """

    effect: float
    low: float
    high: float
    runs: tuple[int, int]
    items: int
    item: Item = "question"
    stored_runs: int = 0
    covers_seeds: bool = True
    left_out: int = 0
    groups: int | None = None
    missing: str = ""
    level: float = LEVEL
    blocks: int = 1

    @classmethod
    def of(cls, pair: Comparison) -> "Measured":
        """What `decile compare` and the report say about the same two sides."""
        return cls(
            effect=pair.effect,
            low=pair.low,
            high=pair.high,
            runs=pair.runs,
            items=pair.items,
            item=pair.item,
            stored_runs=sum(spread.cells for spread in pair.stored.values()),
            covers_seeds=pair.covers_seeds,
            left_out=pair.left_out,
            groups=pair.groups,
            missing=missing_text(pair) if pair.misses_unlike else "",
            level=pair.level,
        )

    def times(self, factor: float) -> "Measured":
        """The same in another unit."""
        effect, low, high = (factor * x for x in (self.effect, self.low, self.high))
        return self._replace(effect=effect, low=low, high=high)


class ClaimVerdict(NamedTuple):
    """The verdict on one claim, the numbers behind it, and why, in words."""

    verdict: Conclusion
    reason: str
    measured: Measured | None = None


def measured_difference(
    scores_a: RunScores,
    scores_b: RunScores,
    stored: Sequence[SeedSpread | None] = (None, None),
    item: Literal["question", "update", "run"] = "question",
    groups: Mapping[str, str] = MappingProxyType({}),
    level: float = LEVEL,
) -> Measured:
    """Side a minus side b in points, as `compare_policies` compares them. Scores are shares."""
    sides = {"one side": scores_a, "the other side": scores_b}
    spreads = {side: spread for side, spread in zip(sides, stored, strict=True) if spread}
    [pair] = compare_policies(sides, spreads, item, groups, level=level)
    return Measured.of(pair)


def measured_change(
    changes: RunScores,
    groups: Mapping[str, str] = MappingProxyType({}),
    *,
    of_shares: bool = True,
    level: float = LEVEL,
) -> Measured:
    """The mean change of one side's runs from their base model: seed -> items and changes.

    The base model has no seeds, so only those of the runs vary. of_shares: no change exceeds 1
    unless one of these does.
    """
    runs = [dict(zip(run[0], run[1], strict=True)) for run in changes.values()]
    items, values = available(runs)
    codes = group_codes(items, groups)
    mean = mean_effect(values, codes, level) if items else Effect(nan, -inf, inf, 1.0)
    sizes = [abs(change) for run in runs for change in run.values() if change == change]
    if of_shares and max(sizes) <= 1:
        mean = mean.within(-1.0, 1.0)
    return Measured(
        effect=100 * mean.mean,
        low=100 * mean.low,
        high=100 * mean.high,
        runs=(len(runs), len(runs)),
        items=len(items),
        covers_seeds=len(runs) > 1,
        left_out=len(set.union(*map(set, runs))) - len(items),
        groups=None if codes is None else int(codes.max()) + 1,
        level=level,
    )


def independent_points(
    policies: Sequence[Mapping[str, tuple[float, float]]],
) -> list[tuple[float, float]]:
    """One point for each set of prompts: the mean over its training runs.

    policies: of each, training run -> its point. Policies that share a run (both chose the same
    prompts, and only one was trained) have one point.
    """
    sets: list[dict[str, tuple[float, float]]] = []
    for runs in policies:
        shared = [each for each in sets if not runs.keys().isdisjoint(each)]
        joined = dict(runs)
        for each in shared:
            joined |= each
        sets = [*(each for each in sets if each not in shared), joined]
    return [tuple(np.mean([*runs.values()], axis=0).tolist()) for runs in sets]


def measured_correlation(
    blocks: Sequence[Sequence[tuple[float, float]]], seeds: int, level: float = LEVEL
) -> Measured:
    """R² within blocks of independent points (learnable %, gain); nan where it is not defined."""
    arrays = (np.array(points, dtype=float).reshape(-1, 2) for points in blocks)
    fit = r_squared(*arrays, level=level)
    return Measured(
        fit.value,
        fit.low,
        fit.high,
        (seeds, seeds),
        fit.points,
        "policy",
        level=level,
        blocks=fit.blocks,
    )


def judge_claim(claim: Claim, measured: Measured) -> ClaimVerdict:
    """Compare a claim with an interval.

    Supported if the whole interval lies in the claimed region (A > B by N: above N; A = B within N:
    inside [−N, N]; A >= B within N: above −N), refuted if it lies outside, otherwise inconclusive;
    the reverse for A != B by N. A single seed decides nothing, unless the spread between seeds of
    the same policies is known from other cells.
    """
    if isnan(measured.effect):
        reason = "no question has a score on both sides"
        if measured.item == "policy":
            reason = "R² is not defined: learnable % or gain is the same for all policies"
            if measured.items < FEWEST_POINTS:
                reason = (
                    f"R² needs at least {FEWEST_POINTS} policies (with different prompts, at least "
                    f"{SMALLEST_BLOCK} of a block; their seeds are averaged), and cells of "
                    f"{measured.items} are finished"
                )
        return ClaimVerdict("inconclusive", reason, measured)
    low, high = claim.region
    inside = low < measured.low and measured.high < high
    outside = measured.low > high or measured.high < low
    if claim.sign == "!=":
        inside, outside = outside, inside
    verdict: Conclusion = "supported" if inside else "refuted" if outside else "inconclusive"
    if not measured.covers_seeds:
        verdict = "inconclusive"
    sides = " − ".join(side_text(side) for side in (claim.a, claim.b))
    unit = " points"
    if claim.metric == CORRELATION:
        sides, unit = "R²", ""
    if claim.per:
        unit = f" points {claim.per.per}"
    value, interval = value_texts(claim, measured)
    reason = f"{sides} is {value}{unit} {interval}; claimed: {_claimed(claim)}"
    return ClaimVerdict(verdict, "; ".join([reason, *_notes(measured)]), measured)


def value_texts(claim: Claim, measured: Measured) -> tuple[str, str]:
    """The value and its interval, as `+4.7` and `[+1.2, +8.1]`."""
    low, value, high = (
        f"{x:.2f}" if claim.metric == CORRELATION else in_digits(x) if claim.per else in_points(x)
        for x in (measured.low, measured.effect, measured.high)
    )
    return value, f"[{low}, {high}]"


def policies_text(measured: Measured) -> str:
    """`8 policies`, or `24 policies in 3 blocks`."""
    policies = counted(measured.items, "policy", "policies")
    return policies if measured.blocks == 1 else f"{policies} in {measured.blocks} blocks"


def _claimed(claim: Claim) -> str:
    """The region in words."""
    low, high = (in_points(x, plus=False).removesuffix(".0") for x in claim.region)
    if claim.level is not None or claim.per:
        low, high = (f"{x:g}" for x in claim.region)
    match claim.sign:
        case ">":
            return f"above {low}"
        case "<":
            return f"below {high}"
        case ">=":
            return f"at least {low}"
        case "<=":
            return f"at most {high}"
        case "!=":
            return f"more than {claim.size:g} from {claim.level or 0:g}"
    return f"within {claim.size:g}" + (f" of {claim.level:g}" if claim.level else "")


def _notes(measured: Measured) -> list[str]:
    """What limits the numbers."""
    notes = []
    if measured.level < LEVEL:
        notes.append(f"interval of {100 * (1 - measured.level):.4g} %")
    if measured.item == "update":
        notes.append(f"over {counted(measured.items, 'update')} of one seed")
    if measured.item == "policy":
        notes.append(f"over {policies_text(measured)}, each the mean over its seeds")
    if measured.stored_runs:
        notes.append(f"spread between seeds from {counted(measured.stored_runs, 'stored run')}")
    if not measured.covers_seeds:
        notes.append("needs more seeds")
    if measured.left_out:
        left_out = counted(measured.left_out, "question")
        notes.append(f"{left_out} left out, without a score on one side")
    if measured.groups is not None:
        notes.append(f"related questions averaged in {counted(measured.groups, 'group')}")
    if measured.missing:
        notes.append(measured.missing)
    return notes
