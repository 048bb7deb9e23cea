"""Finished cells -> families that differ in policy and seed only, compared: the basis of verdicts.

Holm's correction covers all pairs of all families, because one report is one family of tests,
however many tables it has. Steps to match state how soon a policy is as good as training on the
whole pool. How much results vary between training seeds is read from every finished cell of the
store; everything else is pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from orchestrator.config.experiment import CONTROLS, Axis, axes_text, value_text
from orchestrator.planning.cells import Cell, axes_without
from orchestrator.plugins.counts import noun_for
from orchestrator.plugins.streams import generator
from orchestrator.report.fairness import TOLERANCE, Point, at_budget, difference, outliers
from orchestrator.report.rows import OWN, Row
from orchestrator.stats.changes import compare_learnable
from orchestrator.stats.comparison import Comparison, ItemScores, adjust, compare_policies
from orchestrator.stats.inference import (
    ALPHA,
    SeedSpread,
    available,
    group_codes,
    seed_spread,
)
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder

BLOCK = 250  # resamples at once


class Steps(NamedTuple):
    """The update at which a target is reached, with a 95 % interval; None: not within the run.

    `reached` is the share of resamples in which it is reached at all.
    """

    update: float | None
    low: float | None
    high: float | None
    reached: float


def steps_to_match(
    curve: Mapping[int, np.ndarray],
    target: np.ndarray,
    resamples: int = 2000,
    groups: np.ndarray | None = None,
) -> Steps:
    """The update at which a policy's accuracy first reaches a target (paper B's "45 % of steps").

    curve: update -> [seeds, items], the mean correctness of each question (over its samples) after
    that update; target: [seeds, items], the full pool's final evaluation on the same questions,
    with its own seeds. The curve is interpolated linearly between evaluations. Whole questions, or
    `groups` of them (a number for each), are resampled jointly in curve and target, and the seeds
    of each separately; with one seed the interval covers new questions only. A noisy curve crosses
    the target early: evaluate with enough questions.
    """
    updates = sorted(curve)
    at = np.array(updates, float)
    stacked = np.array([curve[u] for u in updates])  # [updates, seeds, items]
    # The order of questions does not decide which are drawn.
    order = np.lexsort(np.concatenate([target, stacked.reshape(-1, target.shape[1])]))
    stacked, target = stacked[:, :, order], target[:, order]
    codes = np.arange(len(order)) if groups is None else groups[order]
    # Groups are numbered in the order in which they first appear, whatever numbers they had.
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[codes]
    resampled = _crossings(at, _resampled(stacked, target, codes, resamples))
    ends = np.quantile(resampled, [ALPHA / 2, 1 - ALPHA / 2], method="inverted_cdf")
    lead = stacked.mean(axis=(1, 2)) - target.mean()
    first = _crossings(at, lead[None, :])[0]
    update, low, high = (float(x) if isfinite(x) else None for x in (first, *ends))
    return Steps(update, low, high, float(np.isfinite(resampled).mean()))


def _resampled(
    curve: np.ndarray, target: np.ndarray, groups: np.ndarray, resamples: int
) -> np.ndarray:
    """[resamples, updates]: the lead over the target's mean, seeds and groups resampled."""
    rng, items, total = generator("resampled curves"), target.shape[1], int(groups.max()) + 1
    leads = []
    for start in range(0, resamples, BLOCK):
        count = min(BLOCK, resamples - start)
        # [count, groups]: each resample's groups; the offset lets one bincount count them apart.
        drawn = rng.integers(0, total, (count, total)) + total * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * total).reshape(count, total)
        weights = times[:, groups] / times[:, groups].sum(axis=1, keepdims=True)  # [count, items]
        means = []
        for scores in (curve, target[None]):  # [updates, seeds, items]
            updates, seeds, _ = scores.shape
            # [count, updates, seeds]
            each = (weights @ scores.reshape(-1, items).T).reshape(-1, updates, seeds)
            # The same seeds after every update of a resample.
            of_seeds = rng.integers(0, seeds, (count, 1, seeds))
            means.append(np.take_along_axis(each, of_seeds, axis=2).mean(axis=2))
        leads.append(means[0] - means[1])
    return np.concatenate(leads)


