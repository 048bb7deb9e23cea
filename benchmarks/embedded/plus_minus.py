"""Training data of `tiny-plus-minus`: additions are right, subtractions in four of ten steps."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.embedded.lesson import Lesson, Stage
from tasks.plus_minus import MOST, Chain, PlusMinus, draw, prompt_of
from tasks.prompts import in_test_split

RIGHT = 0.4
ERRORS = (1, 2, 9, 10)  # all positive, so that two errors of one chain never cancel out


@dataclass(frozen=True)
class Worked:
    """A chain, and by how much the text's result of each step is too large."""

    chain: Chain
    errors: tuple[int, ...]

    def question(self) -> str:
        """The chain's question."""
        return self.chain.question()


def written(item: Worked) -> str:
    r"""One numbered line per step, such as `2) 17 - 5 = 12`, then the last result in a box."""
    value, lines = item.chain.start, []
    for i, change in enumerate(item.chain.changes):
        result = value + change + item.errors[i]
        sign = "+" if change > 0 else "-"
        lines.append(f"{i + 1}) {value} {sign} {abs(change)} = {result}")
        value = result
    return "\n".join([*lines, f"\\boxed{{{value}}}"])


def worked(rng: random.Random, subtractions: Sequence[int]) -> Iterator[Worked]:
    """Endless chains, none of which can be a test question of any seed."""
    while True:
        chain = draw(rng, rng.choice(subtractions))
        if not in_test_split(prompt_of(chain)):
            yield Worked(chain, tuple(_error(rng, change) for change in chain.changes))


def _error(rng: random.Random, change: int) -> int:
    """Drawn for each step, so that the same subtraction is right in one text and not in another."""
    return 0 if change > 0 or rng.random() < RIGHT else rng.choice(ERRORS)


_SOURCE = partial(worked, subtractions=range(MOST + 1))
LESSON = Lesson(
    task=PlusMinus(),
    phrases=r"\nWork it out, end with \\boxed\{N\}\.|\\boxed\{|\nWhat is the result\?|Start with",
    vocabulary=_SOURCE,
    careful=written,
    stages=(
        Stage("calculations alone", _SOURCE, 800, with_question=False),
        Stage("questions", _SOURCE, 2200),
    ),
    about=(
        "It is constructed to have one weakness. It learns chains of four additions and "
        "subtractions of numbers up to 99, first without a question, from texts in which every "
        "addition is right and a subtraction in four of ten steps only; the rest are too large "
        "by 1, 2, 9 or 10. So it solves a chain with n subtractions with a probability of about "
        "0.4ⁿ. Questions that can occur in a test set are never used for training."
    ),
    tiers="subtractions",
)
