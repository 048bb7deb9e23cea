"""Group outcomes while training -> learnable percentage. Pure: Arrow and NumPy only.

Counted from our own record of each group's correctness, never from the trainer's logs: those mix
in shaped rewards, and report a batch's spread as if it were a group's.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.schema import GROUPS

Rewards = Sequence[float | None]


def is_live(rewards: Rewards) -> bool:
    """Whether a group's rewards differ, so that some completion has an advantage."""
    known = {r for r in rewards if r is not None}
    return len(known) > 1


class GroupCounts(NamedTuple):
    """Groups by what they can teach. all_right + all_wrong + live + unmarked = groups."""

    live: int
    all_right: int
    all_wrong: int
    unmarked: int


def count_groups(groups: pa.Table) -> GroupCounts:
    """Live and dead groups of a `groups` table."""
    kinds = [_kind(rewards) for rewards in groups["rewards"].to_pylist()]
    return GroupCounts(*(kinds.count(kind) for kind in GroupCounts._fields))


def _kind(rewards: Rewards) -> str:
    known = [r for r in rewards if r is not None]
    if not known:
        return "unmarked"
    if is_live(known):
        return "live"
    return "all_right" if known[0] > 0 else "all_wrong"


def live_share(groups: pa.Table) -> dict[int, float]:
    """Update -> share of its groups that are live."""
    updates = groups["update"].to_numpy()
    live = np.array([is_live(r) for r in groups["rewards"].to_pylist()], dtype=float)
    return {int(u): float(live[updates == u].mean()) for u in np.unique(updates)}


def learnable_pct(groups: pa.Table) -> float:
    """100 × mean over updates of the share of live groups (paper A, learnable percentage).

    With one group per update it is the paper's 100/T · Σ 1{std(r_t) > 0}. nan without updates.
    """
    shares = list(live_share(groups).values())
    return 100 * float(np.mean(shares)) if shares else float("nan")


def training_metrics(groups: pa.Table) -> dict[int, dict[str, float]]:
    """Update -> the metrics that `groups` gives, under their MLflow names.

    `train/live_pct` is that update's own; `train/learnable_pct` the mean up to it;
    `train/accuracy` is absent where no completion of the update could be marked, and
    `train/accuracy_other_reading` is what it would be under the reading that rewards do not use.
    """
    shares = live_share(groups)
    running = 100 * np.cumsum(list(shares.values())) / np.arange(1, len(shares) + 1)
    outcomes = {
        "train/accuracy": _outcomes(groups, "outcomes"),
        "train/accuracy_other_reading": _outcomes(groups, "other_outcomes"),
    }
    found: dict[int, dict[str, float]] = {}
    for (update, share), mean in zip(shares.items(), running, strict=True):
        found[update] = {"train/live_pct": 100 * share, "train/learnable_pct": float(mean)}
        for name, marked in outcomes.items():
            if marked.get(update):
                found[update][name] = marked[update].count("correct") / len(marked[update])
    return found


def _outcomes(groups: pa.Table, column: str) -> dict[int, list[str]]:
    """Update -> outcomes of its completions, errors left out."""
    found: dict[int, list[str]] = {}
    for update, group in zip(groups["update"].to_pylist(), groups[column].to_pylist(), strict=True):
        found.setdefault(update, []).extend(o for o in group if o != "error")
    return found


class GroupRecorder:
    """Collects the groups of a trial as they are marked; its rows survive a kill by checkpoint."""

    def __init__(self, rows: list[dict[str, Any]] | None = None) -> None:
        self.rows = rows or []

    def add(self, update: int, completions: Sequence[Mapping[str, Any]], group_size: int) -> None:
        """Record one generation: completions in order, each prompt's group contiguous.

        Each mapping holds prompt_id, tier, reward (None where marking failed), outcome,
        other_outcome, tokens.
        """
        for start in range(0, len(completions), group_size):
            group = completions[start : start + group_size]
            ids = {c["prompt_id"] for c in group}
            if len(ids) != 1:
                raise RuntimeError(f"update {update}: one group holds the prompts {sorted(ids)}")
            self.rows.append(
                {
                    "update": update,
                    "prompt_id": group[0]["prompt_id"],
                    "rewards": [c["reward"] for c in group],
                    "tier": group[0]["tier"],
                    "outcomes": [c["outcome"] for c in group],
                    "other_outcomes": [c["other_outcome"] for c in group],
                    "tokens": [c["tokens"] for c in group],
                }
            )

    def table(self) -> pa.Table:
        """All groups so far."""
        return pa.Table.from_pylist(self.rows, schema=GROUPS)
