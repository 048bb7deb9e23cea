"""The prompts of each update, chosen by an online policy in place of TRL's data loader.

What a policy knows is rebuilt from the groups that the cell has recorded, which its checkpoints
hold: a resumed cell chooses what an undisturbed one chooses. Rollouts that a policy discards are
drawn by Decile's decoder, and marked, before TRL sees the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from accelerate.utils import gather_object

from orchestrator.config.entries import PolicyEntry, build_online_policy
from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.selection.candidates import kept_groups, next_ids, unknown_id
from orchestrator.training.rollouts import MarkRollouts, fill_unmarked
from orchestrator.training.workers import Workers
from policies import History, PolicyError, at_once_of, discards, max_draws_of
from tasks.prompt_table import PromptTable

TrainingRow = dict[str, Any]  # of TRL's data set


class Rollout(NamedTuple):
    """One rollout: token ids of its prompt and of itself, and TRL's form of its text.

    `logprobs` are those of its tokens where vLLM drew it.
    """

    prompt: list[int]
    ids: list[int]
    completion: Any
    logprobs: list[float] | None = None


class Drawn(NamedTuple):
    """A rollout with its row and its marks."""

    row: TrainingRow
    rollout: Rollout
    mark: dict[str, Any]


Generate = Callable[[Sequence[TrainingRow]], list[Rollout]]  # one rollout for each row
# An update, the marks of its rollouts, groups contiguous, and G -> the marks with their `reward`.
Reward = Callable[[int, Sequence[dict[str, Any]], int], list[dict[str, Any]]]


class Generation(NamedTuple):
    """The rows of one generation, G per prompt, on this worker.

    `rollouts` of these rows, and per group of all workers whether to train on it; both are None
    where TRL draws and all groups are trained on.
    """

    rows: list[TrainingRow]
    rollouts: list[Rollout] | None = None
    kept: list[bool] | None = None


@dataclass
class Chooser:
    """Chooses the prompts of every update.

    `prompts` are those of `history`, in its order; `row` makes a prompt a row of TRL's data set;
    `mark` marks the rollouts that are drawn here, and `reward` adds what training rewards.
    """

    online: PolicyEntry
    history: History
    prompts: PromptTable
    groups: GroupRecorder
    row: Callable[[Any], TrainingRow]
    mark: MarkRollouts
    reward: Reward
    workers: Workers = field(default_factory=Workers)

    def __post_init__(self) -> None:
        self.name = self.online.policy
        self.policy = build_online_policy(self.online)
        self._known = [0, 0, 0]  # rows of the record that the history has

    def batch(self, update: int, rows: int, generate: Generate) -> Generation:
        """The next generation, of `rows` rows on this worker.

        Raises PolicyError where the policy fails, with its place.
        """
        size = rows * self.workers.count // self.history.group_size
        if not discards(self.policy):
            return Generation(self._own(self._rows(self.choose(update, size))))
        kept: list[Drawn] = []
        rest: list[Drawn] = []
        left, g = size * max_draws_of(self.policy), self.history.group_size
        at_once = at_once_of(self.policy)
        while missing := size - len(kept) // g:
            if not (count := min(missing * at_once, left, self._fresh(update))):
                break
            prompts = self.choose(update, count, missing)
            for group, keep in self._draw(update, prompts, generate):
                (kept if keep else rest).extend(group)
            left -= count
        # TRL's batches have one size: groups that are not trained on fill it, and are masked.
        batch = [*kept, *rest][: size * g]
        rewards = fill_unmarked([each.mark["reward"] for each in batch], g)
        rows_of_all = [d.row | {"reward": r} for d, r in zip(batch, rewards, strict=True)]
        flags = [number < len(kept) // g for number in range(size)]
        return Generation(self._own(rows_of_all), self._own([d.rollout for d in batch]), flags)

    def choose(self, update: int, size: int, missing: int | None = None) -> PromptTable:
        """`size` prompts for an update, or further ones for it, which lacks `missing` (or size)."""
        self._learn()

        def decide() -> list[str]:  # by one worker: a user's policy may not be deterministic
            ids = next_ids(self.policy, self.name, self.history, update, size, missing)
            return [str(prompt_id) for prompt_id in ids.to_pylist()]

        ids = self.workers.from_first(decide)
        rows = self.prompts.rows_of(pa.array(ids, pa.string()))
        for prompt_id, row in zip(ids, rows.tolist(), strict=True):
            if row < 0:
                raise PolicyError(unknown_id(self.name, prompt_id, len(self.prompts)))
            if self.history.last_update[row] == update:
                raise PolicyError(
                    f"policy {self.name!r} returned prompt {prompt_id!r:.80} twice for update "
                    f"{update}: leave out those with history.last_update == update"
                )
        return self.prompts.take(rows)

    def _fresh(self, update: int) -> int:
        """How many prompts were not drawn for this update yet."""
        self._learn()
        return int(np.count_nonzero(self.history.fresh(update)))

    def _learn(self) -> None:
        """Add to the history what was recorded since the last choice."""
        lists = (self.groups.refreshed or [], self.groups.rows, self.groups.discarded or [])
        new = [
            (row["update"], number > 0, row["prompt_id"], row["outcomes"])
            for number, (rows, n) in enumerate(zip(lists, self._known, strict=True))
            for row in rows[n:]
        ]
        self._known = [len(rows) for rows in lists]
        # All of an earlier execution come at once; a refresh comes before the groups of its update.
        new.sort(key=lambda each: each[:2])
        places = self.prompts.rows_of(pa.array([each[2] for each in new], pa.string())).tolist()
        counts = [
            (place, outcomes.count("correct"), len(outcomes) - outcomes.count("error"))
            for place, (*_, outcomes) in zip(places, new, strict=True)
        ]
        parts = groupby(zip(new, counts, strict=True), key=lambda pair: pair[0][:2])
        for (update, of_groups), part in parts:
            own = [count for _, count in part]
            if of_groups:
                for place, correct, marked in own:
                    self.history.add(update, place, correct, marked)
            else:
                self.history.add_refresh(update, *zip(*own, strict=True))

    def _draw(
        self, update: int, prompts: PromptTable, generate: Generate
    ) -> list[tuple[list[Drawn], bool]]:
        """A group of rollouts for each prompt, recorded, and whether it is kept."""
        g, own = self.history.group_size, self._own(self._rows(prompts))
        rollouts = generate(own)
        marks = self.mark([r.completion for r in rollouts], [r.ids for r in rollouts], own)
        drawn = gather_object([*map(Drawn, own, rollouts, marks)])
        rewarded = self.reward(update, [each.mark for each in drawn], g)
        drawn = [each._replace(mark=mark) for each, mark in zip(drawn, rewarded, strict=True)]
        groups = [drawn[start : start + g] for start in range(0, len(drawn), g)]
        outcomes = [[each.mark["outcome"] for each in group] for group in groups]
        marked = np.array([g - each.count("error") for each in outcomes])
        correct = np.array([each.count("correct") for each in outcomes])

        def decide() -> list[bool]:
            assert discards(self.policy)
            kept = kept_groups(self.policy, self.name, correct, marked)
            return [bool(keep) for keep in kept]

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
