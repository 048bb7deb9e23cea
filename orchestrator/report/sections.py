"""The parts of the page that come from finished cells: what they say, then what it rests on."""

from collections.abc import Sequence
from html import escape

from orchestrator.config.experiment import Experiment
from orchestrator.report import breakdown, ledger_tables, paper_comparison, probe_spread, tables
from orchestrator.report.families import Family
from orchestrator.report.figures import accuracy_curves, learnable_against_gain, tier_bars
from orchestrator.report.group_figures import group_areas, group_tiers
from orchestrator.report.markup import figure, folded, pair, paragraph, section, table
from orchestrator.report.rows import Row
from orchestrator.report.tables import Table
from orchestrator.report.text import HEAD, table_cells
from orchestrator.report.verdicts import (
    ClaimLine,
    Made,
    alone,
    caveats,
    claim_lines,
    read_at,
    sentences,
)

HOW = (
    "Each pair is compared on the same test questions and the same seeds. In brackets is a 95 % "
    "interval; p is two-sided. This report makes {count}: every pair of policies, by accuracy on "
    "their own test set, for each model, dataset and probe. Holm's p accounts for all of these "
    "together. A policy is named the better one where the interval leaves out zero and Holm's p is "
    "at most .05. What would be needed is what finds a difference of the size seen in 80 % of "
    "sweeps, at Holm's strictest level. Learnable %, tiers, other test sets and claims have "
    "intervals, and no verdict by p."
)
SIGNS = {"supported": "✓", "refuted": "✗", "inconclusive": "?"}


def verdicts(experiment: Experiment, families: Sequence[Family], made: Made | None = None) -> str:
    """The sentences, what limits them, and the claims."""
    cards = "".join(_card(family) for family in families)
    return section(
        "verdicts", "Verdicts", cards + _how(families) + _claims(experiment, families, made)
    )


def _how(families: Sequence[Family]) -> str:
    """How pairs are compared, and which comparisons share Holm's correction."""
    pairs = sum(len(family.accuracy) for family in families)
    count = f"{pairs:,} such comparison{'s' * (pairs != 1)}"
    return paragraph(HOW.format(count=count), "note") if pairs else ""


def _card(family: Family) -> str:
    lines = [
        f'<li class="{"open" if c.verdict == "inconclusive" else "told"}">'
        f"<b>{'?' if c.verdict == 'inconclusive' else '▲'}</b>{escape(text)}</li>"
        for c, text in sentences(family)
    ]
    said = f"<ul>{''.join(lines)}</ul>" if lines else paragraph(alone(family))
    said += "".join(paragraph(f"{match}.") for match in family.matches)
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
    """Tables 1 and 3, and figure 2, of paper A; steps to match of paper B; what probes change."""
    curves = [
        figure(
            accuracy_curves(family.rows),
            f"Test accuracy by update, {family.title}: mean over seeds, the shade spans them",
        )
        for family in families
    ]
    more = [t for t in (tables.steps(families), probe_spread.table(families)) if t.body]
    content = table(tables.gains(families)) + pair(curves) + "".join(map(table, more))
    missing = probe_spread.missing(families)
    said = "".join(paragraph(f"Note: {text}.", "note") for text in missing)
    return section("gains", "Gains", content + said)


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
    content += table(ledger_tables.groups(families)) + _groups_by_tier(families)
    return section("learnable", "Learnable groups", content)


def _groups_by_tier(families: Sequence[Family]) -> str:
    """The same by tier of the training prompts; empty where they have none."""
    found = ledger_tables.groups_by_tier(families)
    if not found.body:
        return ""
    bars = [
        figure(
            group_tiers(family.by_policy()),
            f"Groups by what they can teach and by tier of the training prompts, {family.title}",
        )
        for family in families
        if ledger_tables.tiers_of(family.rows)
    ]
    return pair(bars) + folded("Groups by tier, in numbers", table(found))


def test_sets(families: Sequence[Family]) -> str:
    """Table 4 of paper A, for every test set that was asked."""
    return section("tests", "Test sets", table(tables.pass_at(families)))


def where(families: Sequence[Family]) -> str:
    """Accuracy by tier (paper B) and by base difficulty; empty where nothing is known of either."""
    found = [t for t in (breakdown.tiers(families), breakdown.bands(families)) if t.body]
    bars = [
        figure(
            tier_bars(by_name),
            f"Accuracy by tier, {family.title}, mean over seeds. Whiskers: 95 % interval of the "
            "difference to the base model",
        )
        for family in families
        if (by_name := breakdown.tier_bars(family))
    ]
    content = "".join(map(table, found)) + pair(bars)
    return section("tiers", "Where the gain lies", content) if found else ""


def paper_a(families: Sequence[Family]) -> str:
    """The published numbers of paper A beside the measured ones."""
    found = paper_comparison.tables(families)
    content = "".join(map(table, found)) or paragraph(paper_comparison.NOTHING)
    return section("paper", "Beside paper A", paragraph(paper_comparison.ABOUT, "note") + content)


def cells(rows: Sequence[Row]) -> str:
    """Every cell by itself, and what it consumed."""
    note = (
        "Gain: final minus base accuracy of this one run, with a 95 % bootstrap interval over "
        "questions. It says nothing of other seeds. Tied at edge: prompts that the seed chose "
        "among those whose score equals the last chosen one's."
    )
    single = table(Table("Every cell", HEAD, [table_cells(row) for row in rows], note))
    return section("cells", "Cells and ledger", single + table(ledger_tables.ledgers(rows)))
