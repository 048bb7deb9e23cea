"""The subsets of cells in the store."""

import json
from typing import Any

import pyarrow as pa

from orchestrator.planning.cells import Cell
from orchestrator.selection.subsets import SubsetRequest, reason, select, with_reason
from orchestrator.storage.schema import SUBSET
from orchestrator.storage.store import Store
from policies import PolicyError


def store_subset(store: Store, cell: Cell, difficulty: pa.Table) -> pa.Table:
    """The cell's subset: read from the store, or selected now and written. Raises PolicyError.

    A file that fails verification is set aside.
    """
    stored, file = read_subset(store, cell), ("subsets", f"{cell.subset_key}.parquet")
    if stored is not None:
        return stored
    if store.exists(*file):
        store.set_aside(*file)
    probe = cell.probe.settings
    request = SubsetRequest(
        cell.rule, cell.size, cell.seed, cell.match, probe.samples, probe.count_truncated
    )
    try:
        table, why = select(difficulty, request)
    except PolicyError as error:
        raise PolicyError(f"cell {cell.name}: {error}") from error
    table = with_reason(table, {**cell.subset_identity, **why})
    store.write_table(table, *file)
    return table


def read_subset(store: Store, cell: Cell) -> pa.Table | None:
    """The cell's subset, or None where none was selected yet, or its file fails verification."""
    file = ("subsets", f"{cell.subset_key}.parquet")
    table = store.read_table(SUBSET, *file)
    if table is None:
        return None
    identity, stored = json.loads(json.dumps(cell.subset_identity)), reason(table)
    # Files of older versions have no proof. A matched subset may be smaller than its identity says.
    if any(stored.get(name) != value for name, value in identity.items() if name != "size"):
        store.warn_unsound("is the subset of another policy, seed or probe", *file)
        return None
    return table


def subset_reasons(store: Store, probe_key: str) -> list[dict[str, Any]]:
    """Why each subset of a cell was selected, of those that come from a probe."""
    files = [("subsets", name) for name in store.names("subsets") if name.endswith(".parquet")]
    tables = [store.read_table(SUBSET, *file) for file in files]
    reasons = [reason(table) for table in tables if table is not None]
    # A subset that decile select wrote there names no pool.
    return [why for why in reasons if why.get("probe_key") == probe_key and "pool" in why]
