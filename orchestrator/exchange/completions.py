"""Stored completions with their questions: a row for each, or a row a prompt with a list."""

from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.exchange.entries import (
    CompletionRecord,
    Hints,
    Notes,
    Row,
    SourceQuestion,
    asked,
    whole,
)
from orchestrator.sampling.base import Completion
from tasks import TaskError

TEXTS = ("completion", "completions", "responses")


def read_completions(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """Columns: question, answer, completion (a text) or completions or responses (a list).

    Optional: truncated (true or false, or a list) or finish (stop, length or error, or a list),
    tokens (a count, or a list), sample (a number, with `completion` only), prompt_id, tier.
    Raises TaskError where a column is of another form.
    """
    found: list[CompletionRecord] = []
    for number, row in enumerate(rows, 1):
        place = f"row {number}"
        who = asked(row, place, row.get("question"), row.get("answer"), notes)
        if who is not None:
            found += _of_row(row, who, notes)
    return found


def _of_row(row: Row, who: SourceQuestion, notes: Notes) -> Iterator[CompletionRecord]:
    value = next((row[name] for name in TEXTS if row.get(name) is not None), None)
    texts = [value] if isinstance(value, str) else value
    if not texts and (texts is None or isinstance(texts, Sequence)):
        notes.case("rows dropped: no completion", who.place)
        return
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise TaskError(
            f"{who.place}: write completion (a text) or completions (a list of texts), "
            f"not {type(value).__name__}"
        )
    ends = _finishes(row, len(texts), who.place)
    counts = _listed(row.get("tokens"), len(texts), who.place, "tokens")
    sample = whole(row.get("sample"), who.place, "sample") if isinstance(value, str) else None
    for text, finish, count in zip(texts, ends, counts, strict=True):
        tokens = whole(count, who.place, "tokens")
        yield CompletionRecord(who, Completion(text, tokens or 0, finish), tokens, sample)


def _finishes(row: Row, count: int, place: str) -> list[Any]:
    """Why each completion ended, as Completion has it."""
    cuts = _listed(row.get("truncated"), count, place, "truncated")
    for cut in cuts:
        if cut not in (None, True, False):
            raise TaskError(f"{place}: truncated {cut!r}: write true or false")
    ends = _listed(row.get("finish"), count, place, "finish")
    for end in ends:
        if end not in (None, "stop", "length", "error"):
            raise TaskError(f"{place}: finish {end!r}: write stop, length or error")
    return ["length" if cut else end or "stop" for cut, end in zip(cuts, ends, strict=True)]


def _listed(value: Any, count: int, place: str, name: str) -> Sequence[Any]:
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise TaskError(f"{place}: {name} has {len(value)} entries for {count} completions")
    return value
