"""Claims, which are stated in experiments.yaml before a sweep runs: grammar and check. Pure.

    claims:
      - hard > random on gsm8k by 3
      - hard > base on aime2025-I pass@8
      - gsm8k > math on math-numeric for qwen2.5-1.5b by 5
      - learnable probe.samples=1 > probe.samples=32 for hard at update 100
      - low = full on math in every tier within 2
      - gain per 1M tokens hard > random on gsm8k by 2
      - r2 > 0.5

docs/claims.md describes it. A claim compares two sides, each of which fixes the values of some axes
of the grid; `r2` is compared with a number. Sizes are percentage points.
A claim's names are looked up in its experiment before anything runs, so that no sweep ends without
what its claims need; `orchestrator.stats.claim_tests` judges it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import inf
from operator import itemgetter
from typing import Any, Literal, NamedTuple, get_args

from orchestrator.config.corrections import one_of
from orchestrator.config.experiment import Axes, Axis, Experiment, value_text
from orchestrator.config.problems import Problem
from orchestrator.plugins.counts import counted
from orchestrator.storage.errors import shortened

METRICS = ("accuracy", "gain", "learnable")
COSTS: tuple[Axis, ...] = get_args(Axis)
OVER = tuple(cost for cost in COSTS if cost != "labels")  # most cells have all from the first on
BASE = "base"  # a side: the base model
EVERY = "*"
CORRELATION = "r2"
EXAMPLE = "hard > random on gsm8k by 3"
MAX_LENGTH = 500  # characters

Sign = Literal[">", "<", ">=", "<=", "=", "!="]
# Axis and value of the grid; the axis is empty where the claim states only a name.
AxisValues = tuple[tuple[str, Any], ...]
BASE_SIDE: AxisValues = ((BASE, BASE),)

_PLAIN = r"[\w.+:/@-]+"
_NAME = rf"""(?:{_PLAIN}|"[^"]+"|'[^']+')"""
_SETTING = rf"(?:{_NAME}=)?(?:{_NAME}|\[[^\]]*\]|\{{[^}}]*\}})"  # also a list, or a mapping
_SETTINGS = rf"{_SETTING}(?:\s*,\s*{_SETTING})*"
_SIGN = r"(?P<sign>[<>!]=|[<>=])"
_NUMBER = r"(?:\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})"
_PER = (
    rf"per\s+(?:(?P<per_amount>{_NUMBER})(?P<per_unit>[kM]?)\s+)?"
    r"(?P<per>update|rollout|token|second|hour|label)s?"
)
_METRIC = r"(?:accuracy|gain|learnable|pass@[1-9]\d{0,8})"
_PAIR = re.compile(
    rf"(?:(?P<metric>[\w@]+)(?P<clause>\s+{_PER})?\s+)?(?P<a>{_SETTINGS})\s*{_SIGN}\s*(?P<b>{_SETTINGS})(?=\s|$)"
)
_LEVEL = re.compile(rf"(?:r|R)[2²]\s*{_SIGN}\s*(?P<level>{_NUMBER})(?=\s|$)")
_CLAUSE = re.compile(
    rf"\s+(?:(?P<size>by|within)\s+(?P<points>{_NUMBER})\s*(?:points?|pp|%)?"
    rf"|on\s+(?P<on>{_NAME})"
    rf"|for\s+(?P<for>{_SETTINGS})"
    rf"|in\s+(?:every\s+(?P<every>tier|source)|(?P<kind>tier|source)\s+(?P<part>{_NAME}))"
    rf"|at\s+(?:update\s+(?P<update>\d{{1,12}})"
    rf"|(?P<amount>{_NUMBER})(?P<unit>[kM]?)\s+(?P<cost>{'|'.join(COSTS)}))"
    rf"|over\s+(?P<over>{'|'.join(OVER)})|{_PER}"
    rf"|(?P<metric>{_METRIC}))(?=\s|$)"
)
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
_MIRRORED: dict[str, Sign] = {"<": ">", "<=": ">="}


