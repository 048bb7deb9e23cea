"""What a sweep may conclude, from its rows: comparisons, claims and caveats. Pure given rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.config.claims import Claim, parse_claim
from orchestrator.config.experiment import Experiment
from orchestrator.planning.plan import Plan
from orchestrator.report import probe_spread
from orchestrator.report.families import Family, families, unequal
from orchestrator.report.matching import whole
from orchestrator.report.rows import Row
from orchestrator.report.text import as_text
from orchestrator.stats.claims import judge_claim
from orchestrator.stats.comparison import Comparison, sentence
from orchestrator.storage.store import Store


class ClaimLine(NamedTuple):
    """A claim of the experiment file, held against one family; `where` may be empty."""

    text: str
    where: str
    verdict: str
    why: str
    when: str = ""


# claim -> {"at": when a sweep first saw it, "results": cells that had results by then}
Made = Mapping[str, Mapping[str, Any]]


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
    ordered = sorted(family.accuracy, key=lambda c: (c.verdict == "inconclusive", c.spans_zero))
    return [(c, sentence(c, family.dataset) + _aside(c, family)) for c in ordered]


def _aside(comparison: Comparison, family: Family) -> str:
    """On what this very pair did not spend alike: others may be odd without touching it."""
    two = [r for r in family.rows if r.cell.policy in (comparison.a, comparison.b)]
    odd = [u.axis.replace("_", " ") for u in unequal(two, family.compare_at)]
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
    if len(family.by_policy()) > 1 and whole(family.by_policy()) and not family.matches:
        told.append("steps to match need evaluations while training: set evaluate.every")
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
    claim = parse_claim(text)  # its names were checked with the experiment file
    meant = [f for f in found if f.dataset == claim.dataset and claim.model in (None, f.model)]
    judged = [(f.title, judge_claim(claim, _pair(claim, f))) for f in meant]
    judged = judged or [("", judge_claim(claim, None))]
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
    lines += _probe_lines(found)
    claims = claim_lines(plan.experiment, found, made)
    if claims:
        lines += ["", "claims"]
        lines += [f"  {c.text}: {c.verdict}{_on(c)} ({c.why}; {c.when})" for c in claims]
    return "\n".join(lines).strip("\n")


def _probe_lines(found: Sequence[Family]) -> list[str]:
    """What another probe would change, where probe_seed was swept."""
    table = probe_spread.table(found)
    told = as_text(table.head, table.body).split("\n") if table.body else []
    told += probe_spread.missing(found)
    return ["", "probes beside training seeds", *(f"  {line}" for line in told)] if told else []


def _on(claim: ClaimLine) -> str:
    return f", {claim.where}" if claim.where else ""


def _family_lines(family: Family) -> list[str]:
    said = [text for _, text in sentences(family)] or [alone(family)]
    said += map(str, family.matches)
    notes = [f"  note: {text}" for text in caveats(family)]
    return ["", f"{family.title} ({read_at(family)})", *(f"  {text}" for text in said), *notes]


def alone(family: Family) -> str:
    """What is said where there is nothing to compare with."""
    return f"only {family.rows[0].cell.policy} is finished: no other policy to compare it with"
