"""The subsets of cells in the store."""

import pyarrow as pa

from orchestrator.planning.cells import Cell
from orchestrator.selection.subsets import SubsetRequest, select, with_reason
from orchestrator.storage.schema import SUBSET
from orchestrator.storage.store import Store
from policies import PolicyError


def store_subset(store: Store, cell: Cell, difficulty: pa.Table) -> pa.Table:
    """The cell's subset: read from the store, or selected now and written. Raises PolicyError."""
    stored = read_subset(store, cell)
    if stored is not None:
        return stored
    probe = cell.probe.settings
    request = SubsetRequest(
        cell.rule, cell.size, cell.seed, cell.match, probe.samples, probe.count_truncated
    )
    try:
        table, why = select(difficulty, request)
    except PolicyError as error:
        raise PolicyError(f"cell {cell.name}: {error}") from error
    table = with_reason(table, {**cell.subset_identity, **why})
    store.write_table(table, "subsets", f"{cell.subset_key}.parquet")
    return table


def read_subset(store: Store, cell: Cell) -> pa.Table | None:
    """The cell's subset, or None where none was selected yet."""
    return store.read_table(SUBSET, "subsets", f"{cell.subset_key}.parquet")
