"""CSV that spreadsheets display without running formulas.

A cell that begins like a formula gets an apostrophe, which Decile's readers remove.
"""

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s?%?")


def csv_text(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    as_typed: Collection[str] = (),
) -> str:
    """The header and rows as CSV; the columns `as_typed` are not escaped."""
    out = io.StringIO()
    writer = csv.writer(out)  # its line ends make it quote a lone carriage return
    writer.writerow(map(shown_as_text, names))
    writer.writerows(
        [v if name in as_typed else shown_as_text(v) for name, v in zip(names, row, strict=True)]
        for row in rows
    )
    return out.getvalue()


def shown_as_text(value: Any) -> Any:
    """A text that a spreadsheet would run, with an apostrophe before it; other values unchanged."""
    is_formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def original(cell: str) -> str:
    """The text of a cell that `shown_as_text` wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
