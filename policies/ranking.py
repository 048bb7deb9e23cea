"""The lowest scores of many, exactly, without sorting the rest."""

import numpy as np

from policies.arrays import Bools, Rows


def lottery(difficulty_rows: int, rng: np.random.Generator) -> Rows:
    """The lottery number of each row, int64, lower wins a tie. The generator's first draw.

    It knows the seed, the row's number and how many rows there are, and nothing of difficulty: a
    table that changes while it is measured keeps its lottery.
    """
    return rng.permutation(difficulty_rows)


def lowest(score: np.ndarray, numbers: Rows, open_rows: Bools, size: int) -> Rows:
    """The `size` open rows that come first by (score, lottery number), in that order.

    `score`, `numbers` and `open_rows` have one entry per row; nan scores come last. At least
    `size` > 0 rows must be open.
    """
    rows = np.flatnonzero(open_rows)
    if size < len(rows):
        rows = _cut(rows, score[rows], numbers, size)
    # Lottery numbers are distinct, so any sort will do for them; the scores then need a stable one.
    rows = rows[np.argsort(numbers[rows])]
    return rows[np.argsort(score[rows], kind="stable")]


def _cut(rows: Rows, values: np.ndarray, numbers: Rows, size: int) -> Rows:
    """The `size` first of the rows in no order; `values` are the rows' scores."""
    edge = np.partition(values, size - 1)[size - 1]
    unknown = bool(np.isnan(edge))
    sure = rows[~np.isnan(values) if unknown else values < edge]
    tied = rows[np.isnan(values) if unknown else values == edge]
    drawn = numbers[tied]
    last = np.partition(drawn, size - len(sure) - 1)[size - len(sure) - 1]
    return np.concatenate([sure, tied[drawn <= last]])
