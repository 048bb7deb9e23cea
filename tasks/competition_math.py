r"""Competition problems by level and subject: MATH (Hendrycks et al., 2021), and MATH-500."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from orchestrator.plugins.counts import counted
from tasks.base import Marking, Template, boxed_templates
from tasks.errors import TaskError
from tasks.marking.boxes import last_box
from tasks.marking.comparison import tree
from tasks.marking.equivalence import (
    expression_comparison,
    is_readable,
    mark_expression,
    mark_expressions,
)
from tasks.marking.marks import Mark
from tasks.marking.spelling import AnswerComparison, clean
from tasks.marking.tokens import Unreadable, tokens
from tasks.prompts import Answer, Prompt, make_prompt
from tasks.sources.files import Row
from tasks.sources.hub import Repository
from tasks.sources.source import ReadTask, Source, read_rows

SUBJECTS = {
    "Algebra": "algebra",
    "Counting & Probability": "counting_and_probability",
    "Geometry": "geometry",
    "Intermediate Algebra": "intermediate_algebra",
    "Number Theory": "number_theory",
    "Prealgebra": "prealgebra",
    "Precalculus": "precalculus",
}
LEVELS = (1, 2, 3, 4, 5)  # levels of difficulty of the data set
TRAIN = Source(
    hub="EleutherAI/hendrycks_math",
    revision="21a5633873b6a120296cce3e2df9d5550074f4a3",
    split="train",
    stems=("train",),
    columns=("problem", "level", "type", "solution"),
    advice="path: FOLDER with train.jsonl and test.jsonl",
    count=7500,
    configs=tuple(SUBJECTS.values()),
)
TEST = replace(TRAIN, split="test", stems=("test",), count=5000)
MATH500 = Source(
    hub="HuggingFaceH4/MATH-500",
    revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    split="test",
    stems=("math500", "test"),
    columns=("problem", "answer", "subject", "level"),
    advice="math500_path: FILE, or FOLDER with math500.jsonl",
    count=500,
    alone=True,
)


def is_numeric(gold: str) -> bool:
    r"""Whether a gold answer is exactly one number: an integer, a decimal or a fraction.

    It may have a sign, a currency, a percent sign, a degree sign or a unit. Mixed numbers, roots,
    constants such as `\pi`, numbers in other bases (`101_2`) and assignments (`x=5`) do not count.
    """
    try:
        node, pieces = tree(gold), tokens(clean(gold))
    except Unreadable:
        return False
    while node.kind in ("quantity", "percent", "degree", "negate"):
        node = node.args[0]
    if node.kind == "divide":
        return all(part.kind in ("number", "negate") for part in node.args)
    written = [piece.value for piece in pieces if piece.kind == "number"]
    return node.kind == "number" and node.args[0] in written  # a mixed number is not


class CompetitionMath(ReadTask):
    """Competition mathematics by level and subject (MATH, or MATH-500 as its test).

    7,498 training and 5,000 test problems. The gold answer is the content of the solution's last
    box. The tier is the level. 4 training problems are test problems and 64 nearly so; 108 contain
    one.

    Options:
        path: a folder with train.jsonl and test.jsonl (problem, level "Level N", type, solution),
            in place of the Hub.
        revision: a commit of the Hub's data set, in place of the pinned one.
        partial: accept a source with an unexpected number of rows.
        levels, subjects: only these, in the pool and the test set.
        train_levels: only these, in the pool only: train on easy levels, and test on all.
        numeric: only the problems whose gold answer is one number.
        test_set: `full`, or `math500` for the widely reported 500 problems.
        math500_path: a file with these 500 problems (problem, answer, subject, level), in place of
            the Hub.
    """

    name: ClassVar[str] = "math"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "3"
    # The first two serve as wrong answers: they are not the gold of any problem.
    examples: ClassVar[tuple[str, ...]] = (
        "\\frac{17}{1009}",
        "x^{17} - 1009",
        "5",
        "12\\sqrt{3}",
        "(3, 5]",
        "\\begin{pmatrix} 1 \\\\ -2 \\end{pmatrix}",
        "\\text{Tuesday}",
    )
    templates: ClassVar[Mapping[str, Template]] = boxed_templates("answer")
    sources: ClassVar[tuple[Source, ...]] = (TRAIN, TEST)

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        path: str | None = None,
        revision: str | None = None,
        partial: bool = False,
        levels: Sequence[int] | None = None,
        train_levels: Sequence[int] | None = None,
        subjects: Sequence[str] | None = None,
        numeric: bool = False,
        test_set: Literal["full", "math500"] = "full",
        math500_path: str | None = None,
    ) -> None:
        super().__init__(
            marking=marking, prompt=prompt, path=path, revision=revision, partial=partial
        )
        if test_set not in ("full", "math500"):
            raise TaskError(f"test_set {test_set!r} is unknown: write full or math500")
        if test_set == "full" and math500_path is not None:
            raise TaskError(
                "math500_path is only read with test_set: math500: add test_set: math500"
            )
        self.tiers = _check_levels("levels", levels)
        self.train_tiers = _check_levels("train_levels", train_levels)
        if subjects is not None and (
            isinstance(subjects, str) or not subjects or any(s not in SUBJECTS for s in subjects)
        ):
            known = ", ".join(SUBJECTS)
            raise TaskError(f"invalid subjects {subjects!r}: write a list from {known}")
        self.subjects = None if subjects is None else frozenset(subjects)
        self.numeric = numeric
        self.test_set = test_set
        self.math500_path = math500_path

    def read(self) -> tuple[list[Prompt], list[Prompt]]:
        """The pool and the test set, filtered by the options."""
        train = self._prompts("train", self.rows("train", TRAIN), boxed_gold)
        if self.train_tiers is not None:
            train = [prompt for prompt in train if prompt.tier in self.train_tiers]
        if self.test_set == "full":
            return train, self._prompts("test", self.rows("test", TEST), boxed_gold)
        # MATH-500 is a different repository with its own pinned revision.
        read = read_rows(MATH500, self.math500_path, partial=self.partial)
        rows = self.keep("test", read)
        return train, self._prompts("test", rows, lambda row: str(row["answer"]).strip())

    @property
    def downloads(self) -> list[Repository]:
        """MATH, and MATH-500 if it is the test set, unless they are read from a path."""
        tested = self.test_set == "math500" and self.math500_path is None
        return [*super().downloads, *([MATH500.repository()] if tested else [])]

    def read_answer(self, text: str) -> str | None:
        """An expression, alone or in the last box of a worked solution."""
        return boxed_gold({"solution": text}) or text.strip()

    def reads(self, answer: str) -> bool:
        """Whether the marker can read a gold answer."""
        return self.marking == "strict" or is_readable(answer)

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        return mark_expression(completion, answer, self.marking, truncated)

    @property
    def comparison(self) -> AnswerComparison:
        """As expressions."""
        return expression_comparison(self.marking)

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """Mark all answers at once, in child processes that can be killed."""
        return mark_expressions(answers, self.marking)

    def _prompts(
        self, split: str, rows: Sequence[Row], gold_of: Callable[[Row], str]
    ) -> list[Prompt]:
        golds = [
            (row, gold_of(row))
            for row in rows
            if self.tiers is None or _tier(row) in self.tiers
            if self.subjects is None or row.get("type", row.get("subject")) in self.subjects
        ]
        kept = [(row, gold) for row, gold in golds if gold]
        if dropped := len(golds) - len(kept):
            self.note(
                f"{split}: {counted(dropped, 'row')} dropped without a boxed answer in the solution"
            )
        return [
            make_prompt(self.name, str(row["problem"]), gold, _tier(row))
            for row, gold in kept
            if not self.numeric or is_numeric(gold)
        ]


def boxed_gold(row: Row) -> str:
    r"""The content of the solution's last box, also `\fbox{}` and `\boxed 5`; "" without one."""
    return (last_box(str(row["solution"]), ("boxed", "fbox"), bare=True) or "").strip()


def _tier(row: Row) -> str:
    """The level as text; two problems of MATH have the level "?"."""
    return str(row["level"]).removeprefix("Level ")


def _check_levels(name: str, levels: Sequence[int] | None) -> frozenset[str] | None:
    if levels is None:
        return None
    if isinstance(levels, int) or not levels or any(level not in LEVELS for level in levels):
        raise TaskError(f"invalid {name} {levels!r}: write a list of levels from 1 to 5")
    return frozenset(map(str, levels))
