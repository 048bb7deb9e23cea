"""The prompts that an online policy chooses from, with the probe's results. Pure."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.planning.cells import Cell
from policies import History
from policies.partition import column_texts


def history_of(cell: Cell, subset: pa.Table) -> History:
    """The history before a cell trains: see `probed_history`."""
    return probed_history(
        subset,
        seed=cell.seed,
        updates=cell.updates,
        group_size=cell.batch.group_size,
        columns=[
            *(cell.online.build_online().reads_columns if cell.online else []),
            *(cell.allocation.build().reads_columns if cell.allocation else []),
        ],
    )


def probed_history(
    subset: pa.Table, *, seed: int, updates: int, group_size: int, columns: Sequence[str] = ()
) -> History:
    """The history before training: the probe's counts for a subset, a row per prompt.

    columns: the user's columns that are read during training. Raises PolicyError if the subset
    lacks one.
    """
    rates = pc.fill_null(subset["pass_rate"], float("nan")).to_numpy()
    unknown = np.isnan(rates)
    drawn = pc.fill_null(subset["n"], 0).to_numpy()
    nearest = np.rint(np.where(unknown, 0, rates) * drawn)  # a rate may not be a multiple of 1/n
    successes = pc.coalesce(subset["successes"], pa.array(nearest.astype(np.int64))).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        # A rate excludes samples that cannot be scored.
        scorable = np.where(successes > 0, np.round(successes / rates), drawn)
    ids = pc.cast(subset["prompt_id"], pa.string()).combine_chunks()
    return History(
        ids,
        np.where(unknown, 0, scorable),
        np.where(unknown, 0, successes),
        seed=seed,
        updates=updates,
        group_size=group_size,
        columns={
            name: column_texts(subset, name, "subset").to_numpy(zero_copy_only=False)
            for name in columns
        },
    )


def check_candidates(cell: Cell, subset: pa.Table) -> None:
    """Try the online policy of a cell, if any. Raises PolicyError if it fails."""
    if cell.online is not None:
        history = history_of(cell, subset.sort_by("prompt_id"))
        cell.online.build_online().check(history, cell.prompts_per_update)
