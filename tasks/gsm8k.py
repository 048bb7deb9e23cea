"""Grade-school word problems: GSM8K (Cobbe et al., 2021), 7,473 for training, 1,319 for test."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from orchestrator.plugins.counts import counted
from tasks.base import Marking, Template, boxed_templates, check_integer
from tasks.marking.golds import read_gold
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number
from tasks.prompts import Prompt, make_prompt
from tasks.sources.source import ReadTask, Source

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable

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


def solution_steps(solution: str) -> int:
    """The number of non-empty lines of a worked solution before its `####`."""
    return sum(bool(line.strip()) for line in solution.rpartition("####")[0].splitlines())


class Gsm8k(ReadTask):
    """Grade-school word problems with one number as the answer (GSM8K).

    7,473 training and 1,319 test problems. The tier is the number of steps of the worked solution,
    or `all` if the answer is only the number. The preset `paper` follows the code of "Hard Examples
    Are All You Need": no request to reason, thinking off.

    Options:
        path: a folder with train.jsonl and test.jsonl (question, answer; also .json, .parquet,
            .gz), in place of the Hub.
        revision: a commit of the Hub's data set, in place of the pinned one.
        partial: accept a source with an unexpected number of rows.
        last_number: lenient marking accepts the last number of a completion without a box, whatever
            the text says about it.
        train, test: only the first prompts of a split.
    """

    name: ClassVar[str] = "gsm8k"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "4"
    examples: ClassVar[tuple[str, ...]] = ("18", "1200", "-3", "624000")
    templates: ClassVar[Mapping[str, Template]] = boxed_templates("number")
    sources: ClassVar[tuple[Source, ...]] = (TRAIN, TEST)

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
        self.sizes = {
            name: None if size is None else check_integer(name, size)
            for name, size in (("train", train), ("test", test))
        }

    def read(self) -> tuple[list[Prompt], list[Prompt]]:
        """Both splits; rows without a numeric gold are dropped, with a note."""
        return self._split("train", TRAIN), self._split("test", TEST)

    def prompt_table(self, split: Literal["train", "test"]) -> "PromptTable":
        """The first prompts of a split, limited by its option."""
        return super().prompt_table(split)[: self.sizes[split]]

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        return mark_number(
            completion, answer, self.marking, truncated, last_number=self.last_number
        )

    def read_answer(self, text: str) -> str | None:
        """A number, alone or after the `####` of a worked solution."""
        return read_gold(text.strip(), "number")

    @property
    def marker_id(self) -> str:
        """Reading the last number is a different marker."""
        return super().marker_id + ("/last-number" if self.last_number else "")

    def _split(self, split: str, hub_file: Source) -> list[Prompt]:
        rows = self.rows(split, hub_file)
        prompts = []
        for row in rows:
            solution = str(row["answer"])
            if (gold := self.read_answer(solution)) is not None:
                tier = str(solution_steps(solution)) if "####" in solution else "all"
                prompts.append(make_prompt(self.name, str(row["question"]), gold, tier))
        if dropped := len(rows) - len(prompts):
            self.note(f"{split}: {counted(dropped, 'row')} dropped without a number after ####")
        return prompts
