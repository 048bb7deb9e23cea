"""Paper A beside a store: its numbers next to the measured ones, and which orderings hold.

Policies are matched by their rule (`hard`, whatever it is called in the grid), data by task.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orchestrator.config.claims import Claim
from orchestrator.report import paper
from orchestrator.report.families import Family
from orchestrator.report.rows import OWN, Row
from orchestrator.report.tables import (
    NONE,
    Table,
    change,
    learnable_of,
    levels,
    measures,
    points,
    share_right,
)
from orchestrator.report.text import as_text
from orchestrator.stats.claims import judge_claim
from orchestrator.stats.comparison import Comparison, compare_policies, in_points
from orchestrator.stats.inference import Interval, r_squared

TASKS = {"gsm8k": "GSM8K", "shuffled_objects": "shuffled objects", "aime2025": "AIME2025-I"}
PUBLISHED = "paper A"
HERE = "measured"
ABOUT = (
    'Paper A: Pikus, Tiwari and Ye, "Hard Examples Are All You Need: Maximizing GRPO Post-Training '
    'Under Annotation Budgets".'
)
NOTHING = (
    "Nothing here stands in paper A: it trains on GSM8K and shuffled objects, by the policies "
    "hard, easy, middle and random."
)


def as_lines(families: Sequence[Family]) -> str:
    """The same in the terminal."""
    found = [f"{table.title}\n{as_text(table.head, table.body)}" for table in tables(families)]
    return "\n\n".join(["beside paper A", *(found or [NOTHING])])


def tables(families: Sequence[Family]) -> list[Table]:
    """Gains, learnable % and AIME side by side, then the orderings; none without rows."""
    found = [gains(families), learnable(families), aime(families), orderings(families)]
    return [table for table in found if table.body]


def named(family: Family) -> dict[str, str]:
    """The paper's policy -> what the grid calls it; the first where a rule is there twice."""
    found: dict[str, str] = {}
    for row in family.rows:
        if row.cell.rule.policy in paper.POLICIES:
            found.setdefault(row.cell.rule.policy, row.cell.policy)
    return found


def gains(families: Sequence[Family]) -> Table:
    """Tables 1 and 3 of the paper beside the measured gains."""

    def published(row: paper.Published, policy: str) -> str:
        value = row.gain[policy]
        return _with(value, paper.published_interval(value, row.questions))

    def measured(rows: Sequence[Row]) -> str:
        found = change(rows, OWN, share_right)
        return points(found.effect) if found else NONE

    note = (
        "In points, with 95 % intervals. The paper's are the narrowest that its test set allows, "
        "as if no question had been lost and any training run gave the same: it tells neither "
        "lost questions nor seeds. Other models and other questions: compare orders, not sizes."
    )
    return _side_by_side(families, "Gain in accuracy, paper A and here", published, measured, note)


def learnable(families: Sequence[Family]) -> Table:
    """Tables 2 and 3 of the paper beside the measured learnable %."""

    def published(row: paper.Published, policy: str) -> str:
        value = row.learnable[policy]
        return _with(value, paper.learnable_interval(value), plus=False)

    note = (
        "In %, with 95 % intervals: the paper's of 1,000 groups, taken as independent; the "
        "measured ones of new seeds, where there are two or more."
    )
    title = "Learnable %, paper A and here"
    return _side_by_side(families, title, published, learnable_of, note)


def _side_by_side(
    families: Sequence[Family],
    title: str,
    published: Callable[[paper.Published, str], str],
    measured: Callable[[Sequence[Row]], str],
    note: str,
) -> Table:
    """Rows by task: the paper's models, then this store's."""
    body = []
    for task in dict.fromkeys(row.task for row in paper.ALL):
        own = [family for family in families if _task(family) == task]
        rows = [row for row in paper.ALL if row.task == task and own]
        body += [
            (TASKS[task], row.model, PUBLISHED, *(published(row, p) for p in paper.POLICIES))
            for row in rows
        ]
        body += [(f.dataset, _who(f), HERE, *_measured(f, measured)) for f in own]
    return Table(title, ("data", "model", "whose", *paper.POLICIES), body, note)


def _measured(family: Family, entry: Callable[[Sequence[Row]], str]) -> list[str]:
    names, by_policy = named(family), family.by_policy()
    return [entry(by_policy[names[p]]) if p in names else NONE for p in paper.POLICIES]


def _task(family: Family) -> str:
    return family.rows[0].cell.probe.dataset.task


def _who(family: Family) -> str:
    """The model, and the probe's seed where it is not 0."""
    return f"{family.model}, probe {family.probe_seed}" if family.probe_seed else family.model


def _with(value: float, interval: Interval, plus: bool = True) -> str:
    mean, low, high = (in_points(x, plus) for x in (value, *interval))
    return f"{mean} [{low}, {high}]"


def aime(families: Sequence[Family]) -> Table:
    """Table 4 of the paper beside pass@k on the measured AIME sets; empty where none was asked."""
    body = [_line(family, name) for family in families for name in _aime_sets(family)]
    if body:
        solved = paper.AIME_SOLVED
        each = [_solved(solved[policy]) for policy in paper.POLICIES]
        base = f"{100 * paper.AIME_BASE / paper.AIME_QUESTIONS:.1f}"
        body = [("GSM8K", "Qwen3-4B", PUBLISHED, "pass@8", base, *each), *body]
    return Table(
        "AIME, paper A and here",
        ("trained on", "model", "whose", "measure", "base", *paper.POLICIES),
        body,
        "In %, and in brackets the difference to the base model in points with its 95 % interval. "
        "The paper's 15 questions: 40.0 against 33.3 is 6 of them against 5, and under six "
        "questions that change to one side no test can tell.",
    )


