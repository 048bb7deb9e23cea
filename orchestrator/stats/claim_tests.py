"""Tests a claim, stated before the sweep ran, against a measured difference. Pure."""

from collections.abc import Sequence
from math import isnan
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.config.claims import CORRELATION, Claim, side_text
from orchestrator.stats.comparison import RunScores, paired
from orchestrator.stats.inference import SeedSpread, mean_effect, r_squared
from orchestrator.stats.sentences import in_points

Conclusion = Literal["supported", "refuted", "inconclusive"]
Item = Literal["question", "update", "cell"]


class Measured(NamedTuple):
    """What a claim is judged by: its first side minus its second in points, or R².

    effect, low, high: the value and its 95 % interval. seeds, items: the size of the sample, of
    questions, of updates of one seed, or of cells. left_out: items that were not scored in every
    run. spread: with one seed, the variance between seeds, where other cells determine it.
    """

    effect: float
    low: float
    high: float
    seeds: int
    items: int
    item: Item = "question"
    spread: SeedSpread | None = None
    same_seeds: bool = True
    left_out: int = 0

    @property
    def decisive(self) -> bool:
        """Whether the interval holds for other training seeds; otherwise nothing is decided."""
        return self.item == "cell" or self.seeds > 1 or self.spread is not None


class ClaimVerdict(NamedTuple):
    """The verdict on one claim, the numbers behind it, and why, in words."""

    verdict: Conclusion
    reason: str
    measured: Measured | None = None


def measured_difference(
    scores_a: RunScores,
    scores_b: RunScores,
    spread: SeedSpread | None = None,
    item: Item = "question",
) -> Measured:
    """Side a minus side b, paired by seed and item as in `compare_policies`. Scores are shares.

    `spread` counts with one seed only. Without a shared item the interval is infinite.
    """
    pairs = paired("one side", scores_a, "the other side", scores_b)
    seeds, items = pairs.differences.shape
    sample = (seeds, items, item, spread if seeds == 1 else None)
    rest = (pairs.same_seeds, pairs.left_out)
    if not items:
        return Measured(np.nan, -np.inf, np.inf, *sample, *rest)
    mean = mean_effect(pairs.differences, sample[-1])
    return Measured(100 * mean.mean, 100 * mean.low, 100 * mean.high, *sample, *rest)


def measured_correlation(points: Sequence[tuple[float, float]], seeds: int) -> Measured:
    """R² over cells, of their learnable % and gain; nan where it cannot be computed."""
    fit = r_squared(*np.array(points, dtype=float).reshape(-1, 2).T)
    return Measured(fit.value, fit.low, fit.high, seeds, fit.cells, "cell")


def judge_claim(claim: Claim, measured: Measured) -> ClaimVerdict:
    """Compare a claim with an interval.

    Supported if the whole interval lies in the claimed region (A > B by N: above N; A = B within N:
    inside [−N, N]; A >= B within N: above −N), refuted if it lies outside, otherwise inconclusive;
    the reverse for A != B by N. A claim is stated in advance, so it is not corrected for the number
    of claims. A single seed decides nothing, unless the spread between seeds is known from other
    cells.
    """
    if isnan(measured.effect):
        reason = "no question was scored in every run of both"
        if measured.item == "cell":
            reason = "R² is not defined: learnable % or gain is the same in all cells"
            if measured.items < 8:
                few = f"{measured.items} are finished"
                reason = f"R² needs at least eight finished cells, and {few}"
        return ClaimVerdict("inconclusive", reason, measured)
    low, high = claim.region
    inside = low < measured.low and measured.high < high
    outside = measured.low > high or measured.high < low
    if claim.sign == "!=":
        inside, outside = outside, inside
    verdict: Conclusion = "supported" if inside else "refuted" if outside else "inconclusive"
    if not measured.decisive:
        verdict = "inconclusive"
    sides = " − ".join(side_text(side) for side in (claim.a, claim.b))
    unit = " points"
    if claim.metric == CORRELATION:
        sides, unit = "R²", ""
    value, interval = value_texts(claim, measured)
    reason = f"{sides} is {value}{unit} {interval}; claimed: {_claimed(claim)}"
    return ClaimVerdict(verdict, "; ".join([reason, *_notes(measured)]), measured)


def value_texts(claim: Claim, measured: Measured) -> tuple[str, str]:
    """The value and its interval, as `+4.7` and `[+1.2, +8.1]`."""
    low, value, high = (
        f"{x:.2f}" if claim.metric == CORRELATION else in_points(x)
        for x in (measured.low, measured.effect, measured.high)
    )
    return value, f"[{low}, {high}]"


def _claimed(claim: Claim) -> str:
    """The region in words."""
    low, high = (in_points(x, plus=False).removesuffix(".0") for x in claim.region)
    if claim.level is not None:
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
    if measured.item == "update":
        notes.append(f"over {measured.items} updates of one seed")
    if measured.item == "cell":
        notes.append(f"over {measured.items} cells")
    if measured.spread is not None:
        notes.append(f"spread between seeds from {measured.spread.cells} cells")
    elif not measured.decisive:
        notes.append("needs more seeds")
    if not measured.same_seeds:
        notes.append("some runs are paired by the rank of their seeds")
    if measured.left_out:
        notes.append(f"{measured.left_out} questions left out, not scored in every run")
    return notes
