"""The finished cells of one model on one dataset, compared: what every verdict rests on.

Pure given rows. Holm's correction covers all pairs of all families: one report is one family of
tests, however many tables it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from orchestrator.report.matching import Match, matches
from orchestrator.report.rows import Row
from orchestrator.stats.comparison import Comparison, adjust, compare_learnable, compare_policies
from orchestrator.stats.fairness import TOLERANCE, Axis, Point, check_comparable, truncate_at

# Where a comparison is not read at equal updates, these differ between cells by intention.
READ_ALIKE = {"prompts"}


class Uneven(NamedTuple):
    """On this axis of the ledger some policies' cells are not comparable with the others.

    `policies` maps each to its seeds; `difference` is the largest between cells of one seed, as a
    share of the larger value.
    """

    axis: str
    policies: Mapping[str, tuple[int, ...]]
    difference: float

    def __str__(self) -> str:
        named = ", ".join(f"{policy} ({_seeds(s)})" for policy, s in self.policies.items())
        return (
            f"not comparable on {self.axis.replace('_', ' ')}: {named}; up to "
            f"{100 * self.difference:.0f} % apart"
        )


@dataclass(frozen=True)
class Family:
    """The finished cells of one model on one dataset, chosen by one probe, and what they say.

    points: row's number -> where its accuracy is read; accuracy, learnable: every pair of
    policies, in points; uneven: axes on which they did not spend alike; matches: when each policy
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
    uneven: Sequence[Uneven]
    matches: Sequence[Match]

    @property
    def title(self) -> str:
        """For people; the probe's seed where it is not 0."""
        title = f"{self.model} on {self.dataset}"
        return f"{title}, probe {self.probe_seed}" if self.probe_seed else title

    def by_policy(self) -> dict[str, list[Row]]:
        """Policy -> its rows by seed, policies in the order of the grid."""
        return _by_policy(self.rows)


def _by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.cell.policy, []).append(row)
    return {p: sorted(group, key=lambda row: row.cell.seed) for p, group in found.items()}


def families(rows: Sequence[Row], compare_at: Axis = "updates") -> list[Family]:
    """Rows by model, dataset and probe, compared; in the order in which they first appear.

    Every pair of policies of each of them is one test of accuracy, and Holm's family is all of
    these. Learnable %, claims, tiers and other test sets have intervals, and no verdict by p. A
    policy of which a cell was stopped early is compared nowhere: its other seeds would flatter it.
    """
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if row.stopped:
            continue
        probe = row.cell.probe
        found.setdefault((probe.model.name, probe.dataset.name, probe.settings.seed), []).append(
            row
        )
    each = [_family(key, group, compare_at) for key, group in found.items()]
    together = iter(adjust([c for family in each for c in family.accuracy]))
    return [replace(f, accuracy=[next(together) for _ in f.accuracy]) for f in each]


def _family(key: tuple[str, str, int], rows: Sequence[Row], compare_at: Axis) -> Family:
    points = _points(rows, compare_at)
    scores: dict[str, dict[int, tuple[list[str], np.ndarray]]] = {}
    learnable: dict[str, dict[int, float]] = {}
    live_shares: dict[str, dict[int, dict[int, float]]] = {}
    for number, row in enumerate(rows):
        found = row.scores(points[number].update)
        run = (list(found), np.array(list(found.values())))
        scores.setdefault(row.cell.policy, {})[row.cell.seed] = run
        by_seed = learnable.setdefault(row.cell.policy, {})
        by_seed[row.cell.seed] = row.result["learnable_pct"]
        shares = {update: groups.live for update, groups in row.shares.items()}
        live_shares.setdefault(row.cell.policy, {})[row.cell.seed] = shares
    return Family(
        *(*key, tuple(rows), compare_at, points),
        accuracy=compare_policies(scores),
        learnable=compare_learnable(learnable, live_shares),
        uneven=unequal(rows, compare_at),
        matches=matches(_by_policy(rows)),
    )


def _points(rows: Sequence[Row], compare_at: Axis) -> dict[int, Point]:
    """Where each row is read: its end, or its last evaluation within what all had spent."""
    if compare_at == "updates":
        return {
            n: Point(row.cell.updates, row.curve[row.cell.updates], float(row.cell.updates))
            for n, row in enumerate(rows)
        }
    names = {str(number): row for number, row in enumerate(rows)}
    curves = {name: row.curve for name, row in names.items()}
    costs = {name: row.costs[compare_at] for name, row in names.items()}
    return {int(name): point for name, point in truncate_at(curves, costs).items()}


def unequal(rows: Sequence[Row], compare_at: Axis) -> list[Uneven]:
    """Axes on which the cells of a seed did not spend alike, told once per axis."""
    tolerance = {a: t for a, t in TOLERANCE.items() if compare_at == "updates" or a in READ_ALIKE}
    seeds: dict[str, dict[str, list[int]]] = {}
    apart: dict[str, float] = {}
    for seed in sorted({row.cell.seed for row in rows}):
        ledgers = {r.cell.policy: r.result["ledger"] for r in rows if r.cell.seed == seed}
        for flag in check_comparable(ledgers, tolerance):
            apart[flag.axis] = max(flag.difference, apart.get(flag.axis, 0.0))
            for policy in flag.cells:
                seeds.setdefault(flag.axis, {}).setdefault(policy, []).append(seed)
    return [
        Uneven(axis, {policy: tuple(s) for policy, s in named.items()}, apart[axis])
        for axis, named in seeds.items()
    ]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
