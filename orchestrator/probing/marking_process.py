"""The child process that marks for a user's own task: only this module, tasks and their imports."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

from tasks import OUTCOMES, Answer, Mark, Task, TaskError, find_task

# Called with the fields of an Answer and the reading. Returns the fields of the mark, or its error.
MarkFunction = Callable[..., Sequence[str | float | None] | str]


def marker(
    reference: str, arguments: Sequence[Any], options: dict[str, Any], reading: Any, marker_id: str
) -> MarkFunction:
    """Build the task `reference`, found as in the parent process, and return its marker.

    Raises TaskError if it is not the marker `marker_id`.
    """
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

    def mark(*arguments: Any) -> Any:
        *answer, reading = arguments
        marks = task_of(reading).mark_all([Answer(*answer)])
        if not isinstance(marks, list | tuple) or len(marks) != 1:
            return f"mark_all() of one answer returned {marks!r:.80}"
        if problem := check(marks[0]):
            return problem
        *parts, score = marks[0]
        return [*parts, None if score is None else float(score)]

    return mark


def check(mark: Any) -> str:
    """What is wrong with a mark; empty if nothing is."""
    if not isinstance(mark, Mark):
        return f"mark() returned {mark!r:.80}"
    if mark.outcome not in OUTCOMES:
        return f"mark() returned the outcome {mark.outcome!r:.80}"
    if not isinstance(mark.rule, str) or not isinstance(mark.extracted, str | None):
        return f"mark() returned {mark!r:.160} with an extracted or rule that is not a text"
    score = mark.score
    number = isinstance(score, Real) and not isinstance(score, bool)  # NumPy's scalars are Real
    if score is not None and not (number and 0 <= score <= 1):
        return f"mark() returned the score {score!r:.80}"
    try:
        f"{mark.extracted}{mark.rule}".encode()
    except UnicodeEncodeError:
        return f"mark() returned {mark!r:.160}, which holds half of a surrogate pair"
    return ""
