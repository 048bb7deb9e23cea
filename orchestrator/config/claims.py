"""The grammar of claims, which are stated in experiments.yaml before a sweep runs. Pure.

    claims:
      - hard > random on gsm8k by 3
      - easy < middle on gsm8k for qwen3-4b
      - hard = middle on shuffled_objects within 2
      - learnable hard > easy on gsm8k by 10

Sizes are percentage points. The metric comes first: accuracy (default), gain or learnable.
`orchestrator.stats.claims` tests a claim against measured differences.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

METRICS = ("accuracy", "gain", "learnable")
EXAMPLE = "hard > random on gsm8k by 3"
NAME = r"[\w.+:/@-]+"
PAIR = re.compile(
    rf"(?:(?P<metric>\w+)\s+)?(?P<a>{NAME})\s*(?P<sign>[<>=])\s*(?P<b>{NAME})(?=\s|$)"
)
CLAUSE = re.compile(
    rf"\s+(?:(?P<size>by|within)\s+(?P<points>\d+(?:\.\d+)?)\s*(?:points?|pp|%)?"
    rf"|(?P<axis>on|for)\s+(?P<name>{NAME}))(?=\s|$)"
)


class ClaimError(ValueError):
    """A claim that does not parse, or that names something unknown; says what to write instead."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"claim {text!r}: {reason}; write for example {EXAMPLE!r} or "
            "'hard = middle on gsm8k within 2'; add 'for MODEL' to limit it to one model"
        )


@dataclass(frozen=True)
class Claim:
    """`a` is above `b` by more than `points` (sign ">"), or within `points` of it ("=").

    "<" is stored as ">" with the policies swapped. `model` is None where the claim is about every
    model.
    """

    text: str
    metric: str
    a: str
    sign: Literal[">", "="]
    b: str
    points: float
    dataset: str
    model: str | None


def parse_claim(
    text: str,
    policies: Sequence[str] = (),
    datasets: Sequence[str] = (),
    models: Sequence[str] = (),
) -> Claim:
    """Parse `[METRIC] A > B on DATASET [by N] [for MODEL]`, `A < B …` or `A = B … within N`.

    Names that are not among the known ones are refused; an empty list allows any. Raises
    ClaimError.
    """
    pair = PAIR.match(text := " ".join(text.split()))
    if not pair:
        raise ClaimError(text, "it does not compare two policies")
    clauses: dict[str, str] = {}
    start = pair.end()
    while start < len(text):
        clause = CLAUSE.match(text, start)
        if not clause:
            raise ClaimError(text, f"cannot parse {text[start:].strip()!r}")
        word = clause["size"] or clause["axis"]
        if word in clauses:
            raise ClaimError(text, f"{word!r} appears twice")
        clauses[word] = clause["points"] or clause["name"]
        start = clause.end()
    if "on" not in clauses:
        raise ClaimError(text, "it does not name a dataset")
    metric, a, sign, b = pair["metric"] or "accuracy", pair["a"], pair["sign"], pair["b"]
    for kind, name, known in (
        ("metric", metric, METRICS),
        ("policy", a, policies),
        ("policy", b, policies),
        ("dataset", clauses["on"], datasets),
        ("model", clauses.get("for"), models),
    ):
        if name and known and name not in known:
            raise ClaimError(text, f"unknown {kind} {name!r} (known here: {', '.join(known)})")
    if a == b:
        raise ClaimError(text, f"it compares {a} with itself")
    size, other = ("within", "by") if sign == "=" else ("by", "within")
    if other in clauses:
        raise ClaimError(text, f"{sign!r} takes {size!r}, not {other!r}")
    points = float(clauses.get(size, 0))
    if sign == "=" and points == 0:
        raise ClaimError(text, "no two policies are exactly equal: add 'within 2'")
    if sign == "<":
        a, b = b, a
    return Claim(
        text, metric, a, "=" if sign == "=" else ">", b, points, clauses["on"], clauses.get("for")
    )
