"""The child process in which a task of the user's own marks: only this, tasks and their imports."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.plugins.project_modules import add_project
from tasks import OUTCOMES, Answer, Mark, Task, TaskError, find_task

# Called with a completion, its gold answer, whether it was truncated, and the reading. Returns the
# fields of the mark, or what is wrong with it.
MarkFunction = Callable[[str, str, bool, Any], Sequence[str | None] | str]


def marker(
    path: Sequence[str],
    project: Sequence[str],
    reference: str,
    arguments: Sequence[Any],
    options: dict[str, Any],
    reading: Any,
    marker_id: str,
) -> MarkFunction:
    """Build the task `reference`, found as in the owner's process, and return its marker.

    Raises TaskError where that is not the marker `marker_id`.
    """
    sys.path[:] = path
    add_project(reversed(project))
    task = find_task(reference)(*arguments, **options)
    readings: dict[Any, Task] = {}

    def task_of(reading: Any) -> Task:
        if reading not in readings:
            same = getattr(task, "marking", None) == reading
            readings[reading] = task if same else task.with_marking(reading)
        return readings[reading]

    if (own := task_of(reading).marker_id) != marker_id:
        raise TaskError(
            f"built with the same options, it has the marker_id {own!r} in place of {marker_id!r}: "
            "derive marker_id from the options alone"
        )

    def mark(completion: str, answer: str, truncated: bool, reading: Any) -> Any:
        marks = task_of(reading).mark_all([Answer(completion, answer, truncated)])
        if not isinstance(marks, list | tuple) or len(marks) != 1:
            return f"mark_all() of one answer returned {marks!r:.80}"
        return [*marks[0]] if not (problem := check(marks[0])) else problem

    return mark


def check(mark: Any) -> str:
    """What is wrong with a mark; empty if nothing is."""
    if not isinstance(mark, Mark):
        return f"mark() returned {mark!r:.80}"
    if mark.outcome not in OUTCOMES:
        return f"mark() returned the outcome {mark.outcome!r:.80}"
    if not isinstance(mark.rule, str) or not isinstance(mark.extracted, str | None):
        return f"mark() returned {mark!r:.160}, whose extracted or rule is not a text"
    try:
        f"{mark.extracted}{mark.rule}".encode()
    except UnicodeEncodeError:
        return f"mark() returned {mark!r:.160}, which holds half of a surrogate pair"
    return ""
