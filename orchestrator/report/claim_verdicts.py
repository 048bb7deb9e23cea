"""The claims of an experiment, judged on its finished cells. Pure.

A claim is judged once in each block: the cells that are equal in every axis that it does not
compare, but the seed. What one cell measured of it is by test question or by update.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from orchestrator.config.claims import (
    BASE_SIDE,
    CORRELATION,
    EVERY,
    Claim,
    Part,
    side_text,
)
from orchestrator.config.experiment import axes_text
from orchestrator.evaluation.metrics import pass_at_k
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
from orchestrator.report.looks import Look
from orchestrator.report.published import published_text
from orchestrator.report.rows import OWN, Row, learnable_gain_means, rising
from orchestrator.stats.claim_tests import (
    ClaimVerdict,
    Measured,
    judge_claim,
    measured_change,
    measured_correlation,
    measured_difference,
    policies_text,
    value_texts,
)
from orchestrator.stats.comparison import Run
from orchestrator.stats.fairness import Point, above_mean_cost, at_budget
from orchestrator.stats.inference import LEVEL, SeedSpread
from orchestrator.stats.sentences import NONE, counted_runs


class NotMeasured(Exception):
    """A finished cell lacks what a claim needs; says which cell and what."""


class ClaimReading(NamedTuple):
    """How one block of cells is read.

    claim: with one tier, if it has any. points: cell_id -> where the experiment compares it, of
    cells that it does not compare with each other in several `sets`. limit: the end of the cost
    over which accuracy is averaged. questions: those of the claim's tier; None for all. unit: of
    the cost that gains are divided by, the mean of the cells, which keeps them at about their size.
    """

    claim: Claim
    points: Mapping[str, Point]
    sets: Sequence[Sequence[Row]]
    limit: float
    questions: frozenset[str] | None
    unit: float = 0.0


def test_set_of(claim: Claim, row: Row) -> str:
    """The test set of a claim in a row's counts."""
    own = claim.test_set in (None, row.cell.probe.dataset.name)
    return OWN if own else str(claim.test_set)


def question_run(reading: ClaimReading, row: Row, *, base: bool) -> Run:
    """Each test question and its value, of a trained or of the base model. Raises NotMeasured."""
    claim = reading.claim
    if base:
        values = _at(reading, row, 0)
    elif claim.over:
        # The area under each question's curve over a cost, up to the limit, divided by the limit.
        updates = sorted(row.counts[OWN])
        spent = row.costs[str(claim.over)][updates]
        curves = [_at(reading, row, update) for update in updates]
        shared = sorted(set.intersection(*map(set, curves)))
        levels = np.array([[c[i] for i in shared] for c in curves]).reshape(len(updates), -1)
        within = spent < reading.limit
        ends = [np.interp(reading.limit, spent, column) for column in levels.T]
        costs = np.append(spent[within], reading.limit)
        areas = np.trapezoid(np.vstack([levels[within], ends]), costs, axis=0) / reading.limit
        values = dict(zip(shared, map(tuple, areas.reshape(-1, 3).tolist()), strict=True))
    else:
        values = _at_point(reading, row, _point(reading, row))
    if claim.metric == "gain":
        before = _at(reading, row, 0)
        values = {
            i: (
                values[i][0] - before[i][0],
                values[i][1] - before[i][2],
                values[i][2] - before[i][1],
            )
            for i in values.keys() & before.keys()
        }
    scores, low, high = np.array([*values.values()], float).reshape(-1, 3).T
    return Run([*values], scores, low, high - low)


def learnable_run(reading: ClaimReading, row: Row) -> tuple[Run, Run]:
    """Learnable % of a cell as one number, and by update: the share of live groups."""
    shares = {update: groups.live for update, groups in row.shares.items()}
    percentage = row.result.learnable_pct
    if reading.claim.at:
        last = _point(reading, row).update
        shares = {update: share for update, share in shares.items() if update <= last}
        if not shares:
            raise NotMeasured(f"{row.cell.name} recorded no group by update {last}")
        percentage = 100 * float(np.mean(list(shares.values())))
    by_update = Run(list(map(str, shares)), np.array(list(shares.values())))
    return Run(("",), np.array([percentage / 100])), by_update


