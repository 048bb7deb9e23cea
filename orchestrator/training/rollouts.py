"""Rollouts of a GRPO update by Decile's own decoder, their rewards, and the record of every group.

The decoder reads a prompt once for its whole group and stops computing a row that has ended; see
`sampling.transformers`. A rollout's randomness depends only on (seed, update, prompt_id, number in
the group). A resumed cell therefore draws like an undisturbed one, and the number of workers and
the available memory change rollouts only by rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from orchestrator.config.experiment import REWARDS
from orchestrator.evaluation.groups import GroupRecorder, Marked
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.plugins.streams import stream_key
from orchestrator.probing.episodes import group_row, play
from orchestrator.probing.isolation import TOLERATED_FAILURES
from orchestrator.probing.samples import MarkingError, mark_completions
from orchestrator.sampling.base import (
    Completion,
    Listeners,
    Request,
    SamplingSettings,
    cut_at_stop,
    listening,
    nobody,
)
from orchestrator.sampling.transformers import TransformersSampler
from tasks import Answer, Prompt, Task
from tasks.prompt_table import PromptTable
from tasks.reward_functions import reward_values

# Completions in TRL's form, their token ids, and the rows of their prompts -> their marks.
MarkRollouts = Callable[
    [Sequence[Any], Sequence[Sequence[int]], Sequence[Mapping[str, Any]]], list[Marked]
]
EPISODE = "episode"  # key in TRL's form of a completion: the played Completion
FAILED = "failed"  # in place of a component if its function raised, hung or died


def marker(cell: Cell, task: Task, ends: Sequence[int]) -> MarkRollouts:
    """Marks rollouts for the record; a component that failed is FAILED.

    A completion was cut by the limit if its last token is not one of `ends`.
    """
    stop = cell.probe.settings.stop
    max_errors = cell.probe.dataset.max_marking_errors
    functions = [name for name in cell.reward if name not in REWARDS]

    def mark(
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Marked]:
        sampled = [
            message[0].get(EPISODE) or as_completion(message[0]["content"], ids, ends, stop)
            for message, ids in zip(completions, completion_ids, strict=True)
        ]
        prompts = [Prompt(*(row[name] for name in Prompt.__slots__)) for row in rows]
        marks = mark_completions(task, sampled, prompts, max_errors)
        components: dict[str, list[Any]] = {}
        answers = [
            Answer.to(prompt, completion.text, completion.finish == "length")
            for prompt, completion in zip(prompts, sampled, strict=True)
        ]
        tolerated = max(TOLERATED_FAILURES, max_errors * len(answers))
        for name in functions:
            values = reward_values(
                name,
                answers,
                task.messages_of,
                answer_name=task.answer_name,
                completion_ids=completion_ids,
                tolerated=tolerated,
            )
            failures = [value.failure for value in values if value.failure]
            if len(failures) > tolerated:
                raise MarkingError(
                    f"reward {name} failed for {len(failures)} of "
                    f"{counted(len(answers), 'completion')} "
                    f"({failures[0]}), more than max_marking_errors: {max_errors:g} allows"
                )
            components[name] = [FAILED if v.failure else v.value for v in values]
        return [
            Marked(
                prompt_id=row["prompt_id"],
                tier=row["tier"],
                tokens=completion.tokens,
                outcome=mark.outcome,
                other_outcome=other.outcome,
                score=mark.score,
                components={name: values[i] for name, values in components.items()},
                episode=completion.episode and group_row(completion.episode),
            )
            for i, ((mark, other), completion, row) in enumerate(
                zip(marks, sampled, rows, strict=True)
            )
        ]

    return mark


def with_rewards(cell: Cell, update: int, marks: Sequence[Marked], group_size: int) -> list[Marked]:
    """The marks of an update's rollouts, groups contiguous, with the `reward` of training.

    The reward is the score, or the weighted sum of components; components that do not apply count
    as 0. `random`, `format` and `flipped` are controls: `random` is a coin that depends only on
    (seed, update, prompt_id, number in the group); `format` is 1 for any answer; `flipped` is 1
    minus the score. If marking or a component failed, the reward is None. If the verifier errs
    (`noisy_score`), rewards follow it, and marks do not change.
    """
    scores = [noisy_score(cell, update, i % group_size, mark) for i, mark in enumerate(marks)]
    if not cell.reward:
        return [m._replace(reward=score) for m, score in zip(marks, scores, strict=True)]
    rewarded = []
    for number, (mark, score) in enumerate(zip(marks, scores, strict=True)):
        coin = stream_key(cell.seed, update, mark.prompt_id, number % group_size) % 2
        built_in = {
            "score": score,
            "random": float(coin),
            "format": float(mark.outcome in ("correct", "wrong")),
            "flipped": None if score is None else 1.0 - score,
        }
        values = {**built_in, **mark.components}
        each = {name: values[name] for name in cell.reward}
        failed = mark.score is None or FAILED in each.values()
        known = {name: None if value == FAILED else value for name, value in each.items()}
        reward = sum(weight * (known[name] or 0.0) for name, weight in cell.reward.items())
        rewarded.append(mark._replace(components=known, reward=None if failed else reward))
    return rewarded


def noisy_score(cell: Cell, update: int, number: int, mark: Marked) -> float | None:
    """The score of a rollout by a verifier with the cell's error rates.

    An error turns the score of a correct answer into 0, and of any other into 1. The rollouts with
    errors depend only on (seed, update, prompt_id, number in the group); a higher rate adds further
    ones.
    """
    correct = mark.outcome == "correct"
    rate = cell.false_negative_rate if correct else cell.false_positive_rate
    if mark.score is None or not rate:
        return mark.score
    draw = stream_key("verifier", cell.seed, update, mark.prompt_id, number) / 2**128
    return float(not correct) if draw < rate else mark.score


def reward_function(
    cell: Cell, mark: MarkRollouts, groups: GroupRecorder
) -> Callable[..., list[float | None]]:
    """The reward of the loss; it also records every group.

    Workers see slices of the batch. In rank order these are the whole generation, with each
    prompt's group contiguous, so every worker records the same groups. Rollouts drawn for an online
    policy are already recorded, and have their `reward`.
    """

    group_size = cell.batch.group_size

    def correctness_reward(
        completions: list[Any],
        completion_ids: list[list[int]],
        trainer_state: Any,
        reward: list[float] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        if reward is not None:
            return [*reward]
        fields = zip(*(columns[name] for name in Prompt.__slots__), strict=True)
        rows = [dict(zip(Prompt.__slots__, values, strict=True)) for values in fields]
        update = trainer_state.global_step + 1
        marks = gather_object(mark(completions, completion_ids, rows))
        rewarded = with_rewards(cell, update, marks, group_size)
        groups.add(update, rewarded, group_size)
        rewards = fill_unmarked([each.reward for each in rewarded], group_size)
        return [*rewards[own_rows(len(rows))]]

    if cell.reward:  # TRL logs the mean under the function's name
        names = (name.rpartition(":")[2] for name in cell.reward)
        correctness_reward.__name__ = f"{'_'.join(names)}_reward"
    return correctness_reward


def own_rows(rows: int) -> slice:
    """This worker's part of the values gathered from all workers, `rows` each, in rank order."""
    rank: int = PartialState().process_index
    return slice(rank * rows, (rank + 1) * rows)


