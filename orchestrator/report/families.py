"""The finished cells that differ in policy and seed only, compared: the basis of every verdict.

Pure given rows. Holm's correction covers all pairs of all families, because one report is one
family of tests, however many tables it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from orchestrator.config.axes import axes_text
from orchestrator.planning.cells import axes_without
from orchestrator.report.matching import StepsToMatch, steps_to_match_whole_pool
from orchestrator.report.rows import Row
from orchestrator.report.seed_spreads import Spreads, settings_key
from orchestrator.stats.comparison import Comparison, adjust, compare_learnable, compare_policies
from orchestrator.stats.fairness import TOLERANCE, Axis, Point, check_comparable, truncate_at

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

    def __str__(self) -> str:
        policies = ", ".join(
            f"{policy} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
            for policy, seeds in self.policies.items()
        )
        compare_at = "; set compare_at: tokens to compare at equal tokens"
        return (
            f"not comparable on {self.axis.replace('_', ' ')}: {policies}; they differ by up to "
            f"{100 * self.difference:.0f} %{compare_at * (self.axis == 'generated_tokens')}"
        )


@dataclass(frozen=True)
class Family:
    """The finished cells of one model on one dataset, selected by one probe, and their comparisons.

    All other axes are equal, too; swept: the settings among them, dotted name -> value.
    points: index of a row -> where its accuracy is read; accuracy, learnable: every pair of
    policies, in points; mismatches: axes on which their budgets differ; matches: when each policy
    is as good as training on the whole pool.
    """

    model: str
    dataset: str
    probe_seed: int
    rows: tuple[Row, ...]
    compare_at: Axis
    points: Mapping[int, Point]
    accuracy: Sequence[Comparison]
    learnable: Sequence[Comparison]
    mismatches: Sequence[BudgetMismatch]
    matches: Sequence[StepsToMatch]
    swept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Model and dataset, and what `variant` adds."""
        return ", ".join(filter(None, [f"{self.model} on {self.dataset}", self.variant]))

    @property
    def variant(self) -> str:
        """The probe's seed where it is not 0, and the settings that are axes."""
        probe = f"probe {self.probe_seed}" if self.probe_seed else ""
        return ", ".join(filter(None, [probe, axes_text(self.swept)]))

    def by_policy(self) -> dict[str, list[Row]]:
        """Policy -> its rows by seed, policies in the order of the grid."""
        return _by_policy(self.rows)


def _by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.cell.policy, []).append(row)
    return {p: sorted(group, key=lambda row: row.cell.seed) for p, group in groups.items()}


def families(
    rows: Sequence[Row],
    compare_at: Axis = "updates",
    spreads: Mapping[str, Spreads] = MappingProxyType({}),
) -> list[Family]:
    """Rows by every axis but policy and seed, compared; in the order in which they first appear.

    Every pair of policies of each family is one test of accuracy; Holm's correction covers all of
    them. Learnable %, claims, tiers and other test sets have intervals but no verdict by p. A
    policy with a cell that was stopped early is not compared: its other seeds would favour it.
    `spreads` (by `settings_key`): how much results vary between seeds, for pairs with one seed.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not row.policy_stopped:
            groups.setdefault(axes_without(row.cell, "policy", "seed"), []).append(row)
    uncorrected = [
        _family(group, compare_at, spreads.get(settings_key(group[0].cell), Spreads()))
        for group in groups.values()
    ]
    corrected = iter(adjust([c for family in uncorrected for c in family.accuracy]))
    return [replace(f, accuracy=[next(corrected) for _ in f.accuracy]) for f in uncorrected]


def _family(rows: Sequence[Row], compare_at: Axis, spreads: Spreads) -> Family:
    cell = rows[0].cell
    points = reading_points(rows, compare_at)
    unread = unread_policies(rows, points)
    scores: dict[str, dict[int, tuple[list[str], np.ndarray]]] = {}
    learnable: dict[str, dict[int, float]] = {}
    live_shares: dict[str, dict[int, dict[int, float]]] = {}
    for number, row in enumerate(rows):
        policy, seed = row.cell.policy, row.cell.seed
        by_question = row.scores(points[number].update)
        run = (list(by_question), np.array(list(by_question.values())))
        if policy not in unread:
            scores.setdefault(policy, {})[seed] = run
        learnable.setdefault(policy, {})[seed] = row.result["learnable_pct"]
        shares = {update: groups.live for update, groups in row.shares.items()}
        live_shares.setdefault(policy, {})[seed] = shares
    return Family(
        model=cell.probe.model.name,
        dataset=cell.probe.dataset.name,
        probe_seed=cell.probe.settings.seed,
        swept=cell.swept,
        rows=tuple(rows),
        compare_at=compare_at,
        points=points,
        accuracy=compare_policies(scores, spreads.accuracy),
        learnable=compare_learnable(learnable, live_shares, spreads.learnable),
        mismatches=budget_mismatches(rows, compare_at),
        matches=steps_to_match_whole_pool(_by_policy(rows)),
    )


def reading_points(rows: Sequence[Row], compare_at: Axis) -> dict[int, Point]:
    """Where each row is read: its end, or its last evaluation within the common budget."""
    if compare_at == "updates":
        return {
            n: Point(row.cell.updates, row.curve[row.cell.updates], float(row.cell.updates))
            for n, row in enumerate(rows)
        }
    curves = {str(n): row.curve for n, row in enumerate(rows)}
    costs = {str(n): row.costs[compare_at] for n, row in enumerate(rows)}
    return {int(n): point for n, point in truncate_at(curves, costs).items()}


def unread_policies(rows: Sequence[Row], points: Mapping[int, Point]) -> list[str]:
    """Policies of which a cell's first evaluation exceeds the common budget.

    There it is the base model, and is not compared.
    """
    return sorted({row.cell.policy for n, row in enumerate(rows) if not points[n].update})


def budget_mismatches(rows: Sequence[Row], compare_at: Axis) -> list[BudgetMismatch]:
    """Axes on which cells of the same seed have different budgets, each axis once."""
    tolerance = {a: t for a, t in TOLERANCE.items() if compare_at == "updates" or a in ALWAYS_EQUAL}
    seeds: dict[str, dict[str, list[int]]] = {}
    difference: dict[str, float] = {}
    for seed in sorted({row.cell.seed for row in rows}):
        own = [row for row in rows if row.cell.seed == seed]
        ledgers = {row.cell.policy: row.result["ledger"] for row in own}
        # An online policy sees other prompts by design.
        static = {row.cell.policy: row.result["ledger"] for row in own if row.cell.online is None}
        subsets = {axis: t for axis, t in tolerance.items() if axis == "prompts"}
        costs = {axis: t for axis, t in tolerance.items() if axis != "prompts"}
        for flag in (*check_comparable(ledgers, costs), *check_comparable(static, subsets)):
            difference[flag.axis] = max(flag.difference, difference.get(flag.axis, 0.0))
            for policy in flag.cells:
                seeds.setdefault(flag.axis, {}).setdefault(policy, []).append(seed)
    return [
        BudgetMismatch(axis, {p: tuple(s) for p, s in by_policy.items()}, difference[axis])
        for axis, by_policy in seeds.items()
    ]
