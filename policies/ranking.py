"""The lowest of many scores, with random tie-breaks, without sorting the rest."""

import numpy as np

from policies.arrays import Bools, Rows


def tie_breakers(difficulty_rows: int, rng: np.random.Generator) -> Rows:
    """A random permutation of row numbers: the lower one wins a tie. The generator's first draw.

    It depends only on the seed, the row's number and the number of rows, not on difficulty, so it
    stays the same while a table is being measured.
    """
    return rng.permutation(difficulty_rows)


def lowest(score: np.ndarray, ranks: Rows, open_rows: Bools, size: int) -> Rows:
    """The first `size` open rows by (score, rank), in that order.

    `score`, `ranks` and `open_rows` have one entry per row; nan scores come last. At least
    `size` > 0 rows must be open.
    """
    rows = np.flatnonzero(open_rows)
    if size < len(rows):
        rows = _first(rows, score[rows], ranks, size)
    # Ranks are distinct, so any sort will do for them; the scores then need a stable one.
    rows = rows[np.argsort(ranks[rows])]
    return rows[np.argsort(score[rows], kind="stable")]


def _first(rows: Rows, scores: np.ndarray, ranks: Rows, size: int) -> Rows:
    """The first `size` of the rows by (score, rank), in no particular order."""
    cutoff = np.partition(scores, size - 1)[size - 1]
    unknown = bool(np.isnan(cutoff))
    certain = rows[~np.isnan(scores) if unknown else scores < cutoff]
    tied = rows[np.isnan(scores) if unknown else scores == cutoff]
    tied_ranks = ranks[tied]
    remaining = size - len(certain)
    last = np.partition(tied_ranks, remaining - 1)[remaining - 1]
    return np.concatenate([certain, tied[tied_ranks <= last]])
