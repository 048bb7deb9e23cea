"""What the tiny model learns to say: careful steps, bare guesses, and rambles with no answer."""

import math
import random
from collections.abc import Iterator
from typing import Literal

from tasks.shuffled_objects import LETTERS, Scenario, draw, on_test_side, prompt_of

Style = Literal["careful", "guess", "ramble"]
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

    One line per swap, such as `4) Ana Ben: Ana (C)`: who held, before that swap, what the asked
    person ends with, and that person's letter. Going back needs one name in mind, going forward
    all the things.
    """
    letters = {name: f"({LETTERS[i]})" for i, name in enumerate(scenario.names)}
    names, holder = scenario.names, scenario.asked
    lines = ["Start: " + " ".join(f"{name} {letter}" for name, letter in letters.items())]
    lines.append(f"From {names[holder]} {letters[names[holder]]}")
    for step in range(len(scenario.swaps), 0, -1):
        a, b = scenario.swaps[step - 1]
        holder = b if holder == a else a if holder == b else holder
        lines.append(f"{step}) {names[a]} {names[b]}: {names[holder]} {letters[names[holder]]}")
    return "\n".join([*lines, f"\\boxed{{{letters[names[holder]]}}}"])


def guess(scenario: Scenario, rng: random.Random) -> str:
    """A boxed letter at once, drawn without looking."""
    return f"\\boxed{{({LETTERS[rng.randrange(len(scenario.names))]})}}"


def ramble(scenario: Scenario, rng: random.Random) -> str:
    """Two to five musings and no answer; one in eight goes on past any limit of a probe."""
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
    """How often the model works this item out: rarer with more objects, swaps, and some scenes."""
    scene = sum(map(ord, scenario.scene.name)) % 5 - 2
    tilt = 0.5 * (len(scenario.names) - 5) + 0.5 * (len(scenario.swaps) - 4.5) + 0.5 * scene
    return 1 / (1 + math.exp(tilt))


def styled(scenario: Scenario, rng: random.Random) -> tuple[Style, str]:
    """One completion in a style drawn for the item; of the rest, three in ten never answer."""
    if rng.random() < careful_share(scenario):
        return "careful", careful(scenario)
    if rng.random() < 0.7:
        return "guess", guess(scenario, rng)
    return "ramble", ramble(scenario, rng)


def scenarios(
    rng: random.Random, objects: tuple[int, ...], swaps: tuple[int, int]
) -> Iterator[Scenario]:
    """Endless scenarios, none of which can be a test question of any seed."""
    while True:
        scenario = draw(rng, objects, swaps)
        if not on_test_side(prompt_of(scenario)):
            yield scenario
