"""A difficulty table and a policy -> a subset: which prompts, and why they were chosen. Pure."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.config.entries import PolicyEntry
from orchestrator.difficulty.agreement import no_suspects
from orchestrator.difficulty.remedies import outcomes_of, unread_answers
from orchestrator.planning.pool_columns import pool_column_names
from orchestrator.plugins.counts import counted
from orchestrator.probing.adaptive import complete_pass_rates
from orchestrator.storage.schema import SUBSET
from policies import PolicyError, get_policy

_ROWS = 65_536  # read at once


class SubsetRequest(NamedTuple):
    """The subset to select from a difficulty table.

    `samples` is K, where prompts that were decided early may have fewer. With `match`, the subset
    is no larger than the smallest capacity of those policies, but for those that take the whole
    pool.
    """

    rule: PolicyEntry
    size: int
    seed: int = 0
    match: Sequence[PolicyEntry] = ()
    samples: int | None = None
    count_truncated: str = "wrong"


def policy_entry(name: str, options: dict[str, Any]) -> PolicyEntry:
    """The entry of a policy named on a command line. Raises PolicyError where it is invalid."""
    get_policy(name, **options)
    return PolicyEntry(policy=name, options=options)


def select(difficulty: pa.Table, request: SubsetRequest) -> tuple[pa.Table, dict[str, Any]]:
    """The chosen rows by rank (schema SUBSET), and the reason: policy, size, seed, ties.

    `ties` is {"pool": prompts whose score equals the last chosen one's, "chosen": those of them
    that were chosen}; None for a policy without scores. `notes`, if there are any, say why the
    subset may teach nothing, or which option has no effect. Raises PolicyError when the policy
    cannot fill the subset.
    """
    if request.samples is not None:
        difficulty = complete_pass_rates(difficulty, request.samples, request.count_truncated)
    policy = request.rule.build()
    size = request.size
    if policy.whole:
        size = policy.capacity(difficulty)
    elif bound := narrowest(difficulty, request.match):
        size = min(size, bound[0])
        if not size:
            raise PolicyError(f"{bound[1]}, so match_sizes leaves no prompt: change this policy")
    chosen = policy(difficulty, size, np.random.default_rng(request.seed))
    ties, tied = policy.tied(difficulty, chosen)
    why = {
        **request.rule.model_dump(),
        "size": size,
        "seed": request.seed,
        "asked": request.size,
        "ties": ties._asdict() if ties else None,
    }
    notes = policy.notes(difficulty, len(chosen))
    notes += [no_suspects(difficulty)] if policy.reads_answers else []
    if unread := unread_answers(outcomes_of(difficulty.take(pa.array(chosen)))):
        notes.append(f"of the chosen prompts, {unread}")
    if notes := [*filter(None, notes)]:
        why["notes"] = notes
    return _subset_table(difficulty, chosen, tied), why


def narrowest(difficulty: pa.Table, match: Sequence[PolicyEntry]) -> tuple[int, str] | None:
    """The smallest capacity of policies that do not take the whole pool, as a number and in words.

    Raises PolicyError where a policy of the user's own fails.
    """
    capacities = []
    for rule in match:
        policy = rule.build()
        if not policy.whole:
            capacities.append((policy.capacity(difficulty), policy.capacity_text(difficulty)))
    return min(capacities, default=None)


def _subset_table(difficulty: pa.Table, chosen: np.ndarray, tied: np.ndarray) -> pa.Table:
    """The chosen prompts with the reason for each; `tied`: which were chosen at random."""
    rows = difficulty.take(pa.array(chosen))
    why: list[str] = []
    read = [name for name in ("n", "successes", "short") if name in rows.column_names]
    for start in range(0, rows.num_rows, _ROWS):  # dicts of all rows take much memory
        some = rows.slice(start, _ROWS)
        counts = some.select(read).to_pylist() if read else [{}] * some.num_rows
        why += map(_why, counts, tied[start : start + _ROWS].tolist())
    columns = {f.name: pa.nulls(len(chosen), f.type) for f in SUBSET}
    columns |= {name: rows[name] for name in SUBSET.names if name in rows.column_names}
    columns |= {
        "rank": pa.array(range(len(chosen)), pa.int32()),
        "tied": pa.array(tied, pa.bool_()),
        "why": pa.array(why, pa.string()),
    }
    table = pa.table({name: columns[name] for name in SUBSET.names}).cast(SUBSET)
    for name in pool_column_names(rows):
        table = table.append_column(name, rows[name])
    return table


def _why(row: dict[str, Any], tied: bool) -> str:
    """The reason for one prompt, for people."""
    reason = "chosen at random among ties" if tied else "chosen by its score"
    if row.get("n") is None or row.get("successes") is None:
        return reason
    early = ", decided before all samples were drawn" if row.get("short") else ""
    return f"{reason}; {row['successes']} of {counted(row['n'], 'sample')} correct{early}"


def with_reason(table: pa.Table, why: dict[str, Any]) -> pa.Table:
    """The table with the reason for the subset in its metadata (key `decile`, JSON)."""
    return table.replace_schema_metadata({"decile": json.dumps(why, sort_keys=True)})


def reason(table: pa.Table) -> dict[str, Any]:
    """The reason that `with_reason` wrote."""
    return dict(json.loads((table.schema.metadata or {}).get(b"decile", b"{}")))
