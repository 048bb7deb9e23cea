"""Rollouts of a GRPO update by Decile's own decoder, their rewards, and the record of every group.

The decoder reads a prompt once for its whole group and stops computing a row that has ended; see
`sampling.transformers`. A rollout's randomness depends on (seed, update, prompt_id, its number in
the group) alone: a resumed cell draws what an undisturbed one draws, and neither the number of
workers nor the memory at hand changes a rollout by more than rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.planning.cells import Cell
from orchestrator.probing.samples import mark_completions
from orchestrator.sampling.base import Completion, Request, SamplingSettings, cut_at_stop
from orchestrator.sampling.transformers import TransformersSampler
from tasks import Task

# TRL's form of completions, their token ids, and the rows of their prompts -> their marks.
MarkRollouts = Callable[
    [Sequence[Any], Sequence[Sequence[int]], Sequence[Mapping[str, Any]]], list[dict[str, Any]]
]


def marker(cell: Cell, task: Task, ends: Sequence[int]) -> MarkRollouts:
    """Marks rollouts for the record of groups: prompt_id, tier, tokens, outcomes, reward.

    A completion whose last token is not one of `ends` was cut by the limit.
    """
    stop = cell.probe.settings.stop

    def mark(
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[dict[str, Any]]:
        sampled = [
            as_completion(message[0]["content"], ids, ends, stop)
            for message, ids in zip(completions, completion_ids, strict=True)
        ]
        answers = [row["answer"] for row in rows]
        marks = mark_completions(task, sampled, answers, cell.probe.dataset.max_marking_errors)
        return [
            {
                "prompt_id": row["prompt_id"],
                "tier": row["tier"],
                "tokens": completion.tokens,
                "outcome": mark.outcome,
                "reward": mark.reward,
                "other_outcome": other.outcome,
            }
            for (mark, other), completion, row in zip(marks, sampled, rows, strict=True)
        ]

    return mark


def correctness(
    mark: MarkRollouts, groups: GroupRecorder, group_size: int
) -> Callable[..., list[float | None]]:
    """The reward: 1 for a correct completion, else 0; it also records every group.

    Workers see slices of the batch. In rank order they are the whole generation, with each prompt's
    group contiguous, so every worker records the same groups. Rollouts that an online policy has
    drawn are recorded already, and bring their `reward`.
    """

    def correctness_reward(
        completions: list[Any],
        completion_ids: list[list[int]],
        prompt_id: list[str],
        answer: list[str],
        tier: list[str],
        trainer_state: Any,
        reward: list[float] | None = None,
        **_: Any,
    ) -> list[float | None]:
        if reward is not None:
            return [*reward]
        rows = [
            {"prompt_id": i, "answer": a, "tier": t}
            for i, a, t in zip(prompt_id, answer, tier, strict=True)
        ]
        gathered = gather_object(mark(completions, completion_ids, rows))
        groups.add(trainer_state.global_step + 1, gathered, group_size)
        filled = fill_unmarked([row["reward"] for row in gathered], group_size)
        return [*filled[own_rows(len(rows))]]

    return correctness_reward


def own_rows(rows: int) -> slice:
    """This worker's part of what all workers gathered, `rows` each, in rank order."""
    rank: int = PartialState().process_index
    return slice(rank * rows, (rank + 1) * rows)


def as_completion(
    text: str, ids: Sequence[int], ends: Sequence[int], stop: Sequence[str]
) -> Completion:
    """A rollout as a sampler would return it.

    TRL cannot stop at a string: where it draws, the text after one is cut off before marking.
    """
    before = cut_at_stop(text, stop)
    if before is not None:
        return Completion(before, len(ids), "stop")
    return Completion(text, len(ids), "stop" if ids[-1] in ends else "length")


def fill_unmarked(rewards: Sequence[float | None], group_size: int) -> list[float]:
    """Rewards for the loss: an unmarked completion gets its group's mean, hence no advantage.

    As 0 it would count as wrong, which a marking error never is. With a value from other groups it
    would have an advantage, and make a dead group live.
    """
    filled: list[float] = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        known = [r for r in group if r is not None]
        mean = sum(known) / len(known) if known else 0.0
        filled += [mean if r is None else r for r in group]
    return filled


class Decoder:
    """Draws the rollouts of a trainer's model while it trains."""

    def __init__(self, model: Any, tokenizer: Any, ends: Sequence[int | None], cell: Cell) -> None:
        self.sampler = TransformersSampler(model, tokenizer)
        self.sampler.eos = [end for end in ends if end is not None]
        self.settings = SamplingSettings(
            **{name: cell.grpo[name] for name in ("temperature", "top_p", "max_completion_length")},
            top_k=cell.grpo["top_k"] or 0,
            seed=cell.seed,
            stop=cell.probe.settings.stop,
        )

    def draw(
        self, update: int, drawn: Sequence[tuple[str, int]], prompts: Sequence[list[int]]
    ) -> list[list[int]]:
        """Token ids of one rollout per prompt, which ends with an end token unless it was cut.

        `drawn` holds each rollout's prompt_id and its number in the group, and `prompts` its
        prompt's token ids; rollouts of a prompt are contiguous.
        """
        requests, rendered, begin = [], [], 0
        for prompt_id, group in groupby(drawn, key=lambda each: each[0]):
            numbers = [number for _, number in group]
            requests.append(Request(f"{update}\x1f{prompt_id}", [], numbers))
            rendered.append(prompts[begin])
            begin += len(numbers)
        rows = self.sampler.sample_ids(requests, rendered, self.settings)
        return [ids for part in rows for ids in part]
