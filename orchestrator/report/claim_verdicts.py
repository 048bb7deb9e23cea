"""The claims of an experiment, judged on its finished cells. Pure.

A claim is judged once in each block: the cells that differ only in the seed and in the axes that it
compares. Its sides are compared as the report and `decile compare` compare policies; the verdict
depends on where the interval lies. A cell's value for a claim is a weighted sum of its evaluations:
one of them, the two that it is read between, or all that lie under a curve, minus the base model's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from orchestrator.config.claims import (
    BASE_SIDE,
    CORRELATION,
    EVERY,
    SIGNS,
    Claim,
    Part,
    side_text,
)
from orchestrator.config.experiment import axes_text
from orchestrator.planning.cells import Cell, axes_without
from orchestrator.planning.plan import has_values
from orchestrator.plugins.counts import counted
from orchestrator.report.compare import (
    Family,
    Spreads,
    comparable,
    points_of,
    policy_key,
    unequal_labels,
)
from orchestrator.report.content import NONE
from orchestrator.report.fairness import Point, above_mean_cost, area_weights, at_budget
from orchestrator.report.looks import Look
from orchestrator.report.rows import OWN, Row, learnable_gain_means
from orchestrator.report.sentences import counted_runs, in_digits, in_points, missing_text, rising
from orchestrator.stats.changes import compare_learnable, compare_with_base
from orchestrator.stats.comparison import Comparison, ItemScores, compare_policies
from orchestrator.stats.correlation import FEWEST_POINTS, SMALLEST_BLOCK, RSquared, r_squared
from orchestrator.stats.factors import factors_of
from orchestrator.stats.inference import ALPHA, SeedSpread
from tasks.marking.marks import FACTORS

Conclusion = Literal["supported", "refuted", "inconclusive"]
NAMED = 3  # cells of a list
# claim -> {"at": when a run first saw it, "results": cells that had results by then}
Declared = Mapping[str, Mapping[str, Any]]
# data set -> tier or source -> test question -> its tier or source
Parts = Mapping[str, Mapping[str, Mapping[str, str]]]


class NotMeasured(Exception):
    """The finished cells lack what a claim needs; the message names it, and the cell."""


@dataclass(frozen=True)
class ClaimResult:
    """A claim of the experiment file, judged on one block of cells.

    limits: what was claimed, and what limits the verdict. difference, value, unit, interval: the
    measured values as text, such as `hard − random`, `+4.7`, ` points` and `[+1.2, +8.1]`. cells:
    names the block; empty if the claim is about all cells or about none.
    """

    text: str
    verdict: Conclusion
    limits: str
    difference: str = ""
    value: str = NONE
    unit: str = ""
    interval: str = ""
    sample: str = NONE
    cells: str = ""
    declared: str = ""

    @property
    def reason(self) -> str:
        """The numbers, and what limits them."""
        if self.value == NONE:
            return self.limits
        return f"{self.difference} is {self.value}{self.unit} {self.interval}; {self.limits}"


@dataclass
class ClaimBlock:
    """The finished cells that a claim is judged on, and how they are read.

    claim: about one tier or source, if about any; questions: its test questions. a, b: the cells of
    each side, by seed; for the base model, the cells of the other side; for R², all are in `a`.
    families: the families of the cells. missing: planned cells that are not finished.
    """

    claim: Claim
    title: str = ""
    a: Sequence[Row] = ()
    b: Sequence[Row] = ()
    families: list[Family] = field(default_factory=list)
    missing: list[Cell] = field(default_factory=list)
    questions: frozenset[str] | None = None

    @property
    def rows(self) -> list[Row]:
        """The cells of both sides."""
        return [*self.a, *self.b]

    def test_set(self, row: Row) -> str:
        """The test set in a row's counts; cells of several data sets are read on one."""
        own = self.claim.test_set in (None, row.cell.probe.dataset.name)
        return OWN if own else str(self.claim.test_set)

    def is_compared(self, row: Row) -> bool:
        """Whether a row is read where the experiment compares cells, unless a cost is claimed."""
        return self.claim.metric != "learnable" and self.test_set(row) == OWN

    @cached_property
    def points(self) -> Mapping[str, Point]:
        """cell_id -> where the experiment compares it. Raises NotMeasured at unequal labels."""
        rows = {row.cell.cell_id: row for family in self.families for row in family.rows}
        compare_at = self.families[0].compare_at
        sets = comparable([*rows.values()], compare_at)
        points = points_of(sets, compare_at)
        compared = {row.cell.cell_id for row in self.rows}
        own = [[row for row in each if row.cell.cell_id in compared] for each in sets]
        if len(several := [rows for rows in own if rows]) > 1:
            raise NotMeasured(unequal_labels(several, points))
        return points

    @cached_property
    def unit(self) -> float:
        """The mean of the cost that gains are divided by, which keeps gains at about their size."""
        return float(np.mean([self._spent(row) for row in self.rows])) if self.claim.per else 1.0

    def runs(self, rows: Sequence[Row]) -> dict[int, ItemScores]:
        """By seed, each question's value; for a claim per cost, gains by cost, times the unit."""
        runs = []
        for row in rows:
            weights = self._weights(row)
            values = [self._scores(row, update) for update in weights]
            runs.append(ItemScores.weighted(values, [*weights.values()]))
        if self.claim.per:
            costs = np.array([self._spent(row) for row in rows])
            gains = np.array([float(np.nanmean(run.scores)) for run in runs])
            excess = above_mean_cost(gains, costs)
            share = self.unit / costs.mean()
            runs = [run.scaled(share, each) for run, each in zip(runs, excess, strict=True)]
        return {row.cell.seed: run for row, run in zip(rows, runs, strict=True)}

    def _scores(self, row: Row, update: int) -> ItemScores:
        """What an evaluation measured of the claim. Raises NotMeasured for a share of nothing."""
        metric, test_set = self.claim.metric, self.test_set(row)
        if metric not in FACTORS:
            return row.run(update, test_set, self.claim.pass_at, self.questions)
        if (scores := row.factor(metric, update, test_set, self.questions)) is None:
            lacking = factors_of([row.answers_read[test_set][update]], self.questions).lacking
            model = (
                f"{row.cell.name} after update {update}" if update else row.cell.probe.model.name
            )
            raise NotMeasured(f"{metric} is unknown: {lacking} of {model}")
        return scores

    def _weights(self, row: Row) -> dict[int, float]:
        """Update -> the weight of its evaluation in the measured value. Raises NotMeasured."""
        claim = self.claim
        if claim.over:
            updates = sorted(row.counts[OWN])
            limit = min(float(each.costs[claim.over][-1]) for each in self.rows)
            areas = area_weights(row.costs[claim.over][updates], limit)
            weights = dict(zip(updates, areas.tolist(), strict=True))
        else:
            point = self._point(row)
            weights = {point.update: 1 - point.share}
            if point.share:
                weights[point.later] = point.share
        if claim.metric == "gain" or claim.against_base:
            weights[0] = weights.get(0, 0.0) - 1
        for update in weights:
            if update not in row.counts.get(self.test_set(row), {}):
                name = self.claim.test_set or row.cell.probe.dataset.name
                raise NotMeasured(f"{row.cell.name} was not tested on {name} after update {update}")
        return weights

    def live_shares(self, row: Row) -> dict[int, float]:
        """Update -> the share of live groups, up to where the claim reads it."""
        shares = {update: groups.live for update, groups in row.shares.items()}
        if self.claim.at:
            last = self._point(row).update
            shares = {update: share for update, share in shares.items() if update <= last}
            if not shares:
                raise NotMeasured(f"{row.cell.name} recorded no group by update {last}")
        return shares

    def learnable_pct(self, row: Row) -> float:
        """Learnable % up to where the claim reads it."""
        if self.claim.at is None:
            return row.result.learnable_pct
        return 100 * float(np.mean([*self.live_shares(row).values()]))

    def _spent(self, row: Row) -> float:
        """The cost that a row's gain is divided by, up to where it is read. Raises NotMeasured."""
        assert self.claim.per
        cost, point = self.claim.per.cost, self._point(row)
        before, after = row.costs[cost][[point.update, point.later]]
        if not (spent := float((1 - point.share) * before + point.share * after)):
            raise NotMeasured(f"{row.cell.name} has used no {cost}")
        return spent

    def _point(self, row: Row) -> Point:
        """Where a row is read: at the claim's cost, or else where the experiment compares."""
        name = row.cell.name
        if not self.claim.at:
            if not self.is_compared(row):
                return Point(row.cell.updates, np.nan, float(row.cell.updates))
            point = self.points[row.cell.cell_id]
            if not point.update:
                raise NotMeasured(
                    f"{name} has no evaluation within the common budget: set a smaller "
                    "evaluate.every"
                )
            return point
        cost, amount = self.claim.at
        if cost == "updates":
            return Point(int(amount), np.nan, amount)
        spent = row.costs[cost]
        if spent[-1] < amount * (1 - 1e-9):
            raise NotMeasured(f"{name} ends at {spent[-1]:,.0f} {cost}")
        evaluated: Sequence[int] = range(len(spent))
        if self.claim.metric != "learnable":
            evaluated = sorted(row.counts[self.test_set(row)])
        point = at_budget(dict.fromkeys(evaluated, np.nan), spent, amount)
        if not point.update:
            first = next(u for u in evaluated if u)
            raise NotMeasured(
                f"{name} has no evaluation within {amount:,.15g} {cost}: the first one is at "
                f"{spent[first]:,.0f}; set a smaller evaluate.every"
            )
        return point

    @property
    def unequal_costs(self) -> str:
        """The costs of cells that are read after training instead of at equal costs.

        Empty if they are equal, or if the claim names where cells are read.
        """
        claim = self.claim
        if claim.at or claim.over or claim.against_base or claim.metric == CORRELATION:
            return ""
        compare_at = self.families[0].compare_at
        spent = [row.costs[compare_at][-1] for row in self.rows if not self.is_compared(row)]
        if compare_at == "updates" or len({*spent}) < 2:
            return ""
        return f"read after training, at {min(spent):,.0f} to {max(spent):,.0f} {compare_at}"


