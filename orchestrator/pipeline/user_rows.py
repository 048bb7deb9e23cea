"""Rows of a user's program: stored once as a file, from which a probe reads them."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.store import Store
from tasks import TaskError
from tasks.sources.files import check_distinct
from tasks.sources.values import row_text

# A column with values of several types, integers above 64 bits, or invalid text.
_MIXED = (pa.ArrowException, OverflowError, UnicodeEncodeError)
ROWS = (
    "write a path, a list of paths, or rows: a pandas DataFrame, a datasets.Dataset, a pyarrow "
    "Table or a list of dicts"
)


def paths_of(data: Any) -> str | list[str] | None:
    """The paths and globs that data names; None for rows."""
    if isinstance(data, str | Path):
        return str(data)
    if isinstance(data, list | tuple) and all(isinstance(each, str | Path) for each in data):
        return [str(each) for each in data]
    return None


def store_rows(store: Store, data: Any) -> str:
    """Write rows below the storage, under a name that their content decides. Returns the path.

    As Parquet, or as JSON lines if a column has values of several types. Raises UserError for data
    without rows and for an object store, and TaskError for a value that is in neither format.
    """
    if not store.local:
        raise UserError(
            f"rows are stored in the storage, but {store.uri} is not a folder: write them to a "
            "file, and pass its path"
        )
    content, suffix = _content(data)
    name = f"rows-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    folder = store.local_path("data")
    store.write_bytes(content, "data", name)
    return str(folder / name)


def _content(data: Any) -> tuple[bytes, str]:
    """The file of the rows, and its suffix. Raises UserError."""
    libraries = {name: sys.modules.get(name) for name in ("pandas", "datasets")}
    if (pd := libraries["pandas"]) and isinstance(data, pd.DataFrame):
        if data.index.names != [None] or not data.index.equals(pd.RangeIndex(len(data))):
            data = data.reset_index(allow_duplicates=True)
        data = data.set_axis([str(name) for name in data.columns], axis=1)
        _check_distinct([*data.columns])
        try:
            return _parquet(pa.Table.from_pandas(data, preserve_index=False))
        except _MIXED:
            return _json_lines(data.to_dict("records"))
    if libraries["datasets"] and isinstance(data, libraries["datasets"].Dataset):
        data = data.with_format("arrow")[:]
    if isinstance(data, pa.Table):
        _check_distinct(data.column_names)
        return _parquet(data)
    if not isinstance(data, list | tuple) or not all(isinstance(row, Mapping) for row in data):
        raise UserError(f"data {shortened(data)}: {ROWS}")
    keys = dict.fromkeys(key for row in data for key in row)
    _check_distinct([str(key) for key in keys])
    try:
        columns = {str(key): pa.array([row.get(key) for row in data]) for key in keys}
        return _parquet(pa.table(columns))
    except _MIXED:
        return _json_lines(data)


def _check_distinct(names: Sequence[str]) -> None:
    """Raise UserError if two columns have the same name."""
    try:
        check_distinct("data", names)
    except TaskError as error:
        raise UserError(str(error)) from error


def _parquet(table: pa.Table) -> tuple[bytes, str]:
    kinds = (pa.string() if kind == pa.large_string() else kind for kind in table.schema.types)
    table = table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))  # as elsewhere
    table = table.combine_chunks()
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    return buffer.getvalue().to_pybytes(), ".parquet"


def _json_lines(rows: Sequence[Mapping[Any, Any]]) -> tuple[bytes, str]:
    lines = []
    for number, row in enumerate(rows, 1):
        place = f"data: row {number}"
        try:
            columns = {str(key): value for key, value in row.items()}
            lines.append(f"{row_text(columns, place, 'write a text')}\n".encode())
        except UnicodeEncodeError as error:
            raise UserError(f"{place}: has half of a surrogate pair: remove it") from error
    return b"".join(lines), ".jsonl"
