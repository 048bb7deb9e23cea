"""Who ends up with what after a list of pairwise swaps: 3, 5 or 7 objects, lettered options."""

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from tasks.base import Marking, Message, Prompt, Task, TaskError, make_prompt
from tasks.marking import Mark, mark_letter
from tasks.shuffled_objects_text import NAMES, ORDINALS, SCENES, Scene

LETTERS = "ABCDEFGH"
SIZES = {3: "three", 5: "five", 7: "seven"}
ORDERS = ("number", "ordinal", "then")
TEST_SHARE = 5  # one id in five lies on the test side, whatever the seed
_NAME = "shuffled_objects"
_ASK = "Work it out, end with \\boxed{(X)}."


@dataclass(frozen=True)
class Scenario:
    """One question before it is worded.

    `things[i]` starts with `names[i]`; `swaps` are pairs of positions, in order; `asked` is the
    position of the person the question is about; `order` is how the swaps are counted off.
    """

    scene: Scene
    names: tuple[str, ...]
    things: tuple[str, ...]
    swaps: tuple[tuple[int, int], ...]
    asked: int
    order: str

    def held(self) -> Iterator[list[str]]:
        """Who holds what, as things in the order of `names`: at the start and after each swap."""
        held = list(self.things)
        yield list(held)
        for a, b in self.swaps:
            held[a], held[b] = held[b], held[a]
            yield list(held)

    def letter(self) -> str:
        """The gold option in brackets, such as `(B)`."""
        *_, last = self.held()
        return f"({LETTERS[self.things.index(last[self.asked])]})"

    def question(self) -> str:
        """The worded question; its options come in the order of the start, one per line."""
        scene, count = self.scene, len(self.names)
        starts = [
            scene.holds.format(name=n, thing=t)
            for n, t in zip(self.names, self.things, strict=True)
        ]
        options = [
            f"({LETTERS[i]}) {scene.shown.format(thing=self.things[i])}" for i in range(count)
        ]
        intro = scene.intro.format(names=listed(self.names))
        asks = scene.asks.format(name=self.names[self.asked])
        story = f"{intro} At the start, {listed(starts)}.\n{self._swapped()} {asks}"
        return "\n".join([story, "Options:", *options])

    def _swapped(self) -> str:
        last = len(self.swaps) - 1
        said = [
            f"{counted(self.order, i, last)} "
            + self.scene.swap.format(a=self.names[a], b=self.names[b])
            for i, (a, b) in enumerate(self.swaps)
        ]
        return " ".join(f"{sentence}." for sentence in said)


def listed(parts: Sequence[str]) -> str:
    """`a, b, and c`."""
    return ", ".join(parts[:-1]) + f", and {parts[-1]}"


def counted(order: str, index: int, last: int) -> str:
    """The word that opens the swap at `index` (from 0)."""
    if order == "number":
        return f"{index + 1})"
    if order == "ordinal":
        return f"{ORDINALS[index]},"
    return "First," if index == 0 else "Finally," if index == last else "Then,"


def draw(rng: random.Random, objects: Sequence[int], swaps: tuple[int, int]) -> Scenario:
    """One scenario; `swaps` are the least and the largest number of swaps."""
    scene, count = rng.choice(SCENES), rng.choice(objects)
    pairs = [tuple(rng.sample(range(count), 2)) for _ in range(rng.randint(*swaps))]
    return Scenario(
        scene=scene,
        names=tuple(rng.sample(NAMES, count)),
        things=tuple(rng.sample(scene.things, count)),
        swaps=tuple((a, b) for a, b in pairs),
        asked=rng.randrange(count),
        order=rng.choice(ORDERS),
    )


def prompt_of(scenario: Scenario) -> Prompt:
    """The scenario as a prompt; its tier is the number of objects."""
    tier = str(len(scenario.names))
    return make_prompt(_NAME, scenario.question(), scenario.letter(), tier)


def on_test_side(prompt: Prompt) -> bool:
    """Splits by content, so that no seed's training pool holds a question of any seed's test."""
    return int(prompt.prompt_id, 16) % TEST_SHARE == 0


