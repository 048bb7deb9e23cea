"""What a cell consumed, from what its trial recorded. Pure.

Counted while it trains (`running_ledger`) and from the stored tables at the end (`ledger`): the two
agree, and `stats/fairness.py` compares the ledgers of the cells.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from orchestrator.evaluation.groups import GroupRecorder, Tally, total
from orchestrator.planning.cells import Cell

LogRow = Mapping[str, Any]


def ledger(
    cell: Cell,
    size: int,
    groups: pa.Table,
    log: Sequence[LogRow],
    seconds: float,
    discarded: pa.Table | None = None,
) -> dict[str, float]:
    """The ledger of a cell from its `groups` table and its log (rows of update, name, value).

    `size` is the number of prompts in its subset, which may be smaller than the budget.

    prompts: distinct ones trained on; epochs: passes over the subset; rollouts: completions;
    prompt_tokens, generated_tokens, live_tokens (generated in live groups), truncated_tokens (of
    completions cut without an answer); updates of the optimiser; live, all_right, all_wrong,
    unmarked: groups by kind; all_wrong_truncated: all-wrong groups of which at least half were cut;
    kl_only_updates: those without a live group while beta > 0 pulls towards the base model;
    seconds of training without evaluations, gpu_seconds over all workers.

    Where an online policy `discarded` groups, rollouts and tokens include theirs, and prompts and
    kinds of groups do not. discarded, discarded_live: such groups, and the live ones among them;
    discarded_rollouts, discarded_tokens (generated): the parts of the totals.
    """
    rows = None if discarded is None else discarded.to_pylist()
    return running_ledger(cell, size, GroupRecorder(groups.to_pylist(), rows), log, seconds)


def running_ledger(
    cell: Cell, size: int, groups: GroupRecorder, log: Sequence[LogRow], seconds: float
) -> dict[str, float]:
    """The ledger so far, from counts that are kept while recording."""
    counts, lost = total(groups.tallies.values()), total(groups.discarded_tallies.values())
    generated = counts.generated_tokens + lost.generated_tokens
    logged = log[-1]["update"] if log else 0
    processed = (int(row["value"]) for row in reversed(log) if row["name"] == "num_tokens")
    all_tokens = next(processed, generated)  # with those of prompts
    updates = max([logged, *groups.tallies])
    return {
        "prompts": len(groups.seen),
        "epochs": groups.seen.total() / size,
        "rollouts": counts.rollouts + lost.rollouts,
        "prompt_tokens": all_tokens - generated,
        "generated_tokens": generated,
        "live_tokens": counts.live_tokens,
        "truncated_tokens": counts.truncated_tokens + lost.truncated_tokens,
        "updates": updates,
        "live": counts.live,
        "all_right": counts.all_right,
        "all_wrong": counts.all_wrong,
        "unmarked": counts.unmarked,
        "all_wrong_truncated": counts.all_wrong_truncated,
        "kl_only_updates": _kl_only(groups.tallies, updates) if pulls_to_base(cell) else 0,
        "seconds": round(seconds, 3),
        "gpu_seconds": round(seconds * cell.resources.gpus * cell.resources.workers, 3),
    } | ({} if groups.discarded is None else _of_discarded(lost))


def _of_discarded(lost: Tally) -> dict[str, float]:
    return {
        "discarded": lost.groups,
        "discarded_live": lost.live,
        "discarded_rollouts": lost.rollouts,
        "discarded_tokens": lost.generated_tokens,
    }


def pulls_to_base(cell: Cell) -> bool:
    """Whether a dead group still moves the weights, by the KL term (TRL issue 5588)."""
    return float(cell.grpo.get("beta", 0.0)) > 0 and not cell.mask_dead_groups


def _kl_only(tallies: Mapping[int, Tally], updates: int) -> int:
    """Updates without a live group; those that reuse an earlier generation share its groups."""
    starts = sorted(tallies)
    ends = [*starts[1:], updates + 1]
    return sum(
        end - start
        for start, end in zip(starts, ends, strict=True)
        if tallies[start].groups and not tallies[start].live
    )
