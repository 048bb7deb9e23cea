"""The probe of a pool: how hard each prompt is for a model, and the subsets of policies."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from decile.errors import UserError, as_user_error
from decile.sweep_errors import SWEEP_ERRORS
from orchestrator.config.policy_entries import difficulty_option
from orchestrator.config.wording import one_of
from orchestrator.optional.exchange.card import export_selected
from orchestrator.optional.exchange.exports import exported_table
from orchestrator.optional.exchange.row_order import RowOrder
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of
from orchestrator.plugins.counts import counted
from orchestrator.report.content import Figure
from orchestrator.report.html_pages import section_html
from orchestrator.report.probe_analysis import PoolAnalysis, analyse_pool
from orchestrator.report.render import terminal_pool
from orchestrator.report.sections.pool import pool_figures, pool_sections, subset_section
from orchestrator.selection.labelling import check_label_file, prompts_to_label, write_to_label
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.selection.subsets import reason
from tasks import Prompt, Task

if TYPE_CHECKING:
    import datasets
    import pandas as pd
    from matplotlib.figure import Figure as MplFigure


class Probe:
    """A finished probe of a training pool. `decile.probe` and `Experiment.probe` return one.

    Data are read from the storage when first needed, and kept in memory.
    """

    def __init__(self, stored: PlanProbe) -> None:
        self.stored = stored
        with as_user_error(*SWEEP_ERRORS):
            self._outcomes = stored.outcomes  # UserError while samples are missing

    @property
    def spec(self) -> ProbeSpec:
        """The model, the data set and the sampling settings; `spec.key` names the samples."""
        return self.stored.spec

    @property
    def task(self) -> Task:
        """The task, with its prompt format and its marker."""
        return self.stored.plan.pool(self.spec).task

    @cached_property
    def prompts(self) -> list[Prompt]:
        """The prompts of the pool, in the order of the data."""
        return list(self.stored.plan.pool(self.spec).train)

    @cached_property
    def table(self) -> pa.Table:
        """The difficulty table: a row per prompt, ordered by prompt_id (docs/reference/columns.md).

        The columns count the completions by outcome; `pass_rate`, `low` and `high` are shares.
        """
        group = cells_of(self.stored.plan.cells, self.spec)[0].batch.group_size
        return self.stored.tables.with_group(self.spec, group, answers=True)

    @property
    def samples(self) -> pa.Table:
        """Every marked completion: prompt_id, sample, completion, tokens, finish, outcome, ….

        Read from the storage at each use, because those of a large pool take much memory.
        """
        return self.stored.folder.samples(partial=True)

    @cached_property
    def analysis(self) -> PoolAnalysis:
        """The values behind the probe's page."""
        analysis = analyse_pool(self.stored.plan, self.stored.store, self.spec)
        assert analysis is not None, "a finished probe has samples"
        return analysis

    def summary(self, width: int | None = None) -> str:
        """The output of `decile probe` about the pool, with omitted rows and problems of the data.

        Lines fit `width` columns; None: no limit.
        """
        pool = self.stored.plan.pool(self.spec)
        return "\n\n".join([terminal_pool(self.analysis, width), *pool.notes, *pool.flaw_lines])

    def plot(self, figure: str = "difficulty") -> "MplFigure":
        """A figure of the page, which a notebook shows as it is.

        difficulty: prompts by number of correct completions. agreement: prompts by number of
        completions with the most frequent answer, if answers are read. outcomes: shares of outcomes
        in the pool and in the subsets of the grid.
        """
        subsets = {p.policy: p.summary.outcomes for p in self.analysis.policies if p.summary}
        k = self.spec.settings.samples
        row = pool_figures(self.stored.title, self.table, k, subsets)
        names = ["difficulty", "agreement", "outcomes"]
        names = names if len(row.figures) == len(names) else [names[0], names[-1]]
        return chosen_figure(dict(zip(names, row.figures, strict=True)), figure).draw()

    @as_user_error(*SWEEP_ERRORS)
    def select(
        self,
        policy: str,
        budget: float | None = None,
        *,
        seed: int | None = None,
        difficulty: "Probe | str | Path | Mapping[str, str] | None" = None,
        **options: Any,
    ) -> "Subset":
        """Select prompts with a policy: the subset of a cell with these settings.

        budget: a share of the prompts (0.1) or a count (80); seed: breaks ties; difficulty: what
        the policy ranks by: "gold", "agreement", another probe of these prompts (such as one of a
        different model), a file of difficulty or scores by prompt_id, or any form that the YAML
        file accepts. None: as in the experiment. options: those of the policy. Raises UserError if
        the policy is unknown, chooses prompts during training (see `decile.trl`), or cannot fill
        the subset.
        """
        cell, other = self._chosen(policy, budget, seed, difficulty, options)
        return Subset(self, cell, self.stored.select(cell, other))

    @as_user_error(*SWEEP_ERRORS)
    def to_label(
        self,
        file: str | Path,
        policy: str = "least_agreed",
        budget: float | None = None,
        *,
        seed: int | None = None,
        difficulty: "Probe | str | Path | Mapping[str, str] | None" = None,
        **options: Any,
    ) -> int:
        """Write the prompts without a gold answer that a policy chooses for annotators.

        file: JSONL or CSV, with an empty `answer` to be filled in; the data set's setting `labels`
        reads it back. Other arguments: as for `select`. Returns the number of prompts. Raises
        UserError if the file exists, if every prompt has a gold answer, or if the policy ranks by
        gold answers.
        """
        check_label_file(Path(file))
        cell, other = self._chosen(policy, budget, seed, difficulty, options)
        listed = prompts_to_label(self.stored, cell, other)
        write_to_label(Path(file), listed.rows)
        return len(listed.rows)

    def _chosen(
        self,
        policy: str,
        budget: float | None,
        seed: int | None,
        difficulty: "Probe | str | Path | Mapping[str, str] | None",
        options: Mapping[str, Any],
    ) -> tuple[Cell, PlanProbe | None]:
        """The cell with these settings, and the probe that it ranks by, if given."""
        other = difficulty.stored if isinstance(difficulty, Probe) else None
        given: Any = other or difficulty
        if isinstance(difficulty, str | Path):
            given = difficulty_option(str(difficulty))
        return self.stored.cell(policy, budget, seed, options, given), other

    def to_pandas(self) -> "pd.DataFrame":
        """The difficulty table."""
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        return "".join(map(section_html, list(pool_sections([self.analysis]))[:2]))

    def __repr__(self) -> str:
        k = self.spec.settings.samples
        return (
            f"<Probe of {self.stored.title}: "
            f"{counted(len(self._outcomes.prompts), 'prompt')} × {k}>"
        )


