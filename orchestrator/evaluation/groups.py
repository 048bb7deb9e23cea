"""Group outcomes while training -> learnable percentage. Pure: Arrow and NumPy only.

Counted from our own record of each group's correctness, never from the trainer's logs: those mix
in shaped rewards, and report the spread of a batch as that of a group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.storage.schema import GROUPS

Rewards = Sequence[float | None]


def is_live(rewards: Rewards) -> bool:
    """Whether a group's rewards differ, so that some completion has an advantage."""
    known = {r for r in rewards if r is not None}
    return len(known) > 1


def kind_of(rewards: Rewards) -> str:
    """live, all_right, all_wrong, or unmarked where no completion could be marked."""
    known = [r for r in rewards if r is not None]
    if not known:
        return "unmarked"
    if is_live(known):
        return "live"
    return "all_right" if known[0] > 0 else "all_wrong"


class Tally(NamedTuple):
    """Counts over some groups. live + all_right + all_wrong + unmarked = groups.

    `all_wrong_truncated`: all-wrong groups of which at least half of the completions were cut by
    the token limit without an answer. Tokens are generated ones. `marked`: completions whose
    marking did not fail. `other_…`: by the reading that rewards do not use.
    """

    groups: int = 0
    live: int = 0
    all_right: int = 0
    all_wrong: int = 0
    unmarked: int = 0
    all_wrong_truncated: int = 0
    rollouts: int = 0
    generated_tokens: int = 0
    live_tokens: int = 0
    truncated_tokens: int = 0
    correct: int = 0
    marked: int = 0
    other_correct: int = 0
    other_marked: int = 0


def tally(group: Mapping[str, Any]) -> Tally:
    """One row of `groups` (rewards, outcomes, other_outcomes and tokens of its G completions)."""
    kind, outcomes, others = kind_of(group["rewards"]), group["outcomes"], group["other_outcomes"]
    tokens, generated = group["tokens"], sum(group["tokens"])
    cut = [o == "truncated" for o in outcomes]
    return Tally(
        groups=1,
        **{kind: 1},
        all_wrong_truncated=int(kind == "all_wrong" and 2 * sum(cut) >= len(cut)),
        rollouts=len(tokens),
        generated_tokens=generated,
        live_tokens=generated if kind == "live" else 0,
        truncated_tokens=sum(t for t, c in zip(tokens, cut, strict=True) if c),
        correct=outcomes.count("correct"),
        marked=len(outcomes) - outcomes.count("error"),
        other_correct=others.count("correct"),
        other_marked=len(others) - others.count("error"),
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    sums = Tally()
    for each in tallies:
        sums = Tally(*map(add, sums, each))
    return sums


def tallies_by(groups: pa.Table, column: str) -> dict[Any, Tally]:
    """Value of a column (update, tier, prompt_id) -> tally of its groups, in rising order."""
    tallies: dict[Any, Tally] = {}
    for row in groups.to_pylist():
        tallies[row[column]] = total([tallies.get(row[column], Tally()), tally(row)])
    return dict(sorted(tallies.items()))


class GroupShares(NamedTuple):
    """Shares of groups, 0 to 1. live + all_right + all_wrong + unmarked = 1.

    `truncated` is the part of all_wrong of which at least half of the completions were cut by the
    token limit: the limit may be too low, rather than the prompts too hard.
    """

    live: float
    all_right: float
    all_wrong: float
    truncated: float
    unmarked: float


def _shares(t: Tally) -> GroupShares:
    n = t.groups
    return GroupShares(
        t.live / n, t.all_right / n, t.all_wrong / n, t.all_wrong_truncated / n, t.unmarked / n
    )


def group_shares(groups: pa.Table) -> dict[int, GroupShares]:
    """Update -> shares of its groups by kind."""
    return {update: _shares(t) for update, t in tallies_by(groups, "update").items()}


def by_tier(groups: pa.Table) -> dict[str, GroupShares]:
    """Tier -> shares of its groups by kind, over all updates; over time: filter the table first."""
    return {tier: _shares(t) for tier, t in tallies_by(groups, "tier").items()}


def live_share(groups: pa.Table) -> dict[int, float]:
    """Update -> share of its groups that are live."""
    return {update: shares.live for update, shares in group_shares(groups).items()}


def learnable_pct(groups: pa.Table) -> float:
    """100 × mean over updates of the share of live groups (paper A, learnable percentage).

    With one group per update it is the paper's 100/T · Σ 1{std(r_t) > 0}. nan without updates.
    """
    shares = list(live_share(groups).values())
    return 100 * float(np.mean(shares)) if shares else float("nan")


def training_metrics(groups: pa.Table) -> dict[int, dict[str, float]]:
    """Update -> the metrics that `groups` gives, under their MLflow names.

    `train/learnable_pct` is the mean up to the update; the others are the update's own: percentages
    of its groups (`live`, `all_right`, `all_wrong`, of those `truncated`) and of its generated
    tokens (`live_tokens`, absent where there are none). `train/accuracy` is absent where no
    completion of the update could be marked, and `train/accuracy_other_reading` is what it would be
    under the reading that rewards do not use.
    """
    metrics: dict[int, dict[str, float]] = {}
    live_sum = 0.0
    for update, counts in tallies_by(groups, "update").items():
        live_sum += counts.live / counts.groups
        metrics[update] = _metrics(counts, live_sum / (len(metrics) + 1))
    return metrics


def _metrics(counts: Tally, learnable: float) -> dict[str, float]:
    shares = _shares(counts)
    parts = {
        "train/live_tokens_pct": (100 * counts.live_tokens, counts.generated_tokens),
        "train/accuracy": (counts.correct, counts.marked),
        "train/accuracy_other_reading": (counts.other_correct, counts.other_marked),
    }
    return {
        "train/learnable_pct": 100 * learnable,
        "train/live_pct": 100 * shares.live,
        "train/all_right_pct": 100 * shares.all_right,
        "train/all_wrong_pct": 100 * shares.all_wrong,
        "train/truncated_pct": 100 * shares.truncated,
        **{name: part / whole for name, (part, whole) in parts.items() if whole},
    }


class GroupRecorder:
    """Collects the groups of a trial as they are marked; checkpoints keep its rows.

    Each group is counted once, when it is added: `tallies` by update, `seen` groups by prompt.
    """

    def __init__(self, rows: list[dict[str, Any]] | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.tallies: dict[int, Tally] = {}
        self.seen: Counter[str] = Counter()
        for row in rows or []:
            self._keep(row)

    def _keep(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.seen[row["prompt_id"]] += 1
        before = self.tallies.get(row["update"], Tally())
        self.tallies[row["update"]] = total([before, tally(row)])

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
            self._keep(
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

    def metrics(self, update: int) -> dict[str, float]:
        """The `training_metrics` of this update, without counting all groups again."""
        if update not in self.tallies:
            return {}
        live = [t.live / t.groups for u, t in self.tallies.items() if u <= update]
        return _metrics(self.tallies[update], sum(live) / len(live))
