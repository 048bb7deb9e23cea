"""Claims, which are stated in experiments.yaml before a sweep runs: grammar and names. Pure.

    claims:
      - hard > random on gsm8k by 3
      - hard > base on aime2025-I pass@8
      - gsm8k > math on math-numeric for qwen2.5-1.5b by 5
      - learnable probe.samples=1 > probe.samples=32 for hard at update 100
      - low = full on math in every tier within 2
      - gain per 1M tokens hard > random on gsm8k by 2
      - correct-where-parsed hard > random
      - r2 > 0.5

docs/sweeps.md describes it. A claim compares two sides. Each side fixes the values of some axes of
the grid. `r2` is compared with a number. Sizes are percentage points. Names in a claim are looked
up in its experiment before anything runs, so that a sweep measures everything that its claims need.
`orchestrator.report.claim_verdicts` judges claims.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter
from typing import Any, Literal, NamedTuple, get_args

from orchestrator.config.experiment import (
    GRID_AXES,
    PROBE_SEED,
    Axes,
    Axis,
    Experiment,
    value_text,
)
from orchestrator.config.problems import Problem
from orchestrator.config.wording import one_of
from orchestrator.plugins.counts import counted
from orchestrator.storage.errors import shortened
from tasks.marking.marks import FACTORS

METRICS = ("accuracy", "gain", "learnable", *FACTORS)
COSTS: tuple[Axis, ...] = get_args(Axis)
OVER = tuple(cost for cost in COSTS if cost != "labels")  # most cells use all at once
BASE = "base"  # a side: the base model
EVERY = "*"
CORRELATION = "r2"
OF_TRAINING = ("learnable", CORRELATION)  # metrics of whole training runs, without a test set
EXAMPLE = "hard > random on gsm8k by 3"
MAX_LENGTH = 500  # characters, so that a report has room for them

SIGNS: Mapping[str, str] = {  # what each claims of the difference, in words
    ">": "above {low}",
    "<": "below {high}",
    ">=": "at least {low}",
    "<=": "at most {high}",
    "=": "within {size}",
    "!=": "more than {size} from {level}",
}
# Axis and value of the grid; the axis is empty if the claim states only a name.
AxisValues = tuple[tuple[str, Any], ...]
BASE_SIDE: AxisValues = ((BASE, BASE),)

_PLAIN = r"[\w.+:/@-]+"
_NAME = rf"""(?:{_PLAIN}|"[^"]+"|'[^']+')"""
_SETTING = rf"(?:{_NAME}=)?(?:{_NAME}|\[[^\]]*\]|\{{[^}}]*\}})"  # also a list, or a mapping
_SETTINGS = rf"{_SETTING}(?:\s*,\s*{_SETTING})*"
_SIGN = r"(?P<sign>[<>!]=|[<>=])"
_NUMBER = r"(?:\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})"
_AMOUNT = rf"({_NUMBER})([kM]?)"
_SIZE = rf"({_NUMBER})\s*(?:points?|pp|%)?"
_PER = rf"per\s+(?:{_AMOUNT}\s+)?(update|rollout|token|second|hour|label)s?"
_PAIR = re.compile(
    rf"(?:(?P<metric>[\w@-]+)(?P<per>\s+{_PER})?\s+)?"
    rf"(?P<a>{_SETTINGS})\s*{_SIGN}\s*(?P<b>{_SETTINGS})(?=\s|$)"
)
_LEVEL = re.compile(rf"(?:r|R)[2²]\s*{_SIGN}\s*(?P<level>{_NUMBER})(?=\s|$)")
_CLAUSES = {  # each at most once, by the word that a message names it by
    "by": rf"by\s+{_SIZE}",
    "within": rf"within\s+{_SIZE}",
    "on": rf"on\s+({_NAME})",
    "for": rf"for\s+({_SETTINGS})",
    "in": rf"in\s+(?:every\s+(tier|source)|(tier|source)\s+({_NAME}))",
    "at": rf"at\s+(?:update\s+(\d{{1,12}})|{_AMOUNT}\s+({'|'.join(COSTS)}))",
    "over": rf"over\s+({'|'.join(OVER)})",
    "per": _PER,
    "metric": rf"({'|'.join(METRICS)}|pass@[1-9]\d{{0,8}})",
}
_PATTERNS = {word: re.compile(rf"\s+{each}(?=\s|$)") for word, each in _CLAUSES.items()}
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
_MIRRORED = {"<": ">", "<=": ">="}


