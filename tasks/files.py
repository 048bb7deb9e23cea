"""Reads the rows of one local file: JSON lines, JSON or Parquet."""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.base import TaskError
from tasks.columns import column_value

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz")


class Rows(NamedTuple):
    """Rows, their origin (`hub@revision`, or `file sha256:…`), and notes on unusual data.

    `places` are the rows' places in one file: `FILE:LINE`, or `FILE row NUMBER`.
    """

    rows: list[Row]
    origin: str
    notes: tuple[str, ...] = ()
    places: Sequence[str] = ()


def read_file(path: str | Path, columns: Sequence[str], records: str | None = None) -> Rows:
    """The rows of one local file: JSON lines, JSON or Parquet, text also gzipped (.gz)."""
    file = Path(path)
    if not os.path.isfile(file):  # also where the name is too long
        raise TaskError(f"{file} does not exist: write the path of a {or_list(SUFFIXES)} file")
    if not file.name.endswith(SUFFIXES):
        raise TaskError(f"{file}: unknown file type: write a {or_list(SUFFIXES)} file")
    rows, places = [], []
    for place, row in _numbered_rows(file, records):
        check_columns(place, row, columns)
        rows.append(row)
        places.append(place)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Rows(rows, f"{file.name} sha256:{digest}", places=places)


def _numbered_rows(file: Path, records: str | None) -> Iterable[tuple[str, Any]]:
    """Each row with its place for messages."""
    if file.name.endswith(".parquet"):
        return ((f"{file} row {i}", row) for i, row in enumerate(_parquet(file), 1))
    text = _text(file)
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        # Split at "\n" only: str.splitlines would also split at a U+2028 inside a text.
        lines = enumerate(text.split("\n"), 1)
        return (
            (f"{file}:{i}", parse_json(line, f"{file}:{i}")) for i, line in lines if line.strip()
        )
    form = "a list of rows" if records is None else f'{{"{records}": [rows]}}'
    content = parse_json(text, str(file))
    if records is not None and isinstance(content, dict):
        content = content.get(records)
    if not isinstance(content, list):
        raise TaskError(f"{file} is not of the form {form}")
    return ((f"{file} row {i}", row) for i, row in enumerate(content, 1))


def _text(file: Path) -> str:
    try:
        raw = file.read_bytes()
        return (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TaskError(f"{file} cannot be read: {error}: write it as UTF-8 text") from error


def parse_json(text: str | bytes, place: str) -> Any:
    """A JSON value. Raises TaskError for invalid UTF-8 or JSON and for lone surrogates."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(text)
        if "\\ud" in text.lower():  # only an escape can hold half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise TaskError(f"{place}: {error}: write it as UTF-8 text") from error
    except UnicodeEncodeError as error:
        raise TaskError(f"{place}: holds half of a surrogate pair (\\ud…): remove it") from error
    except RecursionError as error:
        raise TaskError(f"{place}: invalid JSON: its values are nested too deep") from error
    except ValueError as error:
        raise TaskError(f"{place}: invalid JSON: {error}") from error
    return value


def _parquet(file: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(file).names
        for name in names:
            if names.count(name) > 1:
                raise TaskError(f"{file} has two columns {name!r}: rename or remove one")
        rows: list[Row] = pq.read_table(file).to_pylist()
    except (UnicodeDecodeError, OverflowError) as error:  # of a text; of a time after 9999
        raise TaskError(f"{file} cannot be read ({error}): correct that value") from error
    except (OSError, pa.ArrowException) as error:
        raise TaskError(f"{file} is not Parquet ({error}): write a Parquet file") from error
    return rows


def check_columns(place: str, row: Any, columns: Sequence[str]) -> None:
    """Raise TaskError unless `row` is an object with a value in each column."""
    if not isinstance(row, Mapping):
        columns = columns or ("question", "answer")
        raise TaskError(f"{place} is not a row: write an object with {', '.join(columns)}")
    for column in columns:
        try:
            value = column_value(row, column)
        except KeyError:
            known = ", ".join(map(str, row))
            raise TaskError(f"{place} has no column {column!r}: write one of {known}") from None
        if value is None:
            raise TaskError(f"{place}: column {column!r} is null: write a value")


def or_list(names: Sequence[str]) -> str:
    """The names as "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
