"""The results of a sweep: one row per finished cell, comparisons of policies, figures."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from decile.probes import chosen_figure
from orchestrator.plugins.counts import counted
from orchestrator.report.analysis import SweepAnalysis, cell_table, comparison_table
from orchestrator.report.churn import churn_table
from orchestrator.report.content import Page
from orchestrator.report.gain_parts import gain_part_table
from orchestrator.report.html_pages import section_html
from orchestrator.report.render import terminal_report, verdict_text
from orchestrator.report.sections.page import sweep_page

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as MplFigure


class Results:
    """The stored results of a sweep. `Experiment.run` and `Experiment.results` return one.

    failed: cell_id -> why it failed in this run. dropped: one sentence about cells that a cap left
    out.
    """

    def __init__(
        self, analysis: SweepAnalysis, failed: Mapping[str, str] | None = None, dropped: str = ""
    ) -> None:
        self.analysis, self.failed = analysis, dict(failed or {})
        self.dropped = dropped or analysis.dropped

    @cached_property
    def table(self) -> pa.Table:
        """A row per finished cell: its axes, accuracies and gain (shares), learnable_pct, costs."""
        return cell_table(self.analysis.rows)

    @cached_property
    def churn(self) -> pa.Table:
        """A row per cell, evaluation pair and part of the test set: questions gained and lost."""
        return churn_table(self.analysis.rows)

    @cached_property
    def gain_parts(self) -> pa.Table:
        """A row per cell and part of the test set: the components of the gain."""
        return gain_part_table(self.analysis.rows)

    @cached_property
    def page(self) -> Page:
        """The report's page; `tables` and `figures` by name."""
        return sweep_page(self.analysis)

    def to_pandas(self) -> "pd.DataFrame":
        """The table."""
        return self.table.to_pandas()

    def compare(self) -> "Comparisons":
        """Every pair of policies, on the same test questions and seeds, and the verdicts."""
        return Comparisons(self.analysis)

    def plot(self, figure: str | None = None) -> "MplFigure":
        """A figure of the page, which a notebook shows as it is; the first is accuracy by update.

        figure: a name of `page.figures`. Raises UserError, which lists them.
        """
        figures = self.page.figures
        return chosen_figure(figures, figure or next(iter(figures), "accuracy")).draw()

    def show(self, *anchors: str) -> "Html":
        """The page's sections with this prefix of their anchors: verdicts, gains, learnable, …."""
        sections = (s for s in self.page.sections if s.anchor.startswith(anchors))
        return Html("".join(map(section_html, sections)))

    def _repr_html_(self) -> str:
        return self.show("verdicts", "gains")

    def __str__(self) -> str:
        return terminal_report(self.analysis)

    def __repr__(self) -> str:
        plan = self.analysis.plan
        done = f"{len(self.analysis.rows):,} of {counted(len(plan.cells), 'cell')} finished"
        done += f", {len(self.failed):,} failed" if self.failed else ""
        return f"<Results of {plan.name}: {done}>"


class Comparisons:
    """Pairwise comparisons of the policies of a sweep. `Results.compare` returns one."""

    def __init__(self, analysis: SweepAnalysis) -> None:
        self.analysis = analysis

    @cached_property
    def table(self) -> pa.Table:
        """A row per pair, by accuracy and by learnable %: a, b, a minus b with its interval, p."""
        return comparison_table(self.analysis.families)

    def to_pandas(self) -> "pd.DataFrame":
        """The table."""
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        sections = sweep_page(self.analysis).sections
        return "".join(section_html(s) for s in sections if s.anchor == "verdicts")

    def __str__(self) -> str:
        return verdict_text(self.analysis) or "no cell has a result yet"

    def __repr__(self) -> str:
        return f"<Comparisons of {self.analysis.plan.name}: {counted(self.table.num_rows, 'pair')}>"


class Html(str):
    """HTML that a notebook renders."""

    def _repr_html_(self) -> str:
        return str(self)
