"""Claims written down before a sweep runs, and what its numbers say of them. Pure.

    claims:
      - hard > random on gsm8k by 3
      - easy < middle on gsm8k for qwen3-4b
      - hard = middle on shuffled_objects within 2
      - learnable hard > easy on gsm8k by 10

All sizes are points. The metric word comes first: accuracy (default), gain, learnable.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

METRICS = ("accuracy", "gain", "learnable")
EXAMPLE = "hard > random on gsm8k by 3"
NAME = r"[\w.+:/@-]+"
PAIR = re.compile(
    rf"(?:(?P<metric>\w+)\s+)?(?P<a>{NAME})\s*(?P<sign>[<>=])\s*(?P<b>{NAME})(?=\s|$)"
)
CLAUSE = re.compile(
    rf"\s+(?:(?P<size>by|within)\s+(?P<points>\d+(?:\.\d+)?)\s*(?:points?|pp|%)?"
    rf"|(?P<place>on|for)\s+(?P<name>{NAME}))(?=\s|$)"
)


class ClaimError(ValueError):
    """A claim that cannot be read; the message says what to write instead."""


class Difference(Protocol):
    """A policy `a` minus a policy `b` in points, with a 95 % interval; a `Comparison` is one."""

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


@dataclass(frozen=True)
class Claim:
    """`a` is above `b` by more than `points` (sign ">"), or within `points` of it ("=").

    "<" is read as ">" with the two exchanged. model is None where the claim is of every model.
    """

    text: str
    metric: str
    a: str
    sign: Literal[">", "="]
    b: str
    points: float
    dataset: str
    model: str | None


class Judged(NamedTuple):
    """What the numbers say of a claim, and the numbers."""

    claim: Claim
    verdict: Literal["supported", "refuted", "inconclusive"]
    why: str


def parse(
    text: str,
    policies: Sequence[str] = (),
    datasets: Sequence[str] = (),
    models: Sequence[str] = (),
) -> Claim:
    """[METRIC] A > B on DATASET [by N] [for MODEL]; also A < B, and A = B … within N.

    Where names are given, others are refused. Raises ClaimError.
    """
    pair = PAIR.match(text := " ".join(text.split()))
    if not pair:
        raise _error(text, "it compares no two policies")
    clauses = _clauses(text, pair.end())
    metric = pair["metric"] or "accuracy"
    _known(text, "metric", metric, METRICS)
    if "on" not in clauses:
        raise _error(text, "it names no dataset")
    for policy in (pair["a"], pair["b"]):
        _known(text, "policy", policy, policies)
    _known(text, "dataset", clauses["on"], datasets)
    if "for" in clauses:
        _known(text, "model", clauses["for"], models)
    if pair["a"] == pair["b"]:
        raise _error(text, f"it compares {pair['a']} with itself")
    points = _size(text, pair["sign"], clauses)
    a, b = (pair["b"], pair["a"]) if pair["sign"] == "<" else (pair["a"], pair["b"])
    sign: Literal[">", "="] = "=" if pair["sign"] == "=" else ">"
    return Claim(text, metric, a, sign, b, points, clauses["on"], clauses.get("for"))


def _clauses(text: str, start: int) -> dict[str, str]:
    """on, for, by, within -> what follows them, in any order."""
    found: dict[str, str] = {}
    while start < len(text):
        clause = CLAUSE.match(text, start)
        if not clause:
            raise _error(text, f"{text[start:].strip()!r} is not understood")
        word = clause["size"] or clause["place"]
        if word in found:
            raise _error(text, f"it says {word!r} twice")
        found[word] = clause["points"] or clause["name"]
        start = clause.end()
    return found


def _size(text: str, sign: str, clauses: dict[str, str]) -> float:
    right, other = ("within", "by") if sign == "=" else ("by", "within")
    if other in clauses:
        raise _error(text, f"{sign!r} goes with {right!r}, not {other!r}")
    if sign == "=" and float(clauses.get("within", 0)) == 0:
        raise _error(text, "no two policies are equal to the last digit: add 'within 2'")
    return float(clauses.get(right, 0))


def _known(text: str, what: str, name: str, names: Sequence[str]) -> None:
    if names and name not in names:
        raise _error(text, f"no {what} {name!r} here, but {', '.join(names)}")


def _error(text: str, what: str) -> ClaimError:
    return ClaimError(
        f"claim {text!r}: {what}; write for example {EXAMPLE!r} or "
        "'hard = middle on gsm8k within 2', and 'for MODEL' where only one is meant"
    )


def judge(claim: Claim, difference: Difference | None) -> Judged:
    """Hold a claim against the interval of the pair that it names, in either order.

    A > B by N: supported where the whole interval of A − B lies above N, refuted where it lies
    below N, else inconclusive. A = B within N: supported where it lies inside [−N, N], refuted
    where it lies outside. Written down beforehand, a claim is not corrected for other claims. The
    caller picks the numbers: accuracy and gain share a pair (the base model is the same), learnable
    has its own. None: no finished cells to judge by. Raises ValueError on another pair.
    """
    if difference is None:
        return Judged(claim, "inconclusive", "no finished cells of both policies")
    if {claim.a, claim.b} != {difference.a, difference.b}:
        raise ValueError(f"{claim.text!r} is not about {difference.a} and {difference.b}")
    flip = 1 if claim.a == difference.a else -1
    effect = flip * difference.effect
    low, high = sorted((flip * difference.low, flip * difference.high))
    sizes = [f"{x:+.1f}".replace("-", "−").replace("inf", "∞") for x in (effect, low, high)]
    asked = f"within {claim.points:g}" if claim.sign == "=" else f"above {claim.points:g}"
    why = f"{claim.a} − {claim.b} is {sizes[0]} points [{sizes[1]}, {sizes[2]}]; claimed: {asked}"
    if difference.seeds == 1:
        why += "; single seed: the interval covers test questions only"
    return Judged(claim, _verdict(claim, low, high), why)


def _verdict(
    claim: Claim, low: float, high: float
) -> Literal["supported", "refuted", "inconclusive"]:
    if claim.sign == "=":
        inside = -claim.points < low and high < claim.points
        outside = low > claim.points or high < -claim.points
    else:
        inside, outside = low > claim.points, high < claim.points
    return "supported" if inside else "refuted" if outside else "inconclusive"
