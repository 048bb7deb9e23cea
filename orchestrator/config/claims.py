"""The grammar of claims, which are stated in experiments.yaml before a sweep runs. Pure.

    claims:
      - hard > random on gsm8k by 3
      - hard > base on aime2025-I pass@8
      - gsm8k > math on math-numeric for qwen2.5-1.5b by 5
      - learnable probe.samples=1 > probe.samples=32 for hard at update 100
      - low = full on math in every tier within 2
      - r2 > 0.5

docs/claims.md describes it. A claim compares two sides, each of which fixes the values of some axes
of the grid; `r2` is compared with a number. Sizes are percentage points.
`orchestrator.config.claim_check` looks up the names, `orchestrator.stats.claims` judges a claim.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf
from typing import Any, Literal, NamedTuple

from orchestrator.config.axes import value_text
from orchestrator.config.corrections import one_of
from orchestrator.storage.errors import shortened

METRICS = ("accuracy", "gain", "learnable")
COSTS = ("updates", "rollouts", "tokens", "seconds")
BASE = "base"  # a side: the base model
EVERY_TIER = "*"
CORRELATION = "r2"
EXAMPLE = "hard > random on gsm8k by 3"
MAX_LENGTH = 500  # characters

Sign = Literal[">", "<", ">=", "<=", "=", "!="]
# Axis and value of the grid; the axis is empty where the claim states only a name.
AxisValues = tuple[tuple[str, Any], ...]
BASE_SIDE: AxisValues = ((BASE, BASE),)

_NAME = r"[\w.+:/@-]+"
_SETTING = rf"(?:{_NAME}=)?(?:{_NAME}|\[[^\]]*\])"
_SETTINGS = rf"{_SETTING}(?:\s*,\s*{_SETTING})*"
_SIGN = r"(?P<sign>[<>!]=|[<>=])"
_NUMBER = r"(?:\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})"
_METRIC = r"(?:accuracy|gain|learnable|pass@[1-9]\d{0,8})"
_PAIR = re.compile(
    rf"(?:(?P<metric>[\w@]+)\s+)?(?P<a>{_SETTINGS})\s*{_SIGN}\s*(?P<b>{_SETTINGS})(?=\s|$)"
)
_LEVEL = re.compile(rf"(?:r|R)[2²]\s*{_SIGN}\s*(?P<level>{_NUMBER})(?=\s|$)")
_CLAUSE = re.compile(
    rf"\s+(?:(?P<size>by|within)\s+(?P<points>{_NUMBER})\s*(?:points?|pp|%)?"
    rf"|on\s+(?P<on>{_NAME})"
    rf"|for\s+(?P<for>{_SETTINGS})"
    rf"|in\s+(?:every\s+(?P<every>tier)|tier\s+(?P<tier>{_NAME}))"
    rf"|at\s+(?:update\s+(?P<update>\d{{1,12}})"
    rf"|(?P<amount>{_NUMBER})(?P<unit>[kM]?)\s+(?P<cost>{'|'.join(COSTS)}))"
    rf"|over\s+(?P<over>{'|'.join(COSTS)})"
    rf"|(?P<metric>{_METRIC}))(?=\s|$)"
)
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
_MIRRORED: dict[str, Sign] = {"<": ">", "<=": ">="}


class ClaimError(ValueError):
    """A claim that does not parse, or that cannot be judged; says what to write instead."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"claim {shortened(text, 200)}: {reason}")


class Reading(NamedTuple):
    """Where curves are read: after this much of a cost, one of COSTS."""

    cost: str
    amount: float


@dataclass(frozen=True)
class Claim:
    """`a` is above `b` by more than `size` (sign ">"), and so on for the other signs; see `region`.

    metric: accuracy, gain, learnable, pass@K, or r2, which has a `level` and no sides. a, b: the
    axes that the cells of each side fix; BASE_SIDE is the base model. "<" and "<=" are stored with
    the sides swapped. test_set: None for each cell's own. only: restricts the cells. tier: of the
    test questions; EVERY_TIER judges each by itself. at: where curves are read; None: where the
    experiment compares. over: the cost over which accuracy is averaged.
    """

    text: str = field(compare=False)
    metric: str
    a: AxisValues
    sign: Sign
    b: AxisValues
    size: float = 0.0
    level: float | None = None
    test_set: str | None = None
    only: AxisValues = ()
    tier: str | None = None
    at: Reading | None = None
    over: str | None = None

    @property
    def pass_at(self) -> int | None:
        """The k of pass@k; None for another metric."""
        return int(self.metric[5:]) if self.metric.startswith("pass@") else None

    @property
    def axes(self) -> set[str]:
        """The axes that the sides fix."""
        return {axis for side in (self.a, self.b) for axis, _ in side if axis != BASE}

    @property
    def region(self) -> tuple[float, float]:
        """The values that are claimed; for "!=", those that are not."""
        level = self.level or 0.0
        match self.sign:
            case ">":
                return level + self.size, inf
            case "<":
                return -inf, level - self.size
            case ">=":
                return level - self.size, inf
            case "<=":
                return -inf, level + self.size
        return level - self.size, level + self.size

    def __str__(self) -> str:
        """The claim in the order of the documentation; parsing it gives the same claim."""
        pair = f"{side_text(self.a)} {self.sign} {side_text(self.b)}"
        if self.level is not None:
            pair = f"{CORRELATION} {self.sign} {_plain(self.level)}"
        elif self.metric != "accuracy":
            pair = f"{self.metric} {pair}"
        clauses = [pair]
        clauses += [f"on {self.test_set}"] if self.test_set else []
        clauses += [f"for {side_text(self.only)}"] if self.only else []
        if self.tier:
            clauses.append("in every tier" if self.tier == EVERY_TIER else f"in tier {self.tier}")
        clauses += [f"at {_plain(self.at.amount)} {self.at.cost}"] if self.at else []
        clauses += [f"over {self.over}"] if self.over else []
        word = "by" if self.sign in (">", "<", "!=") else "within"
        clauses += [f"{word} {_plain(self.size)}"] if self.size else []
        return " ".join(clauses)


