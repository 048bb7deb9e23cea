"""The page of a sweep: its sections in order, from an analysis."""

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from functools import partial

from orchestrator.planning.cells import axis_names
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.claim_verdicts import ClaimResult
from orchestrator.report.compare import Control, Family
from orchestrator.report.content import Figure, FigureRow, Page, Paragraph, Section, Table, one_line
from orchestrator.report.looks import looks_text
from orchestrator.report.rows import Row
from orchestrator.report.sample_blocks import Command, Details
from orchestrator.report.sections import tables
from orchestrator.report.sections.completions import card
from orchestrator.report.sections.difficulty_sources import difficulty_section
from orchestrator.report.sections.drift import drift_section
from orchestrator.report.sections.figures import (
    Styles,
    accuracy_curves,
    accuracy_over_labels,
    group_areas,
    learnable_against_gain,
    policy_styles,
    training_curves,
)
from orchestrator.report.sections.gain_parts import (
    gain_part_figures,
    gain_part_tables,
    gains_by_marking,
)
from orchestrator.report.sections.pool import pool_section, pool_sections
from orchestrator.report.sections.verdicts import control_lines, family_verdict, headline
from tasks import Prompt

METHOD = (
    "Each pair is compared on the same test questions and with all seeds of both. In brackets: the "
    "95 % interval of this pair alone; p is two-sided. This report makes {count}: every pair of "
    "policies, by accuracy on their own test set, for each model, dataset, probe and other axis. "
    "Holm's correction covers all of them. A policy beats another if the interval excludes zero "
    "and the corrected p is at most .05. The sample size stated as needed detects a difference of "
    "the observed size with 80 % power at the strictest level of Holm's correction; none is stated "
    "beyond 100 seeds and 10,000 questions, or ten times those of the comparison. Seeds "
    "added after this look need a corrected p of .001: declare an experiment with new seeds "
    "instead. Verdicts are about policies, on new questions and with new training seeds. The "
    "comparison of a single seed is inconclusive, because its interval covers test questions only, "
    "unless further cells of both policies in the store show how much their results vary between "
    "seeds. The intervals of claims are corrected for their number; those of learnable %, tiers "
    "and other test sets are not, and have no verdict."
)
COMPLETIONS = (
    "The first completion of each model to the test questions whose hashes come first: a choice "
    "that does not depend on success and does not change between reports."
)
EPISODES = (
    "The first episode of each model for the test question of each tier whose hash comes first: a "
    "choice that does not depend on success and does not change between reports."
)
CLAIMS = (
    "As stated in the experiment file. A claim is supported if the whole interval lies on its side "
    "of the stated size. One level holds for all claims together: the intervals are corrected for "
    "the number of verdicts (Bonferroni). A single seed decides no claim, unless other cells show "
    "how much seeds vary. The store records when a run first saw each claim."
)


def sweep_page(analysis: SweepAnalysis) -> Page:
    """The page of an analysis."""
    plan, rows, compared = analysis.plan, analysis.rows, analysis.families
    styles = policy_styles(cell.policy for cell in plan.cells)
    content = [
        verdicts(compared, analysis.controls, analysis.claims),
        gains(compared, styles),
        learnable(compared, styles),
        drift_section(compared),
        training(compared, styles),
        Section.of("tests", "Test sets", tables.pass_at(compared)),
        Section.of("turns", "Turns and tool calls", tables.turns(compared)),
        breakdown(compared),
        *(completions(f, plan.pool(f.rows[0].cell.baseline).test) for f in compared),
        Section.of("cells", "Cells and ledger", tables.results(rows), tables.ledgers(rows)),
    ]
    if not rows:
        empty = Paragraph("No cell has a result yet: run the experiment first.")
        content = [Section.of("verdicts", "Verdicts", empty)]
    content += [
        *pool_sections(analysis.pools),
        *map(pool_section, analysis.outcomes),
        difficulty_section(analysis.sources, analysis.difficulty),
        reproduce(plan, rows),
    ]
    first = headline(analysis)
    finished = f"{len(rows)} of {counted(len(plan.cells), 'cell')} finished"
    looks = looks_text(analysis.looks)
    return Page(
        plan.name,
        plan.experiment.about,
        ". ".join(filter(None, [finished, *plan.start_notes, analysis.dropped, looks])) + ".",
        tuple(section for section in content if section.blocks),
        last_result=analysis.last_result,
        headline=first and f"{first}.",
        file=plan.source.file,
    )


def verdicts(
    families: Sequence[Family], controls: Sequence[Control], claims: Sequence[ClaimResult]
) -> Section:
    """The conclusions, what limits them, and the claims."""
    pairs = sum(len(family.accuracy) for family in families)
    method = METHOD.format(count=f"{counted(pairs, 'such comparison')}")
    return Section(
        "verdicts",
        "Verdicts",
        (
            *map(family_verdict, families),
            *(Paragraph(f"{text}.") for text in control_lines(controls)),
            *([Paragraph(method, "note")] if pairs else []),
            *([tables.claims(claims, CLAIMS)] if claims else []),
        ),
    )


def gains(families: Sequence[Family], styles: Styles) -> Section:
    """Tables 1 and 3, and figure 2, of paper A; steps to match of paper B."""
    curves = (
        Figure(
            f"Test accuracy by update, {family.title}: mean over seeds; the band spans the seeds",
            partial(accuracy_curves, family.rows, styles),
        )
        for family in families
    )
    return Section.of(
        "gains",
        "Gains",
        tables.at_equal_cost(families),
        tables.gains(families),
        tables.gain_per_cost(families),
        FigureRow((*curves, *over_labels(families, styles))),
        tables.steps(families),
    )