class ClaimError(Problem):
    """A claim that does not parse, or that cannot be judged; says what to write instead."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__("invalid-claim", f"claim {shortened(text, 200)}: {reason}")
        self.args = text, reason  # what a copy is constructed from


class Reading(NamedTuple):
    """Where curves are read, after this much of a cost; or what gains are divided by."""

    cost: str  # of COSTS
    amount: float

    @property
    def per(self) -> str:
        """`per label`, `per 1000000 tokens`."""
        one = self.cost.removesuffix("s")
        return f"per {one if self.amount == 1 else f'{_plain(self.amount)} {self.cost}'}"


class Part(NamedTuple):
    """Test questions of one tier or source; of EVERY one, each by itself."""

    kind: Literal["tier", "source"]
    name: str

    def __str__(self) -> str:
        if self.name == EVERY:
            return f"every {self.kind}"
        quote = "" if re.fullmatch(_PLAIN, self.name) else "'" if '"' in self.name else '"'
        return f"{self.kind} {quote}{self.name}{quote}"


@dataclass(frozen=True)
class Claim:
    """`a` is above `b` by more than `size` (sign ">"), and so on for the other signs; see `region`.

    metric: accuracy, gain, learnable, pass@K, or r2, which has a `level` and no sides. a, b: the
    axes that the cells of each side fix; BASE_SIDE is the base model. "<" and "<=" are stored with
    the sides swapped. test_set: None for each cell's own. only: restricts the cells. part: of the
    test questions; EVERY judges each tier or source by itself. at: where curves are read; None:
    where the experiment compares. over: the cost over which accuracy is averaged. per: the cost
    that the gain is divided by; sizes are points per that much.
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
    part: "Part | None" = None
    at: Reading | None = None
    over: str | None = None
    per: Reading | None = None

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
        clauses += [f"in {self.part}"] if self.part else []
        clauses += [f"at {_plain(self.at.amount)} {self.at.cost}"] if self.at else []
        clauses += [f"over {self.over}"] if self.over else []
        clauses += [self.per.per] if self.per else []
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
    words = text.strip()
    if len(words) > MAX_LENGTH:
        raise ClaimError(text, f"write at most {MAX_LENGTH} characters")
    if level := _LEVEL.match(words):
        start, metric, sign = level.end(), CORRELATION, level["sign"]
        a: AxisValues = ()
        b: AxisValues = ()
    elif pair := _PAIR.match(words):
        start, metric, sign = pair.end(), pair["metric"] or "", pair["sign"]
        words += pair["clause"] or ""  # behind the metric, as well as with the others
        a, b = _settings(pair["a"]), _settings(pair["b"])
        if metric and not re.fullmatch(_METRIC, metric):
            known = one_of([*METRICS, "pass@8"], metric)
            raise ClaimError(text, f"unknown metric {metric!r}: write {known}")
    else:
        raise ClaimError(text, f"it does not compare two policies: write for example {EXAMPLE!r}")
    clauses = _clauses(text, words, start)
    if metric and "metric" in clauses:
        raise ClaimError(text, f"it has two metrics: remove {clauses['metric']!r}")
    word, other = ("by", "within") if sign in (">", "<", "!=") else ("within", "by")
    if other in clauses:
        raise ClaimError(text, f"{sign!r} takes {word!r}, not {other!r}: write {word}")
    size = float(clauses.get(word, 0))
    if sign == "=" and size == 0:
        raise ClaimError(text, "no two results are exactly equal: add 'within 2'")
    most = 1 if level else inf if "per" in clauses else 100
    if max(size, float(level["level"]) if level else 0) > most:
        what = "R² lies from 0 to 1" if level else "sizes are percentage points"
        raise ClaimError(text, f"{what}: write at most {most}")
    if sign in _MIRRORED and not level:
        a, b, sign = b, a, _MIRRORED[sign]
    part = None
    if "every" in clauses or "kind" in clauses:
        kind = clauses.get("every") or clauses["kind"]
        part = Part(kind, _unquoted(clauses.get("part", EVERY)))  # type: ignore[arg-type]
    return Claim(
        text,
        metric or clauses.get("metric", "accuracy"),
        a,
        sign,  # type: ignore[arg-type]
        b,
        size,
        float(level["level"]) if level else None,
        _unquoted(clauses["on"]) if "on" in clauses else None,
        _settings(clauses.get("for", "")),
        part,
        _at(text, clauses),
        clauses.get("over"),
        _per(text, clauses),
    )


