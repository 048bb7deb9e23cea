"""Tables and lines of a report in the terminal."""

from collections.abc import Iterable

from cluster.terminal import printable_line
from orchestrator.report.content import Table
from orchestrator.report.layout import table_text, wrapped

CONTINUED = 4  # more spaces before the other lines of a conclusion


def indented(lines: Iterable[str], width: int | None) -> list[str]:
    """Each line wrapped to `width` columns, with two spaces before it and more before the rest."""
    return [wrapped(f"  {printable_line(line)}", width, CONTINUED) for line in lines]


def as_text(table: Table, width: int | None = None) -> str:
    """A table with aligned columns."""
    return table_text(table.head, table.body, width)