def _plain(number: float) -> str:
    """A number without an exponent."""
    return format(Decimal(repr(number)).normalize(), "f")


def side_text(settings: AxisValues) -> str:
    """`hard`, `hard, probe.samples=1`; models, datasets and policies by their names alone."""
    named = ("", BASE, "model", "dataset", "policy")
    return ", ".join(
        value_text(value) if axis in named else f"{axis}={value_text(value)}"
        for axis, value in settings
    )


def parse_claim(text: str) -> Claim:
    """Parse a claim. Names are not looked up. Raises ClaimError."""
    words = " ".join(text.split())
    if len(words) > MAX_LENGTH:
        raise ClaimError(text, f"write at most {MAX_LENGTH} characters")
    if level := _LEVEL.match(words):
        start, metric, sign = level.end(), CORRELATION, level["sign"]
        a: AxisValues = ()
        b: AxisValues = ()
    elif pair := _PAIR.match(words):
        start, metric, sign = pair.end(), pair["metric"] or "", pair["sign"]
        a, b = _settings(pair["a"]), _settings(pair["b"])
        if metric and not re.fullmatch(_METRIC, metric):
            known = one_of([*METRICS, "pass@8"], metric)
            raise ClaimError(text, f"unknown metric {metric!r}: write {known}")
    else:
        raise ClaimError(text, f"it does not compare two policies: write for example {EXAMPLE!r}")
    clauses = _clauses(text, words, start)
    if metric and "metric" in clauses:
        raise ClaimError(text, f"it has two metrics: remove {clauses['metric']!r}")
    size = _size(text, sign, clauses)
    most = 1 if level else 100
    if max(size, float(level["level"]) if level else 0) > most:
        what = "R² lies from 0 to 1" if level else "sizes are percentage points"
        raise ClaimError(text, f"{what}: write at most {most}")
    if sign in _MIRRORED and not level:
        a, b, sign = b, a, _MIRRORED[sign]
    at = None
    if "update" in clauses:
        at = Reading("updates", float(clauses["update"]))
    elif "cost" in clauses:
        at = Reading(clauses["cost"], float(clauses["amount"]) * _UNITS[clauses["unit"]])
    if at and at.amount == 0:
        raise ClaimError(
            text, "before any update all cells are the base model: write a later point"
        )
    return Claim(
        text,
        metric or clauses.get("metric", "accuracy"),
        a,
        sign,  # type: ignore[arg-type]
        b,
        size,
        float(level["level"]) if level else None,
        clauses.get("on"),
        _settings(clauses.get("for", "")),
        EVERY_TIER if "every" in clauses else clauses.get("tier"),
        at,
        clauses.get("over"),
    )


def _clauses(text: str, words: str, start: int) -> dict[str, str]:
    """The clauses from `start` on, by their names in the pattern; each kind at most once."""
    clauses: dict[str, str] = {}
    kinds: set[str] = set()
    while start < len(words):
        clause = _CLAUSE.match(words, start)
        if not clause:
            raise ClaimError(
                text,
                f"cannot parse {shortened(words[start:].strip())}: write for example {EXAMPLE!r}, "
                "and add on SET, for MODEL, in tier T, at update N or over tokens",
            )
        groups = {name: value for name, value in clause.groupdict().items() if value is not None}
        kind = groups.get("size") or ("metric" if "metric" in groups else clause[0].split()[0])
        if kind in kinds:
            raise ClaimError(text, f"{kind!r} appears twice: remove one")
        kinds.add(kind)
        clauses |= groups if "size" not in groups else {groups["size"]: groups["points"]}
        start = clause.end()
    return clauses


def _size(text: str, sign: str, clauses: dict[str, str]) -> float:
    """The size of a claim: `by` for a strict sign, `within` for one that includes equality."""
    word, other = ("by", "within") if sign in (">", "<", "!=") else ("within", "by")
    if other in clauses:
        raise ClaimError(text, f"{sign!r} takes {word!r}, not {other!r}: write {word}")
    size = float(clauses.get(word, 0))
    if sign == "=" and size == 0:
        raise ClaimError(text, "no two results are exactly equal: add 'within 2'")
    return size


def _settings(text: str) -> AxisValues:
    """`hard, probe.samples=1` -> (("", "hard"), ("probe.samples", "1"))."""
    parts = re.findall(_SETTING, text)
    pairs = (re.fullmatch(rf"(?:({_NAME})=)?(.*)", part) for part in parts)
    return tuple((pair[1] or "", pair[2]) for pair in pairs if pair)