def _at(text: str, clauses: Mapping[str, str]) -> Reading | None:
    """Where the clause `at` reads curves."""
    if "update" in clauses:
        at = Reading("updates", float(clauses["update"]))
    elif "cost" in clauses:
        at = Reading(clauses["cost"], float(clauses["amount"]) * _UNITS[clauses["unit"]])
    else:
        return None
    if at.amount == 0:
        raise ClaimError(
            text, "before any update all cells are the base model: write a later point"
        )
    return at


def _per(text: str, clauses: Mapping[str, str]) -> Reading | None:
    """The cost by which the clause `per` divides gains; an hour is 3,600 seconds."""
    if "per" not in clauses:
        return None
    amount = float(clauses.get("per_amount", 1)) * _UNITS[clauses.get("per_unit", "")]
    if amount == 0:
        raise ClaimError(text, "no gain is divided by 0: write for example per 1M tokens")
    if clauses["per"] == "hour":
        return Reading("seconds", 3600 * amount)
    return Reading(f"{clauses['per']}s", amount)


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
                'and add on SET, for MODEL, in tier T or source "S", at update N, over tokens, per '
                "label",
            )
        groups = {name: value for name, value in clause.groupdict().items() if value is not None}
        kind = groups.get("size") or ("metric" if "metric" in groups else clause[0].split()[0])
        if kind in kinds:
            raise ClaimError(text, f"{kind!r} appears twice: remove one")
        kinds.add(kind)
        clauses |= groups if "size" not in groups else {groups["size"]: groups["points"]}
        start = clause.end()
    return clauses


def _settings(text: str) -> AxisValues:
    """`hard, probe.samples=1` -> (("", "hard"), ("probe.samples", "1"))."""
    parts = re.findall(_SETTING, text)
    pairs = (re.fullmatch(rf"(?:({_NAME})=)?(.*)", part) for part in parts)
    return tuple((_unquoted(pair[1] or ""), _unquoted(pair[2])) for pair in pairs if pair)


def _unquoted(name: str) -> str:
    return name[1:-1] if name[:1] in ("'", '"') else name


# The axes whose values may stand alone, in the order in which a name is looked up.
_IN_SIDES = ("policy", "dataset", "model")
_IN_FOR = ("model", "policy", "dataset")


def resolved_claim(text: str, experiment: Experiment) -> Claim:
    """Parse a claim of an experiment and look up its names. Raises ClaimError.

    Every axis is named in the result and has the grid's value. `on` a data set of the grid fixes
    the training set, unless the claim does: each cell is tested on its own set then.
    """
    claim = parse_claim(text)
    grid = experiment.grid
    axes: dict[str, Sequence[Any]] = {
        "model": grid.model,
        "dataset": grid.dataset,
        "policy": grid.policy,
        "probe_seed": grid.probe_seed or [experiment.probe.seed],
        **grid.swept,
    }
    a, b = (
        BASE_SIDE
        if side == (("", BASE),) and BASE not in grid.policy
        else _named(text, side, axes, _IN_SIDES)
        for side in (claim.a, claim.b)
    )
    claim = replace(claim, a=a, b=b, only=_named(text, claim.only, axes, _IN_FOR))
    _check_sides(claim)
    claim = _on_its_training_set(claim, axes)
    _check_clauses(claim)
    allowed: dict[str, list[str]] = {}  # the values of the cells that the claim is about
    for axis, value in (*claim.a, *claim.b, *claim.only):
        allowed.setdefault(axis, []).append(repr(value))
    for swept, variant in experiment.variants:
        for dataset in grid.dataset:
            cell = {**swept, "dataset": dataset}
            if all(repr(value) in allowed.get(axis, [repr(value)]) for axis, value in cell.items()):
                _check_measured(claim, dataset, variant)
    return claim


