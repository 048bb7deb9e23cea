"""The thirty problems of the American Invitational Mathematics Examination of 2025."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from tasks.base import Marking, Template, boxed_templates
from tasks.errors import TaskError
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number
from tasks.prompts import Prompt, make_prompt
from tasks.sources.source import ReadTask, Source

PARTS = {
    part: Source(
        hub="opencompass/AIME2025",
        revision="a6ad95f611d72cf628a80b58bd0432ef6638f958",
        split="test",
        stems=(part, f"aime2025-{part}"),
        columns=("question", "answer"),
        advice="path: FOLDER with I.jsonl and II.jsonl",
        count=15,
        configs=(f"AIME2025-{part}",),
    )
    for part in ("I", "II")
}


class Aime2025(ReadTask):
    """Competition problems with a whole number from 0 to 999 as the answer (AIME 2025).

    15 problems each of parts I and II, for evaluation only: the training pool is empty. The tier is
    the part.

    Options:
        part: `I`, `II` or `both`.
        path: a folder with I.jsonl and II.jsonl (question, answer), in place of the Hub.
        revision: a commit of the Hub's data set, in place of the pinned one.
        partial: accept a source with an unexpected number of rows.
    """

    name: ClassVar[str] = "aime2025"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "4"
    examples: ClassVar[tuple[str, ...]] = ("0", "33", "902")
    templates: ClassVar[Mapping[str, Template]] = boxed_templates("number")
    sources: ClassVar[tuple[Source, ...]] = tuple(PARTS.values())

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        part: Literal["I", "II", "both"] = "both",
        path: str | None = None,
        revision: str | None = None,
        partial: bool = False,
    ) -> None:
        super().__init__(
            marking=marking, prompt=prompt, path=path, revision=revision, partial=partial
        )
        if part not in (*PARTS, "both"):
            raise TaskError(f"part {part!r} is unknown: write I, II or both")
        self.parts = tuple(PARTS) if part == "both" else (part,)

    def read(self) -> tuple[list[Prompt], list[Prompt]]:
        """An empty pool, and the problems of the parts in order."""
        sources = {part: replace(PARTS[part], alone=len(self.parts) == 1) for part in self.parts}
        return [], [
            make_prompt(self.name, str(row["question"]), whole_answer(row["answer"]), part)
            for part, hub_file in sources.items()
            for row in self.rows(f"test {part}", hub_file)
        ]

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        return mark_number(completion, answer, self.marking, truncated)


def whole_answer(answer: object) -> str:
    r"""The answer as an integer from 0 to 999; some copies append a degree sign."""
    bare = str(answer).strip().removesuffix("^\\circ").removesuffix("^{\\circ}").removesuffix("°")
    if not (bare.isascii() and bare.isdigit() and int(bare) <= 999):
        raise TaskError(f"invalid answer {answer!r}: write an integer from 0 to 999")
    return str(int(bare))
