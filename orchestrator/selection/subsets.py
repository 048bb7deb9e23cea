"""A difficulty table and a policy -> a subset: which prompts, and why they were chosen. Pure."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.config.entries import PolicyEntry
from orchestrator.difficulty.disputed import no_suspects
from orchestrator.difficulty.remedies import unread_answers
from orchestrator.difficulty.table import outcome_counts
from orchestrator.planning.pool_columns import pool_column_names
from orchestrator.plugins.counts import counted
from orchestrator.probing.adaptive import complete_pass_rates
from orchestrator.storage.schema import SUBSET
from policies import PolicyError, get_policy


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
    notes = policy.notes(difficulty, chosen)
    notes += [no_suspects(difficulty)] if policy.reads_suspects else []
    if unread := unread_answers(outcome_counts(difficulty.take(pa.array(chosen)))):
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
    counts = (
        rows[name].to_pylist() if name in rows.column_names else [None] * len(chosen)
        for name in ("n", "successes", "short")
    )
    why = [_why(*each) for each in zip(tied.tolist(), *counts, strict=True)]
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


def _why(tied: bool, n: int | None, successes: int | None, short: bool | None) -> str:
    """The reason for one prompt, for people."""
    reason = "chosen at random among ties" if tied else "chosen by its score"
    if n is None or successes is None:
        return reason
    early = ", decided before all samples were drawn" if short else ""
    return f"{reason}; {successes} of {counted(n, 'sample')} correct{early}"


def with_reason(table: pa.Table, why: dict[str, Any]) -> pa.Table:
    """The table with the reason for the subset in its metadata (key `decile`, JSON)."""
    return table.replace_schema_metadata({"decile": json.dumps(why, sort_keys=True)})


def reason(table: pa.Table) -> dict[str, Any]:
    """The reason that `with_reason` wrote."""
    return dict(json.loads((table.schema.metadata or {}).get(b"decile", b"{}")))
