"""Word problems made on the spot: one quantity is changed step by step, and asked for."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from tasks.arithmetic_text import ASKS, MEN, OPENINGS, SCENES, WOMEN, Person, Scene
from tasks.base import Marking, Prompt, Task, TaskError, make_prompt
from tasks.marking import Mark, mark_number
from tasks.prompting import NO_THINKING, Template

Kind = Literal["add", "subtract", "times", "divide", "share"]
KINDS: tuple[Kind, ...] = ("add", "subtract", "times", "divide", "share")
SIGNS: Mapping[Kind, str] = {"add": "+", "subtract": "-", "times": "*", "divide": "/", "share": "/"}
MOST_STEPS = 9
LEAST_LARGEST = 10
FACTORS = range(2, 7)  # what one multiplies and divides by, and how many share
TEST_SHARE = 5  # one id in five lies on the test side, whatever the seed
_NAME = "arithmetic"


class Step(NamedTuple):
    """One step as a sum: its kind, the operation such as `12 + 5`, and the value after it."""

    kind: Kind
    operation: str
    value: int


@dataclass(frozen=True)
class Action:
    """One change. `number` is the right side of the sum; `said` the sentence before its words."""

    kind: Kind
    number: int
    said: str
    opening: str


@dataclass(frozen=True)
class Scenario:
    """One question before it is worded: `start` things, changed by each action in order.

    `begins` and `asks` are the first and the last sentence before their words. `friend` takes the
    other pronoun than `person`, so that no pronoun has two readings.
    """

    scene: Scene
    person: Person
    friend: Person
    start: int
    begins: str
    actions: tuple[Action, ...]
    asks: str

    def steps(self) -> Iterator[Step]:
        """The sums that lead to the answer, in order; the last one's value is the answer."""
        value = self.start
        for action in self.actions:
            operation = f"{value} {SIGNS[action.kind]} {action.number}"
            value = changed(value, action.kind, action.number)
            yield Step(action.kind, operation, value)

    def answer(self) -> int:
        """How many things the person has in the end."""
        *_, last = self.steps()
        return last.value

    def question(self) -> str:
        """The worded question, in one paragraph."""
        begins = self._worded(self.begins, self.start, self.person.name)
        told = [self._told(i, action) for i, action in enumerate(self.actions)]
        asks = self.asks.format(many=self.scene.many, name=self.person.name)
        return " ".join([begins, *told, asks])

    def _told(self, index: int, action: Action) -> str:
        # Every third sentence says the name again; a pronoun in each would lose the reader.
        who = self.person.name if index % 3 == 2 else self.person.he
        sentence = action.opening + self._worded(action.said, action.number, who)
        return sentence[0].upper() + sentence[1:]

    def _worded(self, said: str, number: int, who: str) -> str:
        person, scene = self.person, self.scene
        return said.format(
            who=who,
            he=person.he,
            him=person.him,
            his=person.his,
            himself=person.himself,
            friend=self.friend.name,
            many=scene.many,
            boxes=scene.boxes,
            things=counted(number, scene.one, scene.many),
            more=counted(number, f"more {scene.one}", f"more {scene.many}"),
            times="twice" if number == 2 else f"{number} times",
            parts=number,
            friends=counted(number - 1, "friend", "friends"),
        )


def counted(number: int, one: str, many: str) -> str:
    """`1 apple`, `2 apples`."""
    return f"{number} {one if number == 1 else many}"


def changed(value: int, kind: Kind, number: int) -> int:
    """The value after one action; divisions are even."""
    if kind == "add":
        return value + number
    if kind == "subtract":
        return value - number
    return value * number if kind == "times" else value // number


def choices(value: int, kind: Kind, largest: int) -> Sequence[int]:
    """The numbers by which `value` can be changed, so that 1 to `largest` things are left."""
    if kind == "add":
        return range(1, largest - value + 1)
    if kind == "subtract":
        return range(1, value)
    if kind == "times":
        return [n for n in FACTORS if value * n <= largest]
    return [n for n in FACTORS if value % n == 0]