def _named(
    text: str, side: AxisValues, axes: Mapping[str, Sequence[Any]], order: Sequence[str]
) -> AxisValues:
    """The axes and values of the grid that a side or `for` names."""
    named: Axes = {}
    for axis, word in side:
        if not axis:
            axis = next((each for each in order if word in axes[each]), "")
            if not axis:
                known = [name for each in order for name in axes[each]]
                raise ClaimError(
                    text, f"unknown policy, dataset or model {word!r}: write {one_of(known, word)}"
                )
        elif axis == "seed":
            raise ClaimError(text, f"claims are judged over all seeds: remove seed={word}")
        elif axis not in axes:
            raise ClaimError(text, f"unknown axis {axis!r}: write {one_of([*axes], axis)}")
        values = [value for value in axes[axis] if _is_value(word, value)]
        if not values:
            known = [value_text(value) for value in axes[axis]]
            raise ClaimError(text, f"{axis} has no value {word!r}: write {one_of(known, word)}")
        if axis in named:
            raise ClaimError(text, f"{axis} is set twice: remove {word!r}")
        named[axis] = values[0]
    return tuple(sorted(named.items(), key=itemgetter(0)))


def _is_value(word: str, value: Any) -> bool:
    """Whether a word of a claim means a value of the grid: as the report writes it, or the number.

    Spaces and quotes inside a list do not matter.
    """
    try:
        if not isinstance(value, bool) and float(word) == float(value):
            return True
    except (TypeError, ValueError):
        pass
    plain, other = ("".join(c for c in t if c not in " '\"") for t in (word, value_text(value)))
    return plain == other


def _check_sides(claim: Claim) -> None:
    """Both sides fix the same axes, with different values, and `for` fixes others."""
    if claim.metric == CORRELATION:
        return
    names = [side_text(side) for side in (claim.a, claim.b)]
    if claim.a == claim.b:
        raise ClaimError(claim.text, f"it compares {names[0]} with itself: write two sides")
    sides = [{axis for axis, _ in side} for side in (claim.a, claim.b)]
    if BASE_SIDE not in (claim.a, claim.b) and sides[0] != sides[1]:
        missing = ", ".join(sorted(sides[0] ^ sides[1]))
        raise ClaimError(
            claim.text,
            f"both sides must set the same axes, and only one sets {missing}: write it on both",
        )
    if both := claim.axes & {axis for axis, _ in claim.only}:
        axis = min(both)
        raise ClaimError(claim.text, f"the sides set {axis}: remove it from 'for'")


def _on_its_training_set(claim: Claim, axes: Mapping[str, Sequence[Any]]) -> Claim:
    """With `on` a data set of the grid, the training set, unless the claim sets one."""
    fixed = claim.axes | {axis for axis, _ in claim.only}
    if claim.test_set is None:
        if "dataset" in claim.axes and claim.metric != "learnable":
            raise ClaimError(
                claim.text,
                "cells of different data sets are compared on one test set: write on SET",
            )
        return claim
    if claim.metric in ("learnable", CORRELATION):  # `on` is the training set
        if "dataset" in fixed:
            raise ClaimError(
                claim.text,
                f"{claim.metric} has no test set, and the claim sets the training set: "
                f"remove 'on {claim.test_set}'",
            )
        if claim.test_set not in axes["dataset"]:
            raise ClaimError(
                claim.text,
                f"unknown training set {claim.test_set!r}: write "
                f"{one_of([*axes['dataset']], claim.test_set)}",
            )
        return replace(claim, only=_with_dataset(claim), test_set=None)
    if claim.test_set in axes["dataset"] and "dataset" not in fixed:
        return replace(claim, only=_with_dataset(claim))
    return claim


