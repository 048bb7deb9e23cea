"""The tables of both papers from rows: text in cells, for the page, the terminal and notebooks."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from orchestrator.evaluation import BANDS, pass_at_k
from orchestrator.report.rows import OWN, Row
from orchestrator.report.statistics import Effect, mean_effect
from orchestrator.report.verdict import Family

NONE = "–"
PREFERRED_K = 8  # as in paper A, table 4
Value = Callable[[int, int], float]  # samples, correct ones -> a question's value in [0, 1]


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


def change(rows: Sequence[Row], test_set: str, value: Value) -> Change | None:
    """How a policy's cells changed on a test set; None where they share no scored question."""
    sides = [(row.counts.get(test_set, {}), row.cell.updates) for row in rows]
    if not all(0 in counts and last in counts for counts, last in sides):
        return None
    tables = [(counts[0], counts[last]) for counts, last in sides]
    known = [{i for i, (n, _) in table.items() if n} for pair in tables for table in pair]
    shared = sorted(set.intersection(*known))
    if not shared:
        return None
    base, final = (
        np.array([[value(*pair[side][i]) for i in shared] for pair in tables]) for side in (0, 1)
    )
    return Change(float(base.mean()), float(final.mean()), mean_effect(final - base))


def share_right(n: int, c: int) -> float:
    """A question's mean correctness."""
    return c / n


def policies_of(families: Sequence[Family]) -> list[str]:
    """Every policy once, in the order of the grid."""
    return list(dict.fromkeys(row.cell.policy for family in families for row in family.rows))


def points(effect: Effect) -> str:
    """A difference with its interval, in points."""
    mean, low, high = (f"{100 * x:+.1f}".replace("-", "−") for x in effect[:3])
    return f"{mean} [{low}, {high}]" if isfinite(effect.low) else mean


def gains(families: Sequence[Family]) -> Table:
    """Paper A, tables 1 and 3: the gain in accuracy of each policy."""
    names = policies_of(families)
    body = [(f.title, *_entries(f, names, _gain)) for f in families]
    return Table(
        "Gain in accuracy",
        ("model and data", *names),
        body,
        "Final minus base accuracy on the same test questions, in points: the mean over seeds and "
        "a 95 % interval, for new seeds and new questions where a policy has two seeds or more.",
    )


def _entries(
    family: Family, names: Sequence[str], entry: Callable[[Sequence[Row]], str]
) -> list[str]:
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
        [(f.title, *_entries(f, names, _learnable)) for f in families],
        "Share of groups whose completions disagree in correctness, mean over updates, then over "
        "seeds; the 95 % interval is of new seeds, and takes two at least.",
    )


def _learnable(rows: Sequence[Row]) -> str:
    values = np.array([row.result["learnable_pct"] for row in rows])
    if len(values) < 2:
        return f"{values[0]:.1f}"
    found = mean_effect(values[:, None])
    return f"{found.mean:.1f} [{max(0.0, found.low):.1f}, {min(100.0, found.high):.1f}]"


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
    k = best_k(family.rows, test_set)
    measures: list[tuple[str, Value]] = [("accuracy", share_right)]
    if k is not None:
        measures.append((f"pass@{k}", lambda n, c: pass_at_k(n, c, k)))
    asked = test_set or f"{family.dataset} (its own)"
    lines = []
    for measure, value in measures:
        found = {p: change(rows, test_set, value) for p, rows in family.by_policy().items()}
        base = next((f"{100 * c.base:.1f}" for c in found.values() if c), NONE)
        entries = [_level(found.get(name)) for name in names]
        lines.append((family.title, asked, measure, base, *entries))
    return lines


def _level(found: Change | None) -> str:
    return f"{100 * found.final:.1f} ({points(found.effect)})" if found else NONE


def tiers(families: Sequence[Family]) -> Table:
    """Paper B: accuracy per tier of the test set, base to final."""
    return _by_part(
        families,
        "Accuracy by tier",
        "tier",
        _parts(families, "tier"),
        "Tiers come with the dataset (solution steps, levels). Base to final, mean over seeds, %.",
    )


def bands(families: Sequence[Family]) -> Table:
    """Accuracy by how often the base model was right on a test question."""
    names = [name for name, _, _ in BANDS if name in _parts(families, "band")]
    return _by_part(
        families,
        "Accuracy by base difficulty",
        "band",
        names,
        "Test questions by the base model's pass rate: low, middle, high third. Bands come from "
        "half of the base model's samples, its accuracy from the other half, since the same "
        "samples would flatter the low band. Base to final, mean over seeds, %.",
    )


def part_names(rows: Sequence[Row], kind: str) -> list[str]:
    """The tiers (kind "tier") or bands ("band") that the rows' metrics name, in rising order."""
    keys = {key for row in rows for key in row.result["final"] if key.startswith(f"{kind}/")}
    names = {key.split("/", 1)[1].rsplit("/", 1)[0] for key in keys}
    return sorted(names, key=lambda name: (len(name), name))  # "9" before "10"


def _parts(families: Sequence[Family], kind: str) -> list[str]:
    return part_names([row for family in families for row in family.rows], kind)


def part_means(rows: Sequence[Row], kind: str, name: str) -> tuple[float, float] | None:
    """Base and final accuracy in a tier or band, mean over rows, %; None where one lacks it."""
    key = f"{kind}/{name}/accuracy"
    pairs = [(r.result["base"].get(key), r.result["final"].get(key)) for r in rows]
    if any(value is None or not isfinite(value) for pair in pairs for value in pair):
        return None
    base, final = np.mean(np.array(pairs, float), axis=0)
    return 100 * float(base), 100 * float(final)


def _by_part(
    families: Sequence[Family], title: str, kind: str, names: Sequence[str], note: str
) -> Table:
    policies = policies_of(families)
    body = []
    for family in families:
        for name in names:
            entries = _entries(family, policies, lambda rows, n=name: _arrow(rows, kind, n))  # type: ignore[misc]
            if set(entries) != {NONE}:
                body.append((family.title, name, *entries))
    return Table(title, ("model and data", kind, *policies), body, note)


def _arrow(rows: Sequence[Row], kind: str, name: str) -> str:
    found = part_means(rows, kind, name)
    return f"{found[0]:.1f} → {found[1]:.1f}" if found else NONE


LEDGER = (
    "prompts", "epochs", "rollouts", "generated_tokens", "truncated_tokens", "updates",
    "live", "all_right", "all_wrong", "kl_only_updates", "seconds", "gpu_seconds",
)  # fmt: skip


def ledgers(rows: Sequence[Row]) -> Table:
    """What every cell consumed."""
    shown = [name for name in LEDGER if any(name in row.result["ledger"] for row in rows)]
    body = [
        (row.cell.name, *(_amount(row.result["ledger"].get(name)) for name in shown))
        for row in rows
    ]
    return Table(
        "Ledger",
        ("cell", *(name.replace("_", " ") for name in shown)),
        body,
        "What each cell consumed. live, all right, all wrong are groups; truncated tokens are of "
        "answers cut by the limit; KL only updates had no live group, so that only the pull to the "
        "base model moved the weights. Seconds are of training, without evaluations.",
    )


def _amount(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