def unequal_costs(claim: Claim, rows: Sequence[Row], compare_at: str) -> str:
    """The costs of rows that are read after training, where policies are compared at equal ones.

    Empty where they are equal, or the claim says where rows are read.
    """
    if claim.at or claim.over or compare_at == "updates" or BASE_SIDE in (claim.a, claim.b):
        return ""
    spent = [
        row.costs[compare_at][-1]
        for row in rows
        if claim.metric == "learnable" or test_set_of(claim, row) != OWN
    ]
    if not spent or min(spent) == max(spent):
        return ""
    return f"read after training, at {min(spent):,.0f} to {max(spent):,.0f} {compare_at}"


def _spent(reading: ClaimReading, row: Row) -> float:
    """The cost that a row's gain is divided by, up to where it is read. Raises NotMeasured."""
    assert reading.claim.per
    cost, point = reading.claim.per.cost, _point(reading, row)
    before, after = row.costs[cost][[point.update, point.later]]
    if not (spent := float((1 - point.share) * before + point.share * after)):
        raise NotMeasured(f"{row.cell.name} has used no {cost}")
    return spent


def _point(reading: ClaimReading, row: Row) -> Point:
    """Where a row is read: at the claim's cost, or else where the experiment compares."""
    claim = reading.claim
    if not claim.at:
        own = claim.metric != "learnable" and test_set_of(claim, row) == OWN
        if own and len(reading.sets) > 1:
            raise NotMeasured(unequal_labels(reading.sets, reading.points))
        if not own:
            return Point(row.cell.updates, np.nan, float(row.cell.updates))
        point = reading.points[row.cell.cell_id]
        if not point.update:
            raise NotMeasured(
                f"{row.cell.name} has no evaluation within the common budget: set a smaller "
                "evaluate.every"
            )
        return point
    cost, amount = claim.at
    if cost == "updates":
        return Point(int(amount), np.nan, amount)
    spent = row.costs[cost]
    if spent[-1] < amount * (1 - 1e-9):
        raise NotMeasured(f"{row.cell.name} ends at {spent[-1]:,.0f} {cost}")
    evaluated: Sequence[int] = range(len(spent))
    if claim.metric != "learnable":
        evaluated = sorted(row.counts[test_set_of(claim, row)])
    point = at_budget(dict.fromkeys(evaluated, np.nan), spent, amount)
    if not point.update:
        first = next(u for u in evaluated if u)
        raise NotMeasured(
            f"{row.cell.name} has no evaluation within {amount:,.15g} {cost}: the first one is at "
            f"{spent[first]:,.0f}; set a smaller evaluate.every"
        )
    return point


def _at_point(
    reading: ClaimReading, row: Row, point: Point
) -> dict[str, tuple[float, float, float]]:
    """Question -> values as `_at`, between those after two updates where the point is."""
    first = _at(reading, row, point.update)
    if not point.share:
        return first
    second = _at(reading, row, point.later)
    mixed = {}
    for i in first.keys() & second.keys():
        pairs = zip(first[i], second[i], strict=True)
        value, low, high = ((1 - point.share) * a + point.share * b for a, b in pairs)
        mixed[i] = (value, low, high)
    return mixed


def _at(reading: ClaimReading, row: Row, update: int) -> dict[str, tuple[float, float, float]]:
    """Question -> value after an update, and the same if all samples without a score were wrong,
    or right; the value of a question with too few scores is nan."""
    claim, test_set = reading.claim, test_set_of(reading.claim, row)
    counts = row.counts.get(test_set, {}).get(update)
    if counts is None:
        name = test_set or row.cell.probe.dataset.name
        raise NotMeasured(f"{row.cell.name} was not tested on {name} after update {update}")
    k, samples = claim.pass_at or 1, row.samples(test_set)
    values = {}
    for i, (n, c) in counts.items():
        if reading.questions is None or i in reading.questions:
            most = max(n, samples)
            value = pass_at_k(n, c, k) if n >= k else np.nan
            values[i] = (value, pass_at_k(most, c, k), pass_at_k(most, c + most - n, k))
    return values


