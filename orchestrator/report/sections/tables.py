"""The tables of a sweep as text in cells for every view.

Those of both papers and where the gain comes from; every cell, what it consumed, and its live and
dead groups.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite, nan
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.config.experiment import GRID_AXES, value_text
from orchestrator.evaluation.groups import GroupShares
from orchestrator.evaluation.metrics import BANDS, pass_at_k
from orchestrator.evaluation.turns import total
from orchestrator.plugins.counts import counted
from orchestrator.report.churn import churn_by_part
from orchestrator.report.claim_verdicts import ClaimResult
from orchestrator.report.compare import Family, StepsToMatch, rows_by_policy
from orchestrator.report.content import NONE, Table
from orchestrator.report.fairness import gain_rates
from orchestrator.report.rows import OWN, QuestionCounts, Row, training_tiers
from orchestrator.report.sample_blocks import Claims
from orchestrator.report.sentences import effect_text, in_points, rate_text, rising, ties_text
from orchestrator.stats.inference import Effect, available, group_codes, mean_effect
from orchestrator.training.record import pulls_to_base

PREFERRED_K = 8  # as in paper A, table 4
# samples, correct samples -> a question's value in [0, 1], nan where the samples are too few
Value = Callable[[int, int], float]


class Change(NamedTuple):
    """Means over a policy's seeds of base and final model, as shares, and of their difference."""

    base: float
    final: float
    effect: Effect
    questions: int


def change(rows: Sequence[Row], test_set: str, value: Value) -> Change | None:
    """How a policy's cells changed on a test set; None without a question scored in both."""
    sides = [(row.counts.get(test_set, {}), row.cell.updates) for row in rows]
    if not all(0 in counts and last in counts for counts, last in sides):
        return None
    pairs = [(counts[0], counts[last]) for counts, last in sides]
    return paired_change(pairs, value, rows[0].groups.get(test_set, {}))


def paired_change(
    sides: Sequence[tuple[QuestionCounts, QuestionCounts]],
    value: Value,
    groups: Mapping[str, str],
    only: Collection[str] | None = None,
) -> Change | None:
    """Base and final counts of each seed -> the change over the questions scored in both.

    The interval is that of the main comparison: paired by question or group of questions, nested in
    seeds, and a question counts if it is scored in some seed.
    """

    def values_of(counts: QuestionCounts) -> dict[str, float]:
        return {i: value(*each) for i, each in counts.items() if only is None or i in only}

    values = [(values_of(base), values_of(final)) for base, final in sides]
    return change_between(values, groups)


def change_between(
    values: Sequence[tuple[Mapping[str, float], Mapping[str, float]]], groups: Mapping[str, str]
) -> Change | None:
    """The same for the base and final value of each question."""
    changes = available(
        [{i: final[i] - base[i] for i in final.keys() & base.keys()} for base, final in values]
    )
    if not changes.items:
        return None
    base = float(available([base for base, _ in values]).of(changes.items).mean())
    effect = mean_effect(changes.values, group_codes(changes.items, groups))
    return Change(base, base + effect.mean, effect, len(changes.items))


def correct_share(n: int, c: int) -> float:
    """A question's mean correctness."""
    return c / n if n else nan


def pass_share(k: int) -> Value:
    """A question's pass@k."""
    return lambda n, c: pass_at_k(n, c, k) if n >= k else nan


def policies_of(families: Sequence[Family]) -> list[str]:
    """Every policy once, in the order of the grid."""
    return list(dict.fromkeys(row.cell.policy for family in families for row in family.rows))


def gain_text(rows: Sequence[Row]) -> str:
    """A policy's gain in accuracy with its interval, in points, and that of its worst seed."""
    if (gain := change(rows, OWN, correct_share)) is None:
        return NONE
    text = effect_text(gain.effect)
    if len(rows) > 1:
        worst = min(rows, key=lambda row: row.gain.mean)
        text += f"; worst {in_points(100 * worst.gain.mean)}, seed {worst.cell.seed}"
    return text


def learnable_text(rows: Sequence[Row]) -> str:
    """Learnable %: the mean over seeds, with its interval from two seeds on."""
    values = np.array([row.result.learnable_pct for row in rows])
    if len(values) < 2:
        return f"{values[0]:.1f}"
    mean = mean_effect(values[None, :])
    return f"{mean.mean:.1f} [{max(0.0, mean.low):.1f}, {min(100.0, mean.high):.1f}]"


