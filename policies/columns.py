"""Columns of a difficulty table as arrays; one that is missing or holds something else is named."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.arrays import Bools, Floats
from policies.base import PolicyError

MEANING = {
    "tier": "the task's own grading of each prompt",
    "pass_rate": "the share of correct samples, 0 to 1",
    "first": "the outcome of each prompt's sample 0",
    "learnability": "the expected share of groups whose rewards differ, 0 to 1",
    **dict.fromkeys(("wrong", "unparsed", "truncated"), "how many samples had that outcome"),
}


def column(difficulty: pa.Table, name: str, asker: str) -> pa.ChunkedArray:
    """The column of that name. PolicyError where the table has none."""
    if name not in difficulty.column_names:
        raise PolicyError(
            f"{asker} needs the column {name} ({MEANING[name]}), and this table has none: it comes "
            "from a probe's samples, so give a probe's folder, or write the column into the table"
        )
    return difficulty[name]


def numbers(difficulty: pa.Table, name: str, asker: str) -> Floats:
    """The column as float64, nan where it is null."""
    found = column(difficulty, name, asker)
    kind = found.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise PolicyError(f"{asker} needs numbers in the column {name}, and it holds {kind}")
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=float)


def is_one_of(difficulty: pa.Table, name: str, values: list[str], asker: str) -> Bools:
    """One truth value per row: is the column's text one of `values`? Null is none of them."""
    found = column(difficulty, name, asker)
    try:
        text = found.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PolicyError(
            f"{asker} needs text in the column {name}, and it holds {found.type}"
        ) from error
    held = pc.is_in(text, value_set=pa.array(values, pa.string()))
    return np.asarray(held.to_numpy(zero_copy_only=False), dtype=bool)
