"""Columns of a difficulty table as arrays; a missing or mistyped column is an error."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.arrays import Bools, Floats
from policies.base import PolicyError

MEANING = {
    "tier": "the task's own difficulty label",
    "pass_rate": "the share of correct samples, 0 to 1",
    "first": "the outcome of each prompt's sample 0",
    "learnability": "the expected share of groups whose rewards differ, 0 to 1",
    **dict.fromkeys(("wrong", "unparsed", "truncated"), "the number of samples with that outcome"),
}


def column(difficulty: pa.Table, name: str, policy: str) -> pa.ChunkedArray:
    """The column of that name. PolicyError if the table does not have it."""
    if name not in difficulty.column_names:
        raise PolicyError(
            f"{policy} needs the column {name} ({MEANING[name]}), which this table does not have: "
            "pass a probe's folder, or add the column to the table"
        )
    return difficulty[name]


def numbers(difficulty: pa.Table, name: str, policy: str) -> Floats:
    """The column as float64, nan where it is null."""
    values = column(difficulty, name, policy)
    kind = values.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise PolicyError(f"{policy} needs numbers in the column {name}, which has type {kind}")
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=float)


def is_one_of(difficulty: pa.Table, name: str, texts: list[str], policy: str) -> Bools:
    """One boolean per row: whether the column's text is one of `texts`; false for null."""
    values = column(difficulty, name, policy)
    try:
        text = values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PolicyError(
            f"{policy} needs text in the column {name}, which has type {values.type}"
        ) from error
    matches = pc.is_in(text, value_set=pa.array(texts, pa.string()))
    return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)