def gains(families: Sequence[Family]) -> Table:
    """Paper A, tables 1 and 3: the gain in accuracy of each policy."""
    caption = (
        "Final minus base accuracy on the same test questions, in points: mean over seeds with a "
        "95 % interval, and the worst seed. With two seeds or more the interval covers new seeds "
        "and new questions. Where no answer changed, it covers the questions that might."
    )
    rows = (((f.title,), _texts(f, gain_text)) for f in families)
    return _by_policy("Gain in accuracy", ("model and data",), families, rows, caption)


def gain_per_cost(families: Sequence[Family]) -> Table:
    """What each policy gained per cost of its training."""
    lines = []
    for family in families:
        rates = {policy: _rates(rows) for policy, rows in family.by_policy().items()}
        for unit in dict.fromkeys(u for row in family.rows for u in row.result.ledger.units):
            entries = {policy: rate_text(each.get(unit)) for policy, each in rates.items()}
            lines.append(((family.title, unit), entries))
    return _by_policy(
        "Gain per cost",
        ("model and data", "per"),
        families,
        lines,
        "Points of accuracy gained on the test set, divided by what training used: mean gain over "
        "seeds by mean cost, with its 95 % interval for new questions and, with several seeds, new "
        "seeds. A dash: the interval is wider than the value. Probes and evaluations are not "
        "counted. Longer training usually gains less per cost: compare cells of equal budgets.",
    )


def _rates(rows: Sequence[Row]) -> dict[str, Effect]:
    changes = []
    for row in rows:
        before, after = row.scores(0), row.scores(row.cell.updates)
        changes.append({i: after[i] - before[i] for i in before.keys() & after.keys()})
    used = [row.result.ledger.units for row in rows]
    return gain_rates(changes, used, rows[0].groups.get(OWN, {}))


CHURN = ("questions", "gained", "lost", "net", "by chance", "p")
CHURNED = (
    "Of the test set, from the base model to the end of training, mean over seeds. With several "
    "samples a question counts by how often a sample of the base model is wrong and another one "
    "of the final model correct (gained), or the reverse (lost). Samples with the same number are "
    "not compared, because they are drawn with the same random numbers. By chance: how many would "
    "be gained, and how many lost, if training changed nothing. p: of McNemar's exact test with "
    "one seed, one sample and no related questions, otherwise of the gain; not corrected for the "
    "number of rows."
)


def churns(families: Sequence[Family]) -> list[Table]:
    """Questions that each policy gained and lost: of all, and of each tier and source."""
    every, parts = [], []
    for family in families:
        for policy, rows in family.by_policy().items():
            for kind, name, own in churn_by_part(rows):
                chance = NONE if own.by_chance is None else in_points(own.by_chance, plus=False)
                entries = (
                    f"{own.questions:,}",
                    *(in_points(x, plus=False) for x in (own.gained, own.lost)),
                    *(in_points(own.net), chance, f"{own.p:.3g}"),
                )
                if kind:
                    parts.append((family.title, policy, f"{kind} {name}", *entries))
                else:
                    every.append((family.title, policy, *entries))
    head, title = ("model and data", "policy"), "Questions gained and lost"
    by_part = (*head, "of", *CHURN)
    return [
        Table(title, (*head, *CHURN), every, CHURNED),
        Table(f"{title}, by tier and source", by_part, parts, CHURNED, folded=True),
    ]


