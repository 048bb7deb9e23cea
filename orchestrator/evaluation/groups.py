"""Group outcomes while training -> learnable %, and why updates teach nothing. Pure.

Counted from our own record of each group's correctness, never from the trainer's logs: those mix in
shaped rewards, and report the spread of a batch as that of a group. A group whose rewards differ
while its correctness does not is a phantom: it moves the weights, but carries no information about
answers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.remedies import reading_remedies
from orchestrator.evaluation.liveness import HARDLY_ANY, Rewards, correctness, is_live, kind_of
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.storage.schema import GROUPS
from policies import End


class GroupRow(TypedDict):
    """A row of GROUPS as plain values."""

    update: int
    prompt_id: str
    rewards: Rewards
    tier: str
    outcomes: Sequence[str]
    other_outcomes: Sequence[str]
    tokens: Sequence[int]
    scores: Rewards
    components: Sequence[tuple[str, Rewards]] | None
    episodes: Sequence[Mapping[str, Any] | None] | None


class Marked(NamedTuple):
    """A rollout with its mark, and what training rewards it with.

    `score` and `reward` are None if they are unknown. `components` are the reward's, by name;
    `episode` is what a group's row stores of a multi-turn task (`group_row`).
    """

    prompt_id: str
    tier: str
    tokens: int
    outcome: str
    other_outcome: str
    score: float | None
    components: Mapping[str, Any]
    reward: float | None = None
    episode: Mapping[str, Any] | None = None


class GroupShares(NamedTuple):
    """Shares of groups, 0 to 1. live + all_right + all_wrong + unmarked = 1.

    `truncated` is the part of all_wrong with at least half of the completions cut off by the token
    limit: the limit may be too low, rather than the prompts too hard.
    """

    live: float
    all_right: float
    all_wrong: float
    truncated: float
    unmarked: float


class Tally(NamedTuple):
    """Counts over some groups, by correctness. live + all_right + all_wrong + unmarked = groups.

    `rewarded`: groups whose rewards differ, so they have advantages; `phantom`: those among them
    whose correctness does not differ; `shaped`: groups with a reward that is not correctness.
    `all_wrong_truncated`: all-wrong groups with at least half of the completions cut off by the
    token limit without an answer. Tokens are generated ones. `marked`: completions whose marking
    did not fail; `unparsed` and `truncated`: those among them without an answer that was read.
    `other_…`: by the reading that rewards do not use. The last five count episodes of multi-turn
    tasks, and are 0 elsewhere.
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
    unparsed: int = 0
    truncated: int = 0
    other_correct: int = 0
    other_marked: int = 0
    rewarded: int = 0
    phantom: int = 0
    shaped: int = 0
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tool_tokens: int = 0
    environment_seconds: float = 0.0

    @property
    def failures(self) -> dict[str, int]:
        """The completions that are not correct, by outcome."""
        wrong = self.marked - self.correct - self.unparsed - self.truncated
        errors = self.rollouts - self.marked
        by_outcome = {"wrong": wrong, "unparsed": self.unparsed, "truncated": self.truncated}
        return by_outcome | {"error": errors}

    @property
    def shares(self) -> GroupShares:
        """The shares of groups by kind; all 0 without a group."""
        counts = self.live, self.all_right, self.all_wrong, self.all_wrong_truncated, self.unmarked
        return GroupShares(*(count / max(1, self.groups) for count in counts))


def tally(group: GroupRow) -> Tally:
    """One row of `groups` (rewards, outcomes, other_outcomes and tokens of its G completions)."""
    rewards, outcomes, others = group["rewards"], group["outcomes"], group["other_outcomes"]
    correct = correctness(outcomes)
    kind, rewarded = kind_of(correct), is_live(rewards)
    tokens, generated = group["tokens"], sum(group["tokens"])
    cut = [o == "truncated" for o in outcomes]
    episodes = [each for each in group.get("episodes") or () if each is not None]
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
        unparsed=outcomes.count("unparsed"),
        truncated=sum(cut),
        other_correct=others.count("correct"),
        other_marked=len(others) - others.count("error"),
        rewarded=int(rewarded),
        phantom=int(rewarded and kind != "live"),
        shaped=int(rewards != correct),
        turns=sum(episode["turns"] for episode in episodes),
        tool_calls=sum(episode["tool_calls"] for episode in episodes),
        tool_errors=sum(episode["tool_errors"] for episode in episodes),
        tool_tokens=sum(episode["tool_tokens"] for episode in episodes),
        environment_seconds=sum(episode["seconds"] for episode in episodes),
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    sums = Tally()
    for each in tallies:
        sums = Tally(*map(add, sums, each))
    return sums


