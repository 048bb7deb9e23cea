"""The report's page taken apart: its figures as SVG files, its tables as CSV.

They are read from the finished page, so that page and pieces cannot differ. The markup is that of
`report.markup`.
"""

import csv
import io
import re
from collections.abc import Iterable
from html import escape, unescape

_FIGURE = re.compile(r"<figure>(<svg.*?</svg>)\s*<figcaption>(.*?)</figcaption>", re.S)
_TABLE = re.compile(r"<h3>([^<]*)</h3><div class=\"scroll\"[^>]*><table>(.*?)</table>", re.S)
_LINE = re.compile(r"<tr>(.*?)</tr>", re.S)
_ENTRY = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.S)
_TAG = re.compile(r"<[^>]*>")
# A file of its own names the standards that HTML knows, and is read on white.
_ROOT = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'style="background:#fff"'
)
NAME_LIMIT = 120


def pieces(page: str) -> dict[str, bytes]:
    """figures/*.svg and tables/*.csv -> content, named by their captions and titles."""
    figures = [(_clause(text), _svg(svg, text)) for svg, text in _FIGURE.findall(page)]
    tables = [(unescape(title), _csv(body)) for title, body in _TABLE.findall(page)]
    return _named("figures", "svg", figures) | _named("tables", "csv", tables)


def _svg(svg: str, caption: str) -> str:
    title = f"<title>{escape(unescape(caption))}</title>"
    return re.sub(r"<svg([^>]*)>", lambda found: f"{_ROOT}{found[1]}>{title}", svg, count=1)


def _csv(body: str) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(
        [unescape(_TAG.sub("", entry)) for entry in _ENTRY.findall(line)]
        for line in _LINE.findall(body)
    )
    return out.getvalue()


def _named(folder: str, ending: str, texts: Iterable[tuple[str, str]]) -> dict[str, bytes]:
    """Path -> content; of equal names the later ones are numbered."""
    found: dict[str, bytes] = {}
    for caption, text in texts:
        name, number = _file_name(caption), 1
        while (path := f"{folder}/{name}{f'_{number}' if number > 1 else ''}.{ending}") in found:
            number += 1
        found[path] = text.encode()
    return found


def _clause(caption: str) -> str:
    """What a caption says first."""
    return re.split(r"[:;]|\. ", unescape(caption))[0]


def _file_name(caption: str) -> str:
    """Letters, digits and underlines."""
    plain = caption.lower().replace("%", "pct")
    return re.sub(r"\W+", "_", plain).strip("_")[:NAME_LIMIT] or "untitled"
