"""A difficulty table and a policy -> a subset on record: which prompts, and why these."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.config.entries import PolicyEntry
from orchestrator.planning.cells import Cell
from orchestrator.probing.adaptive import resolved
from orchestrator.storage.schema import SUBSET
from orchestrator.storage.store import Store
from policies import (
    Policy,
    PolicyError,
    capacity_of,
    checked_rows,
    get_policy,
    is_whole,
    needs_of,
    ties_of,
)


class Choice(NamedTuple):
    """What is to be taken from a difficulty table.

    `samples` is K, where some prompts may have fewer because their fate was certain. With `match`,
    the subset is no larger than what the weakest of those policies can fill.
    """

    rule: PolicyEntry
    size: int
    seed: int = 0
    match: Sequence[PolicyEntry] = ()
    samples: int | None = None
    count_truncated: str = "wrong"


def checked_rule(name: str, options: dict[str, Any]) -> PolicyEntry:
    """A policy's name and options from a command line. Raises PolicyError where either is wrong."""
    get_policy(name, **options)
    return PolicyEntry(policy=name, options=options)


def made(rule: PolicyEntry) -> Policy:
    """The policy with its options."""
    return get_policy(rule.policy, **rule.options)


def select(difficulty: pa.Table, choice: Choice) -> tuple[pa.Table, dict[str, Any]]:
    """The chosen rows by rank (schema SUBSET), and why these: policy, size, seed, ties.

    `ties` is {"pool": prompts whose score equals the last chosen one's, "chosen": those taken};
    None for a policy without scores. Raises PolicyError when the policy cannot fill the subset.
    """
    if choice.samples is not None:
        difficulty = resolved(difficulty, choice.samples, choice.count_truncated)
    policy = made(choice.rule)
    size = _size(policy, difficulty, choice)
    chosen = checked_rows(
        policy(difficulty, size, np.random.default_rng(choice.seed)),
        choice.rule.policy,
        size,
        difficulty.num_rows,
    )
    ties = ties_of(policy, difficulty, chosen)
    table = _rows(policy, difficulty, chosen)
    why = {**choice.rule.model_dump(), "size": size, "seed": choice.seed}
    return table, why | {"asked": choice.size, "ties": ties._asdict() if ties else None}


def _size(policy: Policy, difficulty: pa.Table, choice: Choice) -> int:
    if is_whole(policy):
        return capacity_of(policy, difficulty)
    matched = [made(rule) for rule in choice.match]
    return min([choice.size, *(capacity_of(p, difficulty) for p in matched if not is_whole(p))])


def _rows(policy: Policy, difficulty: pa.Table, chosen: np.ndarray) -> pa.Table:
    """The chosen prompts with the reason for each."""
    rows = difficulty.take(pa.array(chosen))
    tied = _tied(policy, difficulty, chosen)
    columns = {name: rows[name] for name in SUBSET.names if name in rows.column_names}
    missing = {f.name: pa.nulls(len(chosen), f.type) for f in SUBSET if f.name not in columns}
    given = {
        "rank": pa.array(range(len(chosen)), pa.int32()),
        "tied": pa.array(tied, pa.bool_()),
        "why": pa.array([_why(row, t) for row, t in zip(rows.to_pylist(), tied, strict=True)]),
    }
    return pa.table({f.name: (missing | columns | given)[f.name] for f in SUBSET}).cast(SUBSET)


def _tied(policy: Policy, difficulty: pa.Table, chosen: np.ndarray) -> list[bool]:
    """Whether the seed decided that a prompt is in: it ties with some that are not."""
    ties = ties_of(policy, difficulty, chosen)
    if ties is None:  # a lottery, or a policy that does not say
        return [needs_of(policy) == "nothing" and not is_whole(policy)] * len(chosen)
    return [
        place >= len(chosen) - ties.chosen and ties.pool > ties.chosen
        for place in range(len(chosen))
    ]


def _why(row: dict[str, Any], tied: bool) -> str:
    """The reason for one prompt, for people."""
    by = "drawn by the seed among equals" if tied else "by its score"
    if row.get("n") is None:
        return by
    early = ", decided before all samples were drawn" if row.get("short") else ""
    return f"{by}; {row['successes']} of {row['n']} samples correct{early}"


def with_reason(table: pa.Table, why: dict[str, Any]) -> pa.Table:
    """The table with the reason for the subset in its metadata (key `decile`, JSON)."""
    return table.replace_schema_metadata({"decile": json.dumps(why, sort_keys=True)})


def reason(table: pa.Table) -> dict[str, Any]:
    """The reason that `with_reason` wrote."""
    return dict(json.loads((table.schema.metadata or {}).get(b"decile", b"{}")))


def choice_of(cell: Cell) -> Choice:
    """What a cell takes from its probe."""
    settings = cell.probe.settings
    return Choice(
        cell.rule, cell.size, cell.seed, cell.match, settings.samples, settings.count_truncated
    )


def store_subset(store: Store, cell: Cell, difficulty: pa.Table) -> pa.Table:
    """The cell's subset, from the store or chosen now and written. Raises PolicyError."""
    found = read_subset(store, cell)
    if found is not None:
        return found
    try:
        table, why = select(difficulty, choice_of(cell))
    except PolicyError as error:
        raise PolicyError(f"cell {cell.name}: {error}") from error
    table = with_reason(table, {**cell.subset_identity, **why})
    store.write_table(table, "subsets", f"{cell.subset_key}.parquet")
    return table


def read_subset(store: Store, cell: Cell) -> pa.Table | None:
    """The cell's subset, or None where it was not chosen yet."""
    return store.read_table(SUBSET, "subsets", f"{cell.subset_key}.parquet")
