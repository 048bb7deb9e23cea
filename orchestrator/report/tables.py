"""The tables of both papers from rows: text in cells, for the page, the terminal and notebooks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from orchestrator.evaluation.metrics import pass_at_k
from orchestrator.report.families import Family
from orchestrator.report.rows import OWN, Row
from orchestrator.stats.comparison import in_points
from orchestrator.stats.inference import Effect, mean_effect

NONE = "–"
PREFERRED_K = 8  # as in paper A, table 4
Value = Callable[[int, int], float]  # samples, correct ones -> a question's value in [0, 1]
Counted = Mapping[str, tuple[int, int]]  # question -> samples, correct ones


class Table(NamedTuple):
    """A table in words; `note` says what an entry is."""

    title: str
    head: tuple[str, ...]
    body: Sequence[tuple[str, ...]]
    note: str


class Change(NamedTuple):
    """Means over a policy's seeds of base and final model, as shares, and of their difference."""

    base: float
    final: float
    effect: Effect
    questions: int


def change(rows: Sequence[Row], test_set: str, value: Value) -> Change | None:
    """How a policy's cells changed on a test set; None where they share no scored question."""
    sides = [(row.counts.get(test_set, {}), row.cell.updates) for row in rows]
    if not all(0 in counts and last in counts for counts, last in sides):
        return None
    return paired([(counts[0], counts[last]) for counts, last in sides], value)


def paired(
    sides: Sequence[tuple[Counted, Counted]], value: Value, only: Collection[str] | None = None
) -> Change | None:
    """Base and final counts of each seed -> the change over the questions that all have scored.

    The interval is that of the main comparison: paired by question, nested in seeds.
    """
    known = [{i for i, (n, _) in table.items() if n} for pair in sides for table in pair]
    shared = sorted(set.intersection(*known) & set(known[0] if only is None else only))
    if not shared:
        return None
    base, final = (
        np.array([[value(*pair[side][i]) for i in shared] for pair in sides]) for side in (0, 1)
    )
    effect = mean_effect(final - base)
    return Change(float(base.mean()), float(final.mean()), effect, len(shared))


def share_right(n: int, c: int) -> float:
    """A question's mean correctness."""
    return c / n


def policies_of(families: Sequence[Family]) -> list[str]:
    """Every policy once, in the order of the grid."""
    return list(dict.fromkeys(row.cell.policy for family in families for row in family.rows))


def points(effect: Effect) -> str:
    """A difference with its interval, in points."""
    mean, low, high = (in_points(100 * x) for x in effect[:3])
    return f"{mean} [{low}, {high}]" if isfinite(effect.low) else mean


def gains(families: Sequence[Family]) -> Table:
    """Paper A, tables 1 and 3: the gain in accuracy of each policy."""
    names = policies_of(families)
    body = [(f.title, *entries_of(f, names, _gain)) for f in families]
    return Table(
        "Gain in accuracy",
        ("model and data", *names),
        body,
        "Final minus base accuracy on the same test questions, in points: the mean over seeds and "
        "a 95 % interval, for new seeds and new questions where a policy has two seeds or more.",
    )


def entries_of(
    family: Family, names: Sequence[str], entry: Callable[[Sequence[Row]], str]
) -> list[str]:
    """One text per policy; a dash where the family has none of it."""
    by_policy = family.by_policy()
    return [entry(by_policy[name]) if name in by_policy else NONE for name in names]


def _gain(rows: Sequence[Row]) -> str:
    found = change(rows, OWN, share_right)
    return points(found.effect) if found else NONE


def learnable(families: Sequence[Family]) -> Table:
    """Paper A, tables 2 and 3: learnable percentage of each policy."""
    names = policies_of(families)
    return Table(
        "Learnable %",
        ("model and data", *names),
        [(f.title, *entries_of(f, names, learnable_of)) for f in families],
        "Share of groups whose completions disagree in correctness, mean over updates, then over "
        "seeds; the 95 % interval is of new seeds, and takes two at least.",
    )


def learnable_of(rows: Sequence[Row]) -> str:
    """Mean over seeds in %, with its interval where there are two."""
    values = np.array([row.result["learnable_pct"] for row in rows])
    if len(values) < 2:
        return f"{values[0]:.1f}"
    found = mean_effect(values[:, None])
    return f"{found.mean:.1f} [{max(0.0, found.low):.1f}, {min(100.0, found.high):.1f}]"


def steps(families: Sequence[Family]) -> Table:
    """Paper B: when each policy is as good as training on the whole pool."""
    references = {match.reference for family in families for match in family.matches}
    names = [name for name in policies_of(families) if name not in references]
    body = []
    for family in families:
        if found := family.matches:
            spans = {match.policy: match.span for match in found}
            goal = (f"{100 * found[0].accuracy:.1f} %", str(found[0].updates))
            body.append((family.title, *goal, *(spans.get(name, NONE) for name in names)))
    whole = " and ".join(sorted(references)) or "the whole pool"
    return Table(
        "Steps to match the full pool",
        ("model and data", f"{whole}: accuracy", "updates", *names),
        body,
        f"The update after which a policy's mean accuracy first reaches the final one of {whole}, "
        "on a straight line between evaluations; with a 95 % bootstrap interval over questions, "
        "and over seeds where there are several. A noisy curve reaches it early.",
    )


def best_k(rows: Sequence[Row], test_set: str) -> int | None:
    """8 where every question has the samples for it, else the largest k that has; None: no k."""
    tables = [table for row in rows for table in row.counts.get(test_set, {}).values()]
    most = min((n for table in tables for n, _ in table.values() if n), default=0)
    usable = [k for k in (rows[0].cell.pass_at if rows else ()) if k <= most]
    return PREFERRED_K if PREFERRED_K in usable else max(usable, default=None)


def pass_at(families: Sequence[Family]) -> Table:
    """Paper A, table 4: pass@k and accuracy on every test set, base and each policy."""
    names = policies_of(families)
    body = []
    for family in families:
        sets = dict.fromkeys(name for row in family.rows for name in row.counts)
        for test_set in sets:
            body += _test_set(family, test_set, names)
    return Table(
        "Test sets: accuracy and pass@k",
        ("trained", "asked", "measure", "base", *names),
        body,
        "In %, and in brackets the difference to the base model in points with its 95 % interval, "
        "over questions and seeds. pass@k is the unbiased estimate from all samples of a question.",
    )


def _test_set(family: Family, test_set: str, names: Sequence[str]) -> list[tuple[str, ...]]:
    asked = test_set or f"{family.dataset} (its own)"
    return [
        (family.title, asked, measure, *levels(family, test_set, value, names))
        for measure, value in measures(family.rows, test_set)
    ]


def measures(rows: Sequence[Row], test_set: str) -> list[tuple[str, Value]]:
    """Accuracy, and pass@k where every question has the samples for it."""
    k = best_k(rows, test_set)
    found: list[tuple[str, Value]] = [("accuracy", share_right)]
    return found if k is None else [*found, (f"pass@{k}", lambda n, c: pass_at_k(n, c, k))]


def levels(family: Family, test_set: str, value: Value, names: Sequence[str]) -> list[str]:
    """The base model's value in %, then each policy's."""
    found = {p: change(rows, test_set, value) for p, rows in family.by_policy().items()}
    base = next((f"{100 * c.base:.1f}" for c in found.values() if c), NONE)
    return [base, *(level(found.get(name)) for name in names)]


def level(found: Change | None) -> str:
    """Final value in %, and the difference to the base model in points."""
    return f"{100 * found.final:.1f} ({points(found.effect)})" if found else NONE
