"""What every task is: prompts, the chat that asks them, and the judgement of an answer.

A task never generates text and knows nothing of models, Ray or files of results. It is cheap to
build, so that every process (driver, sampler actor, trial) builds its own from a name and options.
"""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

from tasks.marking import Mark
from tasks.prompting import Asking, Message, Template, chat

Marking = Literal["strict", "lenient"]


class TaskError(ValueError):
    """The user's task, option or data file is wrong; the message says what to write instead."""


@dataclass(frozen=True, slots=True)  # pools of millions: a dict for each would double them
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


class Answer(NamedTuple):
    """What there is to mark: a completion, the gold answer, and whether generation was cut."""

    completion: str
    answer: str
    truncated: bool = False


class Task(ABC):
    """Base of all tasks. Subclasses take their options as keyword-only arguments.

    `version` changes when questions change, `marker_version` when a judgement can: the first is
    part of a probe's key; the second is stored beside every mark and never part of the key, so
    that stored completions can be marked again for free. `templates` are the task's wordings by
    preset; `examples` are answers to try the marker on where no data set is at hand.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    marker_version: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    templates: ClassVar[Mapping[str, Template]] = {"plain": Template("{question}")}

    def __init__(
        self, *, marking: Marking = "lenient", prompt: Mapping[str, Any] | None = None
    ) -> None:
        if marking not in ("strict", "lenient"):
            raise TaskError(f"marking {marking!r} is unknown: write strict or lenient")
        self.marking: Marking = marking
        try:
            self.asking = Asking.of(prompt or {}, self.templates)
        except ValueError as error:
            raise TaskError(str(error)) from error
        self.notes: list[str] = []

    @abstractmethod
    def train(self) -> list[Prompt]:
        """The training pool, free of duplicates, always in the same order."""

    @abstractmethod
    def test(self) -> list[Prompt]:
        """The questions that accuracy is measured on; none of them is in the training pool."""

    @abstractmethod
    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """Judge the completion alone, never the prompt's text, under the reading `self.marking`.

        `truncated` says that generation hit its token limit; it decides between the outcomes
        `truncated` and `unparsed` where no answer is found.
        """

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """The mark of each answer; a task whose marker can use many processes does so here."""
        return [self.mark(*answer) for answer in answers]

    def messages(self, question: str) -> list[Message]:
        """The chat that asks `question` (role and content), before the model's chat template."""
        return chat(self.templates[self.asking.preset], self.asking, question)

    @property
    def marker_id(self) -> str:
        """What judges, as stored beside every mark: task, marker version, reading.

        A task whose options change a judgement adds them.
        """
        return f"{self.name}/{self.marker_version}/{self.marking}"

    @property
    def provenance(self) -> dict[str, str]:
        """Where questions were read, by split: `hub@revision`, `file sha256:…`; {} if generated."""
        return {}

    def answering(self, answer: str) -> str:
        """A completion that does nothing but give this answer."""
        return rf"\boxed{{{answer}}}"

    @property
    def chat_template_kwargs(self) -> dict[str, Any]:
        """What the preset hands to the model's chat template; the model's own settings win."""
        return dict(self.templates[self.asking.preset].chat_template_kwargs)

    def with_marking(self, marking: Marking) -> Self:
        """The same task under the other reading; nothing is loaded again."""
        other = copy.copy(self)
        other.marking = marking
        return other

    @property
    def other(self) -> Self:
        """The same task under the reading that rewards do not use."""
        return self.with_marking("strict" if self.marking == "lenient" else "lenient")

    @classmethod
    def trials(cls) -> "list[Task]":
        """Tasks of this class by which its marker is tried where no data set is at hand."""
        return [cls()]

    def trial_prompts(self) -> list[Prompt]:
        """Prompts to try the marker on: `examples` where the class has some, else its test."""
        if self.examples:
            return [make_prompt(self.name, f"example {a}", a, "") for a in self.examples]
        return self.test()

    def perturb(self, prompt: Prompt) -> str:
        """A wrong answer in the form of a right one, by which a marker is tried."""
        number = prompt.answer.replace(",", "")
        if number.lstrip("-").isdigit():
            return str(int(number) + 1)
        answers = (p.answer for p in self.trial_prompts())
        return next((a for a in answers if a != prompt.answer), f"no {prompt.answer}")
