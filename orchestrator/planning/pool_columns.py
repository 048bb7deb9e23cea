"""The user's columns in tables of prompts, to trace a prompt back to its file and row. Pure."""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.storage.schema import TAKEN
from tasks.prompt_table import PromptTable
from tasks.sources.values import json_text

_ALIKE = ({int, float}, {bool}, {list}, {dict})  # types of values that one column may hold
_PLACE = r"^(?P<file>.*)(?::| row )(?P<line>[0-9]+)$"


def pool_columns(prompts: PromptTable) -> pa.Table:
    """`source`, `file`, `line` and the kept columns, a row per prompt.

    Empty columns are left out. A kept column that has the name of one of Decile's own is called
    `row_NAME`. Columns of numbers, booleans or texts keep their type. A column of mixed values
    becomes texts: strings as they are, JSON for the rest. If every string is the JSON of such a
    value, as in CSV files next to JSON files, strings are parsed instead.
    """
    columns: dict[str, Any] = {}
    for name in ("source", "place"):
        texts = prompts.column(name)
        columns[name] = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    places = pc.extract_regex(columns.pop("place"), _PLACE)
    columns["file"] = pc.struct_field(places, "file")
    columns["line"] = pc.struct_field(places, "line").cast(pa.int64())
    columns = {name: column for name, column in columns.items() if column.null_count < len(column)}
    return pa.table(columns | _kept(prompts.column("kept")))


def with_pool_columns(table: pa.Table, prompts: PromptTable) -> pa.Table:
    """The table, which has the same prompts in the same order, with their pool columns."""
    further = pool_columns(prompts)
    for name in further.column_names:
        table = table.append_column(name, further[name])
    return table


def _kept(texts: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Column name -> values, from JSON objects (or empty texts), one per prompt."""
    if pc.all(pc.equal(texts, "")).as_py() is not False:
        return {}
    rows = [json.loads(text) if text else {} for text in texts.to_pylist()]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _typed([row.get(name) for row in rows]) for name in names}
    columns = {name: each for name, each in columns.items() if each.null_count < len(each)}
    return dict(zip(distinct_names([*columns], TAKEN), columns.values(), strict=True))


def distinct_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """The names, with `row_` prepended to taken names until they are distinct."""
    used, distinct = {*taken, *names}, list[str]()
    for name in names:
        if name in taken:
            while name in used:
                name = f"row_{name}"
            used.add(name)
        distinct.append(name)
    return distinct


def _typed(values: list[Any]) -> pa.Array:
    """The values as an array of their type, or as texts."""
    kinds = {type(value) for value in values if value is not None}
    if str in kinds and len(kinds) > 1:
        values = _texts_read(values, kinds - {str})
        kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or (len(kinds) == 1 and kinds <= {bool, str}):
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, OverflowError):  # an integer of more than 64 bits
            pass
    texts = [v if v is None or isinstance(v, str) else json_text(v) for v in values]
    return pa.array(texts, pa.string())


def _texts_read(values: list[Any], kinds: set[type]) -> list[Any]:
    """The values with all texts parsed as values of the other `kinds`, or an empty list."""
    alike = next((each for each in _ALIKE if kinds <= each), set())
    read = []
    for value in values:
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                text = value.lower() if alike == {bool} else value
                value = json.loads(text, parse_constant=str)
            if type(value) not in alike:
                return values
        read.append(value)
    return read
