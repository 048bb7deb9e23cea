"""What a sweep may conclude, from its rows: comparisons, claims and caveats. Pure given rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from orchestrator.blocks import Experiment
from orchestrator.plan import Plan
from orchestrator.report.claims import Claim, judge, parse
from orchestrator.report.comparison import Comparison, compare_numbers, compare_policies, sentence
from orchestrator.report.fairness import TOLERANCE, Axis, Point, check_comparable, truncate_at
from orchestrator.report.rows import Row
from orchestrator.store import Store

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
    policies, in points; uneven: axes on which they did not spend alike.
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

    @property
    def title(self) -> str:
        """For people; the probe's seed where it is not 0."""
        title = f"{self.model} on {self.dataset}"
        return f"{title}, probe {self.probe_seed}" if self.probe_seed else title

    def by_policy(self) -> dict[str, list[Row]]:
        """Policy -> its rows by seed, policies in the order of the grid."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.cell.policy, []).append(row)
        return {p: sorted(rows, key=lambda row: row.cell.seed) for p, rows in found.items()}


class ClaimLine(NamedTuple):
    """A claim of the experiment file, held against one family; `where` may be empty."""

    text: str
    where: str
    verdict: str
    why: str
    when: str = ""


# claim -> {"at": when a sweep first saw it, "results": cells that had results by then}
Made = Mapping[str, Mapping[str, Any]]


def families(rows: Sequence[Row], compare_at: Axis = "updates") -> list[Family]:
    """Rows by model, dataset and probe, compared; in the order in which they first appear."""
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        probe = row.cell.probe
        found.setdefault((probe.model.name, probe.dataset.name, probe.settings.seed), []).append(
            row
        )
    return [_family(key, group, compare_at) for key, group in found.items()]


def _family(key: tuple[str, str, int], rows: Sequence[Row], compare_at: Axis) -> Family:
    points = _points(rows, compare_at)
    scores: dict[str, dict[int, tuple[list[str], np.ndarray]]] = {}
    learnable: dict[str, dict[int, float]] = {}
    for number, row in enumerate(rows):
        found = row.scores(points[number].update)
        run = (list(found), np.array(list(found.values())))
        scores.setdefault(row.cell.policy, {})[row.cell.seed] = run
        by_seed = learnable.setdefault(row.cell.policy, {})
        by_seed[row.cell.seed] = row.result["learnable_pct"]
    return Family(
        *(*key, tuple(rows), compare_at, points),
        accuracy=compare_policies(scores),
        learnable=compare_numbers(learnable),
        uneven=_uneven(rows, compare_at),
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


def _uneven(rows: Sequence[Row], compare_at: Axis) -> list[Uneven]:
    """Flags of each seed's cells, told once per axis."""
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


def read_at(family: Family) -> str:
    """Where accuracies were read, in words."""
    last = sorted({point.update for point in family.points.values()})
    if family.compare_at == "updates":
        return f"final accuracy, after {' or '.join(map(str, last))} updates"
    within = max(point.cost for point in family.points.values())
    span = f"{last[0]} to {last[-1]}" if len(last) > 1 else str(last[0])
    return (
        f"accuracy at equal {family.compare_at}: each cell's last evaluation within what all had "
        f"spent ({within:,.0f} at most), after {span} updates"
    )


def sentences(family: Family) -> list[tuple[Comparison, str]]:
    """Every pair in a sentence, the decided ones first; a pair that is not comparable says so."""
    ordered = sorted(family.accuracy, key=lambda c: c.verdict == "cannot tell")
    return [(c, sentence(c, family.dataset) + _aside(c, family)) for c in ordered]


def _aside(comparison: Comparison, family: Family) -> str:
    """On what this very pair did not spend alike: others may be odd without touching it."""
    two = [r for r in family.rows if r.cell.policy in (comparison.a, comparison.b)]
    odd = [u.axis.replace("_", " ") for u in _uneven(two, family.compare_at)]
    return f"; not at equal {' and '.join(odd)}" if odd else ""


def caveats(family: Family) -> list[str]:
    """What a reader must know before believing the sentences."""
    told = [str(uneven) for uneven in family.uneven]
    if any(uneven.axis == "generated_tokens" for uneven in family.uneven):
        told.append("write compare_at: tokens to read every cell where it had spent the same")
    seeds = {policy: len(rows) for policy, rows in family.by_policy().items()}
    if min(seeds.values()) == 1:
        told.append("one seed: the intervals are of new questions only, not of new training runs")
    if len(set(seeds.values())) > 1:
        counts = ", ".join(f"{policy} {count}" for policy, count in seeds.items())
        told.append(f"policies do not have equally many finished seeds: {counts}")
    if any(c.left_out for c in family.accuracy):
        most = max(c.left_out for c in family.accuracy)
        told.append(f"up to {most} questions were left out, not scored in every run")
    if any(not c.same_seeds for c in family.accuracy):
        told.append("some runs are paired in the order of their seeds: too few are shared")
    return told


def claims_made(store: Store, experiment: str) -> Made:
    """When a run of the experiment first saw each claim."""
    declared = store.read_json("sweeps", f"{experiment}.json") or {}
    return dict(declared.get("claims", {}))


def claim_lines(
    experiment: Experiment, found: Sequence[Family], made: Made | None = None
) -> list[ClaimLine]:
    """Each claim as it was written, when, and held against each family that it names."""
    whens = {text: _when((made or {}).get(text)) for text in experiment.claims}
    return [
        line._replace(when=whens[text])
        for text in experiment.claims
        for line in _claim(text, found)
    ]


def _when(made: Mapping[str, Any] | None) -> str:
    if made is None:
        return "not seen by any run"
    before = f"after {made['results']} results" if made["results"] else "before any result"
    return f"made {made['at']}, {before}"


def _claim(text: str, found: Sequence[Family]) -> list[ClaimLine]:
    claim = parse(text)  # its names were checked with the experiment file
    meant = [f for f in found if f.dataset == claim.dataset and claim.model in (None, f.model)]
    judged = [(f.title, judge(claim, _pair(claim, f))) for f in meant]
    judged = judged or [("", judge(claim, None))]
    return [ClaimLine(text, where, j.verdict, j.why) for where, j in judged]


def _pair(claim: Claim, family: Family) -> Comparison | None:
    pairs = family.learnable if claim.metric == "learnable" else family.accuracy
    return next((c for c in pairs if {c.a, c.b} == {claim.a, claim.b}), None)


def text_verdicts(plan: Plan, rows: Sequence[Row], made: Made | None = None) -> str:
    """The verdicts in plain text, to stand under the terminal table; empty without rows."""
    if not rows:
        return ""
    found = families(rows, plan.experiment.compare_at)
    lines = [line for family in found for line in _family_lines(family)]
    claims = claim_lines(plan.experiment, found, made)
    if claims:
        lines += ["", "claims"]
        lines += [f"  {c.text}: {c.verdict}{_on(c)} ({c.why}; {c.when})" for c in claims]
    return "\n".join(lines).strip("\n")


def _on(claim: ClaimLine) -> str:
    return f", {claim.where}" if claim.where else ""


def _family_lines(family: Family) -> list[str]:
    said = [text for _, text in sentences(family)] or [alone(family)]
    notes = [f"  note: {text}" for text in caveats(family)]
    return ["", f"{family.title} ({read_at(family)})", *(f"  {text}" for text in said), *notes]


def alone(family: Family) -> str:
    """What is said where there is nothing to compare with."""
    return f"only {family.rows[0].cell.policy} is finished: no other policy to compare it with"
