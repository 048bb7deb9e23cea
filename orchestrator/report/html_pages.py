"""Pages and sections as HTML: one file without network; see templates/."""

import os
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.terminal import printable
from orchestrator import __version__
from orchestrator.report.content import Page, Section
from orchestrator.storage.local_files import replace_file

if TYPE_CHECKING:
    from jinja2 import Environment

PAGES = (".html", ".htm")


def write_page(page: Page, file: str | Path) -> None:
    """Write the page; the file is replaced atomically."""
    file = Path(file)
    source = relative_path(page.file, file) if page.file else ""
    replace_file(file.resolve().parent / file.name, page_html(page, source).encode())


def page_html(page: Page, source: str = "") -> str:
    """The page; `source`: the path of its experiments file from the page's folder."""
    return render("page.html", page=page, version=__version__, source=source)


def relative_path(file: Path, page: Path) -> str:
    """The path from the page's folder, so that a project that is moved keeps its pages."""
    return os.path.relpath(os.path.realpath(file), os.path.realpath(page.parent))


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
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["runs"] = lambda body: [  # consecutive lines with the same first cell
        list(lines) for _, lines in groupby(body, key=lambda line: line[0])
    ]
    environment.filters["split_bracket"] = _split_bracket
    return environment


def _printable(value: Any) -> Any:
    """A value of a template, as it is printed: HTML has no place for control characters either."""
    return type(value)(printable(value)) if isinstance(value, str) else value


def _split_bracket(text: str) -> tuple[str, str]:
    """ "1.0 (+2.0 [0.1, 3.9])" -> "1.0", " (+2.0 [0.1, 3.9])"; "" if there is no bracket."""
    start = text.find(" (") if " (" in text else text.find(" [")
    return (text, "") if start < 0 else (text[:start], text[start:])