def claim_results(
    claims: Sequence[Claim],
    families: Sequence[Family],
    declared: Declared = MappingProxyType({}),
    parts: Parts = MappingProxyType({}),
    spreads: Mapping[str, Spreads] = MappingProxyType({}),
    missing: Sequence[Cell] = (),
    looks: Sequence[Look] = (),
) -> list[ClaimResult]:
    """Each claim, judged on every block of cells that it covers.

    parts: of the test sets of claims about tiers or sources. spreads (by `policy_key`): how much
    results vary between seeds. missing: planned cells that are not finished: claims about them are
    inconclusive. looks: all looks at these cells. The level of the last one is divided by the
    number of verdicts on claims (Bonferroni), so that it holds for all of them together.
    """
    blocks = [block for claim in claims for block in _blocks(claim, families, missing, parts)]
    level = (looks[-1].level if looks else ALPHA) / max(1, len(blocks))
    results = []
    for block in blocks:
        when = "not yet declared by a run"
        if (seen := declared.get(block.claim.text)) is not None:
            known = seen["results"]
            before = f"after {counted(known, 'result')}" if known else "before any result"
            when = f"declared {seen['at']}, {before}"
        if len(looks) > 1:
            when += f"; look {len(looks)}"
        try:
            result = judge_claim(block.claim, _measured(block, spreads, level), level)
        except NotMeasured as error:
            result = ClaimResult(block.claim.text, "inconclusive", str(error))
        else:
            notes = [result.limits, block.unequal_costs]
            if block.missing:
                result = replace(result, verdict="inconclusive")
                names = ", ".join(cell.name for cell in block.missing[:NAMED])
                more = ", …" if len(block.missing) > NAMED else ""
                unfinished = counted(len(block.missing), "planned cell")
                notes.insert(0, f"{unfinished} not finished: {names}{more}")
            result = replace(result, limits="; ".join(filter(None, notes)))
        results.append(replace(result, cells=block.title, declared=when))
    return results


