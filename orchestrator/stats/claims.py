"""Tests a claim, stated before the sweep ran, against a measured difference. Pure."""

from typing import Literal, NamedTuple

from orchestrator.config.claims import Claim
from orchestrator.stats.comparison import Comparison
from orchestrator.stats.sentences import in_points

Verdict = Literal["supported", "refuted", "inconclusive"]


class ClaimVerdict(NamedTuple):
    """The verdict on one claim, and the numbers behind it."""

    claim: Claim
    verdict: Verdict
    reason: str


def judge_claim(claim: Claim, comparison: Comparison | None) -> ClaimVerdict:
    """Compare a claim with the interval of its pair of policies, given in either order.

    A > B by N: supported if the whole interval of A − B lies above N, refuted if it lies below N,
    otherwise inconclusive. A = B within N: supported if it lies inside [−N, N], refuted if it lies
    outside. A claim is stated in advance, so it is not corrected for the number of claims. The
    caller chooses the numbers: accuracy and gain share them (the base model is the same), learnable
    has its own. None means that no finished cells exist. A single seed decides nothing, unless the
    spread between seeds is known from other cells. Raises ValueError for another pair.
    """
    if comparison is None:
        return ClaimVerdict(claim, "inconclusive", "no finished cells of both policies")
    if {claim.a, claim.b} != {comparison.a, comparison.b}:
        raise ValueError(f"{claim.text!r} is not about {comparison.a} and {comparison.b}")
    if not comparison.items:
        return ClaimVerdict(claim, "inconclusive", "no question was scored in every run of both")
    effect, low, high = comparison.oriented(claim.a)
    if claim.sign == "=":
        inside = -claim.points < low and high < claim.points
        outside = low > claim.points or high < -claim.points
    else:
        inside, outside = low > claim.points, high < claim.points
    verdict: Verdict = "supported" if inside else "refuted" if outside else "inconclusive"
    if not comparison.covers_seeds:
        verdict = "inconclusive"
    difference = f"{in_points(effect)} points [{in_points(low)}, {in_points(high)}]"
    bound = f"within {claim.points:g}" if claim.sign == "=" else f"above {claim.points:g}"
    reason = f"{claim.a} − {claim.b} is {difference}; claimed: {bound}"
    if comparison.item == "update":
        reason += f"; over {comparison.items} updates of one seed"
    if comparison.spread is not None:
        reason += f"; spread between seeds from {comparison.spread.cells} cells"
    elif comparison.seeds == 1:
        reason += "; needs more seeds"
    return ClaimVerdict(claim, verdict, reason)
