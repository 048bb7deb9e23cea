"""Prompts -> marked samples: sampling and marking in one place, for probes and evaluations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.terminal import PlainError
from orchestrator.probing.episodes import SampleRequest, episode_row, play, stored_episode
from orchestrator.probing.isolation import NOT_TRIED, TOLERATED_FAILURES, mark_answers
from orchestrator.sampling.base import (
    Completion,
    Listener,
    Request,
    Sampler,
    SamplingSettings,
    drawn,
    listening,
)
from orchestrator.storage.schema import SAMPLES
from tasks import Answer, Mark, Prompt, Task
from tasks.environments import environment_of, reward_mark, scores_itself


class ProbeError(PlainError, RuntimeError):
    """Samples could not be drawn or marked, for the reason in the message."""


class MarkingError(ProbeError):
    """Marking failed for a larger share of a batch than the experiment allows."""


class MarkPair(NamedTuple):
    """The marks of a completion with the reading that rewards use, and with the other reading."""

    mark: Mark
    other: Mark

    def columns(self) -> dict[str, Any]:
        """As columns of SAMPLES."""
        other = {"other_outcome": self.other.outcome, "other_rule": self.other.rule}
        return {**self.mark._asdict(), **other}


def sample_and_mark(
    sampler: Sampler,
    task: Task,
    requests: Sequence[SampleRequest],
    settings: SamplingSettings,
    max_errors: float = 1.0,
    listener: Listener | None = None,
) -> pa.Table:
    """Sample and mark: one row (schema SAMPLES) per prompt and requested sample index.

    Raises MarkingError if marking fails for more than the share `max_errors`, TaskError if a task
    fails, and SamplingError if a server or a user's own engine fails.
    """
    results = draw(sampler, task, requests, settings, max_errors, listener)
    return mark_samples(task, requests, results, max_errors)


def draw(
    sampler: Sampler,
    task: Task,
    requests: Sequence[SampleRequest],
    settings: SamplingSettings,
    max_errors: float = 1.0,
    listener: Listener | None = None,
) -> list[list[Completion]]:
    """The completions of each request. Raises TaskError and SamplingError.

    The listener is notified of samples, which are episodes if the task has an environment. If
    environments fail in more than the share `max_errors`, the rest is not played, and marking
    raises MarkingError.
    """
    if task.environment is not None:
        return play(sampler, task, requests, settings, max_errors=max_errors, listener=listener)
    prompts = [
        Request(p.prompt_id, task.messages_of(p.question, p.info), i, p.question)
        for p, i in requests
    ]
    with listening(sampler, listener):
        return drawn(sampler, prompts, settings)


def mark_samples(
    task: Task,
    requests: Sequence[SampleRequest],
    results: Sequence[Sequence[Completion | None]],
    max_errors: float = 1.0,
) -> pa.Table:
    """One row (schema SAMPLES) per completion that is not None. Raises MarkingError."""
    pairs, completions = [], []
    for (prompt, indices), of_prompt in zip(requests, results, strict=True):
        for index, completion in zip(indices, of_prompt, strict=True):
            if completion is not None:
                pairs.append((prompt, index))
                completions.append(completion)
    marks = mark_completions(task, completions, [prompt for prompt, _ in pairs], max_errors)
    rows = [
        sample_row(pair, completion, mark, task.marker_of(pair[0]))
        for pair, completion, mark in zip(pairs, completions, marks, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def sample_row(
    sample: tuple[Prompt, int], completion: Completion, mark: MarkPair, marker: str
) -> dict[str, Any]:
    """A completion of a prompt with its sample number, as a row of SAMPLES."""
    prompt, number = sample
    return {
        "prompt_id": prompt.prompt_id,
        "sample": number,
        "completion": completion.text,
        "tokens": completion.tokens,
        "finish": completion.finish,
        **mark.columns(),
        "marker": marker,
        "episode": completion.episode and episode_row(completion.episode),
    }


def mark_completions(
    task: Task,
    completions: Sequence[Completion],
    prompts: Sequence[Prompt],
    max_errors: float = 1.0,
) -> list[MarkPair]:
    """Both readings of each completion; one that was never generated is an error in both.

    Raises MarkingError if marking fails for more than the share `max_errors`.
    """
    marks: list[Mark | None] = [_without_marker(task, completion) for completion in completions]
    marked = [i for i, mark in enumerate(marks) if mark is None]
    answers = [
        Answer.to(prompts[i], completions[i].text, completions[i].finish == "length")
        for i in marked
    ]
    generated = sum(completion.finish != "error" for completion in completions)
    tolerated = max(TOLERATED_FAILURES, max_errors * generated)
    for i, mark in zip(marked, mark_answers(task, answers, tolerated), strict=True):
        marks[i] = mark
    every = [mark for mark in marks if mark is not None]
    tried = [mark for mark in every if mark.rule not in (NOT_TRIED, NOT_GENERATED)]
    failed = [mark for mark in tried if mark.outcome == "error"]
    if len(failed) > tolerated or any(mark.rule == NOT_TRIED for mark in every):
        rules = Counter(mark.rule for mark in failed).most_common(3)
        why = ", ".join(f"{count} × {rule}" for rule, count in rules)
        problem = "answers could not be marked"
        advice = "run decile doctor to check the marker"
        if task.environment is not None and not marked:
            problem = f"episodes failed in {environment_of(task.environment).reference}"
            advice = "fix the code named after @, or allow it more time with mark_limits"
        raise MarkingError(
            f"{len(failed)} of {len(tried)} {problem} ({why}), more than "
            f"max_marking_errors: {max_errors:g} allows: {advice}"
        )
    others, reading = [*every], task.other_reading
    if reading is not task:
        for i, mark in zip(marked, mark_answers(reading, answers, tolerated), strict=True):
            others[i] = mark
    return [MarkPair(mark, other) for mark, other in zip(every, others, strict=True)]


NOT_GENERATED = "not-generated"  # the rule of an answer that the engine could not give


def _without_marker(task: Task, completion: Completion) -> Mark | None:
    """The mark of a completion that the task's marker does not read; None if it does.

    Not read are completions that were never generated, that failed in the environment, or that get
    their score from the environment; the latter are an error without an episode.
    """
    episode = completion.episode
    error = Mark("error", None, NOT_GENERATED)
    if completion.finish == "error":
        return error
    if episode is not None and episode.failure:
        return error._replace(rule=episode.failure)
    if not scores_itself(task):
        return None
    if episode is None:
        return error._replace(rule="no-episode")
    return reward_mark(task, episode.reward, completion.finish == "length")


def update_marks(
    samples: pa.Table, task: Task, prompts: Mapping[str, Prompt], max_errors: float = 1.0
) -> pa.Table:
    """The same samples with the task's current marker; its existing marks are kept.

    prompts: by prompt_id. Raises MarkingError like `mark_completions`.
    """
    rows = samples.to_pylist()
    stale = [row for row in rows if row["marker"] != task.marker_of(prompts[row["prompt_id"]])]
    completions = [
        Completion(
            text=row["completion"],
            tokens=row["tokens"],
            finish=row["finish"],
            episode=stored_episode(row["episode"]),
        )
        for row in stale
    ]
    own = [prompts[row["prompt_id"]] for row in stale]
    marks = mark_completions(task, completions, own, max_errors)
    for row, prompt, mark in zip(stale, own, marks, strict=True):
        row |= {**mark.columns(), "marker": task.marker_of(prompt)}
    return pa.Table.from_pylist(rows, schema=SAMPLES)