def _blocks(
    claim: Claim, families: Sequence[Family], missing: Sequence[Cell], parts: Parts
) -> Iterator[ClaimBlock]:
    """The blocks of a claim, for each of its tiers or sources; an empty one without cells."""
    if claim.metric == CORRELATION:
        every = [row for family in families for row in family.rows]
        once = {row.cell.cell_id: row for row in every if has_values(row.cell, claim.only)}
        yield ClaimBlock(claim, a=[*once.values()])
        return
    blocks: dict[tuple[str, ...], ClaimBlock] = {}
    for family in families:
        for rows in family.by_policy().values():
            cell = rows[0].cell
            for name in _sides(claim, cell):
                key = axes_without(cell, "seed", *claim.axes)
                block = blocks.setdefault(key, ClaimBlock(claim, _title(claim, cell)))
                block.families.append(family)
                setattr(block, name, rows)
    for cell in missing:
        if _sides(claim, cell) and (key := axes_without(cell, "seed", *claim.axes)) in blocks:
            blocks[key].missing.append(cell)
    if not blocks:
        yield ClaimBlock(claim)
    for block in blocks.values():
        if claim.against_base:
            block.a = block.b = block.rows
        if claim.part is None:
            yield block
            continue
        own = parts[claim.test_set or block.rows[0].cell.probe.dataset.name][claim.part.kind]
        for name in rising({*own.values()}) if claim.part.name == EVERY else [claim.part.name]:
            part = Part(claim.part.kind, name)
            title = f"{block.title}, {part}" if claim.part.name == EVERY else block.title
            questions = frozenset(i for i, each in own.items() if each == name)
            yield replace(block, claim=replace(claim, part=part), title=title, questions=questions)


