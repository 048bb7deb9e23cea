"""The results of import readers: source questions with completions, or with solve rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.optional.exchange.placed_rows import Notes, Row, count_dropped
from orchestrator.sampling.base import Completion
from tasks import TaskError
from tasks.sources.files import is_chat, message_text, read_chat
from tasks.sources.texts import ANSWERS
from tasks.sources.values import value_text


class SourceQuestion(NamedTuple):
    """A question as worded in the source, and its place there; `answer` is "" if there is none.

    `known_id` is the source's own id of the prompt; with an empty question, only the id is known.
    """

    place: str
    question: str
    answer: str
    tier: str = "all"
    known_id: str | None = None


class CompletionRecord(NamedTuple):
    """One completion; `tokens`, `sample` and `correct` are the source's values, or None."""

    source: SourceQuestion
    completion: Completion
    tokens: int | None = None
    sample: int | None = None
    correct: bool | None = None


class SolveRateRecord(NamedTuple):
    """A share of correct answers; `n` counts its samples, errors included."""

    source: SourceQuestion
    rate: float | None
    n: int | None = None
    successes: int | None = None
    errors: int | None = None


Records = list[CompletionRecord] | list[SolveRateRecord]


@dataclass(frozen=True)
class Hints:
    """Data that a file may leave open.

    `rate` is the column of solve rates, `samples` their number of samples or its column, and
    `model` one of the rated models. `question`, `answer`, `completions`, `prompt_id` and
    `successes` (which replaces a rate) are columns, or values inside columns
    (`reward_model.ground_truth`).
    """

    rate: str | None = None
    model: str | None = None
    question: str | None = None
    answer: str | None = None
    completions: str | None = None
    prompt_id: str | None = None
    samples: int | str | None = None
    successes: str | None = None
    letters: bool = False  # of the marker: choices in separate columns are asked
    unwrap: bool = False  # of the task: questions are taken out of chat templates

    @property
    def columns(self) -> dict[str, str]:
        """The named columns of texts, ids and counts, by their content."""
        named = {name: value for name, value in vars(self).items() if isinstance(value, str)}
        return {name: value for name, value in named.items() if name not in ("rate", "model")}


def source_question(
    row: Row, place: str, question: Any, answer: Any, notes: Notes
) -> SourceQuestion | None:
    """The question of a row, or None, with a note, if it has neither question nor known id.

    Raises TaskError if either is an object or a list.
    """
    known_id, tier = row.get("prompt_id"), row.get("tier")
    known_id = known_id if isinstance(known_id, str) and known_id else None
    texts = []
    for name, value in (("question", question), ("answer", answer)):
        if isinstance(value, Mapping | list):
            raise TaskError(f"{place}: the {name} is {value!r:.60}: write text")
        texts.append("" if value is None or value != value else str(value))
    if not texts[0].strip():
        if known_id is None:
            notes.count("rows dropped: no question", place)
            return None
        texts[0] = ""
    answer = texts[1] if texts[1].strip() else ""
    tier = tier if isinstance(tier, str) else value_text(tier)
    return SourceQuestion(place, texts[0], answer, tier or "all", known_id)


def last_message(messages: Any, role: str) -> str:
    """The text of the last message of a role; plain text counts as such a message."""
    if isinstance(messages, str):
        return messages
    for message in reversed(messages if isinstance(messages, Sequence) else []):
        if isinstance(message, Mapping) and message.get("role") == role:
            return message_text(message.get("content"))
    return ""


def chat_question(value: Any, place: str, notes: Notes) -> Any:
    """The last user message of a chat, with a note on other messages; other values unchanged."""
    if not is_chat(value):
        return value
    chat = read_chat(value)
    count_dropped(chat.system, chat.turns + bool(chat.reply), place, notes)
    return chat.question


def first_answer(answer: Any, place: str, notes: Notes) -> Any:
    """The first of a list of answers, with a note; any other value unchanged."""
    if not isinstance(answer, list):
        return answer
    if len(answer) > 1:
        notes.count(ANSWERS, place)
    return answer[0] if answer else None
