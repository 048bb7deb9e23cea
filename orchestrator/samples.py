"""Prompts -> marked samples: sampling and judgement in one place, for probes and evaluations."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from orchestrator.pools import marker_name
from orchestrator.sampling.base import Completion, Request, Sampler, SamplingSettings
from orchestrator.schema import SAMPLES
from tasks import Mark, Prompt, Task

Wanted = tuple[Prompt, Sequence[int]]


def draw(
    sampler: Sampler, task: Task, wanted: Sequence[Wanted], settings: SamplingSettings
) -> pa.Table:
    """Sample and mark: one row (schema SAMPLES) per prompt and wanted sample index."""
    requests = [Request(p.prompt_id, task.messages(p.question), want) for p, want in wanted]
    drawn = sampler.sample(requests, settings)
    rows = [
        _row(task, prompt, index, completion)
        for (prompt, indices), completions in zip(wanted, drawn, strict=True)
        for index, completion in zip(indices, completions, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def _row(task: Task, prompt: Prompt, index: int, completion: Completion) -> dict[str, Any]:
    return {
        "prompt_id": prompt.prompt_id,
        "sample": index,
        "completion": completion.text,
        "tokens": completion.tokens,
        "finish": completion.finish,
        **judge(task, completion.text, prompt.answer, completion.finish)._asdict(),
        "marker": marker_name(task),
    }


def judge(task: Task, text: str, answer: str, finish: str) -> Mark:
    """The task's mark of a completion that ended by `finish`; one never made is an error."""
    if finish == "error":
        return Mark("error", None, "not-generated")
    return task.mark(text, answer, finish == "length")


def remark(samples: pa.Table, task: Task, prompts: Iterable[Prompt]) -> pa.Table:
    """The same samples under the task's current marker; marks of the current one are kept."""
    marker = marker_name(task)
    if set(samples["marker"].unique().to_pylist()) <= {marker}:
        return samples
    answers = {p.prompt_id: p.answer for p in prompts}
    rows = samples.to_pylist()
    for row in rows:
        if row["marker"] != marker:
            answer = answers[row["prompt_id"]]
            mark = judge(task, row["completion"], answer, row["finish"])
            row |= {**mark._asdict(), "marker": marker}
    return pa.Table.from_pylist(rows, schema=SAMPLES)
