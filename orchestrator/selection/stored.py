"""The subsets of cells in the store."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.planning.cells import Cell
from orchestrator.selection.subsets import SubsetRequest, narrowest, reason, select, with_reason
from orchestrator.storage.proof import canonical_hash, sequence_hash
from orchestrator.storage.schema import SUBSET
from orchestrator.storage.store import Store
from policies import PolicyError


def store_subset(
    store: Store, cell: Cell, difficulty: pa.Table, own_table: pa.Table | None = None
) -> pa.Table:
    """The cell's subset, read from the store, or else selected and written. See `select_for`.

    A file that fails verification is set aside. Raises PolicyError if the subset cannot be filled,
    or is too small for the cell's updates.
    """
    stored = read_subset(store, cell)
    file = ("subsets", f"{cell.subset_key}.parquet")
    if stored is not None:
        _check_size(cell, stored.num_rows, difficulty)
        return stored
    if store.exists(*file):
        store.set_aside(*file)
    try:
        table = select_for(cell, difficulty, own_table)
    except PolicyError as error:
        raise PolicyError(f"cell {cell.name}: {error}") from error
    _check_size(cell, table.num_rows, difficulty)
    store.write_table(table, *file)
    return table


def select_for(cell: Cell, difficulty: pa.Table, own_table: pa.Table | None = None) -> pa.Table:
    """The cell's subset with its identity and the reason for it. Raises PolicyError.

    difficulty: what the policy ranks by. own_table: the pass rates of the cell's own model, if they
    are in a different table.
    """
    table, why = select(difficulty, request_of(cell), own_table)
    return with_reason(table, {**cell.subset_identity, **why})


def _check_size(cell: Cell, size: int, difficulty: pa.Table) -> None:
    """Refuse a subset that is too small for the cell's updates, if `plan` could not detect it."""
    repeats = size == cell.size and not (
        cell.online or cell.allocation
    )  # the plan has checked the budget
    if problem := cell.batch.problem(size, repeats=repeats):
        bound = narrowest(difficulty, cell.bounding_rules)
        because = f" ({bound[1]})" if bound and bound[0] == size else ""
        raise PolicyError(f"cell {cell.name}: its subset has {problem}{because}")


def request_of(cell: Cell) -> SubsetRequest:
    """The subset that a cell trains on."""
    ranking = cell.difficulty
    probe = (ranking and ranking.probe or cell.probe).settings
    request = SubsetRequest(
        cell.static_policy,
        cell.size,
        cell.seed,
        cell.bounding_rules,
        probe.samples,
        probe.count_truncated,
        stream=cell.stream,
    )
    if ranking is None:
        return request
    samples = None if ranking.file else probe.samples
    return request._replace(samples=samples, difficulty=cell.difficulty_title)


def subset_size(store: Store, cell: Cell) -> int:
    """The number of prompts in the cell's subset; the budget's if the subset was deleted."""
    subset = read_subset(store, cell)
    return cell.size if subset is None else subset.num_rows


def mean_pass_rate(store: Store, cell: Cell) -> float:
    """The mean pass rate of the cell's prompts in the probe, 0 to 1; nan if unknown."""
    subset = read_subset(store, cell)
    mean = None if subset is None else pc.mean(subset["pass_rate"]).as_py()
    return float("nan") if mean is None else float(mean)


def pass_rate_change(
    store: Store,
    cell: Cell,
    policy: str,
    size: int,
    difficulty: pa.Table,
    own_table: pa.Table | None = None,
) -> float:
    """The mean pass rate of the prompts that a policy would choose, minus that of the cell's
    prompts.

    `policy` takes no options; it chooses `size` prompts with the cell's seed, from the tables of
    `select_for`. The change is 0 if rollouts of its prompts would not disagree more often (mean of
    p(1 - p) of the pass rates), if it cannot choose, or if pass rates are unknown.
    """
    stored = read_subset(store, cell)
    request = request_of(cell)._replace(rule=PolicyEntry(policy=policy), size=size, stream=None)
    try:
        other, _ = select(difficulty, request, own_table)
    except PolicyError:
        return 0.0
    if stored is None:
        return 0.0
    theirs, own = (t["pass_rate"].drop_null().to_numpy() for t in (other, stored))
    if not (theirs.size and own.size) or np.mean(theirs * (1 - theirs)) <= np.mean(own * (1 - own)):
        return 0.0
    return round(float(theirs.mean() - own.mean()), 9)


def read_subset(store: Store, cell: Cell) -> pa.Table | None:
    """The cell's subset; None if it was not selected yet or its file fails verification."""
    return store.read_table(SUBSET, "subsets", f"{cell.subset_key}.parquet")


def same_training(store: Store, cells: Sequence[Cell]) -> dict[str, Cell]:
    """cell_id -> the earlier cell that trains on the same prompts with the same settings.

    Policies may choose the same prompts, for instance from a pool that is hardly ever solved. The
    pass rates that an online policy starts from are not compared.
    """
    chosen: dict[str, str | None] = {}  # subset_key -> hash of the prompts
    first: dict[str, Cell] = {}
    same: dict[str, Cell] = {}
    for cell in cells:
        if cell.online or cell.allocation:
            continue
        if cell.subset_key not in chosen:
            subset = read_subset(store, cell)
            ids = None if subset is None else [sorted(subset["prompt_id"].to_pylist())]
            chosen[cell.subset_key] = None if ids is None else sequence_hash(ids)
        if (prompts := chosen[cell.subset_key]) is None:
            continue
        names = ("probe_key", "marker", "pool", "seed")
        subset_identity = [prompts, *(cell.subset_identity[name] for name in names)]
        other = first.setdefault(canonical_hash(cell.identity | {"subset": subset_identity}), cell)
        if other.cell_id != cell.cell_id:
            same[cell.cell_id] = other
    return same


def subset_reasons(store: Store, probe_key: str) -> list[dict[str, Any]]:
    """The reasons for each subset of a cell that was selected from a probe."""
    files = [("subsets", name) for name in store.names("subsets") if name.endswith(".parquet")]
    tables = [store.read_table(SUBSET, *file) for file in files]
    reasons = [reason(table) for table in tables if table is not None]
    # A subset written there by decile select does not name a pool.
    return [why for why in reasons if why.get("probe_key") == probe_key and "pool" in why]
