"""Grade-school word problems: GSM8K (Cobbe et al., 2021), 7,473 to train on and 1,319 to test."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tasks.base import Marking, Prompt, TaskError, make_prompt
from tasks.marking import Mark, mark_number
from tasks.prompting import Template, boxed_templates
from tasks.sources import ReadTask, Source, normalize_number

TRAIN = Source(
    hub="openai/gsm8k",
    revision="740312add88f781978c0658806c59bc2815b9866",
    split="train",
    stems=("train",),
    columns=("question", "answer"),
    advice="path: FOLDER with train.jsonl and test.jsonl",
    count=7473,
    configs=("main",),
)
TEST = replace(TRAIN, split="test", stems=("test",), count=1319)


def gold_number(solution: str) -> str | None:
    """The number behind the last `#### ` of a worked solution, or None where there is none."""
    _, found, last = solution.rpartition("#### ")
    return normalize_number(last) if found else None


def solution_steps(solution: str) -> int:
    """The lines of a worked solution that say something, before its `####`."""
    return sum(bool(line.strip()) for line in solution.rpartition("####")[0].splitlines())


class Gsm8k(ReadTask):
    r"""Grade-school word problems with one number as the answer (GSM8K).

    Read from the hub, or from the folder `path` with train.jsonl and test.jsonl (question, answer;
    also .json, .parquet, .gz). `train` and `test` take the first so many prompts, in the order of
    the files; None takes all. `last_number` lets lenient marking read the last number of a
    completion that boxes nothing. The tier is the number of steps of the worked solution. The
    preset `paper` follows the authors' code: no request to reason, thinking off.
    """

    name: ClassVar[str] = "gsm8k"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"
    examples: ClassVar[tuple[str, ...]] = ("18", "1200", "-3", "624000")
    templates: ClassVar[Mapping[str, Template]] = boxed_templates("number")

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        path: str | None = None,
        revision: str | None = None,
        partial: bool = False,
        last_number: bool = False,
        train: int | None = None,
        test: int | None = None,
    ) -> None:
        super().__init__(
            marking=marking, prompt=prompt, path=path, revision=revision, partial=partial
        )
        self.last_number = last_number
        self.sizes = {"train": checked_size("train", train), "test": checked_size("test", test)}

    def read(self) -> tuple[list[Prompt], list[Prompt]]:
        """Both splits; a row whose gold is no number is dropped, and noted."""
        return self._split("train", TRAIN), self._split("test", TEST)

    def train(self) -> list[Prompt]:
        """The training pool: the first `train` prompts."""
        return super().train()[: self.sizes["train"]]

    def test(self) -> list[Prompt]:
        """The first `test` questions."""
        return super().test()[: self.sizes["test"]]

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """The last boxed number against the gold number."""
        return mark_number(
            completion, answer, self.marking, truncated, last_number=self.last_number
        )

    @property
    def marker_id(self) -> str:
        """The last number, where it is read, makes another marker."""
        return super().marker_id + ("/last-number" if self.last_number else "")

    def _split(self, split: str, source: Source) -> list[Prompt]:
        rows = self.rows(split, source)
        prompts = []
        for row in rows:
            solution = str(row["answer"])
            if (gold := gold_number(solution)) is not None:
                tier = str(solution_steps(solution))
                prompts.append(make_prompt(self.name, str(row["question"]), gold, tier))
        if dropped := len(rows) - len(prompts):
            self.note(f"{split}: {dropped:,} rows dropped whose answer is no number behind ####")
        return prompts


def checked_size(name: str, size: int | None) -> int | None:
    """`size` where it is a number of prompts, or None for all. Raises TaskError."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise TaskError(f"{name} {size!r} is wrong: write a whole number from 0, or leave it out")
    return size
