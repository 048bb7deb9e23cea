"""Samples of lm-evaluation-harness (`--log_samples`: samples_TASK_DATE.jsonl)."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.exchange.records import (
    CompletionRecord,
    Hints,
    Notes,
    PlacedRow,
    Row,
    first_answer,
    nested,
    source_question,
)
from orchestrator.sampling.base import Completion

QUESTIONS = ("question", "problem", "Question", "Problem", "input", "query", "prompt")


def read_lm_eval(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """One row per document and filter, as lm_eval 0.4.13 writes them.

    Columns: doc (the source's row), target, arguments (the requests), resps (a list of texts per
    request), filter, metrics and one column per metric. Of several filters, which read the same
    texts, the first is kept. The question is the document's; without one, the request's prompt.
    """
    records = []
    filters = [*dict.fromkeys(str(row.get("filter")) for _, row in rows)]
    if len(filters) > 1:
        notes.add(f"read once, not once per filter of lm-eval ({', '.join(filters)})")
    for place, row in rows:
        if str(row.get("filter")) != filters[0]:
            continue
        prompt = _prompt(row)
        requests = row.get("resps")
        texts = requests[0] if isinstance(requests, list) and requests else None
        if prompt is None or not isinstance(texts, list):
            notes.count("rows dropped: log-likelihoods of choices, not completions", place)
            continue
        document = nested(row, "doc")
        question = next((document[name] for name in QUESTIONS if document.get(name)), None)
        question = question if isinstance(question, str) else prompt
        answer = first_answer(row.get("target"), place, notes)
        source = source_question(document, place, question, answer, notes)
        if source is None:
            continue
        if question != prompt:
            notes.count(
                "questions are read without the evaluation's own prompt and examples", place
            )
        correct = _correct(row) if len(texts) == 1 else None
        if not texts or not all(isinstance(text, str) for text in texts):
            notes.count("rows dropped: no completion", place)
            continue
        for text in texts:
            completion = Completion(text, 0, "stop")
            records.append(CompletionRecord(source, completion, correct=correct))
    notes.add("lm-eval does not record which answers were cut off: they count as unparsed or wrong")
    return records


def _prompt(row: Row) -> str | None:
    """The prompt of a request that generates; None for one that scores a given text.

    `arguments` holds gen_args_0: {arg_0: prompt, arg_1: settings}, or (until 0.4.3) lists of them.
    """
    arguments: Any = row.get("arguments")
    first = (
        next(iter(arguments.values()), None)
        if isinstance(arguments, Mapping)
        else (arguments or [None])[0]
        if isinstance(arguments, list)
        else None
    )
    values = list(first.values()) if isinstance(first, Mapping) else first
    if not isinstance(values, list) or len(values) < 2 or not isinstance(values[1], Mapping):
        return None
    return str(values[0])


def _correct(row: Row) -> bool | None:
    """What the first metric decided, where it is 0 or 1."""
    names = row.get("metrics")
    score = row.get(str(names[0]) if isinstance(names, list) and names else "exact_match")
    return bool(score) if isinstance(score, int | float) and score in (0, 1) else None