def at_equal_cost(families: Sequence[Family]) -> Table:
    """Each policy where the comparison reads it, if that is not after its last update."""
    read = [family for family in families if family.compare_at != "updates"]
    lines = []
    for family, own in [(each, rows) for each in read for rows in each.sets]:
        entries = {}
        for policy, rows in rows_by_policy(own).items():
            points = [family.points[row.cell.cell_id] for row in rows]
            updates = [round(point.position) for point in points]
            runs = [row.run_at(point) for row, point in zip(rows, points, strict=True)]
            after = [dict(zip(run.items, map(float, run.scores), strict=True)) for run in runs]
            sides = [(row.scores(0), final) for row, final in zip(rows, after, strict=True)]
            span = "–".join(map(str, dict.fromkeys((min(updates), max(updates)))))
            if not min(updates):
                entries[policy] = "not compared"
            elif change := change_between(sides, rows[0].groups.get(OWN, {})):
                level = f"{100 * change.final:.1f} after update {span}"
                entries[policy] = f"{level} ({effect_text(change.effect)})"
        title = family.title
        if family.compare_at == "labels":
            most = round(max(family.points[row.cell.cell_id].cost for row in own))
            title += f", {counted(most, 'label')}"
        lines.append(((title,), entries))
    axis = read[0].compare_at if read else ""
    every = "each of these cells" if axis == "labels" else "every cell"
    return _by_policy(
        f"Accuracy at equal {axis}",
        ("model and data",),
        read,
        lines,
        "In %, mean over seeds; in parentheses the difference to the base model in points with its "
        f"95 % interval. Each cell is read at the number of {axis} that {every} reached, between "
        "its evaluations before and after that; a policy is not compared if a first evaluation "
        "exceeds it.",
    )


def learnable(families: Sequence[Family]) -> Table:
    """Paper A, tables 2 and 3: learnable percentage of each policy."""
    caption = (
        "Share of groups whose completions differ in correctness, mean over updates, then over "
        "seeds. The 95 % interval covers new seeds and needs at least two."
    )
    rows = (((f.title,), _texts(f, learnable_text)) for f in families)
    return _by_policy("Learnable %", ("model and data",), families, rows, caption)


def _texts(family: Family, text: Callable[[Sequence[Row]], str]) -> dict[str, str]:
    return {policy: text(rows) for policy, rows in family.by_policy().items()}


def _by_policy(
    title: str,
    head: tuple[str, ...],
    families: Sequence[Family],
    lines: Iterable[tuple[tuple[str, ...], Mapping[str, str]]],
    caption: str,
) -> Table:
    """Lines of first entries, as in `head`, and of an entry for each policy."""
    policies = policies_of(families)
    body = [(*first, *(of.get(policy, NONE) for policy in policies)) for first, of in lines]
    return Table(title, (*head, *policies), body, caption)


def steps(families: Sequence[Family]) -> Table:
    """Paper B: when each policy is as good as training on the whole pool."""
    references = {match.reference for family in families for match in family.matches}
    policies = [name for name in policies_of(families) if name not in references]
    body = []
    for family in families:
        if matches := family.matches:
            spans = {match.policy: span_text(match) for match in matches}
            target = (f"{100 * matches[0].accuracy:.1f} %", str(matches[0].updates))
            body.append((family.title, *target, *(spans.get(name, NONE) for name in policies)))
    whole = " and ".join(sorted(references)) or "the whole pool"
    return Table(
        "Steps to match the full pool",
        ("model and data", f"{whole}: accuracy", "updates", *policies),
        body,
        f"The update after which a policy's mean accuracy first reaches the final accuracy of "
        f"{whole}, interpolated linearly between evaluations, with a 95 % bootstrap interval over "
        "questions and seeds. A noisy curve reaches it early.",
    )


def span_text(match: StepsToMatch) -> str:
    """The update of a match with its interval; an open end where some resamples never match."""
    ends = (match.steps.low, match.steps.high)
    low, high = ("never" if end is None else f"{end:.0f}" for end in ends)
    first = "not reached" if match.steps.update is None else f"{match.steps.update:.0f}"
    return first if ends == (None, None) else f"{first} [{low}, {high}]"


def best_k(rows: Sequence[Row], test_set: str) -> int | None:
    """8 where questions have enough samples, else the largest possible k; None without any."""
    tables = [counts for row in rows for counts in row.counts.get(test_set, {}).values()]
    fewest = min((max((n for n, _ in each.values()), default=0) for each in tables), default=0)
    usable = [k for k in (rows[0].cell.pass_at if rows else ()) if k <= fewest]
    return PREFERRED_K if PREFERRED_K in usable else max(usable, default=None)


