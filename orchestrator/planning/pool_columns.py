"""The columns of the user's data in the tables of prompts: the way back to a file's row. Pure."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.storage.schema import DIFFICULTY, SAMPLES, SUBSET
from tasks.prompt_table import PromptTable

OF_PLACE = ("source", "file", "line")
TEXTS = ("question", "answer", "prompt", "messages", "info", "group")
OF_EVALUATIONS = ("correct", "gold")
# Names that kept columns do not have in a table: those of Decile's own columns.
TAKEN = frozenset(
    (*SAMPLES.names, *DIFFICULTY.names, *SUBSET.names, *OF_PLACE, *TEXTS, *OF_EVALUATIONS)
)
_PLACE = r"^(?P<file>.*)(?::| row )(?P<line>[0-9]+)$"


def pool_columns(prompts: PromptTable) -> pa.Table:
    """`source`, `file`, `line` and the kept columns, a row per prompt.

    Those that hold nothing are left out. A kept column with the name of one of Decile's own is
    called `row_NAME`. A column of numbers, of booleans or of texts keeps its type; of any other,
    or mixed, values, it holds their JSON text.
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


def pool_column_names(table: pa.Table) -> list[str]:
    """The columns of a difficulty table or a subset that are not Decile's own."""
    return [name for name in table.column_names if name in OF_PLACE or name not in TAKEN]


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
    return {
        f"row_{name}" if name in TAKEN else name: column
        for name, column in columns.items()
        if column.null_count < len(column)
    }


def _typed(values: list[Any]) -> pa.Array:
    """The values as an array of their type, or as JSON texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or (len(kinds) == 1 and kinds <= {bool, str}):
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, OverflowError):  # an integer of more than 64 bits
            pass
    texts = [None if v is None else json.dumps(v, ensure_ascii=False) for v in values]
    return pa.array(texts, pa.string())
