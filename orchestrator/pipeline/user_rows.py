"""Rows of a user's program: stored once as Parquet, from where a probe reads them."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.store import Store

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

    Raises UserError for data that holds no rows of Parquet, and in an object store.
    """
    if not store.local:
        raise UserError(
            f"rows are stored in the storage, and {store.uri} is no folder: write them to a file, "
            "and pass its path"
        )
    table = _table(data)
    kinds = (pa.string() if kind == pa.large_string() else kind for kind in table.schema.types)
    table = table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))  # as of other forms
    table = table.combine_chunks()
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    content = buffer.getvalue()
    name = f"rows-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    folder = store.local_path("data")
    store.write_bytes(content, "data", name)
    return str(folder / name)


def _table(data: Any) -> pa.Table:
    """Rows as a table. Raises UserError."""
    libraries = {name: sys.modules.get(name) for name in ("pandas", "datasets")}
    try:
        if isinstance(data, pa.Table):
            return data
        if libraries["pandas"] and isinstance(data, libraries["pandas"].DataFrame):
            return pa.Table.from_pandas(data, preserve_index=False)
        if libraries["datasets"] and isinstance(data, libraries["datasets"].Dataset):
            return data.with_format("arrow")[:]
        if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
            names = dict.fromkeys(str(name) for row in data for name in row)
            return pa.table({name: pa.array([row.get(name) for row in data]) for name in names})
    except (pa.ArrowException, OverflowError) as error:
        raise UserError(
            f"data: a column holds values of several types ({error}): write them as one type"
        ) from error
    raise UserError(f"data {shortened(data)}: {ROWS}")