def measures(rows: Sequence[Row], test_set: str) -> list[tuple[str, Value]]:
    """Accuracy, and pass@k with the number of questions that errors left with too few samples."""
    k = best_k(rows, test_set)
    accuracy: tuple[str, Value] = ("accuracy", correct_share)
    if k is None:
        return [accuracy]
    tables = [row.counts[test_set][u] for row in rows for u in (0, row.cell.updates)]
    left_out = max(sum(n < k for n, _ in counts.values()) for counts in tables)
    of = counted(len(tables[0]), "question")
    without = f" (up to {left_out:,} of {of} left out)" if left_out else ""
    return [accuracy, (f"pass@{k}{without}", pass_share(k))]


def pass_at(families: Sequence[Family]) -> Table:
    """Paper A, table 4: pass@k and accuracy on every test set, base and each policy."""
    lines = []
    for family in families:
        for test_set in dict.fromkeys(name for row in family.rows for name in row.counts):
            name = test_set or f"{family.dataset} (its own)"
            for measure, value in measures(family.rows, test_set):
                of = {p: change(rows, test_set, value) for p, rows in family.by_policy().items()}
                base = next((f"{100 * c.base:.1f}" for c in of.values() if c), NONE)
                lines.append(((family.title, name, measure, base), _level_texts(of)))
    return _by_policy(
        "Test sets: accuracy and pass@k",
        ("trained on", "test set", "measure", "base"),
        families,
        lines,
        "In %, after training; in parentheses the difference to the base model in points with its "
        "95 % interval over questions and seeds. pass@k is the unbiased estimate from all samples "
        "of a question; left out: questions that errors leave with fewer than k samples.",
    )


def _level_texts(changes: Mapping[str, Change | None]) -> dict[str, str]:
    return {policy: level_text(each) for policy, each in changes.items()}


def level_text(change: Change | None) -> str:
    """The final value in %, and the difference to the base model in points."""
    return f"{100 * change.final:.1f} ({effect_text(change.effect)})" if change else NONE


def turns(families: Sequence[Family]) -> Table:
    """What episodes took before and after training; empty if completions are not episodes."""
    body = []
    for family in families:
        lines = {
            policy: _turns(rows)
            for policy, rows in family.by_policy().items()
            if all(side for row in rows for side in row.turns)
        }
        if lines:
            base, _ = next(iter(lines.values()))
            body.append((family.title, "base model", *base))
            body += [(family.title, policy, *after) for policy, (_, after) in lines.items()]
    return Table(
        "Episodes before and after training",
        (
            *("model and data", "policy", "accuracy %", "turns", "tool calls"),
            *("tool errors %", "truncated %"),
        ),
        body,
        "Of the test set. Turns and tool calls: mean per episode. Tool errors: calls that were "
        "answered by an error. Truncated: episodes that a limit ended before they were correct. "
        "In parentheses the difference to the base model with its 95 % interval, as for "
        "accuracy; the difference of tool errors has none, because they are a share of all "
        "calls, not of each question's.",
    )