def _solved(count: int) -> str:
    """The paper's pass@8 of one policy against the base: at best, one side only changed."""
    share = 100 * count / paper.AIME_QUESTIONS
    difference = 100 * (count - paper.AIME_BASE) / paper.AIME_QUESTIONS
    interval = paper.published_interval(difference, paper.AIME_QUESTIONS)
    return f"{share:.1f} ({_with(difference, interval)}): inconclusive"


def _aime_sets(family: Family) -> list[str]:
    """The names of the family's AIME test sets."""
    return list(
        {
            a.dataset: None
            for row in family.rows
            for a in row.cell.extra_evals
            if a.probe.dataset.task == "aime2025" and not a.greedy
        }
    )


def _line(family: Family, test_set: str) -> tuple[str, ...]:
    measure, value = measures(family.rows, test_set)[-1]
    names = named(family)
    entries = levels(family, test_set, value, [names.get(p, "") for p in paper.POLICIES])
    return (family.dataset, _who(family), HERE, f"{measure} on {test_set}", *entries)


def orderings(families: Sequence[Family]) -> Table:
    """What the paper says of pairs of policies, and what its numbers and the measured ones say."""
    shown = [family for family in families if len(named(family)) > 1]
    body = [
        (str(claim), paper.tally(claim), *(_judged(claim, family) for family in shown))
        for claim in paper.ORDERINGS
        if shown
    ]
    for other in ("random", "middle", "easy") if shown else ():
        early = (_judged_early(other, family) for family in shown)
        body.append((f"hard leads {other} early on", "stated, no numbers", *early))
    if shown:
        body.append(_r_squared(shown))
    return Table(
        "Which orderings of paper A hold",
        ("claim", f"{PUBLISHED} ({len(paper.ALL)} models and data)", *(f.title for f in shown)),
        body,
        "Measured: supported where the whole 95 % interval of the difference (in brackets, points) "
        "lies on the side of the claim, refuted where it lies on the other; like other claims, not "
        "corrected for each other. Published: at best, from its own numbers; six questions at "
        f"least have to differ. Early: at the evaluation nearest to {100 * paper.EARLY:.0f} % of "
        "the updates, its checkpoint 300 of 1,000. R²: learnable % against gain over all "
        f"cells; the paper states {paper.STATED_R_SQUARED}, its tables give what stands here.",
    )


def _judged(ordering: paper.Ordering, family: Family) -> str:
    pairs = family.learnable if ordering.metric == "learnable" else family.accuracy
    return _held(ordering, family, pairs)


def _judged_early(other: str, family: Family) -> str:
    """Hard against another policy, at the evaluation nearest to the paper's checkpoint 300."""
    names = named(family)
    if not {"hard", other} <= set(names):
        return NONE
    rows = {p: family.by_policy()[names[p]] for p in ("hard", other)}
    every = [row for group in rows.values() for row in group]
    shared = set.intersection(*(set(row.curve) for row in every))
    last = max(row.cell.updates for row in every)
    between = sorted(u for u in shared if 0 < u < last)
    if not between:
        return NONE
    update = min(between, key=lambda u: abs(u - paper.EARLY * last))
    scores = {
        names[p]: {row.cell.seed: _run(row.scores(update)) for row in group}
        for p, group in rows.items()
    }
    held = _held(paper.Ordering("gain", "hard", other), family, compare_policies(scores))
    return held if held == NONE else f"{held} after {update}"


def _run(scores: Mapping[str, float]) -> tuple[list[str], np.ndarray]:
    return list(scores), np.array(list(scores.values()))


def _held(ordering: paper.Ordering, family: Family, pairs: Sequence[Comparison]) -> str:
    """The verdict of a claim about two policies, with the numbers."""
    names = named(family)
    if not {ordering.a, ordering.b} <= set(names):
        return NONE
    a, b = names[ordering.a], names[ordering.b]
    claim = Claim(str(ordering), ordering.metric, a, ">", b, 0.0, family.dataset, family.model)
    pair = next((c for c in pairs if {c.a, c.b} == {a, b}), None)
    judged = judge_claim(claim, pair)
    if pair is None or not np.isfinite(pair.high):
        return judged.verdict
    flip = 1 if pair.a == a else -1
    low, high = sorted((flip * pair.low, flip * pair.high))
    alone = "; one seed" if pair.seeds == 1 else ""
    return f"{judged.verdict} ({_with(flip * pair.effect, Interval(low, high))}{alone})"


def _r_squared(families: Sequence[Family]) -> tuple[str, ...]:
    """R² in the paper's tables, and in each family's cells."""
    published = " and ".join(
        f"{found.value:.3f} of {found.cells} points"
        for found in map(paper.published_r_squared, (paper.PUBLISHED, paper.ALL))
    )
    return ("learnable % explains gain, R²", published, *map(_own_r_squared, families))


def _own_r_squared(family: Family) -> str:
    cells = [(row.result["learnable_pct"], 100 * row.result["gain"]) for row in family.rows]
    found = r_squared(*np.array(cells).T)
    if np.isnan(found.value):
        return NONE
    return f"{found.value:.3f} [{found.low:.2f}, {found.high:.2f}] ({found.cells} cells)"
