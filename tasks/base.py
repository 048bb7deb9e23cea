"""What every task is: prompts, the chat that asks them, and the judgement of an answer.

A task never generates text and knows nothing of models, Ray or files of results. It is cheap to
build, so that every process (driver, sampler actor, trial) builds its own from a name and options.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from tasks.marking import Mark

Marking = Literal["strict", "lenient"]
Message = dict[str, str]


class TaskError(ValueError):
    """The user's task, option or data file is wrong; the message says what to write instead."""


@dataclass(frozen=True)
class Prompt:
    """One question of a pool.

    `prompt_id` is a content hash of (task, question, answer), so order never matters.
    `tier` is the task's own grading of difficulty (objects, steps, level), as text.
    """

    prompt_id: str
    question: str
    answer: str
    tier: str


def make_prompt(task: str, question: str, answer: str, tier: str) -> Prompt:
    """A prompt with its content-hash id (16 hex digits)."""
    digest = hashlib.sha256("\x1f".join((task, question, answer)).encode()).hexdigest()
    return Prompt(digest[:16], question, answer, tier)


class Task(ABC):
    """Base of all tasks. Subclasses take their options as keyword-only arguments.

    `version` changes when questions or their wording in the chat change: it is part of a probe's
    key. `marker_version` changes when a judgement can: it is stored beside every mark, and never
    part of the key, so that stored completions can be marked again for free.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    marker_version: ClassVar[str]

    def __init__(self, *, marking: Marking = "lenient") -> None:
        if marking not in ("strict", "lenient"):
            raise TaskError(f"marking {marking!r} is unknown: write strict or lenient")
        self.marking: Marking = marking

    @abstractmethod
    def train(self) -> list[Prompt]:
        """The training pool, free of duplicates, always in the same order."""

    @abstractmethod
    def test(self) -> list[Prompt]:
        """The questions that accuracy is measured on; none of them is in the training pool."""

    @abstractmethod
    def messages(self, question: str) -> list[Message]:
        """The chat that asks `question` (role and content), before the model's chat template."""

    @abstractmethod
    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """Judge the completion alone, never the prompt's text.

        `truncated` says that generation hit its token limit; it decides between the outcomes
        `truncated` and `unparsed` where no answer is found.
        """