class ClaimError(Problem):
    """A claim that does not parse or cannot be judged, with what to write instead."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__("invalid-claim", f"claim {shortened(text, 200)}: {reason}")
        self.args = text, reason  # what a copy is constructed from


class Reading(NamedTuple):
    """The cost at which curves are read, or by which gains are divided."""

    cost: str  # of COSTS
    amount: float

    @property
    def per(self) -> str:
        """`per label`, `per 1000000 tokens`."""
        if self.amount == 1:
            return f"per {self.cost.removesuffix('s')}"
        return f"per {self.amount:.15g} {self.cost}"


class Part(NamedTuple):
    """Test questions of one tier or source; EVERY means each of them separately."""

    kind: Literal["tier", "source"]
    name: str

    def __str__(self) -> str:
        """As a claim has it."""
        if self.name == EVERY:
            return f"every {self.kind}"
        if re.fullmatch(_PLAIN, self.name):
            return f"{self.kind} {self.name}"
        quote = "'" if '"' in self.name else '"'
        return f"{self.kind} {quote}{self.name}{quote}"


@dataclass(frozen=True)
class Claim:
    """`a` is above `b` by more than `size` (sign ">"), and so on for the other signs; see `region`.

    metric: of METRICS, pass@K, or r2, which has a `level` and no sides. a, b: the
    axes that the cells of each side fix; BASE_SIDE is the base model. "<" and "<=" are stored with
    the sides swapped. test_set: None for each cell's own. only: restricts the cells. part: of the
    test questions; EVERY judges each tier or source by itself. at: where curves are read; None:
    where the experiment compares. over: the cost over which accuracy is averaged. per: the cost
    that the gain is divided by; sizes are points per that much.
    """

    text: str = field(compare=False)
    metric: str
    a: AxisValues
    sign: str  # of SIGNS
    b: AxisValues
    size: float = 0.0
    level: float | None = None
    test_set: str | None = None
    only: AxisValues = ()
    part: Part | None = None
    at: Reading | None = None
    over: str | None = None
    per: Reading | None = None

    @property
    def pass_at(self) -> int:
        """The k of pass@k; 1 for another metric, as accuracy is pass@1."""
        return int(self.metric.removeprefix("pass@")) if self.metric.startswith("pass@") else 1

    @property
    def axes(self) -> set[str]:
        """The axes that the sides fix."""
        return {axis for side in (self.a, self.b) for axis, _ in side if axis != BASE}

    @property
    def against_base(self) -> bool:
        """Whether a side is the base model."""
        return BASE_SIDE in (self.a, self.b)

    @property
    def region(self) -> tuple[float, float]:
        """The values that are claimed; for "!=", those that are not."""
        level = self.level or 0.0
        low, high = level - self.size, level + self.size
        if self.sign == ">":
            return high, inf
        if self.sign == "<":
            return -inf, low
        if self.sign == ">=":
            return low, inf
        if self.sign == "<=":
            return -inf, high
        return low, high


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
    level = _LEVEL.match(words)
    start = level or _PAIR.match(words)
    if start is None:
        raise ClaimError(text, f"it does not compare two policies: write for example {EXAMPLE!r}")
    names = start.groupdict()
    metric, sign = CORRELATION if level else names["metric"], names["sign"]
    if metric and not level and not _PATTERNS["metric"].fullmatch(f" {metric}"):
        known = one_of([*METRICS, "pass@8"], metric)
        raise ClaimError(text, f"unknown metric {metric!r}: write {known}")
    # A cost after the metric is a clause, like the ones after the sides.
    clauses = _clauses(text, words + (names.get("per") or ""), start.end())
    if metric and "metric" in clauses:
        raise ClaimError(text, f"it has two metrics: remove {clauses['metric'][0]!r}")
    word, other = ("by", "within") if sign in (">", "<", "!=") else ("within", "by")
    if other in clauses:
        raise ClaimError(text, f"{sign!r} takes {word!r}, not {other!r}: write {word}")
    a, b = _settings(names.get("a", "")), _settings(names.get("b", ""))
    if sign in _MIRRORED and not level:
        a, b, sign = b, a, _MIRRORED[sign]
    claim = Claim(
        text,
        metric=metric or clauses.get("metric", METRICS)[0],
        a=a,
        sign=sign,
        b=b,
        size=float(clauses.get(word, ("0",))[0]),
        level=float(names["level"]) if level else None,
        test_set=_unquoted(clauses["on"][0]) if "on" in clauses else None,
        only=_settings(*clauses.get("for", ("",))),
        part=_part(*clauses["in"]) if "in" in clauses else None,
        at=_at(*clauses["at"]) if "at" in clauses else None,
        over=clauses["over"][0] if "over" in clauses else None,
        per=_per(*clauses["per"]) if "per" in clauses else None,
    )
    for reason in _impossible(claim):
        raise ClaimError(text, reason)
    return claim


def _impossible(claim: Claim) -> Iterator[str]:
    """What is wrong with the numbers of a claim."""
    if claim.sign == "=" and claim.size == 0:
        yield "no two results are exactly equal: add 'within 2'"
    if claim.level is not None and max(claim.size, claim.level) > 1:
        yield "R² lies from 0 to 1: write at most 1"
    if claim.level is None and claim.size > 100 and not claim.per:
        yield "sizes are percentage points: write at most 100"
    if claim.at and not claim.at.amount:
        yield "all cells are the base model before the first update: write a later point"
    if claim.per and not claim.per.amount:
        yield "a gain cannot be divided by 0: write for example per 1M tokens"


def _clauses(text: str, words: str, start: int) -> dict[str, tuple[str, ...]]:
    """The clauses from `start` on: word -> the groups of its pattern."""
    clauses: dict[str, tuple[str, ...]] = {}
    while start < len(words):
        matches = ((word, pattern.match(words, start)) for word, pattern in _PATTERNS.items())
        word, clause = next((each for each in matches if each[1]), ("", None))
        if clause is None:
            raise ClaimError(
                text,
                f"cannot parse {shortened(words[start:].strip())}: write for example {EXAMPLE!r}, "
                'and add on SET, for MODEL, in tier T or source "S", at update N, over tokens, per '
                "label",
            )
        if word in clauses:
            raise ClaimError(text, f"{word!r} appears twice: remove one")
        clauses[word] = clause.groups(default="")
        start = clause.end()
    return clauses


def _part(every: str, kind: str, name: str) -> Part:
    return Part(every or kind, _unquoted(name) or EVERY)  # type: ignore[arg-type]


def _at(update: str, amount: str, unit: str, cost: str) -> Reading:
    if update:
        return Reading("updates", float(update))
    return Reading(cost, float(amount) * _UNITS[unit])


def _per(amount: str, unit: str, cost: str) -> Reading:
    number = float(amount or 1) * _UNITS[unit]
    return Reading("seconds", 3600 * number) if cost == "hour" else Reading(f"{cost}s", number)


def _settings(text: str) -> AxisValues:
    """`hard, probe.samples=1` -> (("", "hard"), ("probe.samples", "1"))."""
    parts = re.findall(_SETTING, text)
    pairs = (re.fullmatch(rf"(?:({_NAME})=)?(.*)", part) for part in parts)
    return tuple((_unquoted(pair[1] or ""), _unquoted(pair[2])) for pair in pairs if pair)


def _unquoted(name: str) -> str:
    return name[1:-1] if name[:1] in ("'", '"') else name


# The axes with values that may stand alone, in the order of the lookup.
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
        **{axis: getattr(grid, axis) for axis in GRID_AXES if axis != "seed"},  # of replicates
        PROBE_SEED: grid.probe_seed or [experiment.probe.seed],
        **grid.setting_axes,
    }
    a, b = (
        BASE_SIDE
        if side == (("", BASE),) and BASE not in grid.policy
        else _named(text, side, axes, _IN_SIDES)
        for side in (claim.a, claim.b)
    )
    claim = replace(claim, a=a, b=b, only=_named(text, claim.only, axes, _IN_FOR))
    for reason in _conflicts(claim, grid.dataset):
        raise ClaimError(text, reason)
    if claim.test_set in grid.dataset and not _fixes_dataset(claim):
        only = (*claim.only, ("dataset", claim.test_set))
        claim = replace(claim, only=tuple(sorted(only, key=itemgetter(0))))
    if claim.metric in OF_TRAINING:
        claim = replace(claim, test_set=None)
    fixed: dict[str, list[str]] = {}  # the axis values of the claim's cells
    for axis, value in (*claim.a, *claim.b, *claim.only):
        fixed.setdefault(axis, []).append(repr(value))
    for swept, variant in experiment.variants:
        for dataset in grid.dataset:
            cell = {**swept, "dataset": dataset}
            if all(repr(value) in fixed.get(axis, [repr(value)]) for axis, value in cell.items()):
                for reason in _unmeasured(claim, dataset, variant):
                    raise ClaimError(text, reason)
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
                known = one_of([name for each in order for name in axes[each]], word)
                raise ClaimError(text, f"unknown policy, dataset or model {word!r}: write {known}")
        elif axis == "seed":
            raise ClaimError(text, f"claims are judged over all seeds: remove seed={word}")
        elif axis not in axes:
            raise ClaimError(text, f"unknown axis {axis!r}: write {one_of([*axes], axis)}")
        values = [value for value in axes[axis] if _is_value(word, value)]
        if not values:
            known = one_of([value_text(value) for value in axes[axis]], word)
            raise ClaimError(text, f"{axis} has no value {word!r}: write {known}")
        if axis in named:
            raise ClaimError(text, f"{axis} is set twice: remove {word!r}")
        named[axis] = values[0]
    return tuple(sorted(named.items(), key=itemgetter(0)))


def _is_value(word: str, value: Any) -> bool:
    """Whether a word of a claim is a value of the grid, as the report writes it or as a number.

    Spaces and quotes inside a list do not matter.
    """
    try:
        if not isinstance(value, bool) and float(word) == float(value):
            return True
    except (TypeError, ValueError):
        pass
    plain, other = ("".join(c for c in t if c not in " '\"") for t in (word, value_text(value)))
    return plain == other


def _fixes_dataset(claim: Claim) -> bool:
    """Whether the claim sets the training set, so that `on` sets the test set alone."""
    return "dataset" in claim.axes or any(axis == "dataset" for axis, _ in claim.only)


def _conflicts(claim: Claim, datasets: Sequence[str]) -> Iterator[str]:
    """Contradictions in a claim with resolved names."""
    metric = claim.metric
    on = claim.test_set
    a, b, only = ({axis for axis, _ in side} for side in (claim.a, claim.b, claim.only))
    if claim.a and claim.a == claim.b:
        yield f"it compares {side_text(claim.a)} with itself: write two sides"
    if a != b and not claim.against_base:
        missing = ", ".join(sorted(a ^ b))
        yield f"both sides must set the same axes, and only one sets {missing}: write it on both"
    if both := claim.axes & only:
        yield f"the sides set {min(both)}: remove it from 'for'"
    if on is None and "dataset" in claim.axes and metric not in OF_TRAINING:
        yield "cells of different data sets are compared on one test set: write on SET"
    if on is not None and metric in OF_TRAINING:
        if _fixes_dataset(claim):
            yield (
                f"{metric} has no test set, and the claim sets the training set: remove 'on {on}'"
            )
        if on not in datasets:
            yield f"unknown training set {on!r}: write {one_of(datasets, on)}"
    needless: dict[str, object] = {"over": claim.over}
    if claim.part:
        needless = {f"in {claim.part.kind}": claim.part, **needless}
    if metric == CORRELATION:
        needless["at"] = claim.at
    for clause, given in needless.items():
        if given and metric in OF_TRAINING:
            yield f"{metric} covers whole training runs: remove {clause!r}, or write another metric"
    if metric == "learnable" and claim.against_base:
        yield "the base model trains on nothing: write a policy, not base"
    if claim.per and metric != "gain":
        yield f"only a gain can be divided by a cost: write gain, not {metric}, or remove 'per'"
    for clause, reading in (("per", claim.per), ("at", claim.at)):
        if reading and claim.over:
            yield f"it has both {clause!r} and 'over': remove one"


def _unmeasured(claim: Claim, dataset: str, experiment: Experiment) -> Iterator[str]:
    """Requirements of a claim that the cells of one training set do not measure."""
    evaluate = experiment.evaluate
    updates = experiment.grpo_settings.max_steps
    test_set = claim.test_set or dataset
    own = test_set == dataset
    if not own and test_set not in evaluate.ood:
        known = one_of([*dict.fromkeys([dataset, *evaluate.ood])], test_set)
        yield (
            f"cells trained on {dataset} are not tested on {shortened(test_set)}: write {known}, "
            "or add it to evaluate.ood"
        )
    setting = "samples"
    samples = evaluate.samples
    if not own:
        setting = "ood_samples"
        samples = evaluate.ood_samples or samples
    if claim.pass_at > samples:
        yield (
            f"{claim.metric} needs {counted(claim.pass_at, 'sample')} per question of {test_set}, "
            f"not {samples}: write evaluate: {{{setting}: {claim.pass_at}}}, or a smaller k"
        )
    if not own and (claim.over or claim.at and claim.at != ("updates", updates)):
        yield (
            f"{test_set} is tested before and after training only: remove "
            f"{'over' if claim.over else 'at'!r}, or write on {dataset}"
        )
    if claim.over and not 0 < evaluate.every < updates:
        yield "no evaluation during training: write evaluate: {every: N} below max_steps"
    if not claim.at or claim.at.cost != "updates":
        return  # `orchestrator.planning.plan` checks these costs
    amount = claim.at.amount
    every = evaluate.every
    if amount > updates:
        most = counted(updates, "update")
        yield f"a cell has {most}, not {amount:,.15g}: write at most {updates:,}"
    if claim.metric not in OF_TRAINING and amount != updates and (not every or amount % every):
        before = int(amount) // every * every if every else 0
        near = sorted({u for u in (before, before + every, updates) if 0 < u <= updates})
        yield (
            f"no evaluation after update {amount:.15g}: write "
            f"{' or '.join(f'at update {u}' for u in near)}, or another evaluate.every"
        )
