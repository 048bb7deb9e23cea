"""Decile's markers as reward functions of `trl.GRPOTrainer`.

trainer = GRPOTrainer(model, MarkerReward("file", marker="expression"), ...)
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from decile.errors import UserError, as_user_error
from orchestrator.probing.isolation import TOLERATED_FAILURES, mark_answers
from tasks import Answer, Task, get_task
from tasks.question_file import QuestionFile
from tasks.sources.files import message_text
from tasks.sources.texts import one_answer
from tasks.sources.values import value_text


class MarkerReward:
    """A reward function for TRL: the task's score of a completion, from 0 to 1.

    task: a name of `decile ls tasks`, or "module:Class"; options: the task's options, such as
    `marker="expression"` of `file`. Only the marker is used: the task's data set is not read.

    The rows of the trainer need the column `answer`, a gold answer or a worked solution. Markers
    that also read the question (`code`, `reasoning_gym`, `mix`, and reward functions) need the
    columns `question` and `info`, as `PromptSelector(probe=…)` writes them. There is no reward
    (None) if marking failed, and for rows without an answer. Raises UserError for an unknown task
    or option, and for a task whose environment gives the score. A call raises it if a column is
    missing, or if marking fails for all completions, of which there are several.
    """

    __name__ = "correct"  # TRL logs it under this name; `decile diagnose` reads it as correctness

    @as_user_error()
    def __init__(self, task: str, **options: Any) -> None:
        self._task, self._options = task, options
        if self.marker.environment is not None:
            raise UserError(
                f"task {task} plays episodes, which are not texts: write environment_factory=, "
                f"and a reward function that reads environments"
            )

    @cached_property
    def marker(self) -> Task:
        """The task."""
        return get_task(self._task, **self._options)

    def __getstate__(self) -> dict[str, Any]:
        """The name and the options: other processes rebuild the task."""
        return {"_task": self._task, "_options": self._options}

    @as_user_error()
    def __call__(
        self,
        completions: Sequence[Any],
        answer: Sequence[Any] | None = None,
        question: Sequence[str] | None = None,
        info: Sequence[str] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The score of each completion. Raises UserError if a column is missing."""
        if answer is None:
            raise UserError("the rows have no column answer: rename the column of gold answers")
        if self._reads_prompts and (question is None or info is None):
            missing = "question" if question is None else "info"
            raise UserError(
                f"the marker of task {self._task} reads the column {missing}: write "
                "train_dataset=PromptSelector(…, probe=probe).dataset, or add the column"
            )
        blank = [""] * len(completions)
        golds = map(self._gold, answer)
        rows = zip(completions, golds, question or blank, info or blank, strict=True)
        answers = [Answer(_text(c), gold, False, asked, more) for c, gold, asked, more in rows]
        marks = mark_answers(self.marker, answers)
        failed = [mark.rule for mark in marks if mark.outcome == "error"]
        if len(failed) == len(marks) > TOLERATED_FAILURES:
            raise UserError(
                f"the marker of task {self._task} fails for all {len(marks):,} completions of a "
                f"call ({failed[0]}): correct it, and check it with decile mark"
            )
        return [
            mark.reward if each.answer or self._reads_prompts else None
            for each, mark in zip(answers, marks, strict=True)
        ]

    @property
    def _reads_prompts(self) -> bool:
        """Whether a mark depends on more than the completion and the gold answer."""
        if isinstance(self.marker, QuestionFile):
            return self.marker.function is not None
        return type(self.marker).mark_answer is not Task.mark_answer

    def _gold(self, value: Any) -> str:
        """The gold answer in the task's form; its own text if it has a different form."""
        if self._reads_prompts:
            return value_text(value)
        text = value_text(one_answer(value)[0])
        return self.marker.read_answer(text) or text


def _text(completion: Any) -> str:
    """The text of a completion, which may be chat messages."""
    if isinstance(completion, str):
        return completion
    return message_text(completion[-1].get("content")) if completion else ""
