"""The parts of the page that come from finished cells: what they say, then what it rests on."""

from collections.abc import Sequence
from html import escape

from orchestrator.blocks import Experiment
from orchestrator.report import tables
from orchestrator.report.figures import (
    accuracy_curves,
    group_areas,
    learnable_against_gain,
    tier_bars,
)
from orchestrator.report.markup import figure, pair, paragraph, section, table
from orchestrator.report.rows import Row
from orchestrator.report.table import HEAD, table_cells
from orchestrator.report.tables import Table
from orchestrator.report.verdict import (
    ClaimLine,
    Family,
    Made,
    alone,
    caveats,
    claim_lines,
    read_at,
    sentences,
)

HOW = (
    "Each pair is compared on the same test questions and the same seeds. In brackets is a 95 % "
    "interval; p is two-sided, and Holm's p accounts for all pairs of one model and dataset. A "
    "policy is named the better one where the interval leaves out zero and Holm's p is at most .05."
)
SIGNS = {"supported": "✓", "refuted": "✗", "cannot tell": "?"}


def verdicts(experiment: Experiment, families: Sequence[Family], made: Made | None = None) -> str:
    """The sentences, what limits them, and the claims."""
    cards = "".join(_card(family) for family in families)
    return section(
        "verdicts", "Verdicts", cards + paragraph(HOW, "note") + _claims(experiment, families, made)
    )


def _card(family: Family) -> str:
    lines = [
        f'<li class="{"open" if c.verdict == "cannot tell" else "told"}">'
        f"<b>{'?' if c.verdict == 'cannot tell' else '▲'}</b>{escape(text)}</li>"
        for c, text in sentences(family)
    ]
    said = f"<ul>{''.join(lines)}</ul>" if lines else paragraph(alone(family))
    notes = "".join(paragraph(f"Note: {text}.", "note") for text in caveats(family))
    where = paragraph(f"Read at: {read_at(family)}.", "note")
    return f'<div class="card"><h3>{escape(family.title)}</h3>{where}{said}{notes}</div>'


def _claims(experiment: Experiment, families: Sequence[Family], made: Made | None = None) -> str:
    lines = claim_lines(experiment, families, made)
    if not lines:
        return ""
    note = (
        "As the experiment file states them. A claim is supported where the whole interval lies on "
        "its side of the size that it names; written down beforehand, it is not corrected for the "
        "others. The store remembers when a run first saw each."
    )
    items = "".join(_claim(line) for line in lines)
    return f'<div class="card"><h3>Claims</h3><ul>{items}</ul>{paragraph(note, "note")}</div>'


def _claim(line: ClaimLine) -> str:
    kind = "told" if line.verdict in ("supported", "refuted") else "open"
    where = f" ({line.where})" if line.where else ""
    return (
        f'<li class="{kind}"><b>{SIGNS[line.verdict]}</b><strong>{escape(line.text)}</strong>: '
        f"{escape(line.verdict + where)}. {escape(line.why)} <em>{escape(line.when)}</em></li>"
    )


def gains(families: Sequence[Family]) -> str:
    """Tables 1 and 3, and figure 2, of paper A."""
    curves = [
        figure(
            accuracy_curves(family.rows),
            f"Test accuracy by update, {family.title}: mean over seeds, the shade spans them",
        )
        for family in families
    ]
    return section("gains", "Gains", table(tables.gains(families)) + pair(curves))


def learnable(families: Sequence[Family]) -> str:
    """Table 2 and figure 3 of paper A, and what the other groups were."""
    groups = {family.title: family.rows for family in families}
    scatter = figure(
        learnable_against_gain(groups),
        "Learnable % against gain, one mark per cell. The interval of R² resamples cells; that a "
        "line fits does not say that one causes the other",
    )
    areas = [
        figure(
            group_areas(family.by_policy()),
            f"Groups by what they can teach, {family.title}: live ones have an advantage, those "
            "all right or all wrong have none",
        )
        for family in families
    ]
    content = table(tables.learnable(families)) + pair([scatter, *areas])
    return section("learnable", "Learnable groups", content)


def test_sets(families: Sequence[Family]) -> str:
    """Table 4 of paper A, for every test set that was asked."""
    return section("tests", "Test sets", table(tables.pass_at(families)))


def parts(families: Sequence[Family]) -> str:
    """Accuracy by tier (paper B) and by base difficulty; empty where nothing is known of either."""
    found = [t for t in (tables.tiers(families), tables.bands(families)) if t.body]
    bars = [figure(tier_bars(b), f"Accuracy by tier, {f.title}, mean over seeds")
            for f in families if (b := _bars(f))]  # fmt: skip
    content = "".join(table(t) for t in found) + pair(bars)
    return section("tiers", "Where the gain lies", content) if found else ""


def _bars(family: Family) -> dict[str, dict[str, float]]:
    """base and each policy -> tier -> accuracy in %."""
    bars: dict[str, dict[str, float]] = {}
    for policy, rows in family.by_policy().items():
        for tier in tables.part_names(rows, "tier"):
            if found := tables.part_means(rows, "tier", tier):
                bars.setdefault("base", {}).setdefault(tier, found[0])
                bars.setdefault(policy, {})[tier] = found[1]
    return bars


def cells(rows: Sequence[Row]) -> str:
    """Every cell by itself, and what it consumed."""
    note = (
        "Gain: final minus base accuracy of this one run, with a 95 % bootstrap interval over "
        "questions. It says nothing of other seeds. Tied at edge: prompts that the seed chose "
        "among those whose score equals the last chosen one's."
    )
    single = table(Table("Every cell", HEAD, [table_cells(row) for row in rows], note))
    return section("cells", "Cells and ledger", single + table(tables.ledgers(rows)))
