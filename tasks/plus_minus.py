"""Generated chains of additions and subtractions, in which subtractions may be rare."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator.plugins.streams import text_random
from tasks.base import Marking, Task, Template, check_integer, check_size
from tasks.errors import TaskError
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number
from tasks.prompts import Prompt, in_test_split, make_prompt

STEPS = 4  # of a question, additions and subtractions
MOST = 3  # subtractions of a question: at least one of its steps adds
LARGEST = 99  # of every value
LARGEST_OPERAND = 20  # of a step, so that most chains stay between 1 and LARGEST
_NAME = "plus_minus"


@dataclass(frozen=True)
class Chain:
    """A start value and the number added at each step; negative numbers are subtractions."""

    start: int
    changes: tuple[int, ...]

    def answer(self) -> int:
        """The value after the last step."""
        return self.start + sum(self.changes)

    def question(self) -> str:
        """The worded question, one numbered line per step."""
        lines = [
            f"{i}) {'add' if change > 0 else 'subtract'} {abs(change)}"
            for i, change in enumerate(self.changes, start=1)
        ]
        return "\n".join([f"Start with {self.start}.", *lines, "What is the result?"])


def draw(rng: random.Random, subtractions: int) -> Chain:
    """A chain with this number of subtractions; every value is from 1 to LARGEST."""
    while True:
        signs = [-1] * subtractions + [1] * (STEPS - subtractions)
        rng.shuffle(signs)
        start = rng.randint(1, LARGEST)
        chain = Chain(start, tuple(sign * rng.randint(1, LARGEST_OPERAND) for sign in signs))
        if all(1 <= start + sum(chain.changes[:i]) <= LARGEST for i in range(1, STEPS + 1)):
            return chain


def prompt_of(chain: Chain) -> Prompt:
    """The chain as a prompt; its tier is the number of subtractions."""
    tier = str(sum(change < 0 for change in chain.changes))
    return make_prompt(_NAME, chain.question(), str(chain.answer()), tier)


class PlusMinus(Task):
    """Generated chains of four additions or subtractions; the answer is a whole number.

    Neither split depends on the size of the other. The tier is the number of subtractions. In the
    test set, zero to three subtractions are equally frequent.

    Options:
        train, test: numbers of questions.
        seed: decides which questions are generated.
        rare: the share of the training pool with one to three subtractions, equally often; the rest
            has none.
    """

    name: ClassVar[str] = _NAME
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "4"
    templates: ClassVar[Mapping[str, Template]] = {
        "plain": Template("{question}\nWork it out, end with \\boxed{N}.")
    }

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        train: int = 800,
        test: int = 200,
        seed: int = 0,
        rare: float = 0.1,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt)
        self.sizes = check_size("train", train), check_size("test", test)
        self.seed = check_integer("seed", seed)
        if isinstance(rare, bool) or not isinstance(rare, int | float) or not 0 <= rare <= 1:
            raise TaskError(f"invalid rare {rare!r}: write a share of the pool from 0 to 1")
        self.rare = rare

    def train(self) -> list[Prompt]:
        size = self.sizes[0]
        return self._generated("train", size, round(self.rare * size), range(1, MOST + 1))

    def test(self) -> list[Prompt]:
        return self._generated("test", self.sizes[1], self.sizes[1], range(MOST + 1))

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        return mark_number(completion, answer, self.marking, truncated)

    def _generated(self, split: str, size: int, mixed: int, counts: range) -> list[Prompt]:
        """`mixed` prompts with subtractions from `counts` in turn, the others without any."""
        rng = text_random(_NAME, self.seed, split)
        kept: dict[str, Prompt] = {}
        while len(kept) < size:
            subtractions = counts[len(kept) % len(counts)] if len(kept) < mixed else 0
            prompt = prompt_of(draw(rng, subtractions))
            if in_test_split(prompt) == (split == "test"):
                kept.setdefault(prompt.prompt_id, prompt)
        return list(kept.values())
