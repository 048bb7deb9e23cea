"""The conclusions of each family in words: which policy is better, and what limits that."""

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from orchestrator.plugins.counts import counted, noun_for
from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.claim_verdicts import Conclusion
from orchestrator.report.compare import (
    BudgetMismatch,
    Control,
    Family,
    StepsToMatch,
    budget_mismatches,
    unequal_labels,
    unread_policies,
    whole_pool_policy,
)
from orchestrator.report.sections.tables import span_text
from orchestrator.report.sentences import (
    counted_runs,
    effect_text,
    in_points,
    pairing_caveats,
    sentence,
)
from orchestrator.report.verdict_blocks import FamilyVerdict, PairVerdict

SEVERAL = 3  # families whose pairs still fit one line
CONCLUSIONS = get_args(Conclusion)


def match_text(match: StepsToMatch) -> str:
    """When a policy is as good as training on the whole pool."""
    target = f"{match.reference}'s final accuracy ({100 * match.accuracy:.1f} %)"
    if match.steps.update is None:
        text = f"{match.policy} does not reach {target} within its updates"
        share = f"{100 * match.steps.reached:.0f} %"
        return f"{text} (it does in {share} of resamples)" if match.steps.reached else text
    share = f"{100 * match.steps.update / match.updates:.0f} % of {match.reference}'s"
    if match.rollouts is not None:
        share += f", with {100 * match.rollouts:.0f} % of its rollouts"
    return f"{match.policy} reaches {target} after update {span_text(match)}, {share}"


def mismatch_text(mismatch: BudgetMismatch) -> str:
    """Which policies are not comparable, and what would make them so."""
    policies = ", ".join(
        f"{policy} ({noun_for(len(seeds), 'seed')} {', '.join(map(str, seeds))})"
        for policy, seeds in mismatch.policies.items()
    )
    text = (
        f"not comparable on {mismatch.axis.replace('_', ' ')}: {policies}; they differ by up to "
        f"{100 * mismatch.difference:.0f} %"
    )
    if mismatch.axis == "generated_tokens":
        text += "; set compare_at: tokens to compare at equal tokens"
    return text


def family_verdict(family: Family) -> FamilyVerdict:
    """The conclusions of a family."""
    pairs = []
    for c in sorted(family.accuracy, key=lambda c: (c.verdict == "inconclusive", c.spans_zero)):
        two = [row for row in family.rows if row.cell.policy in (c.a, c.b)]
        axes = [m.axis.replace("_", " ") for m in budget_mismatches(two, family.compare_at)]
        mismatch = f"; not at equal {' and '.join(axes)}" if axes else ""
        pairs.append(PairVerdict(c, sentence(c, family.dataset) + mismatch))
    by_policy = family.by_policy()
    single = "fewer than two policies have an evaluation within the common budget"
    if len(by_policy) == 1:
        single = f"only {family.rows[0].cell.policy} is finished: no policy to compare it with"
        if family.setting_axes:
            axis = next(iter(family.setting_axes))
            single += f"; claims compare the values of {axis}, such as {axis}=A > {axis}=B"
    elif len(by_policy) == len(family.copies) + 1:
        single = "all policies chose the same prompts"
    elif len(family.sets) > 1:
        single = "no two policies have an evaluation at equal labels"
    below_base = []
    for policy, below in family.collapsed.items():
        rows, worst = by_policy[policy], min(below, key=lambda row: row.gain.mean)
        below_base.append(
            f"{policy} ended below the base model in {len(below)} of {counted(len(rows), 'seed')}: "
            f"{effect_text(worst.gain)} points with seed {worst.cell.seed}"
            + (", the worst" if len(below) > 1 else "")
        )
    return FamilyVerdict(
        family.title,
        _read_at(family),
        tuple(pairs),
        single=single,
        below_base=tuple(below_base),
        matches=tuple(map(match_text, family.matches)),
        caveats=tuple(_caveats(family)),
    )


