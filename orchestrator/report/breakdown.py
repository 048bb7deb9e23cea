"""Where the gain comes from: accuracy by tier of the test set, and by the base model's success."""

from collections.abc import Sequence
from math import isfinite
from typing import Literal, NamedTuple

from orchestrator.evaluation.metrics import BANDS
from orchestrator.report.content import Table
from orchestrator.report.families import Family
from orchestrator.report.rows import OWN, Row
from orchestrator.report.tables import (
    Change,
    correct_share,
    level_text,
    paired_change,
    policies_of,
)

Kind = Literal["tier", "band"]


class Bar(NamedTuple):
    """An accuracy in %, and the ends of its error bar; None without one."""

    value: float
    low: float | None = None
    high: float | None = None


def tiers(families: Sequence[Family]) -> Table:
    """Paper B: accuracy per tier of the test set."""
    caption = "Tiers come with the dataset (solution steps, levels, objects)."
    return _table(families, "Accuracy by tier", "tier", caption)


def bands(families: Sequence[Family]) -> Table:
    """Accuracy by the base model's pass rate on a test question."""
    caption = (
        "Test questions by the base model's pass rate: low, middle, high third. Half of the base "
        "model's samples assign the bands, the other half give its accuracy; the same samples "
        "would bias the low band downwards."
    )
    return _table(families, "Accuracy by base difficulty", "band", caption)


def _table(families: Sequence[Family], title: str, kind: Kind, caption: str) -> Table:
    policies = policies_of(families)
    body = []
    for family in families:
        for name in names_of(family.rows, kind):
            changes = {p: change_in(rows, kind, name) for p, rows in family.by_policy().items()}
            if first := next((c for c in changes.values() if c), None):
                base = (str(first.questions), f"{100 * first.base:.1f}")
                entries = [level_text(changes.get(policy)) for policy in policies]
                body.append((family.title, name, *base, *entries))
    caption += (
        " In %, mean over seeds; in parentheses the difference to the base model in points with "
        "its 95 % interval, paired by question and nested in seeds."
    )
    return Table(title, ("model and data", kind, "questions", "base", *policies), body, caption)


def names_of(rows: Sequence[Row], kind: Kind) -> list[str]:
    """The tiers or bands of the test questions, in rising order."""
    names = {name for row in rows for name in row.kinds[kind].values()}
    if kind == "band":
        return [name for name, _, _ in BANDS if name in names]
    return sorted(names, key=lambda name: (len(name), name))  # "9" before "10"


def change_in(rows: Sequence[Row], kind: Kind, name: str) -> Change | None:
    """How a policy's cells changed on the questions of one tier or band; None without any."""
    questions = {i for i, own in rows[0].kinds[kind].items() if own == name}
    sides = [
        (row.held_out if kind == "band" else row.counts[OWN][0], row.counts[OWN][row.cell.updates])
        for row in rows
    ]
    return paired_change(sides, correct_share, questions)


def tier_bars(family: Family) -> dict[str, dict[str, Bar]]:
    """base and each policy -> tier -> accuracy; error bars are of the difference to the base."""
    bars: dict[str, dict[str, Bar]] = {}
    for policy, rows in family.by_policy().items():
        for tier in names_of(rows, "tier"):
            if change := change_in(rows, "tier", tier):
                low, high = (
                    100 * (change.base + x) for x in (change.effect.low, change.effect.high)
                )
                bars.setdefault("base", {}).setdefault(tier, Bar(100 * change.base))
                interval = (low, high) if isfinite(low) else (None, None)
                bars.setdefault(policy, {})[tier] = Bar(100 * change.final, *interval)
    return bars
