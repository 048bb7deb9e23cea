"""What every import reader returns: source questions with completions, or with solve rates."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.sampling.base import Completion
from tasks import TaskError

PLACES_SHOWN = 3  # places that a note lists before it only counts
Row = Mapping[str, Any]


class SourceQuestion(NamedTuple):
    """A question as worded in the source, and its place there.

    `known_id` is the source's own id of the prompt; with an empty question nothing else is known.
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


@dataclass(frozen=True)
class Hints:
    """What a file may leave open: the rate's column, its number of samples, and its model."""

    rate: str | None = None
    samples: int | None = None
    model: str | None = None


class Notes:
    """Dropped rows and other remarks, counted, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = {}

    def add(self, text: str) -> None:
        """A remark on the whole source; repeated ones are kept once."""
        self._places.setdefault(text, [])

    def count(self, text: str, place: str) -> None:
        """One more occurrence of `text`, such as "rows dropped: no solve rate"."""
        self._places.setdefault(text, []).append(place)

    def lines(self) -> tuple[str, ...]:
        """One line per remark, with the number of occurrences and the first places."""
        lines = []
        for text, places in self._places.items():
            more = ", …" if len(places) > PLACES_SHOWN else ""
            shown = f"{', '.join(places[:PLACES_SHOWN])}{more}"
            lines.append(f"{len(places):,} {text} ({shown})" if places else text)
        return tuple(lines)


def source_question(
    row: Row, place: str, question: Any, answer: Any, notes: Notes
) -> SourceQuestion | None:
    """The question of a row, or None, with a note, where question or answer is missing."""
    texts = ["" if value is None else str(value) for value in (question, answer)]
    for name, text in zip(("question", "answer"), texts, strict=True):
        if not text.strip():
            notes.count(f"rows dropped: no {name}", place)
            return None
    known_id, tier = row.get("prompt_id"), row.get("tier")
    known_id = known_id if isinstance(known_id, str) else None
    return SourceQuestion(place, texts[0], texts[1], str(tier) if tier else "all", known_id)


def with_questions(
    rows: Sequence[Row], notes: Notes, texts_of: Callable[[Row], tuple[Any, Any]]
) -> Iterator[tuple[Row, SourceQuestion]]:
    """The rows that have a question and an answer, which `texts_of` reads; others are noted."""
    for number, row in enumerate(rows, 1):
        source = source_question(row, f"row {number}", *texts_of(row), notes)
        if source is not None:
            yield row, source


def message_text(content: Any) -> str:
    """The plain text of a message's content: a text, or a list of parts as in chat APIs."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "".join(part for part in parts if isinstance(part, str))


def last_message(messages: Any, role: str) -> str:
    """The text of the last message of a role; a plain text counts as such a message."""
    if isinstance(messages, str):
        return messages
    for message in reversed(messages if isinstance(messages, Sequence) else []):
        if isinstance(message, Mapping) and message.get("role") == role:
            return message_text(message.get("content"))
    return ""


def parse_count(value: Any, place: str, name: str) -> int | None:
    """An integer from 0 (Parquet may hold it as a float), or None where there is none."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value != value or value < 0 or int(value) != value:
        raise TaskError(f"{place}: invalid {name} {value!r}: expected an integer ≥ 0")
    return int(value)


def nested(row: Row, *names: str) -> Row:
    """The object at a path of keys in a row; an empty one where it is absent."""
    for name in names:
        value = row.get(name)
        row = value if isinstance(value, Mapping) else {}
    return row
