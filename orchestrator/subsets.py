"""A difficulty table and a policy -> a subset on record: which prompts, and why these."""

import json
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.plan import Cell
from orchestrator.schema import SUBSET
from orchestrator.store import Store
from policies import PolicyError, ScorePolicy, get_policy


def select(
    difficulty: pa.Table, policy: str, size: int, seed: int
) -> tuple[pa.Table, dict[str, Any]]:
    """The chosen rows by rank (schema SUBSET), and the ties that chance decided.

    `ties` is {"pool": prompts whose score equals the last chosen one's, "chosen": those taken};
    None for a policy without scores. Raises PolicyError when the pool is too small.
    """
    rule = get_policy(policy)
    chosen = _checked(
        rule(difficulty, size, np.random.default_rng(seed)), policy, size, difficulty.num_rows
    )
    rows = difficulty.take(pa.array(chosen))
    table = pa.table(
        {
            "rank": pa.array(range(len(chosen)), pa.int32()),
            **{name: rows[name] for name in ("prompt_id", "tier", "pass_rate")},
        }
    ).cast(SUBSET)
    ties = rule.ties(difficulty, chosen)._asdict() if isinstance(rule, ScorePolicy) else None
    return table, {"policy": policy, "size": size, "seed": seed, "ties": ties}


def _checked(chosen: Any, policy: str, size: int, pool: int) -> np.ndarray:
    """The rows a policy chose, as integers; PolicyError unless they are a subset of that size."""
    rows = np.asarray(chosen)
    whole = rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer)
    if not whole or len(rows) != size or len(np.unique(rows)) != size:
        raise PolicyError(
            f"policy {policy!r} was asked for {size} distinct row numbers and gave {len(rows)} "
            f"values, {len(np.unique(rows))} of them distinct: return a NumPy array of integers"
        )
    if rows.min() < 0 or rows.max() >= pool:
        raise PolicyError(f"policy {policy!r} gave a row outside 0…{pool - 1}")
    return rows


def with_reason(table: pa.Table, why: dict[str, Any]) -> pa.Table:
    """The table with the reason for the subset in its metadata (key `decile`, JSON)."""
    return table.replace_schema_metadata({"decile": json.dumps(why, sort_keys=True)})


def reason(table: pa.Table) -> dict[str, Any]:
    """The reason that `with_reason` wrote."""
    return dict(json.loads((table.schema.metadata or {}).get(b"decile", b"{}")))


def store_subset(store: Store, cell: Cell, difficulty: pa.Table) -> pa.Table:
    """The cell's subset, from the store or chosen now and written."""
    found = read_subset(store, cell)
    if found is not None:
        return found
    table, why = select(difficulty, cell.policy, cell.size, cell.seed)
    table = with_reason(table, {**cell.subset_identity, **why})
    store.write_table(table, "subsets", f"{cell.subset_key}.parquet")
    return table


def read_subset(store: Store, cell: Cell) -> pa.Table | None:
    """The cell's subset, or None where it was not chosen yet."""
    return store.read_table(SUBSET, "subsets", f"{cell.subset_key}.parquet")
