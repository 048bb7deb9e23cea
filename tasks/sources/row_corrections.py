"""The unusable rows of a file, and a user's list of corrections."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.errors import TaskError
from tasks.prompts import Prompt
from tasks.sources.files import Chat, Row, Rows, cell, is_chat, read_chat

REMEDY = "correct question and answer, or write keep: false"


class RowEdit(NamedTuple):
    """A row of a list of corrections.

    place: in the list; listed: the place in the data that the list names.
    """

    place: str
    listed: str
    question: str
    answer: str
    keep: bool


class InvalidRow(NamedTuple):
    """A row of the data that is unusable, and the places of all equal rows."""

    places: list[str]
    question: str
    answer: str
    problem: str

    def is_changed_by(self, edit: RowEdit) -> bool:
        """Whether a list keeps the row with a different question or answer."""
        return edit.keep and (edit.question, edit.answer) != (self.question, self.answer)


def row_id(row: Row) -> str:
    """A hash of a row's content."""
    text = json.dumps(row, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class RowCorrections:
    """The corrections of a task's rows, and the rows that it cannot use, both by `row_id`."""

    edits: Mapping[str, RowEdit] = field(default_factory=dict)
    invalid: dict[str, InvalidRow] = field(default_factory=dict)

    def prompts(
        self,
        read: Rows,
        question: str,
        answer: str | None,
        prompt_of: Callable[[Row, str], Prompt],
        usable: Callable[[Iterable[Prompt]], Sequence[Prompt]],
    ) -> list[Prompt]:
        """The prompts of all usable rows, unchanged or corrected.

        question, answer: the columns. prompt_of: the prompt of a row at a place, or TaskError.
        usable: filters prompts that the marker can use. Raises TaskError, with the list's line, for
        a correction that cannot be used.
        """
        prompts: dict[int, Prompt] = {}
        problems: dict[int, str] = {}
        for index, (row, place) in enumerate(zip(read.rows, read.places, strict=True)):
            try:
                prompts[index] = prompt_of(row, place)
            except TaskError as error:
                problems[index] = _reason(error, place)
        accepted = {prompt.prompt_id for prompt in usable(prompts.values())}
        for index in [i for i, prompt in prompts.items() if prompt.prompt_id not in accepted]:
            problems[index] = f"the marker cannot use the answer {prompts.pop(index).answer!r:.80}"
        edited: dict[int, RowEdit] = {}
        for index, problem in sorted(problems.items()):
            row, place = read.rows[index], read.places[index]
            own_id, texts = row_id(row), _texts(row, question, answer)
            invalid = self.invalid.setdefault(own_id, InvalidRow([], *texts, problem))
            invalid.places.append(place)
            edit = self.edits.get(own_id)
            if edit is None or not invalid.is_changed_by(edit):
                continue
            try:
                prompts[index] = prompt_of(_corrected(row, question, answer, invalid, edit), place)
            except TaskError as error:
                raise TaskError(f"{edit.place}: {_reason(error, place)}: {REMEDY}") from error
            edited[index] = edit
        accepted = {prompt.prompt_id for prompt in usable(prompts[index] for index in edited)}
        for index, edit in edited.items():
            if prompts[index].prompt_id not in accepted:
                problem = f"the marker cannot use the answer {prompts[index].answer!r:.80}"
                raise TaskError(f"{edit.place}: {problem}: {REMEDY}")
        return [prompts[index] for index in sorted(prompts)]


def _reason(error: TaskError, place: str) -> str:
    """The error of a row, without its place and remedy."""
    return str(error).removeprefix(place).removeprefix(":").strip().partition(": write")[0]


def _texts(row: Row, question: str, answer: str | None) -> tuple[str, str]:
    """Question and answer as a list shows them, without the rest of chat messages."""
    texts = cell(row, question), cell(row, answer) if answer else None
    first, second = (read_chat(each) if is_chat(each) else each for each in texts)
    return (
        _text(first.question if isinstance(first, Chat) else first),
        _text(second.reply if isinstance(second, Chat) else second),
    )


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _corrected(
    row: Row, question: str, answer: str | None, invalid: InvalidRow, edit: RowEdit
) -> Row:
    """The row with the texts of the list; unchanged texts stay as they are."""
    if question == answer:  # of messages
        user = {"role": "user", "content": edit.question}
        return row | {question: [user, {"role": "assistant", "content": edit.answer}]}
    changes = {question: edit.question} if edit.question != invalid.question else {}
    if answer and edit.answer != invalid.answer:
        changes[answer] = edit.answer
    return row | changes
