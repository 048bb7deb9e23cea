"""An analysis as a page and as text.

The page is one HTML file without scripts or network; see templates/. In the terminal, the result
table comes first, then the conclusions.
"""

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator import __version__
from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.content import Paragraph, Section, Table
from orchestrator.report.layout import table_text, wrapped
from orchestrator.report.sections.tables import NONE
from orchestrator.storage.store import Store

if TYPE_CHECKING:
    from jinja2 import Environment


class PageContent(Protocol):
    """What a page shows: the analysis of a sweep, or the report of its probes.

    `last_result`: when the newest result was written; may be empty.
    """

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def last_result(self) -> str: ...
    @property
    def sections(self) -> tuple[Section, ...]: ...


def write_page(analysis: PageContent, file: Path) -> None:
    """Write the page; the file is replaced atomically."""
    Store(str(file.resolve().parent)).write_bytes(page_html(analysis).encode(), file.name)


def page_html(analysis: PageContent) -> str:
    """The page."""
    return render("page.html", analysis=analysis, version=__version__)


def section_html(section: Section) -> str:
    """One section without its heading, for notebooks."""
    return render("section.html", section=section)


def render(template: str, **values: Any) -> str:
    """A template with values, all of which are escaped."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("orchestrator.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["runs"] = lambda body: [  # consecutive lines with the same first cell
        list(lines) for _, lines in groupby(body, key=lambda line: line[0])
    ]
    environment.filters["split_bracket"] = _split_bracket
    return environment


def _split_bracket(text: str) -> tuple[str, str]:
    """ "1.0 (+2.0 [0.1, 3.9])" -> "1.0", " (+2.0 [0.1, 3.9])"; "" where there is no bracket."""
    start = text.find(" (") if " (" in text else text.find(" [")
    return (text, "") if start < 0 else (text[:start], text[start:])


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
