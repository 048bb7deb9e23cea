"""Tests a claim, stated before the sweep ran, against a measured difference. Pure."""

from typing import Literal, NamedTuple, Protocol

from orchestrator.config.claims import Claim

Verdict = Literal["supported", "refuted", "inconclusive"]


class Difference(Protocol):
    """Policy `a` minus policy `b` in percentage points, with a 95 % interval.

    A `Comparison` is one.
    """

    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def effect(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def seeds(self) -> int: ...


class ClaimVerdict(NamedTuple):
    """The verdict on one claim, and the numbers behind it."""

    claim: Claim
    verdict: Verdict
    why: str


def judge_claim(claim: Claim, difference: Difference | None) -> ClaimVerdict:
    """Compare a claim with the interval of its pair of policies, given in either order.

    A > B by N: supported if the whole interval of A − B lies above N, refuted if it lies below N,
    otherwise inconclusive. A = B within N: supported if it lies inside [−N, N], refuted if it lies
    outside. A claim is stated in advance, so it is not corrected for the number of claims. The
    caller chooses the numbers: accuracy and gain share them (the base model is the same), learnable
    has its own. None means that no finished cells exist. Raises ValueError for another pair.
    """
    if difference is None:
        return ClaimVerdict(claim, "inconclusive", "no finished cells of both policies")
    if {claim.a, claim.b} != {difference.a, difference.b}:
        raise ValueError(f"{claim.text!r} is not about {difference.a} and {difference.b}")
    flip = 1 if claim.a == difference.a else -1
    effect = flip * difference.effect
    low, high = sorted((flip * difference.low, flip * difference.high))
    if claim.sign == "=":
        inside = -claim.points < low and high < claim.points
        outside = low > claim.points or high < -claim.points
    else:
        inside, outside = low > claim.points, high < claim.points
    verdict: Verdict = "supported" if inside else "refuted" if outside else "inconclusive"
    numbers = [f"{x:+.1f}".replace("-", "−").replace("inf", "∞") for x in (effect, low, high)]
    bound = f"within {claim.points:g}" if claim.sign == "=" else f"above {claim.points:g}"
    why = (
        f"{claim.a} − {claim.b} is {numbers[0]} points [{numbers[1]}, {numbers[2]}]; "
        f"claimed: {bound}"
    )
    if difference.seeds == 1:
        why += "; single seed: the interval covers test questions only"
    return ClaimVerdict(claim, verdict, why)
