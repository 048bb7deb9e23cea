"""What a report consists of: tables, figures, paragraphs and details, grouped in sections.

The page, the terminal, MLflow and the notebook only render them. Stored texts are made readable:
of bounded length, control characters spelled out.
"""

import io
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.terminal import printable
from orchestrator.plugins.counts import counted
from orchestrator.plugins.csv_text import csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

NONE = "–"  # in place of a number
COMPLETION_LIMIT = 1_500  # characters of a completion or question on a page
LINE_LIMIT = 160  # characters of a text in one line
CSS_DPI = 96  # pixels per inch of a page
PNG_SCALE = 2  # for screens with smaller pixels


def visible(text: str, limit: int = COMPLETION_LIMIT) -> str:
    """The text without the middle of a long one; control characters are spelled out."""
    if len(text) > limit:
        head, tail = 2 * limit // 3, limit // 3
        left_out = f"\n[… {counted(len(text) - head - tail, 'character')} left out …]\n"
        text = text[:head] + left_out + text[-tail:]
    return printable(text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """The text in one line, its end cut off."""
    line = " ".join(text[: 4 * limit].split())
    cut = len(line) > limit or len(text) > 4 * limit
    return visible(f"{line[:limit].rstrip()}…" if cut else line, 2 * limit)


NAME_LIMIT = 120  # characters of a file name


class Block:
    """A part of a section."""

    @property
    def kind(self) -> str:
        """The macro of templates/blocks.html that renders it: `share_table` of a ShareTable."""
        return re.sub(r"\B(?=[A-Z])", "_", type(self).__name__).lower()


@dataclass(frozen=True)
class Table(Block):
    """A table of text; `caption` explains its entries. `folded`: shown on request only."""

    title: str
    head: tuple[str, ...]
    body: Sequence[tuple[str, ...]]
    caption: str = ""
    folded: bool = False

    @property
    def csv(self) -> str:
        """Header and rows."""
        return csv_text(self.head, self.body)


def svg_of(figure: "MplFigure") -> str:
    """A figure as an SVG element, byte-for-byte reproducible.

    Transparent, with black replaced by the page's text colour, for light and dark mode.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # no URLs
    with rc_context({"svg.hashsalt": "decile"}):
        figure.savefig(buffer, format="svg", metadata=metadata, transparent=True)
    text = buffer.getvalue()
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text[text.index("<svg") :])  # implied in HTML
    return text.replace("#000000", "currentColor").replace("<svg", '<svg fill="currentColor"', 1)


def png_of(figure: "MplFigure") -> bytes:
    """A figure as a PNG image on a white background, with PNG_SCALE pixels for one of a page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PNG_SCALE * CSS_DPI, facecolor="white")
    return buffer.getvalue()


def shown_figure(**settings: Any) -> "MplFigure":
    """A matplotlib figure that a notebook shows by itself; `settings` as for `Figure`."""
    from matplotlib.figure import Figure as Base

    class Figure(Base):
        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            width, height = self.get_size_inches()
            return png_of(self), {
                "width": round(CSS_DPI * width),
                "height": round(CSS_DPI * height),
            }

    return Figure(**settings)


@dataclass(frozen=True)
class Figure:
    """A figure that is drawn once, when it is first rendered. The caption is its alternative text.

    `draw` returns a matplotlib figure.
    """

    caption: str
    draw: Callable[[], "MplFigure"]

    @cached_property
    def svg(self) -> str:
        """For a page: an SVG element that screen readers announce by its caption."""
        label = escape(self.caption)
        return svg_of(self.draw()).replace("<svg", f'<svg role="img" aria-label="{label}"', 1)

    @cached_property
    def img(self) -> str:
        """For a notebook: an element with a PNG image, which viewers that remove SVG also show."""
        figure = self.draw()
        data, width = b64encode(png_of(figure)).decode(), round(CSS_DPI * figure.get_figwidth())
        label = escape(self.caption)
        return f'<img alt="{label}" width="{width}" src="data:image/png;base64,{data}">'

    @property
    def file(self) -> str:
        """An SVG file: with its namespaces, on a white background."""
        spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        return self.svg.replace("<svg", f'<svg {spaces} style="background:#fff"', 1)


@dataclass(frozen=True)
class FigureRow(Block):
    """Figures side by side."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Paragraph(Block):
    """One paragraph; `style`: "" or "note"."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class ShareTable(Block):
    """Rows of a name, a count, and shares of it from 0 to 1 that are shaded; see `head`."""

    title: str
    head: tuple[str, ...]
    body: Sequence[tuple[str, int, tuple[float, ...]]]
    caption: str = ""


T = TypeVar("T", Table, Figure)


@dataclass(frozen=True)
class Section:
    """A headed part of the report; `anchor` identifies it in links."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, anchor: str, title: str, *blocks: Block) -> "Section":
        """These blocks without tables that have no rows; a page leaves out an empty section."""
        shown = (b for b in blocks if not isinstance(b, Table | ShareTable) or b.body)
        return cls(anchor, title, tuple(shown))

    @property
    def tables(self) -> list[Table]:
        """Its tables, in order."""
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        """Its figures, in order."""
        rows = [block for block in self.blocks if isinstance(block, FigureRow)]
        return [figure for row in rows for figure in row.figures]


@dataclass(frozen=True)
class Page:
    """A page, of a sweep or of its probes.

    `headline`: the verdict in one line. `last_result`: when the newest result was written.
    `file`: the experiments file.
    """

    name: str
    about: str
    status: str
    sections: tuple[Section, ...]
    last_result: str = ""
    headline: str = ""
    file: Path | None = None

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of its blocks."""
        return {block.kind for section in self.sections for block in section.blocks}

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Every table by a unique file name."""
        return by_file_name(table for section in self.sections for table in section.tables)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Every figure by a unique file name."""
        return by_file_name(figure for section in self.sections for figure in section.figures)


def by_file_name(items: Iterable[T]) -> dict[str, T]:
    """Unique name (letters, digits, underscores) -> table or figure, from its title or caption."""
    named: dict[str, T] = {}
    for item in items:
        text = item.title if isinstance(item, Table) else re.split(r"[:;]|\. ", item.caption)[0]
        plain = re.sub(r"\W+", "_", text.lower().replace("%", "pct"))
        stem = name = plain.strip("_")[:NAME_LIMIT] or "untitled"
        number = 1
        while name in named:
            number += 1
            name = f"{stem}_{number}"
        named[name] = item
    return named