def headline(analysis: SweepAnalysis) -> str:
    """The verdict in one line: which policies beat which, what is undecided, and the claims.

    Empty while no cell has a result.
    """
    if not analysis.rows:
        return ""
    families, claims = analysis.families, analysis.claims
    pairs = [(family, c.leader_first) for family in families for c in family.accuracy]
    decided = [(family, c) for family, c in pairs if c.verdict != "inconclusive"]
    parts = []
    if len(families) > SEVERAL and decided:
        wins = Counter(c.a for _, c in decided)
        parts += [f"{name} wins {count}" for name, count in wins.most_common()]
    else:
        beaten: dict[str, list[str]] = {}
        for family, c in sorted(decided, key=lambda each: -each[1].effect):
            where = f" ({family.title})" if len(families) > 1 else ""
            beaten.setdefault(c.a, []).append(f"{c.b} by {in_points(c.effect, plus=False)}{where}")
        parts += [f"{name} beats {', '.join(others)} points" for name, others in beaten.items()]
    open_pairs = len(pairs) - len(decided)
    if not pairs:
        parts.append("no two policies can be compared yet")
    elif not decided:
        parts.append(f"inconclusive: no policy beats another ({counted(len(pairs), 'comparison')})")
    elif open_pairs:
        is_open = "is" if open_pairs == 1 else "are"
        total = counted(len(pairs), "comparison")
        parts.append(f"{open_pairs:,} of {total} {is_open} inconclusive")
    if below := sum(len(rows) for family in families for rows in family.collapsed.values()):
        parts.append(f"{counted(below, 'cell')} ended below the base model")
    if claims:
        verdicts = Counter(claim.verdict for claim in claims)
        counts = ", ".join(f"{verdicts[each]} {each}" for each in CONCLUSIONS if verdicts[each])
        parts.append(f"claims: {counts}")
    if unfinished := len(analysis.plan.cells) - len(analysis.rows):
        parts.append(f"{counted(unfinished, 'cell')} of the sweep not finished")
    return "; ".join(parts)


def control_lines(controls: Sequence[Control]) -> list[str]:
    """What the score is worth beyond each control, and whether policies differ by more."""
    lines = []
    for control in controls:
        name = f"{control.arms.policy} on {control.arms.data}"
        if (c := control.arms.comparisons.get(control.reward)) is None:
            lines.append(
                f"{name}: score and the reward {control.reward} are "
                "not compared, because a first evaluation exceeds the common budget; set a smaller "
                "evaluate.every"
            )
            continue
        sample = f"{counted_runs(c.runs)} × {counted(c.items, c.item)}"
        text = (
            f"{name}: the score gains {in_points(c.effect)} points "
            f"more than the reward {control.reward} [{in_points(c.low)}, {in_points(c.high)}] "
            f"({sample}), which gains {in_points(control.gain)}"
        )
        if control.policies is not None:
            more = "more" if control.policies > abs(c.effect) else "no more"
            most = in_points(control.policies, plus=False)
            text += f"; policies differ by {more} than that (at most {most})"
        lines.append(text)
    return lines


def _read_at(family: Family) -> str:
    points = [point for point in family.points.values() if point.update]
    updates = sorted({round(point.position) for point in points} or {0})
    if family.compare_at == "updates":
        return f"final accuracy, after update {' or '.join(map(str, updates))}"
    budgets = [max(family.points[row.cell.cell_id].cost for row in own) for own in family.sets]
    budget = " or ".join(f"{each:,.0f}" for each in budgets)
    span = f"{updates[0]} to {updates[-1]}" if len(updates) > 1 else str(updates[0])
    kinds = {
        "discarded": any(row.cell.online for row in family.rows),
        "refreshed": any(row.cell.refresh for row in family.rows),
    }
    included = " and ".join(kind for kind, occurs in kinds.items() if occurs)
    drawn = f", {included} ones included" if included and family.compare_at == "rollouts" else ""
    return (
        f"accuracy at equal {family.compare_at}{drawn}: each cell at the common budget ({budget}), "
        f"interpolated between its evaluations, after update {span}"
    )


def _caveats(family: Family) -> list[str]:
    caveats = [mismatch_text(mismatch) for mismatch in family.mismatches]
    if len(family.sets) > 1:
        caveats.append(unequal_labels(family.sets, family.points))
    if unread := unread_policies(family.rows, family.points):
        caveats.append(
            "not compared, because a first evaluation exceeds the common budget: "
            f"{', '.join(unread)}; set a smaller evaluate.every"
        )
    by_policy = family.by_policy()
    caveats += pairing_caveats({p: len(rows) for p, rows in by_policy.items()}, family.accuracy)
    copies, policies = family.copies, {row.cell.cell_id: row.cell.policy for row in family.rows}
    seeds: dict[tuple[str, str], list[str]] = {}  # those with one cell trained for two policies
    for row in family.rows:
        if (other := policies.get(row.result.same_as or "")) is not None:
            seeds.setdefault((other, row.cell.policy), []).append(str(row.cell.seed))
    for (other, policy), own in seeds.items():
        caveats.append(
            f"{other} and {policy} chose the same prompts with {noun_for(len(own), 'seed')} "
            f"{', '.join(own)}: trained once" + (" and compared once" if policy in copies else "")
        )
    if len(by_policy) > 1 and whole_pool_policy(by_policy) and not family.matches:
        caveats.append("steps to match need evaluations during training: set evaluate.every")
    return caveats
