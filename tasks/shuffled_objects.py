"""Who ends up with what after pairwise swaps: 3, 5 or 7 objects, lettered options.

The wording is our own; only the structure (start, swaps, question, lettered options) follows the
public benchmark. Most words are short, so that each is a single token of a small vocabulary.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from orchestrator.plugins.streams import text_random
from tasks.base import NO_THINKING, Marking, Template, check_integer, check_size
from tasks.errors import TaskError
from tasks.marking.letters import mark_letter
from tasks.marking.marks import Mark
from tasks.prompts import Prompt, in_test_split, make_prompt
from tasks.sources.hub import Repository
from tasks.sources.source import ReadTask, Source
from tasks.words import word_list

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable

NAMES = word_list(
    "Alice, Bob, Claire, Dave, Eve, Fred, Gertrude, Ana, Ben, Cleo, Dan, Ella, Finn, Gus, Hana, "
    "Ivan, June, Karl, Lena, Max, Nora, Omar, Pia, Quinn, Rosa, Seth, Tara, Uma, Vera, Will, Yara, "
    "Zoe"
)
PARTNERS = word_list(
    "Abel, Bella, Carl, Dora, Emil, Faye, Greta, Hugo, Ines, Jack, Kira, Liam, Mona, Nils, Olga, "
    "Paul, Rita, Sven, Tina, Viktor"
)
COLOURS = word_list(
    "red, blue, green, black, white, pink, purple, orange, brown, yellow, grey, gold"
)
ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")


@dataclass(frozen=True)
class Scene:
    """One setting; `shown` is the template of a thing in an option.

    `intro` may contain `{names}`; `holds` and `swap` are clauses, `question` is the incomplete last
    sentence. All texts are short on purpose: a CPU run takes time per token.
    """

    name: str
    things: tuple[str, ...]
    intro: str
    holds: str
    swap: str
    question: str
    shown: str = "{thing}"


SCENES = (
    Scene(
        "marbles",
        COLOURS,
        "{names} share a bag of marbles.",
        "{name} takes the {thing}",
        "{a} and {b} swap marbles",
        "After all that, {name} holds the",
        "{thing} marble",
    ),
    Scene(
        "parcels",
        COLOURS,
        "A post van brings a few parcels.",
        "{name} has a {thing}",
        "{a} and {b} swap parcels",
        "In the evening, {name} has the",
        "{thing} parcel",
    ),
    Scene(
        "books",
        word_list(
            "Emma, Dracula, Ulysses, Dune, Hamlet, Lolita, Moby Dick, Jane Eyre, Oliver Twist, "
            "Little Women, The Tempest, The Odyssey, The Trial, War and Peace"
        ),
        "A reading club meets.",
        "{name} gets {thing}",
        "{a} and {b} swap books",
        "When the club closes, {name} has",
    ),
    Scene(
        "toys",
        word_list(
            "kite, drum, robot, puzzle, train, doll, yoyo, truck, mask, paper boat, toy horse, "
            "rubber duck, glass ball, tin car"
        ),
        "Kids play in the yard.",
        "{name} has the {thing}",
        "{a} and {b} trade toys",
        "When they go home, {name} has the",
    ),
    Scene(
        "rides",
        PARTNERS,
        "{names} ride in pairs.",
        "{name} is riding with {thing}",
        "{a} and {b} switch partners",
        "At the last stop, {name} is riding with",
    ),
    Scene(
        "crew",
        word_list(
            "pilot, cook, medic, guard, guide, captain, left rower, right rower, deck hand, net "
            "keeper, radio operator, bell ringer"
        ),
        "Friends put on a play about a ship.",
        "{name} is playing {thing}",
        "{a} and {b} trade roles",
        "In the last act, {name} is playing",
    ),
    Scene(
        "lunch",
        word_list(
            "apple, pear, plum, cake, bread, soup, rice, salad, cheese, fig, nut pie, egg roll, "
            "corn bread, fish stew"
        ),
        "It is lunch time at school.",
        "{name} has {thing}",
        "{a} and {b} trade lunch",
        "When the bell rings, {name} has",
    ),
    Scene(
        "band",
        word_list(
            "flute, harp, piano, violin, horn, bass, banjo, organ, cello, tuba, snare drum, steel "
            "guitar"
        ),
        "A band tries out a new song.",
        "{name} is on {thing}",
        "{a} and {b} switch",
        "For the last song, {name} is on",
    ),
)


LETTERS = "ABCDEFGH"
SIZES = {3: "three", 5: "five", 7: "seven"}
ORDERS = ("number", "ordinal", "then")
_NAME = "shuffled_objects"
_INSTRUCTION = "Work it out, end with \\boxed{(X)}."
_BRIEF = (
    "Answer concisely, in at most 100 words, and put the final answer within \\boxed{(X)} "
    "(ex: \\boxed{(A)})."
)
HUB = "lukaemon/bbh"
REVISION = "982bb89fd79532a8ac676a61fc42eb1aeec63f99"


@dataclass(frozen=True)
class Scenario:
    """One question before it is worded.

    `things[i]` starts with `names[i]`; `swaps` are pairs of positions, in order; `target` is the
    position of the person in the question; `order` is how the swaps are numbered.
    """

    scene: Scene
    names: tuple[str, ...]
    things: tuple[str, ...]
    swaps: tuple[tuple[int, int], ...]
    target: int
    order: str

    def states(self) -> Iterator[list[str]]:
        """The things in the order of their holders in `names`: at the start and after each swap."""
        things = list(self.things)
        yield list(things)
        for a, b in self.swaps:
            things[a], things[b] = things[b], things[a]
            yield list(things)

    def letter(self) -> str:
        """The gold option in parentheses, such as `(B)`."""
        *_, last = self.states()
        return f"({LETTERS[self.things.index(last[self.target])]})"

    def question(self) -> str:
        """The worded question; its options are in the order of the start, one per line."""
        scene, count = self.scene, len(self.names)
        starts = [
            scene.holds.format(name=n, thing=t)
            for n, t in zip(self.names, self.things, strict=True)
        ]
        options = [
            f"({LETTERS[i]}) {scene.shown.format(thing=self.things[i])}" for i in range(count)
        ]
        intro = scene.intro.format(names=join_names(self.names))
        swaps = " ".join(
            f"{numbering(self.order, i, len(self.swaps) - 1)} "
            f"{scene.swap.format(a=self.names[a], b=self.names[b])}."
            for i, (a, b) in enumerate(self.swaps)
        )
        question = scene.question.format(name=self.names[self.target])
        story = f"{intro} At the start, {join_names(starts)}.\n{swaps} {question}"
        return "\n".join([story, "Options:", *options])


def join_names(parts: Sequence[str]) -> str:
    """`a, b, and c`."""
    return ", ".join(parts[:-1]) + f", and {parts[-1]}"


def numbering(order: str, index: int, last: int) -> str:
    """The word that introduces the swap at `index` (from 0)."""
    if order == "number":
        return f"{index + 1})"
    if order == "ordinal":
        return f"{ORDINALS[index]},"
    if index == 0:
        return "First,"
    return "Finally," if index == last else "Then,"


def draw(rng: random.Random, objects: Sequence[int], swaps: tuple[int, int]) -> Scenario:
    """One scenario; `swaps` are the minimum and maximum number of swaps."""
    scene, count = rng.choice(SCENES), rng.choice(objects)
    pairs = [tuple(rng.sample(range(count), 2)) for _ in range(rng.randint(*swaps))]
    return Scenario(
        scene=scene,
        names=tuple(rng.sample(NAMES, count)),
        things=tuple(rng.sample(scene.things, count)),
        swaps=tuple((a, b) for a, b in pairs),
        target=rng.randrange(count),
        order=rng.choice(ORDERS),
    )


def prompt_of(scenario: Scenario) -> Prompt:
    """The scenario as a prompt; its tier is the number of objects."""
    tier = str(len(scenario.names))
    return make_prompt(_NAME, scenario.question(), scenario.letter(), tier)


class ShuffledObjects(ReadTask):
    """Who ends up with what after pairwise swaps (3, 5 or 7 objects, lettered options).

    The tier is the number of objects. Neither generated split depends on the size of the other. The
    preset `paper` follows the code of "Hard Examples Are All You Need": a short answer, with
    thinking off.

    Options:
        source: `generated`, or `bbh`: the 3 × 250 questions of BIG-Bench Hard.
        objects: numbers of objects.
        train, test: numbers of questions, generated or, with `split: seed`, of BIG-Bench Hard.
        seed: decides which questions are generated, or which of BIG-Bench Hard are the test set.
        swaps: the smallest and the largest number of swaps of generated questions.
        split: of BIG-Bench Hard: `seed`, or `authors` for the 125 and 125 questions of seven
            objects of that code, in its order. 38 of its training questions differ from a test
            question only in the person that it is about.
        path: a folder with BIG-Bench Hard's three files
            (`tracking_shuffled_objects_{three,five,seven}_objects.json`, also `.gz`).
        hub, revision: the data set on the Hub and its commit, without `path`.
        partial: accept a source with an unexpected number of rows.
    """

    name: ClassVar[str] = _NAME
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "3"
    templates: ClassVar[Mapping[str, Template]] = {
        "plain": Template(f"{{question}}\n{_INSTRUCTION}"),
        "paper": Template(f"{{question}}.\n{_BRIEF}", NO_THINKING),
    }

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        objects: Sequence[int] = (3, 5, 7),
        train: int = 800,
        test: int = 200,
        seed: int = 0,
        swaps: Sequence[int] = (2, 7),
        source: Literal["generated", "bbh"] = "generated",
        split: Literal["seed", "authors"] = "seed",
        path: str | None = None,
        hub: str = HUB,
        revision: str | None = None,
        partial: bool = False,
    ) -> None:
        super().__init__(
            marking=marking, prompt=prompt, path=path, revision=revision, partial=partial
        )
        if not objects or any(count not in SIZES for count in objects):
            raise TaskError(f"invalid objects {list(objects)}: write a list of 3, 5 or 7")
        self.objects = tuple(dict.fromkeys(objects))
        low, high = (*swaps, 0, 0)[:2] if len(swaps) == 2 else (0, 0)
        if not 1 <= low <= high <= len(ORDINALS):
            raise TaskError(
                f"invalid swaps {list(swaps)}: write [minimum, maximum] from 1 to {len(ORDINALS)}"
            )
        self.swaps = (low, high)
        self.sizes = check_size("train", train), check_size("test", test)
        self.seed = check_integer("seed", seed)
        if source not in ("generated", "bbh"):
            raise TaskError(f"source {source!r} is unknown: write generated or bbh")
        if split not in ("seed", "authors"):
            raise TaskError(f"split {split!r} is unknown: write seed or authors")
        if source == "generated" and path is not None:
            raise TaskError(
                "path is only read with source: bbh: add source: bbh, or leave path out"
            )
        if split == "authors" and (source, self.objects) != ("bbh", (7,)):
            raise TaskError("split: authors needs source: bbh and objects: [7]: write both")
        self.source = source
        self.split = split
        self.hub = hub

    def read(self) -> tuple[list[Prompt], list[Prompt]]:
        """Generated questions, or the benchmark's, divided according to `split`."""
        train, test = self.sizes
        if self.source == "generated":
            return self._generated(train, test=False), self._generated(test, test=True)
        if self.split == "authors":
            # The authors' order is a list of row numbers, so it fits the official file only.
            order = json.loads(files("tasks").joinpath("authors_split.json").read_text("utf-8"))
            prompts = self._benchmark(7)
            golds = "".join(prompt.answer.strip("()") for prompt in prompts)
            if hashlib.sha256(golds.encode()).hexdigest() != order["answers_sha256"]:
                raise TaskError(
                    f"{self._origins['7']} is not the official file of seven objects in its order: "
                    "write that file's folder as path, or split: seed"
                )
            rows = order["train"][:train], order["test"][:test]
            return [prompts[i] for i in rows[0]], [prompts[i] for i in rows[1]]
        prompts = [prompt for count in self.objects for prompt in self._benchmark(count)]
        distinct = {prompt.prompt_id: prompt for prompt in reversed(prompts)}
        self._note_repeats(len(prompts) - len(distinct), "bbh")
        ordered = [distinct[prompt_id] for prompt_id in sorted(distinct)]
        text_random(_NAME, "bbh", self.seed).shuffle(ordered)
        return ordered[test:][:train], ordered[:test]

    def prompt_table(self, split: Literal["train", "test"]) -> "PromptTable":
        """The prompts of a split. Raises TaskError if the test set takes every question."""
        pool = super().prompt_table(split)
        if split == "train" and not pool and self.sizes[0]:
            raise TaskError("the test set takes every question of the files: write a smaller test")
        return pool

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        return mark_letter(completion, answer, self.marking, truncated)

    def _generated(self, size: int, *, test: bool) -> list[Prompt]:
        rng = text_random(_NAME, self.seed, "test" if test else "train")
        kept: dict[str, Prompt] = {}
        while len(kept) < size:
            prompt = prompt_of(draw(rng, self.objects, self.swaps))
            if in_test_split(prompt) == test:
                kept.setdefault(prompt.prompt_id, prompt)
        return list(kept.values())

    def _benchmark(self, count: int) -> list[Prompt]:
        """One file of the benchmark, row by row."""
        return [
            make_prompt(self.name, str(row["input"]), str(row["target"]), str(count))
            for row in self.rows(str(count), self._source(count))
        ]

    @property
    def downloads(self) -> list[Repository]:
        """The benchmark's repository, if it is read from the hub."""
        if self.source == "generated" or self.path is not None:
            return []
        return [self._source(self.objects[0]).repository(self.revision)]

    def _source(self, count: int) -> Source:
        """The benchmark's file of this many objects."""
        stem = f"tracking_shuffled_objects_{SIZES[count]}_objects"
        return Source(
            hub=self.hub,
            revision=REVISION if self.hub == HUB else None,
            split="test",
            stems=(stem,),
            columns=("input", "target"),
            advice=f"path: FOLDER with {stem}.json",
            count=250,
            configs=(stem,),
            records="examples",
        )
