"""The user's own questions, from a file and without code."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

from tasks.base import Answer, Marking, Prompt, Task, TaskError, make_prompt
from tasks.columns import INSTRUCTIONS, SOLUTIONS, column_value, read_texts
from tasks.equivalence import mark_expression, mark_expressions
from tasks.files import Row, check_columns, read_file
from tasks.marking import Mark, answer_mark, mark_letter, mark_number, no_answer_mark
from tasks.numbers import normalize_number
from tasks.prompting import Template
from tasks.reading import last_box, last_filled_box, without_thinking
from tasks.sources import ReadTask

Marker = Literal["number", "letter", "expression", "text"]
_LETTER = re.compile(r"[A-Z]|\([A-Z]\)")
_WRAPPED = re.compile(r"\\text\s*\{([^{}]*)\}")
# The first two of each serve as wrong answers.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "number": ("170009", "-3", "1200"),
    "letter": ("(A)", "(B)"),
    "expression": ("\\frac{17}{1009}", "x^{17} - 1009", "12\\sqrt{3}"),
    "text": ("Seventeen owls", "New York"),
}
_HASH_LINE = re.compile(r"^####[ \t]*(\S.*)\Z", re.MULTILINE)
_ID_RANGE = 1 << 64  # prompt ids, read as integers, are below this


class QuestionFile(ReadTask):
    r"""Your own questions and answers, from JSON lines or Parquet files.

    `train` and `test` are paths of files with one question per row; either may be left out (no
    pool: for evaluation only). Or `path` is one file, of which `test_share` is the test set, chosen
    by content, so that the order of the file never matters. `question`, `answer` and `tier` name
    columns, or values inside them (`reward_model.ground_truth`); a column of chat messages holds
    the question as the last user message and the answer as the reply to it. Without `tier` all
    prompts have the tier "all". `marker` is how answers are marked: as a number, an option letter,
    a mathematical expression, or text (the content of the last box; strict compares characters,
    lenient ignores case, spaces, a full stop and `\text{}`).

    Of a worked solution, the answer is what follows `####` in its last line, or its last box.
    `skip_invalid` drops rows that cannot be used and notes their number; without it, the first one
    is an error. The preset `bare` is the question alone, for questions with their own instructions.
    """

    name: ClassVar[str] = "file"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"
    templates: ClassVar[Mapping[str, Template]] = {
        "plain": Template("{question}\nPut the final answer within \\boxed{}."),
        "bare": Template("{question}"),
    }

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        train: str | None = None,
        test: str | None = None,
        path: str | None = None,
        test_share: float | None = None,
        question: str = "question",
        answer: str = "answer",
        tier: str | None = None,
        marker: Marker = "number",
        skip_invalid: bool = False,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt, path=path)
        if marker not in get_args(Marker):
            raise TaskError(f"marker {marker!r} is unknown: write {', '.join(get_args(Marker))}")
        self.files = {"train": train, "test": test}
        self.test_share = _check_share(path, test_share, self.files)
        self.question, self.answer, self.tier = question, answer, tier
        self.marker: Marker = marker
        if not isinstance(skip_invalid, bool):
            raise TaskError(f"invalid skip_invalid {skip_invalid!r:.80}: write true or false")
        self.skip_invalid = skip_invalid

    def read(self) -> tuple[list[Prompt], list[Prompt]]:
        """The two files, or the two parts of one file."""
        if self.path is None and not any(self.files.values()):
            raise TaskError(
                "task file: the options name no file: write train: PATH and test: PATH, or path"
            )
        if self.path is None:
            return self._prompts("train"), self._prompts("test")
        splits: tuple[list[Prompt], list[Prompt]] = ([], [])
        for prompt in self._read("all", self.path):
            splits[int(prompt.prompt_id, 16) < self.test_share * _ID_RANGE].append(prompt)
        return splits

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """Mark according to `marker`."""
        if self.marker == "number":
            return mark_number(completion, answer, self.marking, truncated)
        if self.marker == "letter":
            return mark_letter(completion, answer, self.marking, truncated)
        if self.marker == "expression":
            return mark_expression(completion, answer, self.marking, truncated)
        return mark_text(completion, answer, self.marking, truncated)

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """All at once; expressions in child processes that can be killed."""
        if self.marker == "expression":
            return mark_expressions(answers, self.marking)
        return super().mark_all(answers)

    @property
    def marker_id(self) -> str:
        """Each kind of marking is a marker of its own."""
        return f"{super().marker_id}/{self.marker}"

    @classmethod
    def marker_variants(cls) -> list[Task]:
        """One task per kind of marking; their file is never read."""
        return [cls(marker=marker) for marker in get_args(Marker)]

    def check_prompts(self) -> list[Prompt]:
        """Synthetic answers of the marker's kind."""
        return [make_prompt(self.name, f"example {a}", a, "") for a in EXAMPLES[self.marker]]

    def _prompts(self, split: str) -> list[Prompt]:
        file = self.files[split]
        return [] if file is None else self._read(split, file)

    def read_answer(self, text: str) -> str | None:
        """An answer in the marker's form, alone or at the end of a worked solution."""
        return read_gold(text.strip(), self.marker)

    def _read(self, split: str, file: str) -> list[Prompt]:
        columns = [self.question, self.answer, *([self.tier] if self.tier else [])]
        read = read_file(file, () if self.skip_invalid else columns)
        rows = self.keep(split, read)
        if not rows:
            raise TaskError(f"{file} holds no rows: write one question per row")
        prompts, error, dropped = [], "", Counter[str]()
        for row, place in zip(rows, read.places, strict=True):
            try:
                if self.skip_invalid:
                    check_columns(place, row, columns)
                prompts.append(self._prompt(row, place, dropped))
            except TaskError as invalid:
                if not self.skip_invalid:
                    raise
                error = error or str(invalid)
        for label, count in dropped.items():
            if count:
                self.note(f"{split}: {count:,} {label}")
        if not self.skip_invalid:
            return prompts
        prompts = self._markable(prompts)
        if not prompts:
            error = error or f"{file}: the marker accepts none of the answers: write another marker"
            raise TaskError(f"{error} (no row of the file can be used)")
        if invalid_rows := len(rows) - len(prompts):
            self.note(f"{split}: {invalid_rows:,} of {len(rows):,} rows dropped as invalid")
        return prompts

    def _markable(self, prompts: list[Prompt]) -> list[Prompt]:
        """The prompts whose answer alone is marked correct."""
        golds = [Answer(self.format_answer(p.answer), p.answer) for p in prompts]
        marks = zip(prompts, self.mark_all(golds), strict=True)
        return [prompt for prompt, mark in marks if mark.outcome == "correct"]

    def _prompt(self, row: Row, place: str, dropped: Counter[str]) -> Prompt:
        try:
            texts = read_texts(row, self.question, self.answer)
        except TaskError as error:
            raise TaskError(f"{place}: {error}") from error
        answer = texts.answer.strip()
        for column, text in ((self.question, texts.question.strip()), (self.answer, answer)):
            if not text:
                raise TaskError(f"{place}: column {column!r} is empty")
        question, gold = self.bare_question(texts.question), self.read_answer(answer)
        if gold is None:
            form = "number, such as 1234.5" if self.marker == "number" else "letter, such as B"
            others = ", ".join(marker for marker in get_args(Marker) if marker != self.marker)
            raise TaskError(
                f"{place}: the answer {answer!r:.80} is not a {form}: write one, or marker: "
                f"{others}, or skip_invalid: true to drop such rows"
            )
        dropped.update(texts.dropped)
        dropped[INSTRUCTIONS] += question != texts.question
        dropped[SOLUTIONS] += final_answer(answer) != answer
        tier = str(column_value(row, self.tier)) if self.tier else "all"
        return make_prompt(self.name, question, gold, tier)


