"""Difficulty tables with pass rates from agreement, another model or a file. Pure.

Policies rank by the same columns for every source.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.estimates import fit_prior, rates
from orchestrator.difficulty.proportions import counts
from orchestrator.plugins.difficulty_table import DIFFICULTY, OF_PROMPT
from tasks.marking.marks import UNREAD

OF_AGREEMENT = ("n", "agreement", *UNREAD)  # what `by_agreement` reads


def with_ranks_of(table: pa.Table, other: pa.Table) -> pa.Table:
    """The table with the measured columns of DIFFICULTY from another one, by prompt_id.

    Columns and prompts that the other table lacks are null; `short` is then false.
    """
    ids = other["prompt_id"].combine_chunks()
    rows = pc.index_in(table["prompt_id"].combine_chunks(), value_set=ids)
    columns = {}
    for name in (name for name in DIFFICULTY.names if name not in OF_PROMPT):
        if name in other.column_names:
            columns[name] = other[name].take(rows)
        elif name in table.column_names:
            columns[name] = pa.nulls(table.num_rows, DIFFICULTY.field(name).type)
    if "short" in columns:
        columns["short"] = pc.fill_null(columns["short"], False)
    return _with_columns(table, columns)


def rated_rows(table: pa.Table) -> np.ndarray:
    """One boolean per row: whether it has a pass rate or an agreement."""
    rated = np.zeros(table.num_rows, dtype=bool)
    for name in {"pass_rate", "agreement"} & {*table.column_names}:
        rated |= table[name].is_valid().to_numpy()
    return rated


def _with_columns(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """The table with columns of DIFFICULTY in place of its own, or added."""
    for name, values in columns.items():
        column = (values if isinstance(values, pa.ChunkedArray) else pa.array(values)).cast(
            DIFFICULTY.field(name).type
        )
        place = table.schema.get_field_index(name)
        if place < 0:
            table = table.append_column(name, column)
        else:
            table = table.set_column(place, name, column)
    return table


def by_agreement(table: pa.Table, group_size: int = 8) -> pa.Table:
    """The table as if each prompt's most frequent answer were its gold, from `agreement` and n.

    Samples with this answer are successes, other answers are wrong; unparsed, truncated and error
    stay. The interval, the posterior (with the prior of these counts) and the learnability of
    groups of `group_size` follow. An answer may be the most frequent by chance, so rates are too
    high, more so with fewer samples. It is unknown which sample gave it, so `first` is null; so are
    `form_failures` and `other_form`, which depend on gold answers.
    """
    n = counts(table, "n")
    share = table["agreement"].to_numpy(zero_copy_only=False).astype(float)
    read = n - counts(table, "error")
    known = ~np.isnan(share) & (read > 0)
    votes = np.where(known, np.rint(np.nan_to_num(share) * read), 0).astype(np.int64)
    scorable = np.where(known, read, 0)
    others = sum(counts(table, name) for name in UNREAD)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.sqrt(share * (1 - share) * read / (read - 1))
    columns = {
        **rates(votes, scorable, fit_prior(votes, scorable), group_size),
        "wrong": n - votes - others,
        "unlabelled": np.zeros(len(n), int),
        "first": pa.nulls(len(n), pa.string()),
        "score": pa.array(share, mask=~known),
        "score_sd": pa.array(deviation, mask=~known | (read < 2)),
    }
    unknown = pa.nulls(len(n), pa.int32())  # of golds
    columns |= {"form_failures": unknown, "other_form": unknown}
    return _with_columns(table, columns)
