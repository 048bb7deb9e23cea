"""Stored completions with their questions: one row per completion, or one per prompt."""

from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.exchange.records import (
    CompletionRecord,
    Hints,
    Notes,
    Row,
    SourceQuestion,
    parse_count,
    with_questions,
)
from orchestrator.sampling.base import Completion
from tasks import TaskError

TEXTS = ("completion", "completions", "responses")


def read_completions(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """Columns: question, answer, completion (a text) or completions or responses (a list).

    Optional: truncated (true or false, or a list) or finish (stop, length or error, or a list),
    tokens (a count, or a list), sample (a number, with `completion` only), prompt_id, tier.
    Raises TaskError where a column has another form.
    """
    return [
        record
        for row, source in with_questions(
            rows, notes, lambda row: (row.get("question"), row.get("answer"))
        )
        for record in _records(row, source, notes)
    ]


def _records(row: Row, source: SourceQuestion, notes: Notes) -> Iterator[CompletionRecord]:
    value = next((row[name] for name in TEXTS if row.get(name) is not None), None)
    texts = [value] if isinstance(value, str) else value
    if not texts and (texts is None or isinstance(texts, Sequence)):
        notes.count("rows dropped: no completion", source.place)
        return
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise TaskError(
            f"{source.place}: write completion (a text) or completions (a list of texts), "
            f"not {type(value).__name__}"
        )
    finishes = _finishes(row, len(texts), source.place)
    counts = _per_completion(row, "tokens", len(texts), source.place)
    single = isinstance(value, str)
    sample = parse_count(row.get("sample"), source.place, "sample") if single else None
    for text, finish, count in zip(texts, finishes, counts, strict=True):
        tokens = parse_count(count, source.place, "tokens")
        completion = Completion(text, tokens or 0, finish)
        yield CompletionRecord(source, completion, tokens, sample)


def _finishes(row: Row, count: int, place: str) -> list[Any]:
    """Why each completion ended, in the terms of Completion."""
    cuts = _per_completion(row, "truncated", count, place)
    for cut in cuts:
        if cut not in (None, True, False):
            raise TaskError(f"{place}: truncated {cut!r}: write true or false")
    finishes = _per_completion(row, "finish", count, place)
    for finish in finishes:
        if finish not in (None, "stop", "length", "error"):
            raise TaskError(f"{place}: finish {finish!r}: write stop, length or error")
    return ["length" if cut else end or "stop" for cut, end in zip(cuts, finishes, strict=True)]


def _per_completion(row: Row, name: str, count: int, place: str) -> Sequence[Any]:
    """A column's value for each of `count` completions, where it is a list or one value for all."""
    value = row.get(name)
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise TaskError(f"{place}: {name} has {len(value)} entries for {count} completions")
    return value