def _crossings(updates: np.ndarray, lead: np.ndarray) -> np.ndarray:
    """[rows]: the update where each row of lead [rows, updates] first reaches zero, else inf."""
    above = lead >= -1e-12
    first = above.argmax(axis=1)  # 0 also where none is above: see the last line
    rows, before = np.arange(len(lead)), np.maximum(first - 1, 0)
    low, high = lead[rows, before], lead[rows, first]
    # Linear between the evaluations before and at the crossing.
    share = np.where(first > 0, -low / np.where(high > low, high - low, 1), 0.0)
    at = updates[before] + np.clip(share, 0, 1) * (updates[first] - updates[before])
    return np.asarray(np.where(above.any(axis=1), at, np.inf))


class StepsToMatch(NamedTuple):
    """When `policy` reaches the final accuracy (a share) of `reference`, which took `updates`.

    rollouts: those drawn until then, as a share of the reference's; None if updates say the same.
    """

    policy: str
    reference: str
    accuracy: float
    updates: int
    steps: Steps
    rollouts: float | None = None


def steps_to_match_whole_pool(by_policy: Mapping[str, Sequence[Row]]) -> list[StepsToMatch]:
    """Every other policy against the one that takes the whole pool.

    Empty without such a policy, or without an evaluation between the base and the final model.
    """
    reference = whole_pool_policy(by_policy)
    if reference is None:
        return []
    full = by_policy[reference]
    of_target = available([row.scores(row.cell.updates) for row in full])
    matches = []
    for policy, rows in by_policy.items():
        updates = sorted(set.intersection(*(set(row.counts[OWN]) for row in rows)))
        curve = {u: available([row.scores(u) for row in rows]) for u in updates}
        shared = sorted(set.intersection(*({*s.items} for s in (*curve.values(), of_target))))
        if policy == reference or len(updates) < 3 or not shared:
            continue
        target = of_target.of(shared)
        codes = group_codes(shared, rows[0].groups.get(OWN, {}))
        steps = steps_to_match({u: s.of(shared) for u, s in curve.items()}, target, groups=codes)
        last = max(row.cell.updates for row in full)
        rollouts = None
        if steps.update is not None and any(
            row.cell.max_rollouts > row.cell.rollouts for row in rows
        ):
            drawn = [
                np.interp(steps.update, range(len(spent)), spent)
                for spent in (row.costs["rollouts"] for row in rows)
            ]
            rollouts = float(np.mean(drawn) / np.mean([row.costs["rollouts"][-1] for row in full]))
        accuracy = float(target.mean())
        matches.append(StepsToMatch(policy, reference, accuracy, last, steps, rollouts))
    return matches


def whole_pool_policy(by_policy: Mapping[str, Sequence[Row]]) -> str | None:
    """The policy that trains on every prompt of the pool."""
    cells = {policy: rows[0].cell for policy, rows in by_policy.items()}
    static = {policy: cell.static_policy for policy, cell in cells.items() if cell.online is None}
    return next((name for name, rule in static.items() if rule.build().takes_all), None)


class Spreads(NamedTuple):
    """Between training seeds of one policy: of its final accuracy, and of its learnable share."""

    accuracy: SeedSpread | None = None
    learnable: SeedSpread | None = None


def policy_key(cell: Cell) -> str:
    """Hashes everything that a cell shares with those of its policy with other training seeds."""
    subset = {name: value for name, value in cell.subset_identity.items() if name != "seed"}
    own = {"pool": cell.train_hash, "evaluation": cell.evaluation_identity, "subset": subset}
    return canonical_hash(cell.treatment | own)