NAMED = 3  # cells of a list
# claim -> {"at": when a run first saw it, "results": cells that had results by then}
Declared = Mapping[str, Mapping[str, Any]]
# data set -> tier or source -> test question -> its tier or source
Parts = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True)
class ClaimResult:
    """A claim of the experiment file, judged on one block of cells.

    cells: names the block; empty where the claim is about all cells or about none. value, interval:
    the difference in points, or R², as text. paper: what the paper reports, where it does.
    """

    text: str
    cells: str
    verdict: str
    reason: str
    declared: str
    value: str = NONE
    interval: str = ""
    sample: str = NONE
    paper: str = NONE

    @property
    def limits(self) -> str:
        """The reason without the numbers: what was claimed, and what limits the verdict."""
        return self.reason if self.value == NONE else self.reason.partition("; ")[2]


@dataclass
class ClaimBlock:
    """The cells of both sides that are equal in every other axis but the seed; `a`, `b`: by seed.

    The base model has the cells of the other side. missing: planned cells that are not finished.
    """

    title: str
    families: list[Family] = field(default_factory=list)
    missing: list[Cell] = field(default_factory=list)
    a: Sequence[Row] = ()
    b: Sequence[Row] = ()

    @property
    def rows(self) -> list[Row]:
        """The cells of both sides."""
        return [*self.a, *self.b]


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
    inconclusive. looks: at these cells. The level of the last one is divided by the number of
    verdicts on claims (Bonferroni), so that it holds for all of them together.
    """
    results: list[ClaimResult] = []
    todo: list[tuple[Claim, Claim, str, ClaimBlock | None]] = []  # as written, as judged, title
    for claim in claims:
        blocks = [] if claim.metric == CORRELATION else _blocks(claim, families, missing)
        for block in blocks:
            judged = [(claim, block.title)]
            if claim.part and claim.part.name == EVERY:
                names = rising({*_of(claim, block, parts).values()})
                each_part = [Part(claim.part.kind, name) for name in names]
                judged = [(replace(claim, part=p), f"{block.title}, {p}") for p in each_part]
            todo += [(claim, one, title, block) for one, title in judged]
        if not blocks:
            todo.append((claim, claim, "", None))
    level = (looks[-1].level if looks else LEVEL) / max(1, len(todo))
    for claim, one, title, of in todo:
        when = "not yet declared by a run"
        if (seen := declared.get(claim.text)) is not None:
            known = seen["results"]
            when = f"declared {seen['at']}, " + (
                f"after {counted(known, 'result')}" if known else "before any result"
            )
        when += f"; look {len(looks)}" if len(looks) > 1 else ""
        if claim.metric == CORRELATION:
            every = [row for family in families for row in family.rows]
            rows = {r.cell.cell_id: r for r in every if has_values(r.cell, claim.only)}  # once each
            means = learnable_gain_means([*rows.values()])
            seeds = len({r.cell.seed for r in rows.values()})
            measured = measured_correlation(means, seeds, level)
            paper = published_text(claim, _cell([*rows.values()]), None)
            results.append(_result(claim, "", judge_claim(claim, measured), when, paper))
        elif of is None:
            sides = " or ".join(side_text(s) for s in (claim.a, claim.b) if s != BASE_SIDE)
            nothing = ClaimVerdict("inconclusive", f"no finished cells of {sides} to compare")
            results.append(_result(claim, "", nothing, when))
        else:
            verdict = _judge(one, of, parts, spreads, level)
            paper = published_text(claim, _cell(of.a), _cell(of.b))
            results.append(_result(claim, title, verdict, when, paper))
    return results


def _blocks(claim: Claim, families: Sequence[Family], missing: Sequence[Cell]) -> list[ClaimBlock]:
    blocks: dict[tuple[str, ...], ClaimBlock] = {}
    for family in families:
        for rows in family.by_policy().values():
            cell = rows[0].cell
            if not (sides := _sides(claim, cell)):
                continue
            key = axes_without(cell, "seed", *claim.axes)
            axes = {axis: value for axis, value in cell.axes.items() if axis not in claim.axes}
            title = (
                " on ".join(axes[axis] for axis in ("model", "dataset") if axis in axes),
                axes.get("policy"),
                f"probe {axes['probe_seed']}" if axes.get("probe_seed") else "",
                axes_text({axis: axes[axis] for axis in cell.swept if axis in axes}),
            )
            block = blocks.setdefault(key, ClaimBlock(", ".join(filter(None, title))))
            block.families.append(family)
            for name in sides:
                setattr(block, name, rows)
    for cell in missing:
        if _sides(claim, cell) and (key := axes_without(cell, "seed", *claim.axes)) in blocks:
            blocks[key].missing.append(cell)
    for block in blocks.values():
        if BASE_SIDE in (claim.a, claim.b):
            block.a = block.b = block.rows
    return [*blocks.values()]


def _sides(claim: Claim, cell: Cell) -> list[str]:
    """The sides of a claim, "a" and "b", that a cell belongs to."""
    return [
        name
        for name, side in (("a", claim.a), ("b", claim.b))
        if side != BASE_SIDE and has_values(cell, side) and has_values(cell, claim.only)
    ]


def _judge(
    claim: Claim, block: ClaimBlock, parts: Parts, spreads: Mapping[str, Spreads], level: float
) -> ClaimVerdict:
    """The verdict on one block; inconclusive, with the reason, where something is missing."""
    for side, rows in ((claim.a, block.a), (claim.b, block.b)):
        if not rows:
            return ClaimVerdict("inconclusive", f"no finished cells of {side_text(side)}")
    same = {row.cell.cell_id for row in block.a} & {row.cell.cell_id for row in block.b}
    if same and BASE_SIDE not in (claim.a, claim.b):
        return ClaimVerdict("inconclusive", "both sides are the same cells: the axis changes none")
    questions = None
    if claim.part:
        own = _of(claim, block, parts).items()
        questions = frozenset(i for i, name in own if name == claim.part.name)
    limit = min(float(row.costs[claim.over][-1]) for row in block.rows) if claim.over else 0.0
    families = [*{id(family): family for family in block.families}.values()]
    rows = [row for family in families for row in family.rows]
    sets = comparable(rows, families[0].compare_at)
    points = points_of(sets, families[0].compare_at)
    compared = {row.cell.cell_id for row in block.rows}
    sides = [[row for row in each if row.cell.cell_id in compared] for each in sets]
    reading = ClaimReading(claim, points, [*filter(None, sides)], limit, questions)
    try:
        if claim.per:
            spent = [_spent(reading, row) for row in block.rows]
            reading = reading._replace(unit=float(np.mean(spent)))
        measured = _measure(reading, block, _stored(claim, block, spreads), level)
        if claim.per:
            measured = measured.times(claim.per.amount / reading.unit)
        verdict = judge_claim(claim, measured)
        if block.missing:
            names = ", ".join(cell.name for cell in block.missing[:NAMED])
            more = ", …" if len(block.missing) > NAMED else ""
            unfinished = counted(len(block.missing), "planned cell")
            reason = f"{unfinished} not finished: {names}{more}; {verdict.reason}"
            verdict = verdict._replace(verdict="inconclusive", reason=reason)
    except NotMeasured as error:
        return ClaimVerdict("inconclusive", str(error))
    costs = unequal_costs(claim, [*block.a, *block.b], block.families[0].compare_at)
    return verdict._replace(reason="; ".join(filter(None, [verdict.reason, costs])))


def _of(claim: Claim, block: ClaimBlock, parts: Parts) -> Mapping[str, str]:
    """The tier or source of each question that a claim is about."""
    assert claim.part
    return parts[claim.test_set or block.rows[0].cell.probe.dataset.name][claim.part.kind]


def _measure(
    reading: ClaimReading,
    block: ClaimBlock,
    stored: Sequence[SeedSpread | None],
    level: float,
) -> Measured:
    """Side a minus side b of a block. Raises NotMeasured."""
    claim = reading.claim
    if claim.metric != "learnable":
        sides = (claim.a, claim.b)
        scores_a, scores_b = (
            _side_runs(reading, rows, base=side == BASE_SIDE)
            for side, rows in zip(sides, (block.a, block.b), strict=True)
        )
        groups = block.rows[0].groups.get(test_set_of(claim, block.rows[0]), {})
        if BASE_SIDE in sides:
            changes = {s: _change(scores_a[s], scores_b[s]) for s in scores_a}
            return measured_change(changes, groups, of_shares=not claim.per, level=level)
        return measured_difference(scores_a, scores_b, stored, groups=groups, level=level)
    # Over seeds; with one seed, by its live groups, paired by update.
    a, b = (
        {row.cell.seed: learnable_run(reading, row) for row in rows} for rows in (block.a, block.b)
    )
    measured = measured_difference(
        {seed: run[0] for seed, run in a.items()},
        {seed: run[0] for seed, run in b.items()},
        stored,
        item="run",
        level=level,
    )
    if measured.runs != (1, 1) or measured.covers_seeds:
        return measured
    [(_, updates_a)], [(_, updates_b)] = a.values(), b.values()
    by_update = measured_difference({0: updates_a}, {0: updates_b}, item="update", level=level)
    return by_update if by_update.items > 1 else measured


def _side_runs(reading: ClaimReading, rows: Sequence[Row], *, base: bool) -> dict[int, Run]:
    """By seed; of a claim per cost, gains by cost (`above_mean_cost`), times the unit."""
    runs = [question_run(reading, row, base=base) for row in rows]
    if reading.claim.per and not base:
        costs = np.array([_spent(reading, row) for row in rows])
        gains = np.array([float(np.nanmean(run.scores)) for run in runs])
        share = reading.unit / costs.mean()
        runs = [
            Run(items, share * (scores - excess), share * (low - excess), share * missing)
            for (items, scores, low, missing), excess in zip(
                runs, above_mean_cost(gains, costs), strict=True
            )
        ]
    return {row.cell.seed: run for row, run in zip(rows, runs, strict=True)}


def _change(after: Run, before: Run) -> Run:
    """The values of the questions that both have, one minus the other."""
    values_a, values_b = (dict(zip(run.items, run.scores, strict=True)) for run in (after, before))
    shared = [i for i in values_a if i in values_b]
    return Run(shared, np.array([values_a[i] - values_b[i] for i in shared]))


def _stored(
    claim: Claim, block: ClaimBlock, spreads: Mapping[str, Spreads]
) -> list[SeedSpread | None]:
    """Of each side, for claims about final results: the variance between all its stored runs."""
    own = claim.metric == "learnable" or test_set_of(claim, block.rows[0]) == OWN
    if not own or claim.at or claim.over or claim.part or claim.per or claim.pass_at:
        return [None, None]
    stored: list[SeedSpread | None] = []
    for rows in (block.a, block.b):
        keys = {policy_key(row.cell) for row in rows}
        of_side = spreads.get(keys.pop(), Spreads()) if len(keys) == 1 else Spreads()
        stored.append(of_side.learnable if claim.metric == "learnable" else of_side.accuracy)
    return stored


def _result(
    claim: Claim, title: str, verdict: ClaimVerdict, when: str, paper: str = ""
) -> ClaimResult:
    measured, numbers, sample = verdict.measured, (NONE, ""), NONE
    if measured is not None and not np.isnan(measured.effect):
        numbers = value_texts(claim, measured)
        sample = counted_runs(measured.runs)
        if measured.item == "policy":
            sample = policies_text(measured)
        elif measured.items > 1:
            sample += f" × {counted(measured.items, measured.item)}"
    return ClaimResult(
        claim.text, title, verdict.verdict, verdict.reason, when, *numbers, sample, paper or NONE
    )


def _cell(rows: Sequence[Row]) -> Cell | None:
    return rows[0].cell if rows else None
