"""Where the gain lies: accuracy by tier of the test set, and by the base model's own success."""

from collections.abc import Sequence
from math import isfinite
from typing import Literal, NamedTuple

from orchestrator.evaluation.metrics import BANDS
from orchestrator.report.families import Family
from orchestrator.report.rows import OWN, Row
from orchestrator.report.tables import (
    Change,
    Table,
    level,
    paired,
    policies_of,
    share_right,
)

Kind = Literal["tier", "band"]
WHAT = (
    " In %, mean over seeds; in brackets the difference to the base model in points with its 95 % "
    "interval, paired by question and nested in seeds."
)


class Bar(NamedTuple):
    """An accuracy in %, and the ends of its whisker; None without one."""

    value: float
    low: float | None = None
    high: float | None = None


def tiers(families: Sequence[Family]) -> Table:
    """Paper B: accuracy per tier of the test set."""
    about = "Tiers come with the dataset (solution steps, levels, objects)."
    return _table(families, "Accuracy by tier", "tier", about)


def bands(families: Sequence[Family]) -> Table:
    """Accuracy by how often the base model was right on a test question."""
    about = (
        "Test questions by the base model's pass rate: low, middle, high third. Bands come from "
        "half of the base model's samples, its accuracy from the other half, since the same "
        "samples would flatter the low band."
    )
    return _table(families, "Accuracy by base difficulty", "band", about)


def _table(families: Sequence[Family], title: str, kind: Kind, about: str) -> Table:
    names = policies_of(families)
    body = []
    for family in families:
        for part in names_of(family.rows, kind):
            found = {p: change_in(rows, kind, part) for p, rows in family.by_policy().items()}
            known = [c for c in found.values() if c]
            if known:
                first = (str(known[0].questions), f"{100 * known[0].base:.1f}")
                entries = [level(found.get(name)) for name in names]
                body.append((family.title, part, *first, *entries))
    return Table(title, ("model and data", kind, "questions", "base", *names), body, about + WHAT)


def names_of(rows: Sequence[Row], kind: Kind) -> list[str]:
    """The tiers or bands that the test questions have, in rising order."""
    found = {name for row in rows for name in row.kinds[kind].values()}
    if kind == "band":
        return [name for name, _, _ in BANDS if name in found]
    return sorted(found, key=lambda name: (len(name), name))  # "9" before "10"


def change_in(rows: Sequence[Row], kind: Kind, name: str) -> Change | None:
    """How a policy's cells changed on the questions of one tier or band; None without any."""
    of = {i for i, part in rows[0].kinds[kind].items() if part == name}
    sides = [
        (row.held_out if kind == "band" else row.counts[OWN][0], row.counts[OWN][row.cell.updates])
        for row in rows
    ]
    return paired(sides, share_right, of)


def tier_bars(family: Family) -> dict[str, dict[str, Bar]]:
    """base and each policy -> tier -> accuracy; whiskers are of the difference to the base."""
    bars: dict[str, dict[str, Bar]] = {}
    for policy, rows in family.by_policy().items():
        for tier in names_of(rows, "tier"):
            if found := change_in(rows, "tier", tier):
                bars.setdefault("base", {}).setdefault(tier, Bar(100 * found.base))
                bars.setdefault(policy, {})[tier] = _bar(found)
    return bars


def _bar(found: Change) -> Bar:
    ends = [100 * (found.base + end) for end in (found.effect.low, found.effect.high)]
    known = isfinite(found.effect.low)
    return Bar(100 * found.final, *(ends if known else (None, None)))