def over_labels(families: Sequence[Family], styles: Styles) -> list[Figure]:
    """Accuracy over labels, for each model and data set whose cells have used different numbers.

    Each family, such as each budget, has its own marks.
    """
    by_data: dict[str, dict[str, Sequence[Row]]] = {}
    for family in families:
        by_data.setdefault(f"{family.model} on {family.dataset}", {})[family.title] = family.rows
    return [
        Figure(
            f"Test accuracy over labels, {title}: after training, mean over seeds with its 95 % "
            "interval. Labels: gold answers that selection and training have used; marks at equal "
            "labels stand side by side",
            partial(accuracy_over_labels, groups, styles),
        )
        for title, groups in by_data.items()
        if len({row.labels for rows in groups.values() for row in rows}) > 1
    ]


def learnable(families: Sequence[Family], styles: Styles) -> Section:
    """Table 2 and figure 3 of paper A, and the groups by kind."""
    scatter = Figure(
        "Learnable % against gain, one mark per cell. R² is that of the policies' means over "
        "their seeds, for at least eight policies, within each model and data; correlation does "
        "not imply causation",
        partial(learnable_against_gain, {f.title: f.rows for f in families}, styles),
    )
    areas = (
        Figure(
            f"Live and dead groups by update, {family.title}: live groups have a nonzero "
            "advantage; all-correct and all-wrong groups have none",
            partial(group_areas, family.by_policy()),
        )
        for family in families
    )
    return Section.of(
        "learnable",
        "Learnable groups",
        tables.learnable(families),
        FigureRow((scatter, *areas)),
        tables.groups(families),
        tables.groups_by_tier(families),
    )


def training(families: Sequence[Family], styles: Styles) -> Section:
    """Reward, learnable %, completion length and KL during training."""
    figures = tuple(
        Figure(
            f"Training by update, {family.title}: mean over seeds, smoothed over a tenth of the "
            "updates",
            partial(training_curves, family.by_policy(), styles),
        )
        for family in families
    )
    return Section("training", "Training curves", (FigureRow(figures),))


def completions(family: Family, test: Iterable[Prompt]) -> Section:
    """Some test questions, answered before and after training; empty without a question."""
    questions = {prompt.prompt_id: prompt for prompt in test}
    rows = {policy: rows[0] for policy, rows in family.by_policy().items()}
    shared = set.intersection(*(set(row.answers) for row in rows.values()))
    blocks = []
    episodes = any(row.turns[0] for row in family.rows)
    tiers = {i: questions[i].tier if episodes else "" for i in shared & questions.keys()}
    for i in sorted(tiers, key=lambda i: (len(tiers[i]), tiers[i], i)):
        base = next(iter(rows.values())).answers[i][0]
        after = (
            (f"after training on {policy}, seed {row.cell.seed}", row.answers[i][1])
            for policy, row in rows.items()
        )
        about = f"Tier {one_line(tiers[i], 40)}." if tiers[i] else ""
        blocks.append(card(questions[i], [("before: base model", base), *after], about))
    what = "Completions"
    note = COMPLETIONS
    if episodes:
        what = "Episodes"
        note = EPISODES
    title = f"{what} before and after: {family.title}"
    axes = [family.model, family.dataset, str(family.probe_seed), *axis_names(family.setting_axes)]
    anchor = re.sub(r"[^\w.+-]+", "-", f"completions-{'-'.join(axes)}")
    notes = [Paragraph(note, "note")] if blocks else []
    return Section.of(anchor, title, *notes, *blocks)


def breakdown(families: Sequence[Family]) -> Section:
    """The gain's factors, churn, and accuracy by source, tier (paper B) and base difficulty.

    Empty if unscored.
    """
    every, by_part = gain_part_tables(families)
    figures = gain_part_figures(families)
    return Section.of(
        "tiers",
        "Where the gain comes from",
        every,
        *([FigureRow(tuple(figures))] if figures else []),
        by_part,
        gains_by_marking(families),
        *tables.churns(families),
        tables.sources(families),
        tables.tiers(families),
        tables.bands(families),
    )


def reproduce(plan: Plan, rows: Sequence[Row]) -> Section:
    """The command, what it resolves to, the versions that ran, and the keys in the store."""
    keys = Table(
        "Cells",
        ("cell", "id", "subset", "probe"),
        [(c.name, c.cell_id, c.subset_key, c.probe.key) for c in plan.cells],
        "Names of folders and files in the store. A key hashes everything that can change the "
        "content: the same keys are the same experiment.",
    )
    versions = {tuple(row.result.versions.items()) for row in rows}
    grid = {"grid": plan.experiment.grid.model_dump(mode="json")}
    settings = grid | plan.experiment.shared_settings()
    return Section(
        "reproduce",
        "How to reproduce",
        (
            Command(shlex.join(["decile", "run", str(plan.source.file), "-e", plan.name])),
            *(
                Paragraph("Versions: " + ", ".join(" ".join(pair) for pair in each))
                for each in sorted(versions)
            ),
            Details("All settings, including defaults", json.dumps(settings, indent=1)),
            keys,
        ),
    )