def tallies_by(
    groups: pa.Table, column: str, discarded: pa.Table | None = None
) -> dict[Any, Tally]:
    """Value of a column (update, tier, prompt_id) -> tally of its groups, in rising order.

    The groups of `discarded` (same schema), which an online policy drew and did not train on, are
    not counted; an update may have no others.
    """
    values = [] if discarded is None else discarded[column].to_pylist()
    tallies: dict[Any, Tally] = dict.fromkeys(values, Tally())
    for row in groups.to_pylist():
        tallies[row[column]] = total([tallies.get(row[column], Tally()), tally(row)])
    return dict(sorted(tallies.items()))


def group_shares(
    groups: pa.Table, discarded: pa.Table | None = None, by: str = "update"
) -> dict[Any, GroupShares]:
    """Update, or tier, -> shares by kind of the groups trained on; all 0 if there are none."""
    return {value: t.shares for value, t in tallies_by(groups, by, discarded).items()}


def learnable_pct(groups: pa.Table, discarded: pa.Table | None = None) -> float:
    """100 × mean over updates of the share of live groups (paper A, learnable percentage).

    With one group per update it is the paper's 100/T · Σ 1{std(r_t) > 0}. nan without updates.
    """
    shares = [each.live for each in group_shares(groups, discarded).values()]
    return 100 * float(np.mean(shares)) if shares else float("nan")


def learnable_drawn_pct(groups: pa.Table, discarded: pa.Table) -> float:
    """The same for all groups that were drawn, whether they were trained on or discarded.

    If a group was trained on in part, its rest does not count.
    """
    trained, drawn = (
        [*zip(table["update"].to_pylist(), table["prompt_id"].to_pylist(), strict=True)]
        for table in (groups, discarded)
    )
    known = {*trained}
    whole = pa.array(np.array([place not in known for place in drawn], dtype=bool))
    return learnable_pct(pa.concat_tables([groups, discarded.filter(whole)]))


def training_metrics(
    groups: pa.Table, discarded: pa.Table | None = None
) -> dict[int, dict[str, float]]:
    """Update -> the metrics that `groups` gives, under their MLflow names.

    `train/learnable_pct` is the mean up to the update, and so is `train/learnable_drawn_pct`, over
    all groups drawn, including `discarded` ones. All others are the update's own, and absent if
    they are not defined.
    """
    lost = None if discarded is None else discarded.to_pylist()
    recorder = GroupRecorder(groups.to_pylist(), lost)
    return {update: recorder.metrics(update) for update in sorted(recorder.tallies)}


def group_table(rows: Sequence[GroupRow]) -> pa.Table:
    """The rows as a table (schema GROUPS)."""
    return pa.Table.from_pylist(rows, schema=GROUPS)


