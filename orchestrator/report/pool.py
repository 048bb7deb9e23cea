"""The difficulty of the pool and of each subset: the section of a training probe."""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.probe_table import difficulty_of
from orchestrator.difficulty.table import outcome_counts
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.outcomes import load_outcomes
from orchestrator.probing.probes import targets_of
from orchestrator.report.content import Figure, FigureRow, Paragraph, Section
from orchestrator.report.figures import failure_histogram, outcome_bars
from orchestrator.selection.stored import read_subset
from orchestrator.storage.store import Store

ADAPTIVE = (
    "The probe was adaptive: prompts that could no longer change the subset were sampled less, so "
    "the figure shows the samples as drawn, which are not estimates of their pass rates."
)


def pool_title(spec: ProbeSpec) -> str:
    """Model, dataset and, if it is not 0, the seed of a probe."""
    seed = f", probe {spec.settings.seed}" if spec.settings.seed else ""
    return f"{spec.model.name} on {spec.dataset.name}{seed}"


def pool_section(plan: Plan, store: Store, spec: ProbeSpec) -> Section:
    """The figures of one training probe; a paragraph in their place while samples are missing."""
    title = pool_title(spec)
    anchor, heading = f"difficulty-{spec.key}-{spec.dataset.name}", f"Difficulty: {title}"
    pool = plan.pool(spec)
    adaptive = targets_of(plan, spec) is not None
    try:
        outcomes = load_outcomes(store, spec, pool.train, pool.task, partial=adaptive)
    except RuntimeError as error:
        return Section(anchor, heading, (Paragraph(str(error)),))
    table = difficulty_of(plan, spec, outcomes)
    note = (Paragraph(ADAPTIVE),) if adaptive else ()
    figures = pool_figures(title, table, spec, _outcomes(plan, store, spec, table))
    return Section(anchor, heading, (*note, figures))


def pool_figures(
    title: str, table: pa.Table, spec: ProbeSpec, subsets: Mapping[str, Mapping[str, int]]
) -> FigureRow:
    """The pool by correct completions, and its outcomes beside those of `subsets` (by name)."""
    histogram = Figure(
        f"Prompts of the pool by correct completions, {title}: {table.num_rows} prompts, by "
        "the outcome of their completions",
        partial(failure_histogram, table, spec.settings.samples),
    )
    outcomes = Figure(
        f"Outcomes of the base model's completions, {title}: in the pool and in each subset",
        partial(outcome_bars, {"pool": outcome_counts(table), **subsets}),
    )
    return FigureRow((histogram, outcomes))


def _outcomes(
    plan: Plan, store: Store, spec: ProbeSpec, table: pa.Table
) -> dict[str, dict[str, int]]:
    """Outcomes of the probe's samples in each policy's subset (first seed)."""
    outcomes: dict[str, dict[str, int]] = {}
    for cell in plan.cells:
        subset = read_subset(store, cell) if cell.probe == spec else None
        if subset is not None and cell.policy not in outcomes:
            chosen = pc.is_in(table["prompt_id"], value_set=subset["prompt_id"].combine_chunks())
            outcomes[cell.policy] = outcome_counts(table.filter(chosen))
    return outcomes