def final_answer(text: str) -> str:
    r"""The answer of a worked solution: after `####` in its last line, or in its last `\boxed{}`.

    Any other text is an answer already.
    """
    if line := _HASH_LINE.search(text):
        return line[1].strip()
    return (last_box(text) or text) if "\\boxed" in text else text


def read_gold(answer: str, marker: Marker) -> str | None:
    """The gold that an answer of a file gives, or None if the marker needs another form."""
    answer = final_answer(answer)
    if marker == "number":
        return normalize_number(answer)
    if marker == "letter":
        return f"({answer.strip('()')})" if _LETTER.fullmatch(answer) else None
    return answer


def mark_text(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    """Compare the content of the last box with the gold text."""
    box = (
        last_box(completion)
        if marking == "strict"
        else last_filled_box(without_thinking(completion))
    )
    if box is None:
        return no_answer_mark(truncated)
    if marking == "strict":
        return answer_mark(box.strip() == answer.strip(), box, "strict:boxed-text")
    return answer_mark(_normalize(box) == _normalize(answer), box, "lenient:boxed-text")


def _normalize(text: str) -> str:
    text = " ".join(_WRAPPED.sub(r"\1", text).split())
    return text.removesuffix(".").rstrip().casefold()


def _check_share(path: str | None, share: float | None, files: Mapping[str, str | None]) -> float:
    if path is not None and any(file is not None for file in files.values()):
        raise TaskError("path already gives both splits: leave it out, or leave train and test out")
    if path is None and share is not None:
        raise TaskError("test_share is only read with path: write that, or leave test_share out")
    share = 0.2 if share is None else share
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise TaskError(f"invalid test_share {share!r}: write a number between 0 and 1")
    return share