class GroupRecorder:
    """Collects the groups of a trial as they are marked; checkpoints keep its rows.

    Each group is counted once, when it is added: `tallies` by update, and `seen` groups by prompt,
    of the groups trained on (`rows`), and the number of groups of each of the `sizes`. `discarded`
    holds those that an online policy drew and did not train on, with `discarded_tallies`; it is
    None for a policy that discards none. Where an update trains on a part of a group, the rest is
    among the discarded: its completions and tokens count, but it is not a group of its own.
    `refreshed` holds the prompts that were probed again before an update, all counted in
    `refreshed_tally`; it is None without refreshes. `drawn` are the ids of all prompts of these
    three.
    """

    def __init__(
        self,
        rows: Sequence[GroupRow] = (),
        discarded: Sequence[GroupRow] | None = None,
        refreshed: Sequence[GroupRow] | None = None,
    ) -> None:
        self.rows: list[GroupRow] = []
        self.tallies: dict[int, Tally] = {}
        self.seen: Counter[str] = Counter()
        self.drawn: set[str] = set()
        self.sizes: Counter[int] = Counter()
        self._trained: set[tuple[int, str]] = set()  # update and prompt_id
        self.discarded: list[GroupRow] | None = None if discarded is None else []
        self.discarded_tallies: dict[int, Tally] = {}
        # update -> name of a component -> its sum and number of values, of groups trained on
        self._components: dict[int, dict[str, tuple[float, int]]] = {}
        # update -> share of live groups, of those trained on and of those drawn; and the means up
        # to it, which are computed when they are first read
        self._live: dict[int, tuple[float, float]] = {}
        self._live_means: dict[int, np.ndarray] = {}
        for row in rows:
            self._keep(row)
        for row in discarded or []:
            self._discard(row)
        self.refreshed: list[GroupRow] | None = None if refreshed is None else []
        self.refreshed_tally = Tally()
        for row in refreshed or []:
            self._refresh(row)

    def _keep(self, row: GroupRow) -> None:
        self.rows.append(row)
        self.seen[row["prompt_id"]] += 1
        self.drawn.add(row["prompt_id"])
        self.sizes[len(row["outcomes"])] += 1
        self._trained.add((row["update"], row["prompt_id"]))
        before = self.tallies.get(row["update"], Tally())
        self.tallies[row["update"]] = total([before, tally(row)])
        self._count_live(row["update"])
        for name, values in row["components"] or []:
            sums = self._components.setdefault(row["update"], {})
            known, (value, count) = [v for v in values if v is not None], sums.get(name, (0.0, 0))
            sums[name] = value + sum(known), count + len(known)

    def _discard(self, row: GroupRow) -> None:
        assert self.discarded is not None, "this policy discards no groups"
        self.discarded.append(row)
        self.drawn.add(row["prompt_id"])
        self.tallies.setdefault(row["update"], Tally())
        before, own = self.discarded_tallies.get(row["update"], Tally()), tally(row)
        if (row["update"], row["prompt_id"]) in self._trained:  # no group of its own
            own = Tally(
                rollouts=own.rollouts,
                generated_tokens=own.generated_tokens,
                truncated_tokens=own.truncated_tokens,
            )
        self.discarded_tallies[row["update"]] = total([before, own])
        self._count_live(row["update"])

    def _refresh(self, row: GroupRow) -> None:
        assert self.refreshed is not None, "this cell refreshes nothing"
        self.refreshed.append(row)
        self.drawn.add(row["prompt_id"])
        self.refreshed_tally = total([self.refreshed_tally, tally(row)])

    def _count_live(self, update: int) -> None:
        kept, lost = self.tallies[update], self.discarded_tallies.get(update, Tally())
        live, groups = kept.live + lost.live, kept.groups + lost.groups
        self._live[update] = kept.live / max(1, kept.groups), live / max(1, groups)
        self._live_means.clear()

    def add(
        self,
        update: int,
        rollouts: Sequence[Marked],
        group_size: int,
        *,
        discarded: bool = False,
        refreshed: bool = False,
    ) -> None:
        """Record some groups: each prompt's rollouts contiguous."""
        for start in range(0, len(rollouts), group_size):
            group = rollouts[start : start + group_size]
            ids = {each.prompt_id for each in group}
            if len(ids) != 1:
                raise RuntimeError(f"update {update}: one group holds the prompts {sorted(ids)}")
            row = GroupRow(
                update=update,
                prompt_id=group[0].prompt_id,
                rewards=[each.reward for each in group],
                tier=group[0].tier,
                outcomes=[each.outcome for each in group],
                other_outcomes=[each.other_outcome for each in group],
                tokens=[each.tokens for each in group],
                scores=[each.score for each in group],
                components=[
                    (name, [each.components[name] for each in group])
                    for name in group[0].components
                ],
                episodes=[each.episode for each in group] if group[0].episode else None,
            )
            if refreshed:
                self._refresh(row)
            elif discarded:
                self._discard(row)
            else:
                self._keep(row)

    def table(self) -> pa.Table:
        """All groups so far that were trained on."""
        return group_table(self.rows)

    def metrics(self, update: int) -> dict[str, float]:
        """The `training_metrics` of this update."""
        if update not in self.tallies:
            return {}
        counts, lost = self.tallies[update], self.discarded_tallies.get(update, Tally())
        learnable, learnable_drawn = self._learnable()[update].tolist()
        shares, groups, rollouts = counts.shares, max(1, counts.groups), max(1, counts.rollouts)
        metrics = {
            # mean up to this update of the % of groups that are live
            "train/learnable_pct": 100 * learnable,
            "train/live_pct": 100 * shares.live,  # % of this update's groups that are live
            # % of this update's groups that are all correct
            "train/all_right_pct": 100 * shares.all_right,
            # % of this update's groups that are all wrong
            "train/all_wrong_pct": 100 * shares.all_wrong,
            # % of this update's completions that are truncated
            "train/truncated_pct": 100 * shares.truncated,
        }
        if counts.generated_tokens:
            # % of this update's generated tokens that are in live groups
            metrics["train/live_tokens_pct"] = 100 * counts.live_tokens / counts.generated_tokens
        if counts.marked:
            # share of this update's marked completions that are correct
            metrics["train/accuracy"] = counts.correct / counts.marked
        if counts.other_marked:
            # the same under the other marking
            metrics["train/accuracy_other_reading"] = counts.other_correct / counts.other_marked
        if counts.shaped:
            # where rewards are not correctness: % of groups whose rewards differ
            metrics["train/rewarded_pct"] = 100 * counts.rewarded / groups
            # % of groups whose rewards differ and whose correctness does not
            metrics["train/phantom_pct"] = 100 * counts.phantom / groups
        if counts.turns:
            # of episodes: turns of the model per episode
            metrics["train/turns"] = counts.turns / rollouts
            # of episodes: tool calls per episode
            metrics["train/tool_calls"] = counts.tool_calls / rollouts
            # of episodes: % of the tool calls that were answered by an error
            metrics["train/tool_errors_pct"] = 100 * counts.tool_errors / max(1, counts.tool_calls)
        for name, (value, number) in self._components.get(update, {}).items():
            if number:
                metrics[f"train/reward/{name}"] = value / number
        if self.discarded is not None:
            drawn = counts.rollouts + lost.rollouts
            # with discarded groups: as learnable_pct, of all groups drawn
            metrics["train/learnable_drawn_pct"] = 100 * learnable_drawn
            # with discarded groups: % of this update's rollouts that were discarded
            metrics["train/discarded_pct"] = 100 * lost.rollouts / max(1, drawn)
        return metrics

    def _learnable(self) -> dict[int, np.ndarray]:
        """Update -> means up to it of the share of live groups: of those trained on, and drawn."""
        if not self._live_means:
            updates = sorted(self._live)
            shares = np.array([self._live[update] for update in updates])
            # Added up in the order of updates: a trial that resumes has the same means.
            means = np.cumsum(shares, axis=0) / np.arange(1, len(updates) + 1)[:, None]
            self._live_means = dict(zip(updates, means, strict=True))
        return self._live_means