def _with_dataset(claim: Claim) -> AxisValues:
    return tuple(sorted((*claim.only, ("dataset", claim.test_set)), key=itemgetter(0)))


def _check_clauses(claim: Claim) -> None:
    """Clauses that do not fit the metric."""
    if claim.metric in ("learnable", CORRELATION):
        clauses: dict[str, object] = {"over": claim.over}
        if claim.part:
            clauses = {f"in {claim.part.kind}": True, **clauses}
        if claim.metric == CORRELATION:
            clauses["at"] = claim.at
        if clause := next((name for name, value in clauses.items() if value), None):
            raise ClaimError(
                claim.text,
                f"{claim.metric} is of whole training runs: remove {clause!r}, or write another "
                "metric",
            )
    if claim.metric == "learnable" and BASE_SIDE in (claim.a, claim.b):
        raise ClaimError(claim.text, "the base model trains on nothing: write a policy, not base")
    if claim.per and claim.metric != "gain":
        raise ClaimError(
            claim.text,
            f"only a gain is divided by a cost: write gain, not {claim.metric}, or remove 'per'",
        )
    if claim.per and claim.over:
        raise ClaimError(claim.text, "it has both 'per' and 'over': remove one")
    if claim.at and claim.over:
        raise ClaimError(claim.text, "it has both 'at' and 'over': remove one")


def _check_measured(claim: Claim, dataset: str, experiment: Experiment) -> None:
    """The cells of one training set measure what a claim needs."""
    evaluate, updates = experiment.evaluate, experiment.grpo_settings.max_steps
    if claim.metric in ("learnable", CORRELATION):
        own, test_set = False, ""
    else:
        test_set = claim.test_set or dataset
        own = test_set == dataset
        if not own and test_set not in evaluate.ood:
            known = [*dict.fromkeys([dataset, *evaluate.ood])]
            raise ClaimError(
                claim.text,
                f"cells trained on {dataset} are not tested on {shortened(test_set)}: write "
                f"{one_of(known, test_set)}, or add it to evaluate.ood",
            )
        samples = evaluate.samples if own else evaluate.ood_samples or evaluate.samples
        if claim.pass_at is not None and claim.pass_at > samples:
            setting = "samples" if own else "ood_samples"
            raise ClaimError(
                claim.text,
                f"{claim.metric} needs {counted(claim.pass_at, 'sample')} per "
                f"question of {test_set}, not "
                f"{samples}: write evaluate: {{{setting}: {claim.pass_at}}}, or a smaller k",
            )
        if not own and (claim.over or claim.at and claim.at != ("updates", updates)):
            raise ClaimError(
                claim.text,
                f"{test_set} is tested before and after training only: remove "
                f"{'over' if claim.over else 'at'!r}, or write on {dataset}",
            )
    between = 0 < evaluate.every < updates
    if claim.over and not between:
        raise ClaimError(
            claim.text, "no evaluation during training: write evaluate: {every: N} below max_steps"
        )
    if not claim.at or claim.at.cost != "updates":
        return  # `orchestrator.planning.plan` knows what a cell can cost
    amount, every = claim.at.amount, evaluate.every
    if amount > updates:
        raise ClaimError(
            claim.text,
            f"a cell has {counted(updates, 'update')}, not {amount:,.15g}: write at "
            f"most {updates:,}",
        )
    if own and amount != updates and (not every or amount % every):
        before = int(amount) // every * every if every else 0
        near = sorted({u for u in (before, before + every, updates) if 0 < u <= updates})
        raise ClaimError(
            claim.text,
            f"no evaluation after update {amount:.15g}: write "
            f"{' or '.join(f'at update {u}' for u in near)}, or another evaluate.every",
        )