def _turns(rows: Sequence[Row]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entries of the base model, and those of a policy; errors are means over seeds."""
    accuracy, truncated = change(rows, OWN, correct_share), _change_of(rows, "truncated")
    shares = [
        (f"{100 * c.base:.1f}", level_text(c)) if c else (NONE, NONE) for c in (accuracy, truncated)
    ]
    means = (_mean_turns(rows, name) for name in ("turns", "tool_calls"))
    totals = [[total(row.turns[side].values()) for row in rows] for side in (0, 1)]
    errors = [float(np.mean([t.error_share for t in side if t])) for side in totals]
    errors_before, errors_after = (f"{100 * e:.1f}" if isfinite(e) else NONE for e in errors)
    if NONE not in (errors_before, errors_after):
        errors_after = f"{errors_after} ({in_points(100 * (errors[1] - errors[0]))})"
    base, after = zip(shares[0], *means, (errors_before, errors_after), shares[1], strict=True)
    return base, after


def _change_of(rows: Sequence[Row], name: str, scale: float = 1.0) -> Change | None:
    """The change of a question's mean of a field of Turns, in units of `scale`."""
    before, after = (
        [{i: (t.episodes, getattr(t, name)) for i, t in row.turns[side].items()} for row in rows]
        for side in (0, 1)
    )
    return paired_change(
        [*zip(before, after, strict=True)],
        lambda n, summed: summed / n / scale,
        rows[0].groups.get(OWN, {}),
    )


def _mean_turns(rows: Sequence[Row], name: str) -> tuple[str, str]:
    """A mean per episode before and after training, with the difference."""
    sides = [side for row in rows for side in row.turns]
    most = max(getattr(t, name) / t.episodes for side in sides for t in side.values()) or 1.0
    if (changed := _change_of(rows, name, most)) is None:  # of shares, which have an interval
        return NONE, NONE
    difference, low, high = (f"{most * x:+.2f}".replace("-", "−") for x in changed.effect[:3])
    interval = f" [{low}, {high}]" if isfinite(changed.effect.low) else ""
    return f"{most * changed.base:.2f}", f"{most * changed.final:.2f} ({difference}{interval})"


Kind = Literal["tier", "source", "band"]


def tiers(families: Sequence[Family]) -> Table:
    """Paper B: accuracy per tier of the test set."""
    caption = "Tiers come with the dataset (solution steps, levels, objects)."
    return _table(families, "Accuracy by tier", "tier", caption)


def sources(families: Sequence[Family]) -> Table:
    """Accuracy per source of the test questions."""
    return _table(families, "Accuracy by source", "source", "Sources come with the data.")


def bands(families: Sequence[Family]) -> Table:
    """Accuracy by the base model's pass rate on a test question."""
    caption = (
        "Test questions by the base model's pass rate: low, middle, high third. Half of the base "
        "model's samples assign the bands, the other half of each model's samples give its "
        "accuracy; the same samples would bias the low band downwards."
    )
    return _table(families, "Accuracy by base difficulty", "band", caption)


def _table(families: Sequence[Family], title: str, kind: Kind, caption: str) -> Table:
    lines = []
    for family in families:
        names = names_of(family.rows, kind)
        for name in names if len(names) > 1 else ():  # one name is that of all questions
            changes = {p: change_in(rows, kind, name) for p, rows in family.by_policy().items()}
            if first := next((c for c in changes.values() if c), None):
                base = (str(first.questions), f"{100 * first.base:.1f}")
                lines.append(((family.title, name, *base), _level_texts(changes)))
    caption += (
        " In %, mean over seeds; in parentheses the difference to the base model in points with "
        "its 95 % interval, paired by question and nested in seeds."
    )
    head = ("model and data", kind, "questions", "base")
    return _by_policy(title, head, families, lines, caption)


def names_of(rows: Sequence[Row], kind: Kind) -> list[str]:
    """The tiers or bands of the test questions, in rising order."""
    names = {name for row in rows for name in row.kinds[kind].values()}
    if kind == "band":
        return [name for name, _, _ in BANDS if name in names]
    return rising(names)


def change_in(rows: Sequence[Row], kind: Kind, name: str) -> Change | None:
    """How a policy's cells changed on the questions of one tier or band; None without any."""
    questions = {i for i, own in rows[0].kinds[kind].items() if own == name}
    sides = [
        row.held_out if kind == "band" else (row.counts[OWN][0], row.counts[OWN][row.cell.updates])
        for row in rows
    ]
    return paired_change(sides, correct_share, rows[0].groups.get(OWN, {}), questions)


LEDGER = {  # column headings
    "prompts": "prompts",
    "labels": "labels",
    "epochs": "epochs",
    "rollouts": "rollouts",
    "discarded_rollouts": "discarded rollouts",
    "refreshed_rollouts": "refreshed rollouts",
    "smallest_group": "smallest group",
    "largest_group": "largest group",
    "generated_tokens": "generated tokens",
    "discarded_tokens": "discarded tokens",
    "refreshed_tokens": "refreshed tokens",
    "truncated_tokens": "truncated tokens",
    "updates": "updates",
    "live": "live",
    "all_right": "all correct",
    "all_wrong": "all wrong",
    "rewarded": "rewards differ",
    "phantom": "phantom",
    "kl_only_updates": "KL-only updates",
    "seconds": "seconds",
    "gpu_seconds": "GPU seconds",
}
SPLIT = ("live", "all correct", "all wrong", "of these truncated")


def results(rows: Sequence[Row]) -> Table:
    """Every cell by itself."""
    ledgers = [row.result.ledger for row in rows]
    caption = (
        "Gain: final minus base accuracy of this run, with its 95 % interval over questions; it "
        "does not cover other seeds. Generated tokens: those of training. Tied at cutoff: prompts "
        "chosen at random among those whose score equals that of the last chosen one."
    )
    columns: dict[str, list[str]] = {}
    for name in GRID_AXES:
        columns[name] = [str(getattr(row.result, name)) for row in rows]
    for axis in dict.fromkeys(axis for row in rows for axis in row.cell.setting_axes):
        columns[axis] = [value_text(row.cell.setting_axes.get(axis, NONE)) for row in rows]
    ends = [(row.result.accuracy_base, row.result.accuracy_final) for row in rows]
    shown = [[f"{end:.3f}" if isfinite(end) else NONE for end in pair] for pair in ends]
    columns["accuracy"] = [" → ".join(pair) for pair in shown]
    columns["gain in points [95 %]"] = [effect_text(row.gain) for row in rows]
    learnable = [row.result.learnable_pct for row in rows]
    columns["learnable %"] = [f"{share:.1f}" for share in learnable]
    drawn = [row.result.learnable_drawn_pct for row in rows]
    if any(share is not None for share in drawn):
        both = zip(learnable, drawn, strict=True)
        columns["of drawn"] = [f"{kept if every is None else every:.1f}" for kept, every in both]
        columns["rollouts"] = [f"{each.rollouts:,}" for each in ledgers]
        lost = [each.get("discarded_rollouts", 0) / max(1, each.rollouts) for each in ledgers]
        columns["discarded %"] = [f"{100 * share:.1f}" for share in lost]
        caption += (
            " Learnable % is the share of live groups among those trained on; of drawn: among all "
            "that were drawn. Rollouts and tokens include the discarded ones."
        )
    if len({row.labels for row in rows}) > 1:
        columns["labels"] = [f"{row.labels:,}" for row in rows]
        caption += " Labels: gold answers that selection and training have used."
    columns["updates"] = [str(row.result.updates) for row in rows]
    columns["generated tokens"] = [f"{each.generated_tokens:,}" for each in ledgers]
    columns["seconds"] = [f"{each.seconds:.0f}" for each in ledgers]
    columns["tied at cutoff"] = [ties_text(**row.ties) if row.ties else NONE for row in rows]
    wrong = [row.mislabeled for row in rows]
    if any(count is not None for count in wrong):
        columns["wrong golds"] = [NONE if count is None else str(count) for count in wrong]
        caption += " Wrong golds: prompts of the subset whose gold answer label noise has replaced."
    return Table("Every cell", tuple(columns), [*zip(*columns.values(), strict=True)], caption)


def ledgers(rows: Sequence[Row]) -> Table:
    """What each cell consumed."""
    shown = [n for n in LEDGER if any(row.result.ledger.get(n) is not None for row in rows)]
    body = []
    for row in rows:
        values = [row.result.ledger.get(name) for name in shown]
        texts = [f"{v:,}" if isinstance(v, int) else f"{v or 0:,.1f}" for v in values]
        amounts = [NONE if v is None else t for v, t in zip(values, texts, strict=True)]
        body.append((row.cell.name, *amounts))
    return Table(
        "Ledger",
        ("cell", *(LEDGER[name] for name in shown)),
        body,
        "What each cell consumed. Labels: gold answers that selection and training have used. "
        "live, all correct and all wrong count groups; truncated tokens "
        "are those of answers cut off by the token limit. Where rewards are not correctness, "
        "rewards differ counts the groups with advantages, and phantom those among them whose "
        "correctness does not differ. Rollouts and tokens include those that were drawn and "
        "discarded, and those of refreshes; prompts and groups are those trained on. Smallest and "
        "largest group: rollouts per prompt, where an allocation divides those of an update. "
        "KL-only updates had no live group, so only the KL term changed the weights. Seconds "
        "are training time without evaluations.",
    )


GROUPS = (
    "% of groups, of generated tokens and of updates, mean over seeds. Truncated: all wrong, and "
    "at least half of the answers were cut off by the token limit. Live tokens: the share of "
    "generated tokens with a nonzero advantage. Dead updates have no live group: only the KL term "
    "changes the weights where beta > 0 and dead groups are not masked; otherwise nothing does (–)."
)
SHAPED_GROUPS = (
    " Live groups are counted by correctness. Rewards differ: groups with advantages. Phantom: "
    "those among them whose correctness does not differ; they also move the weights."
)
DISCARDED_GROUPS = (
    " Kinds of groups cover the groups trained on; live of drawn and discarded are shares of "
    "all groups drawn, while learnable % averages over updates."
)


def groups(families: Sequence[Family]) -> Table:
    """Live and dead groups, and the shares of tokens and updates with a learning signal."""
    body = []
    every = [row.result.ledger for family in families for row in family.rows]
    discards = any(each.get("discarded") is not None for each in every)
    shaped = any(each.get("phantom") is not None for each in every)
    for family in families:
        for policy, rows in family.by_policy().items():
            ledgers = [row.result.ledger for row in rows]
            trained = [each.groups for each in ledgers]
            lost = [each.get("discarded", 0) for each in ledgers]
            drawn = [sum(pair) for pair in zip(trained, lost, strict=True)]
            live = [each.get("live", 0) for each in ledgers]
            entries = [_percent(live, trained)]
            for kind in ("all_right", "all_wrong", "all_wrong_truncated"):
                entries.append(_percent([each.get(kind, 0) for each in ledgers], trained))
            if shaped:
                rewarded = [each.get("rewarded", each.get("live", 0)) for each in ledgers]
                entries.append(_percent(rewarded, trained))
                entries.append(_percent([each.get("phantom", 0) for each in ledgers], trained))
            if discards:
                lost_live = [each.get("discarded_live", 0) for each in ledgers]
                of_drawn = [sum(pair) for pair in zip(live, lost_live, strict=True)]
                entries += [_percent(of_drawn, drawn), _percent(lost, drawn)]
            live_tokens = [each.get("live_tokens") for each in ledgers]
            entries.append(_percent(live_tokens, [each.generated_tokens for each in ledgers]))
            dead = [[groups.live == 0 for groups in row.shares.values()] for row in rows]
            entries.append(_percent(list(map(sum, dead)), list(map(len, dead))))
            kl_only = NONE
            if any(pulls_to_base(row.cell) for row in rows):
                of_updates = [each.get("kl_only_updates") for each in ledgers]
                kl_only = _percent(of_updates, [each.updates for each in ledgers])
            body.append((family.title, policy, *entries, kl_only))
    head, caption = ["model and data", "policy", *SPLIT], GROUPS
    if shaped:
        head += ["rewards differ", "phantom"]
        caption += SHAPED_GROUPS
    if discards:
        head += ["live of drawn", "discarded"]
        caption += DISCARDED_GROUPS
    head += ["live tokens", "dead updates", "KL only"]
    return Table("Live and dead groups", tuple(head), body, caption)


def groups_by_tier(families: Sequence[Family]) -> Table:
    """The same split for each tier of the training prompts; empty if they have at most one."""
    body = []
    for family in families:
        names = training_tiers(family.rows)
        for tier in names if len(names) > 1 else ():
            for policy, rows in family.by_policy().items():
                shares = [row.tier_shares[tier] for row in rows if tier in row.tier_shares]
                if shares:
                    body.append((family.title, tier, policy, *_split(shares)))
    caption = "% of the groups of that tier, mean over the seeds that had any."
    head = ("model and data", "tier", "policy", *SPLIT)
    return Table("Groups by tier", head, body, caption, folded=True)


def _split(shares: Sequence[GroupShares]) -> list[str]:
    """live, all correct, all wrong and truncated in %, mean over seeds."""
    return [f"{100 * value:.1f}" for value in np.mean(np.array(shares), axis=0)[:4]]


def _percent(parts: Sequence[float], wholes: Sequence[float]) -> str:
    """100 × part / whole, mean over seeds."""
    shares = [part / max(1, whole) for part, whole in zip(parts, wholes, strict=True)]
    return f"{100 * float(np.mean(shares)):.1f}"


def claims(results: Sequence[ClaimResult], caption: str) -> Claims:
    """Claims with their verdicts, for the report."""
    body = []
    for r in results:
        measured = f"{r.value} {r.interval}".strip()
        why = f"{r.limits}; {r.declared}"
        body.append((r.text, r.cells or NONE, r.verdict, measured, r.sample, why))
    head = ("claim", "cells", "verdict", "measured [95 %]", "sample", "why")
    return Claims("Claims", head, body, caption)
