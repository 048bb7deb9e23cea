"""The analysis as one self-contained HTML page, without scripts or network; see templates/."""

from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator import __version__
from orchestrator.report.content import Section
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
