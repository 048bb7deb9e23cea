"""Text for a terminal: lines wrapped at words, and tables that fit its width.

Widths are those that a terminal shows: a Chinese character takes two columns, a combining accent
none.
"""

import os
import shutil
import sys
from collections.abc import Sequence

from rich.cells import cell_len

from cluster.terminal import printable, printable_line

MIN_WIDTH = 20
GAP = 2  # spaces between columns


def output_width() -> int | None:
    """The columns of the terminal that is stdout, or of COLUMNS; None if lines have no limit.

    Logs and pipes have none, so that a search finds whole lines there.
    """
    columns = os.environ.get("COLUMNS", "")
    limited = sys.stdout.isatty() or (columns.isdecimal() and int(columns) > 0)
    return max(MIN_WIDTH, shutil.get_terminal_size().columns) if limited else None


def wrapped(text: str, width: int | None, indent: int = 2) -> str:
    """Each line wrapped at words; its continuation lines have `indent` more spaces.

    A word that is longer than a line, such as a path, stays whole, so that it can be copied.
    """
    text = printable(text)  # before its width is measured
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        start = len(line) - len(line.lstrip(" "))
        margin = min(start + indent, width // 2)
        first, *others = _filled(line.lstrip(" ").split(" "), width - start, width - margin)
        lines += [" " * start + first, *(" " * margin + other for other in others)]
    return "\n".join(lines)


def _filled(words: Sequence[str], first: int, others: int) -> list[str]:
    """These words in lines: one of `first` columns, then of `others`; a long word has its own."""
    lines = [""]
    for word in words:
        limit = others if lines[1:] else first
        if not lines[-1]:
            lines[-1] = word
        elif cell_len(f"{lines[-1]} {word}") <= limit:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [line.rstrip(" ") for line in lines]


def described(names: Sequence[str], texts: Sequence[str], width: int | None) -> str:
    """Names in a column, each with its description, whose further lines start below its first."""
    names = [*map(printable_line, names)]
    column = max(map(cell_len, names), default=0)
    lines = [
        wrapped(f"{_padded(name, column)}  {text}".rstrip(), width, column + GAP)
        for name, text in zip(names, texts, strict=True)
    ]
    return "\n".join(lines)


def table_text(head: Sequence[str], body: Sequence[Sequence[str]], width: int | None = None) -> str:
    """A table with aligned columns, narrowed in steps if it is wider than `width`.

    First, headings and long entries are wrapped at words. Then columns whose entries are all equal
    become a line above the table, and the others are spread over several tables, each of which
    begins with the columns that identify a row.
    """
    rows = [[*map(printable_line, row)] for row in (head, *body)]
    columns = [*map(list, zip(*rows, strict=True))]
    if width is None or _total(columns, None) <= width:
        return _aligned(columns, None)
    if _total(columns, width // 2) <= width:
        return _aligned(columns, width // 2)
    constant = [c for c in columns if len(body) > 1 and len(set(c[1:])) == 1]
    varying = [c for c in columns if c not in constant]
    line = ", ".join(f"{name}: {entry}" for name, entry, *_ in constant)
    count = 0  # columns that label the rows
    while count < len(varying) - 1 and len(set(zip(*varying[:count], strict=True))) <= len(body):
        count += 1
    limit = (width - GAP * count) // (count + 1)  # so that one column fits beside its labels
    tables = list[list[Sequence[str]]]()
    for column in varying[count:]:
        if not tables or _total([*tables[-1], column], limit) > width:
            tables.append([*varying[:count]])
        tables[-1].append(column)
    texts = [_aligned(table, limit) for table in tables]
    return "\n\n".join([wrapped(line, width), *texts] if line else texts)


def _total(columns: Sequence[Sequence[str]], limit: int | None) -> int:
    """The width of a table."""
    return sum(_column_width(column, limit) + GAP for column in columns) - GAP


def _column_width(column: Sequence[str], limit: int | None) -> int:
    """The longest text of a column; with a limit, headings wrap, and entries longer than that."""
    if limit is None:
        return max(map(cell_len, column))
    words = max((cell_len(word) for text in column for word in _words(text)), default=0)
    return max(words, min(max(map(cell_len, column[1:]), default=0), limit))


def _words(text: str) -> list[str]:
    """The parts that a line may be broken into: a unit stays with its number."""
    return text.replace(" %", "\u00a0%").split(" ")


def _aligned(columns: Sequence[Sequence[str]], limit: int | None) -> str:
    """The columns side by side, the first entry of each as its heading."""
    widths = [_column_width(column, limit) for column in columns]
    text: list[str] = []
    for number, row in enumerate(zip(*columns, strict=True)):
        cells = [
            [entry]
            if cell_len(entry) <= width
            else [part.replace("\u00a0", " ") for part in _filled(_words(entry), width, width)]
            for entry, width in zip(row, widths, strict=True)
        ]
        height = max(map(len, cells))
        for cell in cells:  # headings stand on the rule below them
            cell[len(cell) if number else 0 : 0] = [""] * (height - len(cell))
        for line in zip(*cells, strict=True):
            padded = (_padded(entry, width) for entry, width in zip(line, widths, strict=True))
            text.append((" " * GAP).join(padded).rstrip())
        if not number:
            text.append((" " * GAP).join("─" * width for width in widths))
    return "\n".join(text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