def as_completion(
    text: str, ids: Sequence[int], ends: Sequence[int], stop: Sequence[str]
) -> Completion:
    """A rollout as a sampler would return it.

    TRL cannot stop at a string: if it draws, the text after a stop string is removed before
    marking.
    """
    before = cut_at_stop(text, stop)
    if before is not None:
        return Completion(before, len(ids), "stop")
    return Completion(text, len(ids), "stop" if ids[-1] in ends else "length")


def fill_unmarked(rewards: Sequence[float | None], group_size: int) -> list[float]:
    """Rewards for the loss: an unmarked completion gets its group's mean, so that its advantage is
    0.

    A reward of 0 would count as wrong, but a marking error is not a wrong answer. A value from
    different groups would cause an advantage, and make a dead group live.
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
        options = cell.probe.model.chat_template_kwargs
        grpo = cell.grpo_settings
        self.sampler = TransformersSampler(model, tokenizer, options)
        self.sampler.eos = [end for end in ends if end is not None]
        self.settings = SamplingSettings(
            temperature=grpo.temperature,
            top_p=grpo.top_p,
            top_k=grpo.top_k or 0,
            max_completion_length=grpo.max_completion_length,
            seed=cell.seed,
            stop=cell.probe.settings.stop,
        )
        self.listeners: Listeners = nobody

    def draw(
        self, update: int, drawn: Sequence[tuple[str, int]], prompts: Sequence[list[int]]
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Token ids of one rollout per prompt, ending with an end token unless cut, and
        log-probabilities.

        drawn: each rollout's prompt_id and its number in the group. prompts: token ids of its
        prompt. Rollouts of a prompt are contiguous.
        """
        requests = []
        rendered = []
        begin = 0
        for prompt_id, group in groupby(drawn, key=lambda each: each[0]):
            numbers = [number for _, number in group]
            requests.append(Request(f"{update}\x1f{prompt_id}", [], numbers))
            rendered.append(prompts[begin])
            begin += len(numbers)
        with listening(self.sampler, self.listeners(len(drawn))):
            groups = self.sampler.sample_ids(requests, rendered, self.settings)
        rows = [row for group in groups for row in group]
        return [row.ids for row in rows], [row.log_probs for row in rows]


class Player:
    """Plays the episodes of a trainer's model while it trains: TRL's `rollout_func`.

    Episodes have the randomness of `Decoder` and the loop of probes. prompts: those that may be
    trained on. max_errors: the share of episodes that may fail.
    """

    def __init__(
        self, decoder: Decoder, task: Task, prompts: Sequence[Prompt], max_errors: float
    ) -> None:
        self.decoder = decoder
        self.task = task
        self.prompts = PromptTable.of(prompts)
        self.max_errors = max_errors

    def __call__(self, _prompts: Any, trainer: Any) -> dict[str, Any]:
        """Play one episode for each of the trainer's `drawn`, and store them in its `played`."""
        requests = []
        for prompt_id, group in groupby(trainer.drawn, key=lambda each: each[0]):
            [prompt] = self.prompts.with_ids([prompt_id]).values()
            requests.append((prompt, [number for _, number in group]))
        stream = f"{trainer.state.global_step + 1}\x1f"
        sampler = self.decoder.sampler
        settings = self.decoder.settings
        listener = self.decoder.listeners(len(trainer.drawn))
        played = play(sampler, self.task, requests, settings, stream, self.max_errors, listener)
        trainer.played = [completion for of_prompt in played for completion in of_prompt]
        episodes = [completion.episode for completion in trainer.played]
        # TRL needs at least one token each: a masked one if an episode has none.
        end = sampler.eos[0]
        return {
            "prompt_ids": [[*e.prompt_ids] or [end] if e else [end] for e in episodes],
            "completion_ids": [[*c.ids] or [end] for c in trainer.played],
            "env_mask": [[*e.mask] or [0] if e else [0] for e in episodes],
            "logprobs": None,
        }
