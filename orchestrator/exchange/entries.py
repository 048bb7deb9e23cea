"""What every reader of a foreign layout gives: asked questions with completions, or with rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.sampling.base import Completion
from tasks import TaskError

NAMED = 3  # places that a note names before it only counts
Row = Mapping[str, Any]


class SourceQuestion(NamedTuple):
    """A question as the source asks it, and where it stands there.

    `known_id` is the source's own id of the prompt; with an empty question it is all there is.
    """

    place: str
    question: str
    answer: str
    tier: str = "all"
    known_id: str | None = None


class CompletionRecord(NamedTuple):
    """One completion. `tokens`, `sample` and `correct` are what the source says of it, or None."""

    asked: SourceQuestion
    completion: Completion
    tokens: int | None = None
    sample: int | None = None
    correct: bool | None = None


class SolveRateRecord(NamedTuple):
    """A share of right answers; `n` counts the samples it was measured on, errors among them."""

    asked: SourceQuestion
    rate: float | None
    n: int | None = None
    successes: int | None = None
    errors: int | None = None


@dataclass(frozen=True)
class Hints:
    """What a file may leave open: the column of the rate, its samples, whose rate it is."""

    rate: str | None = None
    samples: int | None = None
    model: str | None = None


class Notes:
    """What was dropped or is odd, counted aloud, in the order of the first case of each."""

    def __init__(self) -> None:
        self._cases: dict[str, list[str]] = {}

    def say(self, text: str) -> None:
        """A remark on the whole; the same one is kept once."""
        self._cases.setdefault(text, [])

    def case(self, what: str, place: str) -> None:
        """One more case of `what`, such as "rows dropped: no solve rate"."""
        self._cases.setdefault(what, []).append(place)

    def lines(self) -> tuple[str, ...]:
        """One sentence a remark, with the number of cases and the first places."""
        return tuple(_line(what, places) for what, places in self._cases.items())


def _line(what: str, places: Sequence[str]) -> str:
    if not places:
        return what
    more = ", …" if len(places) > NAMED else ""
    return f"{len(places):,} {what} ({', '.join(places[:NAMED])}{more})"


def text_of(content: Any) -> str:
    """The plain text of a message's content: a text, or a list of parts as chat APIs write it."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "".join(part for part in parts if isinstance(part, str))


def last_of(messages: Any, role: str) -> str:
    """The text of the last message of a role; a bare text stands for such a message."""
    if isinstance(messages, str):
        return messages
    for message in reversed(messages if isinstance(messages, Sequence) else []):
        if isinstance(message, Mapping) and message.get("role") == role:
            return text_of(message.get("content"))
    return ""


def asked(row: Row, place: str, question: Any, answer: Any, notes: Notes) -> SourceQuestion | None:
    """The question of a row, or None, with a note, where question or answer is missing."""
    texts = ["" if value is None else str(value) for value in (question, answer)]
    for name, text in zip(("question", "answer"), texts, strict=True):
        if not text.strip():
            notes.case(f"rows dropped: no {name}", place)
            return None
    known = row.get("prompt_id")
    tier = row.get("tier")
    known = known if isinstance(known, str) else None
    return SourceQuestion(place, texts[0], texts[1], str(tier) if tier else "all", known)


def whole(value: Any, place: str, name: str) -> int | None:
    """A count from 0 (Parquet may hold it as a float), or None where there is none."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value != value or value < 0 or int(value) != value:
        raise TaskError(f"{place}: {name} {value!r} is no count: write a whole number from 0")
    return int(value)


def inner(row: Row, name: str) -> Row:
    """A nested object of a row; an empty one where it is absent."""
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}