class Subset:
    """Prompts that a policy has chosen, by rank. `Probe.select` returns one."""

    def __init__(self, probe: Probe, cell: Cell, table: pa.Table) -> None:
        self.probe, self.table, self._cell = probe, table, cell

    @property
    def reason(self) -> dict[str, Any]:
        """How the prompts were chosen: policy, options, size, seed, ties, and the probe's key."""
        return reason(self.table)

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, by rank."""
        ids: Sequence[str] = self.table["prompt_id"].to_pylist()
        by_id = {prompt.prompt_id: prompt for prompt in self.probe.prompts}
        return [by_id[i] for i in ids]

    def to_dataset(self) -> "datasets.Dataset":
        """A data set for TRL: `prompt` (chat messages), `answer`, prompt_id, pass_rate, …."""
        from datasets import Dataset

        return Dataset(exported_table(self.table, self.probe.prompts, self.probe.task, "trl"))

    @as_user_error(*SWEEP_ERRORS)
    def export(
        self,
        layout: str,
        file: str | Path,
        *,
        card: bool = False,
        order: str = "",
        spread: str = "",
    ) -> dict[str, Any]:
        """Write the prompts in a trainer's layout, and `file`.provenance.json, which it returns.

        layout: jsonl, trl, verl, verifiers, openrlhf, prime-rl, open-instruct or nemo-gym. card:
        write the data set card `file`.card.md, too. order, spread: of the rows, as for `decile
        export` (docs/trainers.md). Raises UserError.
        """
        rows = RowOrder(order, spread, self._cell.seed)
        rows.check()
        stored = self.probe.stored
        return export_selected(stored, self._cell, self.table, layout, file, card=card, order=rows)

    def to_pandas(self) -> "pd.DataFrame":
        """The rows: rank, prompt_id, tier, pass_rate, n, successes, tied, why."""
        return self.table.to_pandas()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def _repr_html_(self) -> str:
        return section_html(subset_section(self._cell.policy, self.table, self.prompts))

    def __repr__(self) -> str:
        return (
            f"<Subset: {counted(len(self), 'prompt')}, {self._cell.policy}, seed {self._cell.seed}>"
        )


def chosen_figure(figures: dict[str, Figure], name: str) -> Figure:
    """The figure of that name. Raises UserError, which lists them."""
    if not figures:
        raise UserError("there is no figure yet: no cell has a result")
    if name not in figures:
        raise UserError(f"no figure {name!r}: write {one_of([*figures], name)}")
    return figures[name]