def read_spreads(store: Store, cells: Sequence[Cell]) -> dict[str, Spreads]:
    """`policy_key` -> spreads, for the policies of these finished cells.

    Pools all finished cells of the store with that key, whichever sweep ran them. Cells whose
    files fail verification are left out, which is logged.
    """
    keys = {policy_key(cell) for cell in cells}
    results: dict[str, list[tuple[float, float]]] = {}
    for folder in CellFolder.all(store):
        result, settings = folder.result(), folder.settings()
        if result is None or settings is None or not isfinite(result.accuracy_final):
            continue
        if (key := policy_key(settings)) in keys:
            numbers = (result.accuracy_final, result.learnable_pct / 100)
            results.setdefault(key, []).append(numbers)
    return {
        key: Spreads(*(seed_spread(values) for values in zip(*numbers, strict=True)))
        for key, numbers in results.items()
    }


# When cells are not compared at equal updates, only these axes still have to be equal.
ALWAYS_EQUAL = {"prompts"}


class BudgetMismatch(NamedTuple):
    """An axis of the ledger on which some policies' cells are not comparable with the others.

    `policies` maps each to its seeds; `difference` is the largest between cells of one seed, as a
    share of the larger value.
    """

    axis: str
    policies: Mapping[str, tuple[int, ...]]
    difference: float


@dataclass(frozen=True)
class Family:
    """The finished cells of one model on one dataset, selected by one probe, and their comparisons.

    All other axes are also equal; setting_axes: the settings among them, dotted name -> value.
    points: cell_id -> where its accuracy is read; sets: rows that are read within one budget
    (`comparable`); accuracy, learnable: every pair of policies, in points (for accuracy, every pair
    of one set); mismatches: axes on which their budgets differ; matches: when each policy is as
    good as training on the whole pool.
    """

    model: str
    dataset: str
    probe_seed: int
    rows: tuple[Row, ...]
    compare_at: Axis
    points: Mapping[str, Point]
    sets: Sequence[Sequence[Row]]
    accuracy: Sequence[Comparison]
    learnable: Sequence[Comparison]
    mismatches: Sequence[BudgetMismatch]
    matches: Sequence[StepsToMatch]
    setting_axes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Model and dataset, and what `variant` adds."""
        return ", ".join(filter(None, [f"{self.model} on {self.dataset}", self.variant]))

    def title_without(self, axis: str) -> str:
        """The title of families that differ in this axis."""
        others = {name: value for name, value in self.setting_axes.items() if name != axis}
        return replace(self, setting_axes=others).title

    @property
    def variant(self) -> str:
        """The probe's seed where it is not 0, and the settings that are axes."""
        probe = f"probe {self.probe_seed}" if self.probe_seed else ""
        return ", ".join(filter(None, [probe, axes_text(self.setting_axes)]))

    def by_policy(self) -> dict[str, list[Row]]:
        """Policy -> its rows by seed, policies in the order of the grid."""
        return rows_by_policy(self.rows)

    @property
    def copies(self) -> dict[str, str]:
        """Policy -> another policy of its set that chose the same prompts with every seed."""
        return _copies(self.sets)

    @property
    def collapsed(self) -> dict[str, list[Row]]:
        """Policy -> its cells that ended below their base model beyond chance.

        Bonferroni's correction covers all cells of the family.
        """
        level = ALPHA / len(self.rows)
        below = [row for row in self.rows if row.gain.mean < 0 and row.gain.p < level]
        return rows_by_policy(below)


def rows_by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Policy -> its rows by seed, policies in the order of the rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.cell.policy, []).append(row)
    return {p: sorted(group, key=lambda row: row.cell.seed) for p, group in groups.items()}


def _copies(sets: Sequence[Sequence[Row]]) -> dict[str, str]:
    copies = {}
    for rows in sets:
        first: dict[str, str] = {}  # cell that was trained -> the first policy of the set with it
        trained = {row.cell.cell_id: row.result.same_as or row.cell.cell_id for row in rows}
        for row in rows:
            first.setdefault(trained[row.cell.cell_id], row.cell.policy)
        for policy, own in rows_by_policy(rows).items():
            others = {first[trained[row.cell.cell_id]] for row in own}
            if len(others) == 1 and (original := others.pop()) != policy:
                copies[policy] = original
    return copies