def draw(rng: random.Random, steps: Sequence[int], largest: int) -> Scenario:
    """One scenario of one of the numbers of `steps`; no number in it is above `largest`."""
    scene = rng.choice(SCENES)
    people = [WOMEN, MEN]
    rng.shuffle(people)
    # Half of the bound leaves room to grow.
    start = rng.randint(2, largest // 2)
    return Scenario(
        scene=scene,
        person=rng.choice(people[0]),
        friend=rng.choice(people[1]),
        start=start,
        begins=rng.choice(scene.starts),
        actions=tuple(_actions(rng, scene, start, rng.choice(steps), largest)),
        asks=rng.choice(ASKS),
    )


def _actions(
    rng: random.Random, scene: Scene, value: int, count: int, largest: int
) -> Iterator[Action]:
    last: Kind | None = None
    opening = ""
    for _ in range(count):
        # Two of a kind in a row read badly; one of add and subtract is always possible.
        kinds = [k for k in KINDS if k != last and choices(value, k, largest)]
        kind = rng.choice(kinds)
        number = rng.choice(choices(value, kind, largest))
        value = changed(value, kind, number)
        opening = rng.choice([o for o in OPENINGS if not o or o != opening])
        yield Action(kind, number, rng.choice(scene.said(kind)), opening)
        last = kind


def prompt_of(scenario: Scenario) -> Prompt:
    """The scenario as a prompt; its tier is the number of steps."""
    tier = str(len(scenario.actions))
    return make_prompt(_NAME, scenario.question(), str(scenario.answer()), tier)


def on_test_side(prompt: Prompt) -> bool:
    """Splits by content, so that no seed's training pool holds a question of any seed's test."""
    return int(prompt.prompt_id, 16) % TEST_SHARE == 0


class Arithmetic(Task):
    r"""Generated word problems of 1 to 9 steps; the answer is a whole number.

    `train` and `test` questions are made from `seed`, with as many steps as one of `steps` says;
    neither split depends on the other's size. No number that is written or comes up on the way is
    above `largest`, and none is below 1. The preset `paper` asks for the box alone, thinking off.
    """

    name: ClassVar[str] = _NAME
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"
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
        self.steps = _checked_steps(steps)
        self.sizes = (_whole("train", train, 0), _whole("test", test, 0))
        self.seed = _whole("seed", seed, 0)
        self.largest = _whole("largest", largest, LEAST_LARGEST)

    def train(self) -> list[Prompt]:
        """The training pool. Raises TaskError where there are not so many different questions."""
        return self._generated(self.sizes[0], "train")

    def test(self) -> list[Prompt]:
        """The test questions. Raises TaskError where there are not so many different ones."""
        return self._generated(self.sizes[1], "test")

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """The last boxed number against the gold number."""
        return mark_number(completion, answer, self.marking, truncated)

    def _generated(self, size: int, split: str) -> list[Prompt]:
        rng = random.Random(f"{_NAME}/{self.seed}/{split}")
        kept: dict[str, Prompt] = {}
        # A test question takes five draws; many more mean that nearly all were seen before.
        for _ in range(50 * size + 1000):
            if len(kept) == size:
                return list(kept.values())
            prompt = prompt_of(draw(rng, self.steps, self.largest))
            if on_test_side(prompt) == (split == "test"):
                kept.setdefault(prompt.prompt_id, prompt)
        raise TaskError(
            f"there are not {size:,} different questions of steps {list(self.steps)} within "
            f"{self.largest}: write a smaller {split}, more steps or a larger largest"
        )


def _checked_steps(steps: Sequence[int]) -> tuple[int, ...]:
    form = f"write a list of whole numbers from 1 to {MOST_STEPS}"
    if isinstance(steps, str) or not isinstance(steps, Sequence) or not steps:
        raise TaskError(f"steps {steps!r} is wrong: {form}")
    for count in steps:
        if type(count) is not int or not 1 <= count <= MOST_STEPS:
            raise TaskError(f"steps {list(steps)} is wrong: {form}")
    return tuple(dict.fromkeys(steps))


def _whole(name: str, number: int, least: int) -> int:
    if type(number) is not int or number < least:  # True is no number here
        raise TaskError(f"{name} {number!r} is wrong: write a whole number from {least}")
    return number
