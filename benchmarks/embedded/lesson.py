"""The training data of an embedded model: task, questions, styles of answers, stages."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from tasks import Task

OFFSETS = (1, 2, 3, 5)
Style = Literal["careful", "guess", "ramble"]


class Question(Protocol):
    """A scenario of a task, from which its question is written."""

    def question(self) -> str:
        """The text of the question."""


S = TypeVar("S", bound=Question)
Source = Callable[
    [random.Random], Iterator[S]
]  # endless scenarios, none from the test side of the split


@dataclass(frozen=True)
class Stage(Generic[S]):
    """A part of training: its scenarios, the number of steps, and the styles of completions.

    Without `with_question`, completions follow an empty prompt: their start is unpredictable, but
    the rest follows from the completion itself. Without `mixed`, every completion is careful.
    """

    name: str
    source: Source[S]
    steps: int
    with_question: bool = True
    mixed: bool = False


@dataclass(frozen=True)
class Mixture(Generic[S]):
    """Other styles of a base model: `guess` answers directly, `ramble` never answers.

    `careful_share` is the share of careful completions.
    """

    guess: Callable[[S, random.Random], str]
    ramble: Callable[[S, random.Random], str]
    careful_share: Callable[[S], float]


@dataclass(frozen=True)
class Lesson(Generic[S]):
    """Everything in which the embedded models differ.

    `careful` solves a scenario step by step; mixed stages need a `mixture`. The tokenizer is
    trained on `vocabulary` and keeps each match of the pattern `phrases` as one piece. `about`
    describes the training on the model's note, `tiers` names the task's tiers, and `chance` is the
    accuracy of a random guess in a tier, if known. With `tools`, a completion is a whole
    conversation with calls of tools and their answers, and only the assistant's turns are learned.
    `offsets` are how many tokens back each head of the first layer looks initially.
    """

    task: Task
    phrases: str
    vocabulary: Source[S]
    careful: Callable[[S], str]
    stages: tuple[Stage[S], ...]
    about: str
    tiers: str
    mixture: Mixture[S] | None = None
    chance: Callable[[str], float] | None = None
    tools: bool = False
    offsets: tuple[int, ...] = OFFSETS

    def styled(self, scenario: S, rng: random.Random) -> tuple[Style, str]:
        """One completion in a random style; 3 in 10 of those that are not careful never answer."""
        mixture = self.mixture
        assert mixture is not None, "mixed stages need a mixture"
        if rng.random() < mixture.careful_share(scenario):
            return "careful", self.careful(scenario)
        if rng.random() < 0.7:
            return "guess", mixture.guess(scenario, rng)
        return "ramble", mixture.ramble(scenario, rng)
