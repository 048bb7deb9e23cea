"""Generated word problems: one quantity changes step by step, and the question asks for it.

The wording is our own. A template may hold `{who}` (the name or the pronoun), `{he}`, `{him}`,
`{his}`, `{himself}`, `{friend}`, `{many}` (the things), `{boxes}`, and one number: `{things}` (5
apples), `{more}` (5 more apples), `{times}` (twice, 3 times), `{friends}` (3 friends) or `{parts}`
(3). A template that starts with neither a name nor a pronoun starts in lower case, since an opening
may precede it. Numbers may be 1, so no word next to `{things}` or `{more}` is a plural.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from orchestrator.plugins.counts import counted
from orchestrator.plugins.streams import text_random
from tasks.base import NO_THINKING, Marking, Task, Template, check_integer, check_size
from tasks.errors import TaskError
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number
from tasks.prompts import Prompt, in_test_split, make_prompt
from tasks.words import word_list


@dataclass(frozen=True)
class Person:
    """A name with its pronouns."""

    name: str
    he: str
    him: str
    his: str
    himself: str


WOMEN = tuple(
    Person(name, "she", "her", "her", "herself")
    for name in word_list("Ada, Bea, Cora, Dina, Elsa, Fay, Gwen, Iris, Lucy, Mia, Nell, Ruth")
)
MEN = tuple(
    Person(name, "he", "him", "his", "himself")
    for name in word_list(
        "Adam, Boris, Carlos, Erik, Felix, Hugo, Ivan, Jonas, Leo, Milo, Otto, Tom"
    )
)

OPENINGS = ("", "", "Then ", "Next, ", "After that, ", "Later, ")

# Templates that fit any things that one can hold.
COMMON: Mapping[str, tuple[str, ...]] = {
    "add": ("{friend} gives {him} {more}.", "{who} gets {more} from {friend}."),
    "subtract": ("{who} gives {things} to {friend}.", "{who} lets {friend} have {things}."),
    "times": (
        "{who} keeps collecting until {he} has {times} as many {many} as before.",
        "a busy week leaves {him} with {times} as many {many} as before.",
    ),
    "divide": (
        "{who} packs all {his} {many} evenly into {parts} {boxes} and keeps just one of them.",
        "{who} sorts all {his} {many} into {parts} equal piles and keeps only one pile.",
        "{who} splits all {his} {many} into {parts} equal parts and gives away all but one part.",
    ),
    "share": (
        "{who} shares all {his} {many} equally with {friends}, so that everyone has the same "
        "number.",
        "{who} meets {friends}, and they divide all {his} {many} equally among themselves.",
        "{who} hands out all {his} {many} evenly to {friends} and {himself}.",
    ),
}
QUESTIONS = (
    "How many {many} does {name} have now?",
    "How many {many} does {name} have in the end?",
    "How many {many} does {name} end up with?",
)


@dataclass(frozen=True)
class Scene:
    """One setting: its thing, its container, and its own templates besides the common ones."""

    one: str
    many: str
    boxes: str
    starts: tuple[str, ...]
    add: tuple[str, ...]
    subtract: tuple[str, ...]
    times: tuple[str, ...]

    def templates(self, kind: str) -> tuple[str, ...]:
        """All templates for an operation of that kind."""
        own = {"add": self.add, "subtract": self.subtract, "times": self.times}
        return (*COMMON[kind], *own.get(kind, ()))


SCENES = (
    Scene(
        "apple",
        "apples",
        "baskets",
        (
            "{who} spends the morning in the orchard and picks {things}.",
            "{who} comes home from the market with {things}.",
        ),
        ("{who} picks {more} from a low branch.", "{who} finds {more} in the grass."),
        ("{who} makes juice from {things}.", "{who} feeds {things} to the horses."),
        ("{who} helps with the harvest and has {times} as many {many} as before.",),
    ),
    Scene(
        "egg",
        "eggs",
        "cartons",
        (
            "{who} keeps hens, and today {he} gathers {things}.",
            "{who} opens the farm shop with {things} on the shelf.",
        ),
        ("the hens lay {more} for {him}.", "{who} gathers {more} in the barn."),
        ("{who} sells {things} to {friend}.", "{who} cooks {things} for {his} guests."),
        ("{who} buys new hens and soon has {times} as many {many} as before.",),
    ),
    Scene(
        "sticker",
        "stickers",
        "envelopes",
        ("{who} starts an album with {things}.", "{who} collects stickers and owns {things}."),
        ("{who} buys {more} at the kiosk.", "{who} wins {more} in a game."),
        ("{who} puts {things} on a letter and mails it.", "{who} loses {things} on the bus."),
        ("{who} trades well and now holds {times} as many {many} as before.",),
    ),
    Scene(
        "shell",
        "shells",
        "jars",
        (
            "{who} walks along the beach and collects {things}.",
            "{who} has a bucket with {things} in it.",
        ),
        ("{who} pulls {more} out of a rock pool.", "{who} digs {more} out of the sand."),
        ("{who} drops {things} into the sea.", "{who} uses up {things} for a necklace."),
        ("a day at the bay leaves {him} with {times} as many {many} as before.",),
    ),
    Scene(
        "marble",
        "marbles",
        "bags",
        ("{who} goes to the playground with {things}.", "{who} has {things} in a pouch."),
        ("{who} wins {more} from {friend}.", "{who} finds {more} under the sofa."),
        ("{who} loses {things} to {friend}.", "{who} drops {things} down a drain."),
        ("{who} plays all day and goes home with {times} as many {many} as before.",),
    ),
    Scene(
        "dollar",
        "dollars",
        "envelopes",
        ("{who} is saving up and has {things}.", "{who} gets {things} for {his} birthday."),
        ("{who} earns {more} by mowing a lawn.", "{who} makes {more} at a yard sale."),
        ("{who} spends {things} on a present.", "{who} pays {things} for a pair of shoes."),
        ("{who} takes a summer job and ends it with {times} as many {many} as before.",),
    ),
    Scene(
        "cookie",
        "cookies",
        "tins",
        ("{who} bakes {things} for the school fair.", "{who} takes {things} out of the oven."),
        ("{who} bakes {more}.", "{who} buys {more} at the bakery."),
        ("{who} eats {things} with some tea.", "{who} hands {things} to hungry neighbours."),
        ("{who} bakes all night and has {times} as many {many} as before.",),
    ),
    Scene(
        "pencil",
        "pencils",
        "cases",
        ("{who} sets up an art room with {things}.", "{who} has {things} in a drawer."),
        ("{who} orders {more} from a shop.", "{who} finds {more} in the attic."),
        (
            "{who} throws out {things} that cannot be sharpened.",
            "{who} lends {things} to {friend}.",
        ),
        ("a large delivery leaves {him} with {times} as many {many} as before.",),
    ),
    Scene(
        "seedling",
        "seedlings",
        "trays",
        (
            "{who} works in a nursery and looks after {things}.",
            "{who} buys {things} for a new garden.",
        ),
        ("{who} raises {more} in the greenhouse.", "{who} buys {more} at a fair."),
        ("{who} plants {things} in the park.", "{who} loses {things} to the frost."),
        ("a warm spring leaves {him} with {times} as many {many} as before.",),
    ),
    Scene(
        "bead",
        "beads",
        "boxes",
        ("{who} makes jewellery and has {things}.", "{who} opens a craft kit with {things}."),
        ("{who} orders {more} from a craft shop.", "{who} cuts {more} out of wood."),
        (
            "{who} strings {things} on a bracelet.",
            "{who} spills {things} that cannot be found again.",
        ),
        ("{who} carves for days and has {times} as many {many} as before.",),
    ),
)


Kind = Literal["add", "subtract", "times", "divide", "share"]
KINDS: tuple[Kind, ...] = ("add", "subtract", "times", "divide", "share")
SIGNS: Mapping[Kind, str] = {"add": "+", "subtract": "-", "times": "*", "divide": "/", "share": "/"}
MAX_STEPS = 9  # so that tiers, which are step numbers as text, sort correctly
MIN_LARGEST = 10  # least value of the option `largest`
FACTORS = range(2, 7)  # multipliers and divisors, and how many people share
_NAME = "arithmetic"


class Step(NamedTuple):
    """One step: its kind, the operation such as `12 + 5`, and the value after it."""

    kind: Kind
    operation: str
    value: int


@dataclass(frozen=True)
class Action:
    """One change. `number` is the right operand; `template` the sentence without its words."""

    kind: Kind
    number: int
    template: str
    opening: str


@dataclass(frozen=True)
class Scenario:
    """One question before it is worded: `start` things, changed by each action in order.

    `first_sentence` and `last_sentence` are templates. `friend` has different pronouns than
    `person`, so that every pronoun is unambiguous.
    """

    scene: Scene
    person: Person
    friend: Person
    start: int
    first_sentence: str
    actions: tuple[Action, ...]
    last_sentence: str

    def steps(self) -> Iterator[Step]:
        """The steps to the answer, in order; the value of the last one is the answer."""
        value = self.start
        for action in self.actions:
            operation = f"{value} {SIGNS[action.kind]} {action.number}"
            value = apply(value, action.kind, action.number)
            yield Step(action.kind, operation, value)

    def answer(self) -> int:
        """How many things the person has in the end."""
        *_, last = self.steps()
        return last.value

    def question(self) -> str:
        """The worded question, in one paragraph."""
        sentences = [self._fill(self.first_sentence, self.start, self.person.name)]
        for i, action in enumerate(self.actions):
            # Every third sentence repeats the name: pronouns alone are hard to follow.
            who = self.person.name if i % 3 == 2 else self.person.he
            sentence = action.opening + self._fill(action.template, action.number, who)
            sentences.append(sentence[0].upper() + sentence[1:])
        last = self.last_sentence.format(many=self.scene.many, name=self.person.name)
        return " ".join([*sentences, last])

    def _fill(self, template: str, number: int, who: str) -> str:
        person, scene = self.person, self.scene
        return template.format(
            who=who,
            he=person.he,
            him=person.him,
            his=person.his,
            himself=person.himself,
            friend=self.friend.name,
            many=scene.many,
            boxes=scene.boxes,
            things=quantity(number, scene.one, scene.many),
            more=quantity(number, f"more {scene.one}", f"more {scene.many}"),
            times="twice" if number == 2 else f"{number} times",
            parts=number,
            friends=quantity(number - 1, "friend", "friends"),
        )


def quantity(number: int, one: str, many: str) -> str:
    """`1 apple`, `2 apples`."""
    return f"{number} {one if number == 1 else many}"


def apply(value: int, kind: Kind, number: int) -> int:
    """The value after one action; divisions have no remainder."""
    if kind == "add":
        return value + number
    if kind == "subtract":
        return value - number
    return value * number if kind == "times" else value // number


def choices(value: int, kind: Kind, largest: int) -> Sequence[int]:
    """The operands that change `value` to one from 1 to `largest`."""
    if kind == "add":
        return range(1, largest - value + 1)
    if kind == "subtract":
        return range(1, value)
    if kind == "times":
        return [n for n in FACTORS if value * n <= largest]
    return [n for n in FACTORS if value % n == 0]


def draw(rng: random.Random, steps: Sequence[int], largest: int) -> Scenario:
    """One scenario with a number of steps from `steps`; no number in it is above `largest`."""
    scene = rng.choice(SCENES)
    people = [WOMEN, MEN]
    rng.shuffle(people)
    # Half of the bound leaves room for additions.
    start = value = rng.randint(2, largest // 2)
    person = rng.choice(people[0])
    friend = rng.choice(people[1])
    first_sentence = rng.choice(scene.starts)
    actions: list[Action] = []
    last: Kind | None = None
    opening = ""
    for _ in range(rng.choice(steps)):
        # No kind is repeated in a row; adding or subtracting is always possible.
        kind = rng.choice([k for k in KINDS if k != last and choices(value, k, largest)])
        number = rng.choice(choices(value, kind, largest))
        value = apply(value, kind, number)
        opening = rng.choice([o for o in OPENINGS if not o or o != opening])
        actions.append(Action(kind, number, rng.choice(scene.templates(kind)), opening))
        last = kind
    return Scenario(
        scene=scene,
        person=person,
        friend=friend,
        start=start,
        first_sentence=first_sentence,
        actions=tuple(actions),
        last_sentence=rng.choice(QUESTIONS),
    )


def prompt_of(scenario: Scenario) -> Prompt:
    """The scenario as a prompt; its tier is the number of steps."""
    tier = str(len(scenario.actions))
    return make_prompt(_NAME, scenario.question(), str(scenario.answer()), tier)


class Arithmetic(Task):
    """Generated word problems of 1 to 9 steps; the answer is a whole number.

    Neither split depends on the size of the other. The tier is the number of steps. The preset
    `paper` only asks for the box, with thinking off.

    Options:
        train, test: numbers of questions.
        seed: decides which questions are generated.
        steps: the numbers of steps that questions may have.
        largest: the largest number, also of intermediate values; the smallest is 1.
    """

    name: ClassVar[str] = _NAME
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "4"
    templates: ClassVar[Mapping[str, Template]] = {
        "plain": Template("{question}\nWork it out, end with \\boxed{N}."),
        "paper": Template("{question}\nPut the final answer within \\boxed{}.", NO_THINKING),
    }

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        steps: Sequence[int] = (1, 2, 3, 4, 5),
        train: int = 800,
        test: int = 200,
        seed: int = 0,
        largest: int = 100,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt)
        form = f"write a list of integers from 1 to {MAX_STEPS}"
        if isinstance(steps, str) or not isinstance(steps, Sequence) or not steps:
            raise TaskError(f"invalid steps {steps!r}: {form}")
        if any(type(count) is not int or not 1 <= count <= MAX_STEPS for count in steps):
            raise TaskError(f"invalid steps {list(steps)}: {form}")
        self.steps = tuple(dict.fromkeys(steps))
        self.sizes = check_size("train", train), check_size("test", test)
        self.seed = check_integer("seed", seed)
        self.largest = check_integer("largest", largest, MIN_LARGEST)

    def train(self) -> list[Prompt]:
        return self._generated(self.sizes[0], "train")

    def test(self) -> list[Prompt]:
        return self._generated(self.sizes[1], "test")

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        return mark_number(completion, answer, self.marking, truncated)

    def _generated(self, size: int, split: str) -> list[Prompt]:
        rng = text_random(_NAME, self.seed, split)
        kept: dict[str, Prompt] = {}
        # A test question takes five draws on average; many more mean that nearly all are
        # duplicates.
        for _ in range(50 * size + 1000):
            if len(kept) == size:
                return list(kept.values())
            prompt = prompt_of(draw(rng, self.steps, self.largest))
            if in_test_split(prompt) == (split == "test"):
                kept.setdefault(prompt.prompt_id, prompt)
        raise TaskError(
            f"there are not {counted(size, 'different question')} of steps {list(self.steps)} "
            f"within {self.largest}: write a smaller {split}, more steps or a larger largest"
        )
