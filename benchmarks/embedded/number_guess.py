"""Training data of `tiny-guess`: careful games, blind guesses, and games given up."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.embedded.lesson import Lesson, Mixture, Stage
from benchmarks.embedded.vocabulary import CLOSE, OPEN
from tasks.number_guess import (
    LARGEST,
    THINGS,
    WIDTHS,
    Game,
    NumberGuess,
    NumberGuessTask,
    draw,
    is_test,
)

SPREAD = 0.15  # how far a careful guess lies from the middle, as a share of the range


@dataclass(frozen=True)
class Played:
    """A game, and the place in the remaining range of each careful guess, from 0 to 1."""

    game: Game
    places: tuple[float, ...]

    def question(self) -> str:
        """The game's question."""
        return self.game.question()


def turn(environment: NumberGuess, number: int, note: str = "") -> tuple[str, str]:
    """The text of a guess up to the model's next turn, and the answer it gets."""
    try:
        answer = environment.guess(number)
    except ValueError as error:
        answer = str({"error": str(error)})  # as TRL words it
    call = json.dumps({"name": "guess", "arguments": {"number": number}})
    text = f"{note}<tool_call>\n{call}\n</tool_call>{CLOSE}\n{OPEN}tool\n{answer}{CLOSE}\n"
    return f"{text}{OPEN}assistant\n", answer


def careful(item: Played) -> str:
    r"""Each guess is near the middle of what remains, which is written before it: `17-47`."""
    game, environment, text = item.game, NumberGuess(), ""
    environment.reset(**game.row())
    low, high = game.low, game.high
    for place in item.places:
        number = low + round(place * (high - low))
        part, answer = turn(environment, number, f"{low}-{high}\n")
        text += part
        if answer == "correct":
            return f"{text}Found it."
        low, high = (number + 1, high) if answer.startswith("higher") else (low, number - 1)
    return f"{text}Lost."


def guess(item: Played, rng: random.Random, most: int | None = None) -> str:
    """Random guesses, whatever the answers; one in twenty is from outside the range, too."""
    game, environment, text = item.game, NumberGuess(), ""
    environment.reset(**game.row())
    for _ in range(game.guesses if most is None else most):
        limits = (1, LARGEST) if rng.random() < 0.05 else (game.low, game.high)
        part, answer = turn(environment, rng.randint(*limits))
        text += part
        if answer == "correct":
            return f"{text}Found it."
    return f"{text}Lost." if most is None else f"{text}I give up."


def ramble(item: Played, rng: random.Random) -> str:
    """At most two random guesses, then no more."""
    return guess(item, rng, rng.randint(0, 2))


def careful_share(item: Played) -> float:
    """Share of careful games: lower in wide ranges, and for some things."""
    width = WIDTHS.index(item.game.high - item.game.low + 1)
    tilt = 0.6 * (width - 2) + 0.9 * (THINGS.index(item.game.thing) - 2)
    return 1 / (1 + math.exp(tilt))


def played(rng: random.Random, widths: tuple[int, ...]) -> Iterator[Played]:
    """Endless games, none of which can be a test question of any seed."""
    while True:
        game = draw(rng, rng.choice(widths))
        if not is_test(game):
            places = (rng.uniform(0.5 - SPREAD, 0.5 + SPREAD) for _ in range(game.guesses))
            yield Played(game, tuple(places))


_SOURCE = partial(played, widths=WIDTHS)
LESSON = Lesson(
    task=NumberGuessTask(),
    phrases=(
        r'<tool_call>\n\{"name": "guess", "arguments": \{"number": |\}\}\n</tool_call>'
        r"|, game over|\{'error': 'not in range'\}|Found it\.|Lost\.|I give up\.|[1-9]\p{N}?"
    ),
    vocabulary=_SOURCE,
    careful=careful,
    mixture=Mixture(guess, ramble, careful_share),
    stages=(
        Stage("careful games", _SOURCE, 1000),
        Stage("mixed styles", _SOURCE, 500, mixed=True),
    ),
    about=(
        "It plays a multi-turn game. It first learns to find a number by guesses near the "
        "middle of the range that remains, which it writes before each guess. It then learns a "
        "mixture of styles: such games, random guesses whatever the answers, and games given up "
        "after at most two of these. Careful games become rarer with the width of the range, and "
        "for some things to be found, so that pass rates differ between prompts. Questions that "
        "can occur in a test set are never used for training."
    ),
    tiers="width",
    tools=True,
    offsets=(2, 4, 12, 17),  # the bounds of this turn, and the guess and bounds of the last one
)
