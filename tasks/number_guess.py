"""A multi-turn game: find a hidden number by guesses that are answered "higher" or "lower"."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from orchestrator.plugins.streams import text_random
from tasks.base import Marking, Task, check_integer
from tasks.marking.marks import Mark, answer_mark, no_answer_mark
from tasks.prompts import Prompt, in_test_split, make_prompt

LARGEST = 99  # of every number
WIDTHS = (5, 10, 20, 40, 80)  # sizes of a range
GUESSES = 5  # enough for each of 31 numbers
THINGS = ("page", "house", "seat", "room", "locker")
MAX_TRAIN, MAX_TEST = 8000, 1500  # as many as the narrowest range allows
_NAME = "number_guess"
_CALL = re.compile(r'"name": "guess", "arguments": \{"number": (\d+)\}')


@dataclass(frozen=True)
class Game:
    """One row: the range, both ends included, the hidden number, and the limit of guesses."""

    thing: str
    low: int
    high: int
    number: int
    guesses: int = GUESSES

    def question(self) -> str:
        """The worded question; it does not depend on the hidden number."""
        return f"Find the {self.thing} from {self.low} to {self.high} in {self.guesses} guesses."

    def row(self) -> dict[str, Any]:
        """The arguments of `NumberGuess.reset`."""
        return asdict(self)


class NumberGuess:
    """A game of one row, with the interface of TRL's `environment_factory`."""

    def reset(self, *, low: int, high: int, number: int, guesses: int, **row: Any) -> None:
        """Start the game of a row; the row's prompt already has the question."""
        self._low = low
        self._high = high
        self._number = number
        self._left = guesses
        self._found = False

    def guess(self, number: int) -> str:
        """Guess the hidden number.

        Args:
            number: A whole number in the range.

        Returns:
            "correct", or whether the hidden number is "higher" or "lower" than the guess.
        """
        if self._found or not self._left:
            raise ValueError("game over")
        self._left -= 1
        if type(number) is not int or not self._low <= number <= self._high:
            raise ValueError("not in range")
        if number == self._number:
            self._found = True
            return "correct"
        answer = "higher" if number < self._number else "lower"
        return answer if self._left else f"{answer}, game over"

    def get_reward(self) -> float:
        """1.0 if the number was found within the limit, else 0.0."""
        return float(self._found)


def draw(rng: random.Random, width: int, guesses: int = GUESSES) -> Game:
    """A random game with `width` numbers in its range, from 1 to LARGEST."""
    low = rng.randint(1, LARGEST - width + 1)
    high = low + width - 1
    return Game(rng.choice(THINGS), low, high, rng.randint(low, high), guesses)


def prompt_of(game: Game) -> Prompt:
    """The game as a prompt; its tier is the number of numbers in the range."""
    tier = str(game.high - game.low + 1)
    return make_prompt(_NAME, game.question(), str(game.number), tier, json.dumps(game.row()))


def is_test(game: Game) -> bool:
    """Whether the game is a test question: the question decides, for all hidden numbers."""
    return in_test_split(make_prompt(_NAME, game.question(), "", ""))


class NumberGuessTask(Task):
    """Multi-turn games: find a number by guesses that are answered "higher" or "lower".

    All sizes of the range are equally frequent, and are the tiers. No question occurs in both
    splits, whatever the seeds. A prompt's `info` is its row as JSON: the arguments of
    `NumberGuess.reset`.

    Options:
        train, test: numbers of games.
        seed: decides which games are generated.
        guesses: the limit of guesses in a game.
    """

    name: ClassVar[str] = _NAME
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"
    environment = NumberGuess

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        train: int = 800,
        test: int = 200,
        seed: int = 0,
        guesses: int = GUESSES,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt)
        self.sizes = (
            check_integer("train", train, 0, MAX_TRAIN),
            check_integer("test", test, 0, MAX_TEST),
        )
        self.seed = check_integer("seed", seed)
        self.guesses = check_integer("guesses", guesses, 1, LARGEST)

    def train(self) -> list[Prompt]:
        return self._generated("train", self.sizes[0])

    def test(self) -> list[Prompt]:
        return self._generated("test", self.sizes[1])

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """Compare the last call's number with the hidden number."""
        if calls := _CALL.findall(completion):
            return answer_mark(calls[-1] == answer, calls[-1], "last-call")
        return no_answer_mark(truncated)

    @property
    def other_reading(self) -> Self:
        """The task itself: marks do not depend on the reading."""
        return self

    def format_answer(self, answer: str) -> str:
        """A call with this number."""
        return (
            f'<tool_call>\n{{"name": "guess", "arguments": {{"number": {answer}}}}}\n</tool_call>'
        )

    def _generated(self, split: str, size: int) -> list[Prompt]:
        rng = text_random(_NAME, self.seed, split)
        kept: dict[Game, None] = {}
        while len(kept) < size:
            game = draw(rng, WIDTHS[len(kept) % len(WIDTHS)], self.guesses)
            if is_test(game) == (split == "test"):
                kept[game] = None
        return [prompt_of(game) for game in kept]
