"""The prompts of each update, chosen by an online policy in place of TRL's data loader.

A policy's history is rebuilt from the groups that the cell has recorded in its checkpoints, so that
a resumed cell chooses like an undisturbed one. Rollouts that a policy discards are drawn by
Decile's decoder and marked before TRL sees the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress, groupby, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from accelerate.utils import gather_object

from orchestrator.config.allocation_entry import AllocationEntry
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.evaluation.groups import GroupRecorder, Marked
from orchestrator.training.rollouts import MarkRollouts, fill_unmarked
from orchestrator.training.workers import Workers
from policies import History, PolicyError, groups_of
from policies.online import unknown_id
from tasks.prompt_table import PromptTable

TrainingRow = dict[str, Any]  # of TRL's data set
COPY = "decile_copy"  # the column that numbers rows of a repeated prompt, from 0


class Rollout(NamedTuple):
    """One rollout: token ids of its prompt and of itself, and its text in TRL's form.

    logprobs: of its tokens, if vLLM drew it.
    """

    prompt: list[int]
    ids: list[int]
    completion: Any
    logprobs: list[float] | None = None


class Drawn(NamedTuple):
    """A rollout with its row and its marks."""

    row: TrainingRow
    rollout: Rollout
    mark: Marked


Generate = Callable[[Sequence[TrainingRow]], list[Rollout]]  # one rollout for each row
# An update, the marks of its rollouts, groups contiguous, and G -> the marks with their `reward`.
Reward = Callable[[int, Sequence[Marked], int], list[Marked]]


class Generation(NamedTuple):
    """The rows of one generation on this worker; rows of a prompt are contiguous.

    rollouts: of these rows. kept: per group of all workers, whether to train on it. Both are None
    if TRL draws and all groups are trained on. sizes: rows of each group; None for G each.
    """

    rows: list[TrainingRow]
    rollouts: list[Rollout] | None = None
    kept: list[bool] | None = None
    sizes: list[int] | None = None


@dataclass
class Chooser:
    """Chooses the prompts of every update, or divides its rollouts among them, or both.

    prompts: those of `history`, in its order. row: converts a prompt to a row of TRL's data set.
    mark: marks the rollouts that are drawn here. reward: adds the rewards of training. Without an
    online `policy`, prompts come from TRL's loader; without an `allocation`, groups have one size.
    """

    online: PolicyEntry | None
    history: History
    prompts: PromptTable
    groups: GroupRecorder
    row: Callable[[Any], TrainingRow]
    mark: MarkRollouts
    reward: Reward
    workers: Workers = field(default_factory=Workers)
    allocation: AllocationEntry | None = None

    def __post_init__(self) -> None:
        self.policy = self.online.build_online() if self.online else None
        self._known = [0, 0, 0]  # rows of the record that are in the history

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the policy's last choices, on the deciding worker; see `policies.composed`."""
        return self.policy.metrics if self.policy else {}

    def batch(
        self, update: int, rows: int, generate: Generate, loaded: Sequence[TrainingRow] = ()
    ) -> Generation:
        """The next generation, with `rows` rows on this worker; `loaded` are from TRL's loader.

        Raises PolicyError, with its place, if the policy or the allocation fails.
        """
        size = rows * self.workers.count // self.history.group_size
        if self.allocation:
            ids = [row["prompt_id"] for row in loaded[:: self.history.group_size]]
            at = self.prompts.rows_of(pa.array(ids, pa.string()))
            prompts = self.choose(update, size) if self.policy else self.prompts.take(at)
            return self._allocated(self.allocation, update, prompts, generate)
        if not self.policy or not self.policy.discards:
            return Generation(self._own(self._rows(self.choose(update, size))))
        kept: list[Drawn] = []
        rest: list[Drawn] = []
        g = self.history.group_size

        def fresh() -> int:
            self._learn()
            return int(np.count_nonzero(self.history.fresh(update)))  # not drawn for this update

        def draw(count: int, missing: int) -> int:
            prompts = self.choose(update, count, missing)
            drawn = self._draw(update, prompts, generate)
            for group, keep in drawn:
                (kept if keep else rest).extend(group)
            return sum(keep for _, keep in drawn)

        self.policy.fill(size, fresh, draw)
        # TRL's batches have one size: groups that are not trained on fill it and are masked.
        batch = [*kept, *rest][: size * g]
        rewards = fill_unmarked([each.mark.reward for each in batch], g)
        rows_of_all = [d.row | {"reward": r} for d, r in zip(batch, rewards, strict=True)]
        flags = [number < len(kept) // g for number in range(size)]
        return Generation(self._own(rows_of_all), self._own([d.rollout for d in batch]), flags)

    def _allocated(
        self, entry: AllocationEntry, update: int, prompts: PromptTable, generate: Generate
    ) -> Generation:
        """A generation with its rollouts divided among these prompts by the allocation."""
        self._learn()
        allocation, g = entry.build(), self.history.group_size
        total = len(prompts) * g * allocation.times
        rows = self.prompts.rows_of(prompts.column("prompt_id"))
        groups = groups_of(self.history, rows, total, update)
        drawn: list[list[Drawn]] = [[] for _ in prompts]
        while groups.left:
            more = allocation.more(groups)
            new = [
                self.row(prompt) | {"number": number}
                for prompt, own, count in zip(prompts, drawn, more.tolist(), strict=True)
                for number in range(len(own), len(own) + count)
            ]
            rollouts = generate(new)
            marks = self.mark([r.completion for r in rollouts], [r.ids for r in rollouts], new)
            each = map(Drawn, new, rollouts, marks)
            for own, count in zip(drawn, more.tolist(), strict=True):
                own += islice(each, count)
            correct = [sum(d.mark.outcome == "correct" for d in own) for own in drawn]
            groups = groups._replace(
                drawn=groups.drawn + more,
                correct=np.array(correct),
                left=groups.left - int(more.sum()),
            )
        batch: list[Drawn] = []
        rewards: list[float] = []
        sizes = []
        for own in drawn:
            marks = self.reward(update, [each.mark for each in own], len(own))
            filled = fill_unmarked([mark.reward for mark in marks], len(own))
            kept = allocation.keep(np.array(filled), g)
            trained, rest = (list(compress(marks, part)) for part in (kept, ~kept))
            self.groups.add(update, trained, len(trained))
            if rest:
                self.groups.add(update, rest, len(rest), discarded=True)
            batch += compress(own, kept)
            rewards += fill_unmarked([mark.reward for mark in trained], len(trained))
            sizes.append(len(trained))
        rows_of_all = [d.row | {"reward": r} for d, r in zip(batch, rewards, strict=True)]
        return Generation(rows_of_all, [d.rollout for d in batch], None, sizes)

    def choose(self, update: int, size: int, missing: int | None = None) -> PromptTable:
        """`size` prompts for an update, or further ones if it lacks `missing` (default: size)."""
        assert self.policy, "without an online policy, TRL's loader chooses"
        policy = self.policy
        self._learn()

        def decide() -> list[str]:  # by one worker, since a user's policy may not be deterministic
            ids = policy.next_ids(self.history, update, size, missing)
            return [str(prompt_id) for prompt_id in ids.to_pylist()]

        ids = self.workers.from_first(decide)
        rows = self.prompts.rows_of(pa.array(ids, pa.string()))
        for prompt_id, row in zip(ids, rows.tolist(), strict=True):
            if row < 0:
                raise PolicyError(unknown_id(policy.name, prompt_id, len(self.prompts)))
            if self.history.last_update[row] == update:
                raise PolicyError(
                    f"policy {policy.name!r} returned prompt {prompt_id!r:.80} twice for update "
                    f"{update}: leave out those with history.last_update == update"
                )
        return self.prompts.take(rows)

    def _learn(self) -> None:
        """Add the groups recorded since the last choice to the history."""
        lists = (self.groups.refreshed or [], self.groups.rows, self.groups.discarded or [])
        new = [
            (row["update"], number > 0, row["prompt_id"], row["outcomes"])
            for number, (rows, n) in enumerate(zip(lists, self._known, strict=True))
            for row in rows[n:]
        ]
        self._known = [len(rows) for rows in lists]
        # All groups of an earlier execution come at once. A refresh comes before the groups of its
        # update. A group may be trained on in part.
        counts: dict[tuple[int, bool, str], list[int]] = {}
        for update, of_groups, prompt_id, outcomes in sorted(new, key=lambda each: each[:2]):
            count = counts.setdefault((update, of_groups, prompt_id), [0, 0])
            count[0] += outcomes.count("correct")
            count[1] += len(outcomes) - outcomes.count("error")
        ids = pa.array([prompt_id for *_, prompt_id in counts], pa.string())
        places = self.prompts.rows_of(ids).tolist()
        counted = zip(counts, places, counts.values(), strict=True)
        for (update, of_groups), part in groupby(counted, key=lambda each: each[0][:2]):
            own = [(place, *count) for _, place, count in part]
            if of_groups:
                for place, correct, marked in own:
                    self.history.add(update, place, correct, marked)
            else:
                self.history.add_refresh(update, *zip(*own, strict=True))

    def _draw(
        self, update: int, prompts: PromptTable, generate: Generate
    ) -> list[tuple[list[Drawn], bool]]:
        """A recorded group of rollouts for each prompt, and whether it is kept."""
        g = self.history.group_size
        own = self._own(self._rows(prompts))
        rollouts = generate(own)
        marks = self.mark([r.completion for r in rollouts], [r.ids for r in rollouts], own)
        drawn = gather_object([*map(Drawn, own, rollouts, marks)])
        rewarded = self.reward(update, [each.mark for each in drawn], g)
        drawn = [each._replace(mark=mark) for each, mark in zip(drawn, rewarded, strict=True)]
        groups = [drawn[start : start + g] for start in range(0, len(drawn), g)]
        outcomes = [[each.mark.outcome for each in group] for group in groups]
        marked = np.array([g - each.count("error") for each in outcomes])
        correct = np.array([each.count("correct") for each in outcomes])

        def decide() -> list[bool]:
            assert self.policy, "only online policies discard groups"
            return [bool(keep) for keep in self.policy.keep(correct, marked)]

        flags = self.workers.from_first(decide)
        for group, keep in zip(groups, flags, strict=True):
            self.groups.add(update, [each.mark for each in group], g, discarded=not keep)
        return [*zip(groups, flags, strict=True)]

    def _rows(self, prompts: PromptTable) -> list[TrainingRow]:
        """A row for each rollout; those of a prompt are contiguous."""
        rows = map(self.row, prompts)
        return [dict(row) for row in rows for _ in range(self.history.group_size)]

    def _own(self, rows: list[Any]) -> list[Any]:
        """This worker's part of all rows, in rank order."""
        count = len(rows) // self.workers.count
        return rows[self.workers.rank * count : (self.workers.rank + 1) * count]