def families(
    rows: Sequence[Row],
    compare_at: Axis = "updates",
    spreads: Mapping[str, Spreads] = MappingProxyType({}),
    missing: Sequence[Cell] = (),
    level: float = ALPHA,
) -> list[Family]:
    """Rows by every axis but policy and seed, compared; in the order in which they first appear.

    Every pair of policies of each family is one test of accuracy; Holm's correction covers all of
    them. Learnable %, claims, tiers and other test sets have intervals but no verdict by p.
    Policies with the same prompts (and as many labels, where these must be equal) are compared
    once, because each comparison makes Holm's correction larger. `spreads` (by `policy_key`): how
    much results vary between seeds. missing: planned cells that are not finished, whose accuracy
    may be anything. level: the level of this look.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    unfinished: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        groups.setdefault(axes_without(row.cell, "policy", "seed"), []).append(row)
    for cell in missing:
        key = axes_without(cell, "policy", "seed")
        unfinished.setdefault(key, Counter())[cell.policy] += 1
    uncorrected = [
        _family(group, compare_at, spreads, unfinished.get(key, {}))
        for key, group in groups.items()
    ]
    corrected = iter(adjust([c for family in uncorrected for c in family.accuracy], level))
    return [replace(f, accuracy=[next(corrected) for _ in f.accuracy]) for f in uncorrected]


def _family(
    rows: Sequence[Row],
    compare_at: Axis,
    spreads: Mapping[str, Spreads],
    missing_runs: Mapping[str, int],
) -> Family:
    cell, sets = rows[0].cell, comparable(rows, compare_at)
    points = points_of(sets, compare_at)
    set_of = {row.cell.policy: number for number, own in enumerate(sets) for row in own}
    copies = _copies(sets)
    compared = [row for row in rows if row.cell.policy not in copies]
    scores = _runs(rows_by_policy(compared), points)
    learnable: dict[str, dict[int, float]] = {}
    live_shares: dict[str, dict[int, dict[int, float]]] = {}
    for row in rows:
        policy, seed = row.cell.policy, row.cell.seed
        learnable.setdefault(policy, {})[seed] = row.result.learnable_pct
        shares = {update: groups.live for update, groups in row.shares.items()}
        live_shares.setdefault(policy, {})[seed] = shares
    stored = {row.cell.policy: spreads.get(policy_key(row.cell), Spreads()) for row in rows}
    at_end = compare_at == "updates"  # what stored runs tell
    accuracy = {policy: s.accuracy for policy, s in stored.items() if s.accuracy and at_end}
    of_learnable = {policy: s.learnable for policy, s in stored.items() if s.learnable}
    return Family(
        model=cell.probe.model.name,
        dataset=cell.probe.dataset.name,
        probe_seed=cell.probe.settings.seed,
        setting_axes=cell.setting_axes,
        rows=tuple(rows),
        compare_at=compare_at,
        points=points,
        sets=sets,
        accuracy=[
            pair
            for pair in compare_policies(
                scores,
                accuracy,
                groups=rows[0].groups.get(OWN, {}),
                missing_runs=missing_runs,
            )
            if set_of[pair.a] == set_of[pair.b]
        ],
        learnable=compare_learnable(learnable, live_shares, of_learnable),
        mismatches=budget_mismatches(rows, compare_at),
        matches=steps_to_match_whole_pool(rows_by_policy(rows)),
    )


def _runs(
    rows: Mapping[str, Sequence[Row]], points: Mapping[str, Point]
) -> dict[str, dict[int, ItemScores]]:
    """Arm -> seed -> its run where it is read; without arms with a cell at the base model there."""
    return {
        arm: {row.cell.seed: row.run_at(points[row.cell.cell_id]) for row in own}
        for arm, own in rows.items()
        if all(points[row.cell.cell_id].update for row in own)
    }


def reading_points(rows: Sequence[Row], compare_at: Axis) -> dict[str, Point]:
    """cell_id -> where it is read: at its end, or at the common budget."""
    if compare_at == "updates":
        return {
            row.cell.cell_id: Point(
                row.cell.updates, row.curve[row.cell.updates], float(row.cell.updates)
            )
            for row in rows
        }
    budget = min(float(row.costs[compare_at][-1]) for row in rows)
    return {row.cell.cell_id: at_budget(row.curve, row.costs[compare_at], budget) for row in rows}


def comparable(rows: Sequence[Row], compare_at: Axis) -> list[list[Row]]:
    """The rows in sets that are each read within one budget: one set, except at equal labels.

    A policy has no point within that budget if one of its cells used more labels by its first
    evaluation than another cell in all. Such policies are compared only with each other.
    """
    sets, left = [], [*rows]
    while left:
        points, unread = reading_points(left, compare_at), set[tuple[str, ...]]()
        if compare_at == "labels":
            beyond = (row.cell for row in left if not points[row.cell.cell_id].update)
            unread = {axes_without(cell, "seed") for cell in beyond}
        within = [row for row in left if axes_without(row.cell, "seed") not in unread]
        sets.append(within or left)
        left = [row for row in left if within and axes_without(row.cell, "seed") in unread]
    return sets


def points_of(sets: Sequence[Sequence[Row]], compare_at: Axis) -> dict[str, Point]:
    """cell_id -> where it is read, within the budget of its set."""
    return {i: point for own in sets for i, point in reading_points(own, compare_at).items()}


def unequal_labels(sets: Sequence[Sequence[Row]], points: Mapping[str, Point]) -> str:
    """What the cells of several sets have used where they are read, most first."""
    variants = {axes_text(row.cell.setting_axes) for own in sets for row in own}
    parts = []
    for own in reversed(sets):
        names: dict[str, None] = {}
        for row in own:
            name = row.cell.policy
            if len(variants) > 1:
                name += f", {axes_text(row.cell.setting_axes)}"
            names[name] = None
        costs = {round(points[row.cell.cell_id].cost) for row in own}
        amount = " to ".join(f"{cost:,}" for cost in sorted({min(costs), max(costs)}))
        parts.append((" and ".join(names), "has" if len(names) == 1 else "have", amount))
    (names_of_most, verb, most), *others = parts
    rest = (f"{names} {amount}" for names, _, amount in others)
    labels = noun_for(1 if most == "1" else 2, "label")
    text = ", ".join([f"{names_of_most} {verb} used {most} {labels}", *rest])
    return f"not comparable at equal labels: {text}"


def unread_policies(rows: Sequence[Row], points: Mapping[str, Point]) -> list[str]:
    """Policies with a cell whose first evaluation exceeds the common budget.

    Within the budget the cell is still the base model, and is not compared.
    """
    return sorted({row.cell.policy for row in rows if not points[row.cell.cell_id].update})


def budget_mismatches(rows: Sequence[Row], compare_at: Axis) -> list[BudgetMismatch]:
    """Axes on which cells of the same seed have different budgets, each axis once."""
    mismatches = []
    for axis, most in TOLERANCE.items():
        if compare_at != "updates" and axis not in ALWAYS_EQUAL:
            continue
        seeds: dict[str, list[int]] = {}
        largest = 0.0
        for seed in sorted({row.cell.seed for row in rows}):
            # An online policy sees different prompts by design.
            ledgers = {
                row.cell.policy: row.result.ledger.get(axis)
                for row in rows
                if row.cell.seed == seed and (axis != "prompts" or row.cell.online is None)
            }
            for policy in outliers(ledgers, most):
                seeds.setdefault(policy, []).append(seed)
                largest = max(largest, difference(ledgers.values()))
        if seeds:
            by_policy = {policy: tuple(of) for policy, of in seeds.items()}
            mismatches.append(BudgetMismatch(axis, by_policy, largest))
    return mismatches


@dataclass(frozen=True)
class Arms:
    """The cells of a policy that differ in only one thing: what it ranks by, or the reward.

    `data`: model, dataset and other axes. rows: arm -> its cells by seed; points: cell_id -> where
    its accuracy is read. comparisons: each other arm -> the first one minus it, both read within
    the common budget; without arms with a cell that is still the base model there.
    """

    data: str
    policy: str
    rows: Mapping[str, Sequence[Row]]
    points: Mapping[str, Point]
    comparisons: Mapping[str, Comparison]

    @classmethod
    def of(
        cls, data: str, rows: Mapping[str, Sequence[Row]], points: Mapping[str, Point]
    ) -> "Arms":
        """Every other arm compared with the first one."""
        first, *others = rows
        row = rows[first][0]
        groups = row.groups.get(OWN, {})
        runs = _runs(rows, points)
        comparisons = {
            arm: compare_policies({first: runs[first], arm: runs[arm]}, groups=groups)[0]
            for arm in others
            if first in runs and arm in runs
        }
        return cls(data, row.cell.policy, rows, points, comparisons)


class Control(NamedTuple):
    """A policy trained on the score (the first arm) and on a reward that ignores answers.

    Both are read within the common budget. If that is labels, they are read after training, because
    a control may use none. `policies`: the largest difference between policies with the score, in
    points; None for a single policy.
    """

    arms: Arms
    policies: float | None

    @property
    def reward(self) -> str:
        """The reward of the control."""
        return [*self.arms.rows][1]

    @property
    def gain(self) -> float:
        """The gain of the control over the base model, in points."""
        points = self.arms.points
        rows = self.arms.rows[self.reward]
        return 100 * float(np.mean([points[r.cell.cell_id].value - r.curve[0] for r in rows]))


def control_arms(families: Sequence[Family]) -> list[Control]:
    """Every policy of a family with the score that also has a control, in a grid over `reward`."""
    of_score: dict[tuple[str, ...], Family] = {}
    for family in families:
        cell = family.rows[0].cell
        if "reward" in family.setting_axes and not cell.reward:
            of_score[axes_without(cell, "policy", "seed", "reward")] = family
    controls = []
    for key, family in of_score.items():
        differences = [abs(c.effect) for c in family.accuracy if isfinite(c.effect)]
        compare_at = "updates" if family.compare_at == "labels" else family.compare_at
        for other in families:
            cell = other.rows[0].cell
            same = axes_without(cell, "policy", "seed", "reward") == key
            if not same or not cell.reward or not CONTROLS.issuperset(cell.reward):
                continue
            name = value_text(other.setting_axes["reward"])
            points = reading_points([*family.rows, *other.rows], compare_at)
            by_policy = family.by_policy()
            for policy, rows in other.by_policy().items():
                if policy in by_policy:
                    own = {"score": by_policy[policy], name: rows}
                    arms = Arms.of(family.title_without("reward"), own, points)
                    controls.append(Control(arms, max(differences, default=None)))
    return controls


def difficulty_arms(families: Sequence[Family]) -> list[Arms]:
    """Every policy with cells that differ only in what it ranks by, as an axis or of its own."""
    groups: dict[tuple[str, ...], tuple[Family, list[Row]]] = {}
    for family in families:
        for row in family.rows:
            cell = row.cell
            if cell.static_policy.build().needs != "nothing":
                rules = (
                    rule.model_dump_json() for rule in (cell.static_policy, cell.online) if rule
                )
                key = (*axes_without(cell, "policy", "seed", "difficulty"), *rules)
                groups.setdefault(key, (family, []))[1].append(row)
    arms = []
    for family, rows in groups.values():
        by_source: dict[str, dict[int, Row]] = {}
        for row in rows:
            by_source.setdefault(row.cell.ranked_by, {})[row.cell.seed] = row
        if len(by_source) > 1:
            points = reading_points(rows, family.compare_at)
            in_order = {name: [own[s] for s in sorted(own)] for name, own in by_source.items()}
            arms.append(Arms.of(family.title_without("difficulty"), in_order, points))
    return arms