class ShuffledObjects(Task):
    """Who ends up with what after pairwise swaps (3, 5 or 7 objects, lettered options).

    `source="generated"` makes `train` and `test` questions from `seed`, with `objects` things and
    between `swaps[0]` and `swaps[1]` swaps; neither split depends on the other's size.
    `source="bbh"` reads BIG-Bench Hard's three files from the folder `path`
    (`tracking_shuffled_objects_{three,five,seven}_objects.json`, also `.gz`), or, without a path,
    from `hub` at `revision`; `test` of its questions, drawn by `seed`, are the test, and up to
    `train` of the others the pool.
    """

    name: ClassVar[str] = _NAME
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        objects: Sequence[int] = (3, 5, 7),
        train: int = 800,
        test: int = 200,
        seed: int = 0,
        swaps: Sequence[int] = (2, 7),
        source: Literal["generated", "bbh"] = "generated",
        path: str | None = None,
        hub: str = "lukaemon/bbh",
        revision: str | None = None,
    ) -> None:
        super().__init__(marking=marking)
        self.objects = _checked_objects(objects)
        self.swaps = _checked_swaps(swaps)
        self.sizes = _checked_sizes(train, test)
        if source not in ("generated", "bbh"):
            raise TaskError(f"source {source!r} is unknown: write generated or bbh")
        if source == "generated" and path is not None:
            raise TaskError("path is only read with source: bbh; write that, or leave path out")
        self.seed, self.source, self.path = seed, source, path
        self.hub, self.revision = hub, revision

    def train(self) -> list[Prompt]:
        """The training pool. Raises TaskError where the benchmark's test took every question."""
        if self.source == "generated":
            return self._generated(self.sizes[0], test=False)
        pool = self._benchmark()[self.sizes[1] :][: self.sizes[0]]
        if not pool and self.sizes[0]:
            raise TaskError("test takes every question of the files: write a smaller test")
        return pool

    def test(self) -> list[Prompt]:
        """The test questions; fewer than asked for only where the benchmark has fewer."""
        if self.source == "generated":
            return self._generated(self.sizes[1], test=True)
        return self._benchmark()[: self.sizes[1]]

    def messages(self, question: str) -> list[Message]:
        """One user message: the question and the form of the answer."""
        return [{"role": "user", "content": f"{question}\n{_ASK}"}]

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """The last boxed letter against the gold letter."""
        return mark_letter(completion, answer, self.marking, truncated)

    def _generated(self, size: int, *, test: bool) -> list[Prompt]:
        rng = random.Random(f"{_NAME}/{self.seed}/{'test' if test else 'train'}")
        kept: dict[str, Prompt] = {}
        while len(kept) < size:
            prompt = prompt_of(draw(rng, self.objects, self.swaps))
            if on_test_side(prompt) == test:
                kept.setdefault(prompt.prompt_id, prompt)
        return list(kept.values())

    def _benchmark(self) -> list[Prompt]:
        """All questions of the files with the wanted objects, once each, in the seed's order."""
        found: dict[str, Prompt] = {}
        for count in self.objects:
            for row in self._rows(f"tracking_shuffled_objects_{SIZES[count]}_objects"):
                prompt = make_prompt(self.name, row["input"], row["target"], str(count))
                found.setdefault(prompt.prompt_id, prompt)
        ordered = sorted(found.values(), key=lambda prompt: prompt.prompt_id)
        random.Random(f"{_NAME}/bbh/{self.seed}").shuffle(ordered)
        return ordered

    def _rows(self, stem: str) -> list[dict[str, str]]:
        if self.path is None:
            return _from_hub(self.hub, self.revision, stem)
        return _from_folder(Path(self.path), stem)


def _from_folder(folder: Path, stem: str) -> list[dict[str, str]]:
    for name, opener in ((f"{stem}.json", open), (f"{stem}.json.gz", gzip.open)):
        if (folder / name).is_file():
            with opener(folder / name, "rt", encoding="utf-8") as file:
                return _checked_rows(file.read(), folder / name)
    raise TaskError(
        f"path {str(folder)!r} holds no {stem}.json or .json.gz: "
        "write the folder that holds the benchmark's files"
    )


def _checked_rows(text: str, path: Path) -> list[dict[str, str]]:
    try:
        rows = json.loads(text)["examples"]
        return [{"input": str(row["input"]), "target": str(row["target"])} for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        form = '{"examples": [{"input": …, "target": "(A)"}]}'
        raise TaskError(f"{path} is not of the form {form}: {error!r}") from error


def _from_hub(hub: str, revision: str | None, stem: str) -> list[dict[str, str]]:
    from datasets import load_dataset

    try:
        loaded: Any = load_dataset(hub, stem, split="test", revision=revision)
    except Exception as error:  # the hub's client raises many kinds; all mean "not reachable"
        raise TaskError(
            f"{hub} ({stem}) cannot be loaded: {error}. A local folder with the same files "
            "works as well: write path: FOLDER"
        ) from error
    return [{"input": row["input"], "target": row["target"]} for row in loaded]


def _checked_objects(objects: Sequence[int]) -> tuple[int, ...]:
    if not objects or any(count not in SIZES for count in objects):
        raise TaskError(f"objects {list(objects)} is unknown: write a list out of 3, 5, 7")
    return tuple(dict.fromkeys(objects))


def _checked_swaps(swaps: Sequence[int]) -> tuple[int, int]:
    low, high = (*swaps, 0, 0)[:2] if len(swaps) == 2 else (0, 0)
    if not 1 <= low <= high <= len(ORDINALS):
        most = len(ORDINALS)
        raise TaskError(f"swaps {list(swaps)} is wrong: write [least, most] within 1 and {most}")
    return low, high


def _checked_sizes(train: int, test: int) -> tuple[int, int]:
    for name, size in (("train", train), ("test", test)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise TaskError(f"{name} {size!r} is wrong: write a whole number from 0")
    return train, test
