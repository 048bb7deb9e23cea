"""Prompts -> marked samples: sampling and judgement in one place, for probes and evaluations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from orchestrator.sampling.base import Completion, Request, Sampler, SamplingSettings
from orchestrator.storage.schema import SAMPLES
from tasks import Answer, Mark, Prompt, Task

Wanted = tuple[Prompt, Sequence[int]]
FEW = 2  # failures that never stop a batch, however small it is


class MarkingError(RuntimeError):
    """More judgements of a batch failed than the experiment allows; the message says which."""


class Judged(NamedTuple):
    """One completion under the reading that rewards use, and under the other."""

    mark: Mark
    other: Mark

    def columns(self) -> dict[str, Any]:
        """As columns of SAMPLES."""
        other = {"other_outcome": self.other.outcome, "other_rule": self.other.rule}
        return {**self.mark._asdict(), **other}


def draw(
    sampler: Sampler,
    task: Task,
    wanted: Sequence[Wanted],
    settings: SamplingSettings,
    max_errors: float = 1.0,
) -> pa.Table:
    """Sample and mark: one row (schema SAMPLES) per prompt and wanted sample index.

    Raises MarkingError where more than the share `max_errors` cannot be judged.
    """
    requests = [
        Request(p.prompt_id, task.messages(p.question), want, p.question) for p, want in wanted
    ]
    drawn = [c for completions in sampler.sample(requests, settings) for c in completions]
    asked = [(prompt, index) for prompt, indices in wanted for index in indices]
    judged = judge(task, drawn, [prompt.answer for prompt, _ in asked], max_errors)
    marker = task.marker_id
    rows = [
        {
            "prompt_id": prompt.prompt_id,
            "sample": index,
            "completion": completion.text,
            "tokens": completion.tokens,
            "finish": completion.finish,
            **both.columns(),
            "marker": marker,
        }
        for (prompt, index), completion, both in zip(asked, drawn, judged, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def judge(
    task: Task, completions: Sequence[Completion], golds: Sequence[str], max_errors: float = 1.0
) -> list[Judged]:
    """Both readings of each completion; one that was never generated is an error in both.

    Raises MarkingError where more than the share `max_errors` of the judgements failed.
    """
    made = [i for i, completion in enumerate(completions) if completion.finish != "error"]
    answers = [
        Answer(completions[i].text, golds[i], completions[i].finish == "length") for i in made
    ]
    marks, others = task.mark_all(answers), task.other.mark_all(answers)
    _refuse_failing(marks, max_errors)
    unmade = Mark("error", None, "not-generated")
    judged = [Judged(unmade, unmade)] * len(completions)
    for i, mark, other in zip(made, marks, others, strict=True):
        judged[i] = Judged(mark, other)
    return judged


def _refuse_failing(marks: Sequence[Mark], max_errors: float) -> None:
    failed = [mark for mark in marks if mark.outcome == "error"]
    if len(failed) > max(FEW, max_errors * len(marks)):
        rules = Counter(mark.rule for mark in failed).most_common(3)
        why = ", ".join(f"{count} × {rule}" for rule, count in rules)
        raise MarkingError(
            f"{len(failed)} of {len(marks)} answers could not be judged ({why}): see decile doctor;"
            f" max_marking_errors: {max_errors:g} is the share that is let pass"
        )


def is_current(samples: pa.Table, task: Task) -> bool:
    """Whether all marks are those of the task's current marker."""
    return set(samples["marker"].unique().to_pylist()) <= {task.marker_id}


def remark(samples: pa.Table, task: Task, golds: Mapping[str, str]) -> pa.Table:
    """The same samples under the task's current marker; marks of the current one are kept.

    `golds` maps prompt_id to the right answer.
    """
    marker = task.marker_id
    rows = samples.to_pylist()
    stale = [row for row in rows if row["marker"] != marker]
    texts = [Completion(row["completion"], row["tokens"], row["finish"]) for row in stale]
    answers = [golds[row["prompt_id"]] for row in stale]
    for row, both in zip(stale, judge(task, texts, answers), strict=True):
        row |= {**both.columns(), "marker": marker}
    return pa.Table.from_pylist(rows, schema=SAMPLES)
