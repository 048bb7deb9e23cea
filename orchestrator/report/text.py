"""The analysis in the terminal: the result table, then the conclusions as plain text."""

from collections.abc import Iterable

from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.content import Paragraph, Table
from orchestrator.report.layout import table_text, wrapped
from orchestrator.report.tables import NONE

CONTINUED = 4  # more spaces before the other lines of a conclusion


def terminal_report(analysis: SweepAnalysis, width: int | None = None) -> str:
    """Results, conclusions, stopped cells and, if requested, the comparison with a paper.

    Lines fit `width` columns; None: they are as long as they get.
    """
    if not analysis.rows:
        return "no cell has a result yet"
    stopped = [wrapped(line, width) for line in analysis.stopped]
    parts = [as_text(analysis.results, width), verdict_text(analysis, width), *stopped]
    if paper := analysis.paper:
        blocks = [block for block in paper.blocks if isinstance(block, Paragraph)]
        tables = [f"{table.title}\n{as_text(table, width)}" for table in paper.tables]
        parts += [paper.title, *(tables or [wrapped(block.text, width) for block in blocks])]
    return "\n\n".join(parts)


def verdict_text(analysis: SweepAnalysis, width: int | None = None) -> str:
    """The conclusions of every family, the variance between probes, and the claims."""
    parts = []
    for verdict in analysis.verdicts:
        caveats = [f"caveat: {text}" for text in verdict.caveats]
        title = f"{verdict.title} ({verdict.read_at})"
        parts.append([title, *_indented([*verdict.lines, *caveats], width)])
    if analysis.probe_spread.body or analysis.probe_spread_missing:
        title = analysis.probe_spread.title
        parts.append([title[0].lower() + title[1:]])
        if analysis.probe_spread.body:
            table = as_text(analysis.probe_spread, width and width - 2)
            parts[-1] += [f"  {line}".rstrip() for line in table.split("\n")]
        parts[-1] += _indented(analysis.probe_spread_missing, width)
    if analysis.claims:
        parts.append(["claims"])
        for c in analysis.claims:
            where = f", {c.cells}" if c.cells else ""
            paper = "" if c.paper == NONE else f"published: {c.paper}; "
            text = f"{c.text}: {c.verdict}{where} ({c.reason}; {paper}{c.declared})"
            parts[-1] += _indented([text], width)
    return "\n\n".join("\n".join([wrapped(lines[0], width), *lines[1:]]) for lines in parts)


def _indented(lines: Iterable[str], width: int | None) -> list[str]:
    return [wrapped(f"  {line}", width, CONTINUED) for line in lines]


def as_text(table: Table, width: int | None = None) -> str:
    """A table with aligned columns."""
    return table_text(table.head, table.body, width)
