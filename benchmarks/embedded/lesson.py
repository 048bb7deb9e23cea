"""What one model is taught: its task, what is said to it, how it may answer, in which order."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from tasks import Task

Style = Literal["careful", "guess", "ramble"]


class Question(Protocol):
    """A scenario of a task, before it is worded."""

    def question(self) -> str:
        """The worded question."""


S = TypeVar("S", bound=Question)
Source = Callable[[random.Random], Iterator[S]]  # endless scenarios, none of a test side


@dataclass(frozen=True)
class Stage(Generic[S]):
    """A stretch of training: which scenarios, how many steps, written in which styles.

    Where nothing is `asked`, traces stand alone: their beginnings cannot be foreseen, but the rest
    follows from the trace itself, many times in each. Where styles are not `mixed`, all is careful.
    """

    name: str
    source: Source[S]
    steps: int
    asked: bool = True
    mixed: bool = False


@dataclass(frozen=True)
class Lesson(Generic[S]):
    """All in which the embedded models differ.

    `careful` works a scenario out, `guess` blurts an answer, `ramble` never answers;
    `careful_share` is how often the mixture is careful. The tokenizer learns from `vocabulary` and
    keeps each match of the pattern `phrases` whole. Each of the `cycles` has an optimizer and a
    learning-rate curve of its own. `page` and `figures` (a beginning of file names) are where the
    measurements go, `about` is what the page says of the training, `tiers` names the task's tiers,
    and `chance` is how often a blind guess is right in a tier, where that can be told.
    """

    task: Task
    phrases: str
    vocabulary: Source[S]
    careful: Callable[[S], str]
    guess: Callable[[S, random.Random], str]
    ramble: Callable[[S, random.Random], str]
    careful_share: Callable[[S], float]
    cycles: tuple[tuple[Stage[S], ...], ...]
    page: str
    figures: str
    about: str
    tiers: str
    chance: Callable[[str], float] | None = None

    def styled(self, scenario: S, rng: random.Random) -> tuple[Style, str]:
        """One completion in a style drawn for the scenario; of the rest, 3 in 10 never answer."""
        if rng.random() < self.careful_share(scenario):
            return "careful", self.careful(scenario)
        if rng.random() < 0.7:
            return "guess", self.guess(scenario, rng)
        return "ramble", self.ramble(scenario, rng)
