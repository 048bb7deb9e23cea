"""A game of several turns: a hidden number is found by guesses, answered "higher" or "lower"."""

import random
from dataclasses import asdict, dataclass
from typing import Any

from tasks.base import Prompt, in_test_split, make_prompt

LARGEST = 99  # of every number
WIDTHS = (5, 10, 20, 40, 80)  # how many numbers a range has
GUESSES = 5  # enough for each of 31 numbers
THINGS = ("page", "house", "seat", "room", "locker")
_NAME = "number_guess"


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
        """A row of TRL's data set: the prompt, and the arguments of `NumberGuess.reset`."""
        return {"prompt": [{"role": "user", "content": self.question()}], **asdict(self)}


class NumberGuess:
    """A game of one row, with the interface of TRL's `environment_factory`."""

    def reset(self, *, low: int, high: int, number: int, guesses: int, **row: Any) -> None:
        """Start the game of a row; the row's prompt is the question already."""
        self._low, self._high, self._number, self._left = low, high, number, guesses
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
    return make_prompt(_NAME, game.question(), str(game.number), tier)


def is_test(game: Game) -> bool:
    """Whether the game is a test question: decided by the question, for all hidden numbers."""
    return in_test_split(make_prompt(_NAME, game.question(), "", ""))


def games(split: str, size: int, seed: int = 0, guesses: int = GUESSES) -> list[Game]:
    """`size` different games of the split `train` or `test`, each width equally often.

    No question occurs in both splits, of any seeds.
    """
    rng = random.Random(f"{_NAME}/{seed}/{split}")
    kept: dict[Game, None] = {}
    while len(kept) < size:
        game = draw(rng, WIDTHS[len(kept) % len(WIDTHS)], guesses)
        if is_test(game) == (split == "test"):
            kept[game] = None
    return list(kept)
