"""Training data of `tiny`: careful steps, direct guesses, and text without an answer."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.embedded.lesson import Lesson, Mixture, Stage
from tasks.prompts import in_test_split
from tasks.shuffled_objects import (
    LETTERS,
    ORDERS,
    Scenario,
    ShuffledObjects,
    draw,
    prompt_of,
)

MUSINGS = (
    "Hmm, so many swaps.",
    "Let me see, {a} swaps with {b}.",
    "Maybe {a} has the {thing} now?",
    "I am not sure who has what.",
    "Wait, what about {b}?",
    "It could be the {thing}.",
)


def careful(scenario: Scenario) -> str:
    """The options' letters by person, then from the last swap back to the first, then the answer.

    One line per swap, such as `4) Ana Ben: Ana (C)`: who held, before that swap, what the person in
    question ends with, and that person's letter. Going backwards tracks one name, going forwards
    would track every object.
    """
    letters = {name: f"({LETTERS[i]})" for i, name in enumerate(scenario.names)}
    names, holder = scenario.names, scenario.target
    lines = ["Start: " + " ".join(f"{name} {letter}" for name, letter in letters.items())]
    lines.append(f"From {names[holder]} {letters[names[holder]]}")
    for step in range(len(scenario.swaps), 0, -1):
        a, b = scenario.swaps[step - 1]
        holder = b if holder == a else a if holder == b else holder
        lines.append(f"{step}) {names[a]} {names[b]}: {names[holder]} {letters[names[holder]]}")
    return "\n".join([*lines, f"\\boxed{{{letters[names[holder]]}}}"])


def guess(scenario: Scenario, rng: random.Random) -> str:
    """A random letter in a box, without steps."""
    return f"\\boxed{{({LETTERS[rng.randrange(len(scenario.names))]})}}"


def ramble(scenario: Scenario, rng: random.Random) -> str:
    """Two to five musings and no answer; one in eight exceeds any limit of a probe."""
    count = 30 if rng.random() < 0.125 else rng.randint(2, 5)
    return " ".join(
        rng.choice(MUSINGS).format(
            a=rng.choice(scenario.names),
            b=rng.choice(scenario.names),
            thing=rng.choice(scenario.things),
        )
        for _ in range(count)
    )


def careful_share(scenario: Scenario) -> float:
    """Share of careful completions: lower with more objects or swaps, and in some scenes."""
    scene = sum(map(ord, scenario.scene.name)) % 5 - 2
    tilt = 0.5 * (len(scenario.names) - 5) + 0.5 * (len(scenario.swaps) - 4.5) + 0.5 * scene
    return 1 / (1 + math.exp(tilt))


def scenarios(
    rng: random.Random,
    objects: tuple[int, ...],
    swaps: tuple[int, int],
    orders: tuple[str, ...] = ORDERS,
) -> Iterator[Scenario]:
    """Endless scenarios, none of which can be a test question of any seed.

    Their swaps are numbered in one of `orders`; digits are the easiest. The order is part of the
    wording, so it is chosen before the side of the split is looked up.
    """
    while True:
        scenario = replace(draw(rng, objects, swaps), order=rng.choice(orders))
        if not in_test_split(prompt_of(scenario)):
            yield scenario


def _source(
    objects: tuple[int, ...], swaps: tuple[int, int], orders: tuple[str, ...] = ORDERS
) -> partial[Iterator[Scenario]]:
    return partial(scenarios, objects=objects, swaps=swaps, orders=orders)


PHRASES = (
    r"Work it out, end with \\boxed\{\(X\)\}\.|\n?Options:|\n\(\p{Lu}\)| ?\(\p{Lu}\)|\\boxed\{"
    r"| At the start,"
    r"| ?(?:First|Second|Third|Fourth|Fifth|Sixth|Seventh|Eighth|Then|Finally),| ?\p{N}\)"
    r"| (?:swap|trade|switch)(?: (?:books|marbles|parcels|toys|partners|roles|lunch|balls))?\."
    r"| is (?:playing|on|riding with)|, and(?= )| (?:has|takes) (?:the|a)(?= )"
)
STAGES = (
    Stage(
        "traces alone: 3, 5 and 7 objects, 6–8 swaps",
        _source((3, 5, 7), (6, 8)),
        900,
        with_question=False,
    ),
    Stage("3 objects, 1–2 swaps", _source((3,), (1, 2), ("number",)), 300),
    Stage("3 objects, 1–4 swaps", _source((3,), (1, 4), ("number", "ordinal")), 300),
    Stage("3 and 5 objects, 1–5 swaps", _source((3, 5), (1, 5)), 400),
    Stage("3, 5 and 7 objects, 1–7 swaps", _source((3, 5, 7), (1, 7)), 3100),
    Stage(
        "mixed styles: 3, 5 and 7 objects, 2–7 swaps", _source((3, 5, 7), (2, 7)), 1000, mixed=True
    ),
)
LESSON = Lesson(
    task=ShuffledObjects(),
    phrases=PHRASES,
    vocabulary=_source((3, 5, 7), (2, 8)),
    careful=careful,
    mixture=Mixture(guess, ramble, careful_share),
    stages=STAGES,
    about=(
        "It first learns to track swaps in written steps, backwards from the last swap. It then "
        "learns a mixture of styles that is typical of base models: written steps, a guess without "
        "steps, and text without an answer. Steps become rarer with more objects, with more swaps "
        "and in some scenes, so that pass rates differ between prompts. Questions that can occur "
        "in a test set are never used for training."
    ),
    tiers="objects",
    chance=lambda tier: 1 / int(tier),
)
