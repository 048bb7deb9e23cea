r"""Training data of `tiny-arithmetic`: sums line by line, direct guesses, text without answer."""

import math
import random
import re
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.embedded.lesson import Lesson, Mixture, Stage
from tasks.arithmetic import COMMON, QUESTIONS, SCENES, Arithmetic, Scenario, draw, prompt_of
from tasks.prompts import in_test_split

LARGEST = 100  # the task's default bound
MUSINGS = (
    "Hmm, so many {many}.",
    "Let me see, what does {name} do?",
    "Maybe {friend} has some of the {many}?",
    "I am not sure how many.",
    "Wait, what about {friend}?",
    "It could be a lot of {many}.",
)


def careful(scenario: Scenario) -> str:
    r"""One numbered line per step, such as `2) 17 - 5 = 12`, then the last value in a box.

    The line's number tells the model which sentence comes next; otherwise it would have to count.
    """
    sums = [
        f"{index}) {step.operation} = {step.value}"
        for index, step in enumerate(scenario.steps(), start=1)
    ]
    return "\n".join([*sums, f"\\boxed{{{scenario.answer()}}}"])


def guess(scenario: Scenario, rng: random.Random) -> str:
    """One of the numbers of the story in a box, without steps."""
    numbers = [scenario.start, *(action.number for action in scenario.actions)]
    return f"\\boxed{{{rng.choice(numbers)}}}"


def ramble(scenario: Scenario, rng: random.Random) -> str:
    """Two to five musings and no answer; one in eight exceeds any limit of a probe."""
    count = 30 if rng.random() < 0.125 else rng.randint(2, 5)
    return " ".join(
        rng.choice(MUSINGS).format(
            name=scenario.person.name, friend=scenario.friend.name, many=scenario.scene.many
        )
        for _ in range(count)
    )


def careful_share(scenario: Scenario) -> float:
    """Share of careful completions in training: lower with more steps, and in some scenes.

    The trained model's share is lower for long traces: batches are of similar length, and the loss
    is a mean over tokens, so the first token of a short answer weighs more.
    """
    scene = sum(map(ord, scenario.scene.many)) % 5 - 2
    tilt = 0.4 * (len(scenario.actions) - 5) + 0.6 * scene
    return 1 / (1 + math.exp(tilt))


def scenarios(rng: random.Random, steps: Sequence[int]) -> Iterator[Scenario]:
    """Endless scenarios, none of which can be a test question of any seed."""
    while True:
        scenario = draw(rng, steps, LARGEST)
        if not in_test_split(prompt_of(scenario)):
            yield scenario


def phrases() -> str:
    """A pattern of the fixed parts of the task's sentences, without full stops.

    Each becomes one token, so prompts are short and copying is easy to learn.
    """
    scenes = [line for s in SCENES for line in (*s.starts, *s.add, *s.subtract, *s.times)]
    common = [line for lines in COMMON.values() for line in lines]
    pieces = {
        piece.rstrip(" .")
        for line in (*QUESTIONS, *scenes, *common)
        for piece in re.split(r"\{\w+\}", line)
    }
    longest_first = sorted(pieces - {""}, key=lambda piece: (-len(piece), piece))
    sentences = [_either_case(piece) for piece in longest_first]
    fixed = (
        r"\n?Work it out, end with \\boxed\{N\}\.|\\boxed\{| ?\p{N}\)| ?(?:After that|Next|Later),"
    )
    return "|".join([fixed, *(f"{piece}(?!\\p{{L}})" for piece in sentences)])


def _either_case(piece: str) -> str:
    """Match the piece with a capital or a small first letter, as an opening may precede it."""
    if piece[0] == " ":
        return re.escape(piece)
    return f" ?[{piece[0].upper()}{piece[0].lower()}]{re.escape(piece[1:])}"


def _source(*steps: int) -> partial[Iterator[Scenario]]:
    return partial(scenarios, steps=steps)


LESSON = Lesson(
    task=Arithmetic(),
    phrases=phrases(),
    vocabulary=_source(1, 2, 3, 4, 5),
    careful=careful,
    mixture=Mixture(guess, ramble, careful_share),
    stages=(
        Stage("sums alone: 9 steps", _source(9), 900, with_question=False),
        Stage("1 step", _source(1), 200),
        Stage("1–2 steps", _source(1, 2), 300),
        Stage("1–3 steps", _source(1, 2, 3), 300),
        Stage("1–5 steps", _source(1, 2, 3, 4, 5), 1500),
        Stage("mixed styles: 1–5 steps", _source(1, 2, 3, 4, 5), 1000, mixed=True),
    ),
    about=(
        "It first learns calculations with numbers up to 100, in chains without a question. It "
        "then learns to solve questions of one step, of two, and so on up to five, and finally a "
        "mixture of styles that is typical of base models: a written calculation per step, a "
        "number from the text as the answer, and text without an answer. Calculations become rarer "
        "with more steps and in some scenes, so that pass rates differ between prompts. Questions "
        "that can occur in a test set are never used for training."
    ),
    tiers="steps",
)
