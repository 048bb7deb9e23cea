"""Tables of one question per row: completions, solve rates or plain pools, by named columns."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from math import ceil, floor
from typing import Any, NamedTuple

from orchestrator.optional.exchange.records import (
    CompletionRecord,
    Hints,
    Notes,
    PlacedRow,
    Records,
    Row,
    SolveRateRecord,
    SourceQuestion,
    json_object,
    parse_count,
    source_question,
)
from orchestrator.plugins.counts import counted
from orchestrator.sampling.base import FINISHES, Completion, Finish
from tasks import TaskError
from tasks.sources.choices import Numbering, choices_of
from tasks.sources.files import (
    TURNS,
    cell,
    choice_numbering,
    column_value,
    completion_texts,
    is_chat,
    or_list,
    read_texts,
    value_text,
)

QUESTIONS = ("question", "problem")
SAMPLE_COUNTS = ("n", "samples", "num_samples", "n_samples", "rollouts", "attempts")
SUCCESS_COUNTS = ("successes", "num_correct", "n_correct", "pass_count")
RATE = re.compile(r"(?:.+_)?(?:solve|pass|success)_rate(?:_.+)?")
BIG_MATH_RATE, BIG_MATH_SAMPLES = "llama8b_solve_rate", 64
RATES_ONLY = "solve rates only: no outcome detail, so hard may also mean unparsed or truncated"
SINGLE_PRECISION = 6e-8  # relative rounding error of a float32, in which rates are often stored
_SHARE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*")


def rate_columns(names: Iterable[str]) -> list[str]:
    """The columns that are named like a solve rate, each once."""
    return [name for name in dict.fromkeys(names) if RATE.fullmatch(name)]


def rate_column(names: Iterable[str], hints: Hints) -> str | None:
    """The column of solve rates: `hints.rate`, or the only one named like a solve rate."""
    columns = rate_columns(names)
    if hints.rate is None and len(columns) > 1:
        raise TaskError(
            f"several columns are named like a solve rate ({', '.join(columns)}): "
            f"write which one: --rate {columns[0]}"
        )
    return hints.rate or next(iter(columns), None)


def read_big_math(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Big-Math-RL-Verified: problem, answer, source, domain, llama8b_solve_rate.

    As its dataset card says: the share of 64 rollouts of Llama-3.1-8B that succeed. The values are
    shares from 0 to 1 (public code compares them as such), null where none was measured.
    """
    hints = replace(hints, samples=hints.samples or BIG_MATH_SAMPLES)
    records = []
    for place, row in rows:
        question = next((row[name] for name in QUESTIONS if row.get(name)), None)
        source = source_question(row, place, question, row.get("answer"), notes)
        if source is not None:
            records.append(rate_record(row, source, BIG_MATH_RATE, hints))
    return records