ALL_DISCARDED = "every group drawn was discarded: raise max_draws, or choose from another subset"

# policy -> mean pass rate of the prompts that it would choose, minus that of the cell's prompts
RateChange = Callable[[str], float]


def explain_dead_groups(
    cell: Cell, tally: Tally, rate_change: RateChange, pass_rate: Callable[[], float]
) -> str | None:
    """Why these groups teach nothing and what to change in this cell; None if enough are live.

    Other prompts are advised only if there are any: `rate_change` says how much easier (above 0) or
    harder those of another policy are. `pass_rate`: the mean of the cell's prompts in the probe,
    nan if unknown; larger groups are not advised where it is 0 or 1. An example: "8 of 8 groups all
    wrong (20 truncated of 32 failed completions): raise grpo.max_completion_length (9)".
    """
    if {"random", "format"} & cell.reward.keys():  # these rewards differ in any group
        return None
    if cell.online and tally.groups == 0:
        return ALL_DISCARDED
    if tally.groups == 0 or tally.live > HARDLY_ANY * tally.groups:
        return None
    counts = {
        "all wrong": tally.all_wrong,
        "all correct": tally.all_right,
        "unmarked": tally.unmarked,
    }
    kinds = sorted((kind for kind in counts if counts[kind]), key=lambda kind: -counts[kind])
    parts = [f"{counts[kind]} {kind}" for kind in kinds]
    parts[0] = f"{counts[kinds[0]]} of {counted(tally.groups, 'group')} {kinds[0]}"
    failures = tally.failures
    unread = [f"{failures[o]} {o}" for o in ("unparsed", "truncated") if failures[o]]
    if unread and tally.all_wrong:
        of_failures = (
            f" ({', '.join(unread)} of {counted(sum(failures.values()), 'failed completion')})"
        )
        parts[kinds.index("all wrong")] += of_failures
    return f"{', '.join(parts)}: {_advice(cell, tally, kinds[0], rate_change, pass_rate)}"


def _advice(
    cell: Cell, tally: Tally, kind: str, rate_change: RateChange, pass_rate: Callable[[], float]
) -> str:
    grpo = cell.grpo_settings
    if kind == "unmarked":
        return "the marker fails: run decile doctor"
    unread = reading_remedies(
        tally.failures, f"grpo.max_completion_length ({grpo.max_completion_length})"
    )
    if kind == "all wrong" and unread:
        return ", or ".join(unread)
    end: End = "easy" if kind == "all wrong" else "hard"
    changes = _other_prompts(cell, rate_change, end)
    if kind == "all wrong" and grpo.temperature > 1:
        changes.append(f"lower grpo.temperature ({grpo.temperature:g})")
    elif kind == "all correct" and grpo.temperature < 1:
        changes.append(f"raise grpo.temperature ({grpo.temperature:g})")
    rate = pass_rate()
    if kind == "all wrong" and rate == 0:
        changes.append("use a stronger model or easier data (the probe solved none of the prompts)")
    elif kind == "all correct" and rate == 1:
        changes.append("use harder data (the probe solved each of the prompts every time)")
    else:
        changes.append(f"raise grpo.num_generations ({grpo.num_generations})")
    return ", or ".join(changes)


def _other_prompts(cell: Cell, rate_change: RateChange, end: End) -> list[str]:
    """The change to prompts nearer to this end; empty if there are no such prompts."""
    policy = cell.online.build_online() if cell.online else cell.static_policy.build()
    sign = 1 if end == "easy" else -1
    if change := policy.change_towards(end):
        return [change] if sign * rate_change(end) > 0 else []
    names = [name for name in ("middle", end) if sign * rate_change(name) > 0]
    return [f"use policy {' or '.join(names)}"] if names else []