def _sides(claim: Claim, cell: Cell) -> list[str]:
    """The sides of a claim, "a" and "b", that a cell belongs to."""
    return [
        name
        for name, side in (("a", claim.a), ("b", claim.b))
        if side != BASE_SIDE and has_values(cell, side) and has_values(cell, claim.only)
    ]


def _title(claim: Claim, cell: Cell) -> str:
    """What the cells of a block have in common, except for what the claim compares."""
    axes = {axis: value for axis, value in cell.axes.items() if axis not in claim.axes}
    texts = (
        " on ".join(axes[axis] for axis in ("model", "dataset") if axis in axes),
        axes.get("policy"),
        f"probe {axes['probe_seed']}" if axes.get("probe_seed") else "",
        axes_text({axis: axes[axis] for axis in cell.setting_axes if axis in axes}),
    )
    return ", ".join(filter(None, texts))


def _measured(
    block: ClaimBlock, spreads: Mapping[str, Spreads], level: float
) -> Comparison | RSquared:
    """R², or side a minus side b as policies are compared. Raises NotMeasured."""
    claim = block.claim
    rows = block.rows
    if claim.metric == CORRELATION:
        return r_squared(*map(np.array, learnable_gain_means(rows)), level=level)
    lacking = [side_text(side) for side, own in ((claim.a, block.a), (claim.b, block.b)) if not own]
    if not rows:
        sides = " or ".join(side for side in lacking if side != side_text(BASE_SIDE))
        raise NotMeasured(f"no finished cells of {sides} to compare")
    if lacking:
        raise NotMeasured(f"no finished cells of {lacking[0]}")
    same = {row.cell.cell_id for row in block.a} & {row.cell.cell_id for row in block.b}
    if same and not claim.against_base:
        raise NotMeasured("both sides are the same cells: the axis changes none of them")
    names = ("one side", "the other side")
    sides_rows = dict(zip(names, (block.a, block.b), strict=True))
    stored = {name: _stored(block, own, spreads) for name, own in sides_rows.items()}
    known = {name: spread for name, spread in stored.items() if spread}
    if claim.metric == "learnable":
        learnable, shares = {}, {}
        for name, own in sides_rows.items():
            shares[name] = {row.cell.seed: block.live_shares(row) for row in own}
            learnable[name] = {row.cell.seed: block.learnable_pct(row) for row in own}
        return compare_learnable(learnable, shares, known, level)[0]
    groups = rows[0].groups.get(block.test_set(rows[0]), {})
    runs = {name: block.runs(own) for name, own in sides_rows.items()}
    if not claim.against_base:
        [pair] = compare_policies(runs, known, groups=groups, level=level)
    else:
        pair = compare_with_base(runs[names[0]], groups, of_shares=not claim.per, level=level)
        pair = pair.reversed if claim.a == BASE_SIDE else pair
    return pair.times(claim.per.amount / block.unit) if claim.per else pair


def _stored(
    block: ClaimBlock, rows: Sequence[Row], spreads: Mapping[str, Spreads]
) -> SeedSpread | None:
    """For claims about final results: how much the results of all stored runs of a side vary."""
    claim = block.claim
    keys = {policy_key(row.cell) for row in rows}
    if claim.at or claim.over or claim.part or claim.per or len(keys) > 1:
        return None
    stored = spreads.get(keys.pop(), Spreads())
    if claim.metric == "learnable":
        return stored.learnable
    if claim.metric.startswith("pass@") or claim.metric in FACTORS:
        return None
    if not block.is_compared(block.rows[0]):
        return None
    return stored.accuracy