def rate_record(
    row: Row, source: SourceQuestion, column: str | None, hints: Hints
) -> SolveRateRecord:
    """A row's rate: a number from 0 to 1, a text such as "7/8", or successes of samples."""
    samples, named = hints.samples, hints.successes
    n = _first_count(row, [samples] if isinstance(samples, str) else SAMPLE_COUNTS, source.place)
    n = samples if n is None and isinstance(samples, int) else n
    successes = _first_count(row, [named] if named else SUCCESS_COUNTS, source.place)
    if named and successes is not None and n is None:
        raise TaskError(
            f"{source.place}: {named} is {successes}, of an unknown number: write --samples"
        )
    value = cell(row, column) if column else None
    if isinstance(value, str) and (share := _SHARE.fullmatch(value)):
        successes, n, value = int(share[1]), int(share[2]), None
    if n is not None and successes is not None and successes > n:
        raise TaskError(
            f"{source.place}: {counted(successes, 'success', 'successes')} of "
            f"{counted(n, 'sample')}"
        )
    if value is None and n and successes is not None:
        value = successes / n
    if value is None:
        return SolveRateRecord(source, None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise TaskError(
            f"{source.place}: invalid solve rate {value!r:.60}: write a number from 0 to 1"
        )
    rate = float(value)
    return SolveRateRecord(
        source, rate, n, counted_successes(rate, n) if successes is None else successes
    )


def _first_count(row: Row, names: Sequence[str], place: str) -> int | None:
    name = next((name for name in names if cell(row, name) is not None), "")
    return parse_count(cell(row, name), place, name)


def counted_successes(rate: float, n: int | None) -> int | None:
    """The number of successes of n whose share is the rate, up to the digits it is written with.

    None where no number fits, or several do because the rate has too few digits.
    """
    if n is None:
        return None
    nearest = round(n * rate)
    if abs(n * rate - nearest) <= 1e-6:
        return nearest
    digits = max(0, -int(Decimal(repr(rate)).as_tuple().exponent))
    off = max(0.5 * 10.0**-digits, SINGLE_PRECISION) + 1e-12
    least, most = max(0, ceil(n * (rate - off))), min(n, floor(n * (rate + off)))
    return least if least == most else None


TEXTS = ("completion", "completions", "responses")
SOLUTIONS = ("answer", "solution", "ground_truth", "final_answer")


class Columns(NamedTuple):
    """Where a layout has its texts: of each, the first column that a row has."""

    question: tuple[str, ...]
    answer: tuple[str, ...]
    completions: tuple[str, ...] = ()


LAYOUTS: Mapping[str, Columns] = {
    "completions": Columns(("question",), ("answer",), TEXTS),
    # TRL: prompt-only, prompt-completion and language modeling, as messages or as texts. The same
    # columns are those of verifiers' data sets, with `info`.
    "trl": Columns(("question", "prompt", "messages", "conversations"), SOLUTIONS, TEXTS),
    # --data.input_key is input by default, context_messages in its examples (at 3c3be62)
    "openrlhf": Columns(("input", "context_messages"), ("label", "answer")),
    # transforms.py of rLLM (at 9beb6e0)
    "rllm-data": Columns(("question",), ("ground_truth",)),
    "solve-rates": Columns(QUESTIONS, ("answer",)),
    "columns": Columns(
        (*QUESTIONS, "prompt", "input", "context_messages", "messages", "conversations"),
        (*SOLUTIONS, "label"),
        TEXTS,
    ),
}


def read_columns(rows: Sequence[PlacedRow], layout: str, hints: Hints, notes: Notes) -> Records:
    """Completions where the layout has such a column (or `hints` names one), else solve rates.

    Texts may be chat messages, and inside other columns. Optional columns of completions:
    truncated (true or false, or a list) or finish (stop, length or error, or a list), tokens (a
    count, or a list), sample (a number, with one completion per row); of all rows: prompt_id, tier.
    Raises TaskError where a column has another form.
    """
    # `info` is an object or JSON text in verifiers' data sets.
    rows = [PlacedRow(place, {**json_object(row.get("info")), **row}) for place, row in rows]
    columns = LAYOUTS[layout]
    for kind, name in hints.columns.items():
        if all(cell(row, name) is None for _, row in rows):
            known = ", ".join(dict.fromkeys(str(key) for _, row in rows for key in row))
            option = f"--{kind.replace('_', '-')}"
            raise TaskError(f"{option} {name}: no row has a value there: write one of: {known}")
        if kind in Columns._fields:
            columns = columns._replace(**{kind: (name,)})
    if hints.completions is None:
        # What is named as the question or the answer is not also the model's completion.
        used = {hints.question, hints.answer}
        columns = columns._replace(
            completions=tuple(name for name in columns.completions if name not in used)
        )
    if any(_first(row, columns.completions) is not None for _, row in rows):
        return [
            record
            for row, source in _questions(rows, columns, hints, notes)
            for record in _completions(row, source, columns.completions, notes)
        ]
    names = (name for _, row in rows for name in row)
    rate = None if hints.successes else rate_column(names, hints)
    pairs = _questions(rows, columns, hints, notes)
    return [rate_record(row, source, rate, hints) for row, source in pairs]


def _questions(
    rows: Sequence[PlacedRow], columns: Columns, hints: Hints, notes: Notes
) -> Iterator[tuple[Row, SourceQuestion]]:
    numbering: Numbering | None = None
    if hints.letters:
        numbering = choice_numbering((row, _first(row, columns.answer)) for _, row in rows)
        for note in numbering.notes:
            notes.add(note)
    for place, row in rows:
        question = _first(row, columns.question)
        answer = _first(row, columns.answer)
        cells = {"": None, **row}
        try:
            texts = read_texts(cells, question or "", answer or "", choices=numbering)
            choices = None if hints.letters else choices_of(row)
        except TaskError as error:
            raise TaskError(f"{place}: {error}") from error
        if hints.prompt_id is not None:
            row = {**row, "prompt_id": value_text(cell(row, hints.prompt_id))}
        source = source_question(row, place, texts.question, texts.answer, notes)
        if source is None:
            continue
        dropped = list(texts.dropped)
        if question in columns.completions and TURNS in dropped:
            dropped.remove(TURNS)  # the reply to the question is the completion
        for label in dropped:
            notes.count(label, place)
        if choices and not choices.stand_in(texts.question):
            notes.count("rows dropped: their choices are in a column of their own", place)
            continue
        yield row, source


def _first(row: Row, names: Iterable[str]) -> str | None:
    return next((name for name in names if cell(row, name) is not None), None)


def _completions(
    row: Row, source: SourceQuestion, names: Sequence[str], notes: Notes
) -> Iterator[CompletionRecord]:
    name = _first(row, names)
    value = None if name is None else column_value(row, name)
    if value is None or value == []:
        notes.count("rows dropped: no completion", source.place)
        return
    texts = completion_texts(value)
    if texts is None:
        raise TaskError(
            f"{source.place}: write completion (a text) or completions (a list of texts), "
            f"not {type(value).__name__}"
        )
    cuts, ends, counts = (
        _per_completion(row, column, len(texts), source.place)
        for column in ("truncated", "finish", "tokens")
    )
    single = isinstance(value, str) or is_chat(value)
    sample = parse_count(row.get("sample"), source.place, "sample") if single else None
    for text, cut, end, count in zip(texts, cuts, ends, counts, strict=True):
        if cut is not None and not isinstance(cut, bool):
            raise TaskError(f"{source.place}: truncated {cut!r:.60}: write true or false")
        if end is not None and end not in FINISHES:
            raise TaskError(f"{source.place}: finish {end!r:.60}: write {or_list(FINISHES)}")
        finish: Finish = "length" if cut else end or "stop"
        tokens = parse_count(count, source.place, "tokens")
        completion = Completion(text, tokens or 0, finish)
        yield CompletionRecord(source, completion, tokens, sample)


def _per_completion(row: Row, name: str, count: int, place: str) -> Sequence[Any]:
    """A column's value for each of `count` completions, where it is a list or one value for all."""
    value = row.get(name)
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise TaskError(
            f"{place}: {name} has {counted(len(value), 'entry', 'entries')} for "
            f"{counted(count, 'completion')}"
        )
    return value
