"""Marks answers: in this process for tasks that ship with Decile, else in child processes.

A marker of your own runs in child processes wherever it is used; so does a subclass of a built-in
task. A fault concerns only the answer at hand: its outcome is `error`, and the rule names the
fault.

* `ZeroDivisionError@mine.py:12`: it raises an exception, calls `sys.exit` or reads the input.
* `crashed@SIGSEGV`, `crashed@exit-code-3`: it ends its process.
* `time-limit`: it does not return in time.
* `MemoryError@mine.py:12`: it allocates too much memory.
* `not-tried`: more than `max_marking_errors` of the batch failed before it, so that the run stops.

What it prints is discarded. A value that is not a `tasks.Mark` with a valid outcome stops the run.
`mark_limits` of the class, or of the instance, are the limits: `MarkLimits(seconds=5, memory=2,
processes=2)`. Seconds do not count the time for which a process waits for a processor. The class
must be importable, its options must be JSON values, and `mark` must not depend on state that
`train()` or `test()` sets.
"""

import json
from collections.abc import Sequence
from typing import Any

from tasks import (
    Answer,
    Mark,
    MarkLimits,
    Task,
    TaskError,
    is_shipped,
    reference_of,
    task_errors,
    title_of,
)
from tasks.children import ChildError, Children
from tasks.question_file import QuestionFile

NOT_TRIED = "not-tried"  # the rule of an answer that was not marked because too many failed before
TOLERATED_FAILURES = 2  # failures that never stop a batch of any size
FORM = (
    "return tasks.Mark(outcome, extracted, rule, score) with the outcome correct, wrong, unparsed, "
    "truncated or error, extracted a string or None, rule a string, and score a number from 0 to 1 "
    "or left out"
)
_children: dict[tuple[Any, ...], Children] = {}  # of this process, by their inputs


def mark_answers(
    task: Task, answers: Sequence[Answer], tolerated: float | None = None
) -> list[Mark]:
    """The mark of each answer.

    After more than `tolerated` failures of a user's own marker, the rest is not tried (outcome
    error, rule NOT_TRIED). Raises TaskError if it returns anything but marks.
    """
    if is_shipped(task):
        if isinstance(task, QuestionFile) and task.function is not None:
            return task.function_marks(answers, tolerated)
        return task.mark_all(answers)
    if not answers:
        return []
    reading = getattr(task, "marking", None)
    try:
        replies = _children_of(task).map([[*answer, reading] for answer in answers], tolerated)
    except ChildError as error:
        raise TaskError(f"{title_of(task)}: its marking process {error.reason}") from error
    marks = []
    for reply, answer in zip(replies, answers, strict=True):
        if reply.failure is not None:
            marks.append(Mark("error", None, reply.reason))
        elif isinstance(reply.value, str):
            raise TaskError(
                f"{title_of(task)}: {reply.value} for {answer.completion!r:.80}: {FORM}"
            )
        else:
            marks.append(Mark(*reply.value))
    return marks


def _children_of(task: Task) -> Children:
    """The child processes with the task's marker, started at first use."""
    arguments, options = task.built_with
    with task_errors(task, "marker_id or mark_limits"):
        marker_id = task.marker_id
        limits = MarkLimits(*task.mark_limits)
    reading = getattr(task, "marking", None)
    try:
        built_with = json.dumps([arguments, options, reading, marker_id])
        content = json.dumps([arguments, options], sort_keys=True)
    except (TypeError, ValueError) as error:
        raise TaskError(
            f"{title_of(task)}: an option cannot be sent to its marking process ({error}): "
            "use strings, numbers, booleans, lists and dicts"
        ) from error
    key = (type(task), content, limits)
    if key not in _children:
        setup = [reference_of(task), *json.loads(built_with)]
        target = "orchestrator.probing.marking_process:marker"
        memory = int(limits.memory * 2**30)
        children = Children(target, limits.processes, limits.seconds, memory, setup)
        _children.setdefault(key, children)  # another thread may have been first
    return _children[key]
