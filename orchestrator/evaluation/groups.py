"""Group outcomes while training -> learnable percentage. Pure: Arrow and NumPy only.

Counted from our own record of each group's correctness, never from the trainer's logs: those mix
in shaped rewards, and report a batch's spread as if it were a group's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.storage.schema import GROUPS

Rewards = Sequence[float | None]

# An update is explained when at most this share of its groups is live.
HARDLY_ANY = 1 / 8
# Most groups are of this dead kind -> what to do.
ADVICE = {
    "all_wrong": "use policy middle or raise num_generations",
    "all_wrong, truncated": "raise max_completion_length or use policy middle",
    "all_right": "use policy middle or hard",
    "unmarked": "the marker fails, see decile doctor",
}


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
    """What some groups come to. live + all_right + all_wrong + unmarked = groups.

    `all_wrong_truncated` are those all-wrong groups of whose completions at least half were cut by
    the token limit without an answer. Tokens are generated ones. `marked` completions are those
    whose marking did not fail; `other_…` is the reading that rewards do not use.
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
    tokens, spent = group["tokens"], sum(group["tokens"])
    cut = [o == "truncated" for o in outcomes]
    return Tally(
        groups=1,
        **{kind: 1},
        all_wrong_truncated=int(kind == "all_wrong" and 2 * sum(cut) >= len(cut)),
        rollouts=len(tokens),
        generated_tokens=spent,
        live_tokens=spent if kind == "live" else 0,
        truncated_tokens=sum(t for t, c in zip(tokens, cut, strict=True) if c),
        correct=outcomes.count("correct"),
        marked=len(outcomes) - outcomes.count("error"),
        other_correct=others.count("correct"),
        other_marked=len(others) - others.count("error"),
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    found = Tally()
    for one in tallies:
        found = Tally(*map(add, found, one))
    return found


def tallies_by(groups: pa.Table, column: str) -> dict[Any, Tally]:
    """Value of a column (update, tier, prompt_id) -> tally of its groups, in rising order."""
    found: dict[Any, Tally] = {}
    for row in groups.to_pylist():
        found[row[column]] = total([found.get(row[column], Tally()), tally(row)])
    return dict(sorted(found.items()))


class GroupCounts(NamedTuple):
    """Groups by what they can teach. all_right + all_wrong + live + unmarked = groups."""

    live: int
    all_right: int
    all_wrong: int
    unmarked: int


def count_groups(groups: pa.Table) -> GroupCounts:
    """Live and dead groups of a `groups` table."""
    kinds = [kind_of(rewards) for rewards in groups["rewards"].to_pylist()]
    return GroupCounts(*map(kinds.count, GroupCounts._fields))


class GroupShares(NamedTuple):
    """Shares of groups, 0 to 1. live + all_right + all_wrong + unmarked = 1.

    `truncated` is the part of all_wrong whose completions were, to at least a half, cut by the
    token limit: too little room, rather than too hard.
    """

    live: float
    all_right: float
    all_wrong: float
    truncated: float
    unmarked: float


def _shares(counted: Tally) -> GroupShares:
    n, t = counted.groups, counted
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
    found: dict[int, dict[str, float]] = {}
    lives = 0.0
    for update, counted in tallies_by(groups, "update").items():
        lives += counted.live / counted.groups
        found[update] = _metrics(counted, lives / (len(found) + 1))
    return found


def _metrics(counted: Tally, learnable: float) -> dict[str, float]:
    shares = _shares(counted)
    parts = {
        "train/live_tokens_pct": (100 * counted.live_tokens, counted.generated_tokens),
        "train/accuracy": (counted.correct, counted.marked),
        "train/accuracy_other_reading": (counted.other_correct, counted.other_marked),
    }
    return {
        "train/learnable_pct": 100 * learnable,
        "train/live_pct": 100 * shares.live,
        "train/all_right_pct": 100 * shares.all_right,
        "train/all_wrong_pct": 100 * shares.all_wrong,
        "train/truncated_pct": 100 * shares.truncated,
        **{name: part / whole for name, (part, whole) in parts.items() if whole},
    }


def explain(groups: pa.Table) -> str | None:
    """Why these groups (of one update, or of several) teach nothing and what to do; else None.

    For people: "7 of 8 groups all wrong, 5 of them truncated: raise max_completion_length or use
    policy middle". Told where no group, or at most one in eight, is live.
    """
    return explain_tally(total(tallies_by(groups, "update").values()))


def explain_tally(counted: Tally) -> str | None:
    """As `explain`, from a tally."""
    if counted.groups == 0 or counted.live > HARDLY_ANY * counted.groups:
        return None
    dead = {kind: getattr(counted, kind) for kind in ("all_wrong", "all_right", "unmarked")}
    kinds = sorted((kind for kind in dead if dead[kind]), key=lambda kind: -dead[kind])
    cut = counted.all_wrong_truncated
    number = {kind: str(dead[kind]) for kind in kinds}
    number[kinds[0]] += f" of {counted.groups} groups"
    truncated = {"all_wrong": f", {cut} of them truncated"} if cut else {}
    told = [f"{number[k]} {k.replace('_', ' ')}{truncated.get(k, '')}" for k in kinds]
    mostly_cut = kinds[0] == "all_wrong" and 2 * cut >= counted.all_wrong
    return f"{', '.join(told)}: {ADVICE[kinds[0] + ', truncated' * mostly_cut]}"


class GroupRecorder:
    """Collects the groups of a trial as they are marked; its rows survive a kill by checkpoint.

    Each group is counted once, when it comes: `tallies` by update, `seen` groups by prompt.
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
        """As `training_metrics` of the table gives for this update, without reading it again."""
        if update not in self.tallies:
            return {}
        lives = [t.live / t.groups for u, t in self.tallies.items() if u <= update]
        return _metrics(self.tallies[update], sum(lives) / len(lives))

    def explain(self, update: int) -> str | None:
        """As `explain` says of this update's groups."""
        return explain_tally(self.tallies.get(update, Tally()))
