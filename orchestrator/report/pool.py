"""The difficulty of the pool and of each subset: the section of a training probe."""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.axes import axes_text
from orchestrator.difficulty.probe_table import difficulty_of
from orchestrator.difficulty.table import outcome_counts
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of
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


# Settings outside of the block probe that decide which prompts are selected.
_OF_SUBSETS = ("budget", "match_sizes", "grpo.num_generations")


def pool_title(plan: Plan, spec: ProbeSpec) -> str:
    """Model and dataset of a probe, its seed if it is not 0, and its settings that are axes."""
    cells = cells_of(plan.cells, spec)
    swept = {axis: value for axis, value in cells[0].swept.items() if axis.startswith("probe.")}
    same = {a: v for a, v in swept.items() if all(cell.swept[a] == v for cell in cells)}
    seed = f"probe {spec.settings.seed}" if spec.settings.seed else ""
    name = f"{spec.model.name} on {spec.dataset.name}"
    return ", ".join(filter(None, [name, seed, axes_text(same)]))


def subset_cells(plan: Plan, spec: ProbeSpec) -> dict[str, Cell]:
    """Each subset that a probe's cells train on, with its first seed: name -> the first such cell.

    The name is the policy's, with those axes that change the subset.
    """
    cells, first = cells_of(plan.cells, spec), dict[str, Cell]()
    axes = [a for a in cells[0].swept if a in _OF_SUBSETS or a.startswith("probe.")]
    varying = [a for a in axes if any(cell.swept[a] != cells[0].swept[a] for cell in cells)]
    for cell in cells:
        text = axes_text({axis: cell.swept[axis] for axis in varying})
        first.setdefault(", ".join(filter(None, [cell.policy, text])), cell)
    return first


def pool_section(plan: Plan, store: Store, spec: ProbeSpec) -> Section:
    """The figures of one training probe; a paragraph in their place while samples are missing."""
    title = pool_title(plan, spec)
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
    """Outcomes of the probe's samples in each subset (first seed)."""
    outcomes: dict[str, dict[str, int]] = {}
    for name, cell in subset_cells(plan, spec).items():
        if (subset := read_subset(store, cell)) is not None:
            chosen = pc.is_in(table["prompt_id"], value_set=subset["prompt_id"].combine_chunks())
            outcomes[name] = outcome_counts(table.filter(chosen))
    return outcomes
