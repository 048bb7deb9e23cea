"""The analysis in the terminal: the result table, then the conclusions as plain text."""

from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.content import Paragraph, Table


def terminal_report(analysis: SweepAnalysis) -> str:
    """Results, conclusions, stopped cells and, if requested, the comparison with a paper."""
    if not analysis.rows:
        return "no cell has a result yet"
    parts = [as_text(analysis.results), verdict_text(analysis), *analysis.stopped]
    if paper := analysis.paper:
        paragraphs = (block.text for block in paper.blocks if isinstance(block, Paragraph))
        tables = [f"{table.title}\n{as_text(table)}" for table in paper.tables]
        parts += [paper.title, *(tables or paragraphs)]
    return "\n\n".join(parts)


def verdict_text(analysis: SweepAnalysis) -> str:
    """The conclusions of every family, the variance between probes, and the claims."""
    parts = []
    for verdict in analysis.verdicts:
        caveats = (f"caveat: {text}" for text in verdict.caveats)
        parts.append([f"{verdict.title} ({verdict.read_at})", *verdict.lines, *caveats])
    if analysis.probe_spread.body or analysis.probe_spread_missing:
        title = analysis.probe_spread.title
        lines = as_text(analysis.probe_spread).split("\n") if analysis.probe_spread.body else []
        parts.append([title[0].lower() + title[1:], *lines, *analysis.probe_spread_missing])
    if analysis.claims:
        parts.append(["claims"])
        for c in analysis.claims:
            where = f", {c.family}" if c.family else ""
            parts[-1].append(f"{c.text}: {c.verdict}{where} ({c.reason}; {c.declared})")
    return "\n\n".join("\n  ".join(lines) for lines in parts)


def as_text(table: Table) -> str:
    """A table with aligned columns."""
    lines = [table.head, *table.body]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.head))]
    rule = "  ".join("─" * width for width in widths)
    text = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([text[0].rstrip(), rule, *(line.rstrip() for line in text[1:])])