def judge_claim(claim: Claim, measured: Comparison | RSquared, level: float = ALPHA) -> ClaimResult:
    """Compare a claim with an interval.

    Supported if the whole interval lies in the claimed region (A > B by N: above N; A = B within N:
    inside [−N, N]; A >= B within N: above −N), refuted if it lies outside, otherwise inconclusive;
    the reverse for A != B by N. A single seed decides nothing, unless the spread between seeds of
    the same policies is known from other cells.
    """
    if isinstance(measured, RSquared):
        effect = measured.value
        covers_seeds = True
        difference = "R²"
        unit = ""
        sample = policies_text(measured)
        notes = [f"over {sample}, each the mean over its seeds"]
    else:
        effect = measured.effect
        covers_seeds = measured.covers_seeds
        unit = " points"
        difference = " − ".join(side_text(side) for side in (claim.a, claim.b))
        sample = counted_runs(measured.runs)
        if measured.items > 1:
            sample += f" × {counted(measured.items, measured.item)}"
        notes = _notes(measured)
    if claim.per:
        unit += f" {claim.per.per}"
    if isnan(effect):
        return ClaimResult(claim.text, "inconclusive", _why_undefined(measured))
    low, high = claim.region
    inside = low < measured.low and measured.high < high
    outside = measured.low > high or measured.high < low
    if claim.sign == "!=":
        inside, outside = outside, inside
    verdict: Conclusion = "inconclusive"
    if covers_seeds and (inside or outside):
        verdict = "supported" if inside else "refuted"
    if level < ALPHA:
        notes.insert(0, f"interval of {100 * (1 - level):.4g} %")
    limits = "; ".join([f"claimed: {_claimed(claim)}", *notes])
    value, *ends = (_number(claim, x) for x in (effect, measured.low, measured.high))
    interval = f"[{', '.join(ends)}]"
    return ClaimResult(claim.text, verdict, limits, difference, value, unit, interval, sample)


def _number(claim: Claim, value: float) -> str:
    if claim.metric == CORRELATION:
        return f"{value:.2f}"
    return in_digits(value) if claim.per else in_points(value)


def policies_text(fit: RSquared) -> str:
    """`8 policies`, or `24 policies in 3 blocks`."""
    policies = counted(fit.points, "policy", "policies")
    return policies if fit.blocks == 1 else f"{policies} in {fit.blocks} blocks"


def _why_undefined(measured: Comparison | RSquared) -> str:
    """Why there is no number."""
    if isinstance(measured, Comparison):
        return "no question has a score on both sides"
    if measured.points >= FEWEST_POINTS:
        return "R² is not defined: learnable % or gain is the same for all policies"
    return (
        f"R² needs at least {FEWEST_POINTS} policies (with different prompts, at least "
        f"{SMALLEST_BLOCK} of a block; their seeds are averaged), and only {measured.points} have "
        "finished cells"
    )


def _claimed(claim: Claim) -> str:
    """The region in words."""
    low, high = (in_points(x, plus=False).removesuffix(".0") for x in claim.region)
    if claim.level is not None or claim.per:
        low, high = (f"{x:g}" for x in claim.region)
    size, level = f"{claim.size:g}", f"{claim.level or 0:g}"
    words = SIGNS[claim.sign].format(low=low, high=high, size=size, level=level)
    return f"{words} of {level}" if claim.sign == "=" and claim.level else words


def _notes(pair: Comparison) -> list[str]:
    """What limits the numbers of two sides."""
    notes = []
    if pair.item == "update":
        notes.append(f"over {counted(pair.items, 'update')} of one seed")
    if stored := sum(spread.cells for spread in pair.stored.values()):
        notes.append(f"spread between seeds from {counted(stored, 'stored run')}")
    if not pair.covers_seeds:
        notes.append("needs more seeds")
    if pair.left_out:
        left_out = counted(pair.left_out, pair.item)
        notes.append(f"{left_out} left out, without a score on one side")
    if pair.groups is not None:
        notes.append(f"related questions averaged in {counted(pair.groups, 'group')}")
    if pair.misses_unlike:
        notes.append(missing_text(pair))
    return notes
