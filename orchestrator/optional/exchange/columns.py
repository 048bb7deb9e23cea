"""Tables of one question per row: completions, solve rates or plain pools, by named columns."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from math import ceil, floor
from typing import Any, NamedTuple

from orchestrator.optional.exchange.placed_rows import Notes, PlacedRow, Row, json_object
from orchestrator.optional.exchange.records import (
    CompletionRecord,
    Hints,
    Records,
    SolveRateRecord,
    SourceQuestion,
    source_question,
)
from orchestrator.plugins.counts import counted
from orchestrator.sampling.base import FINISHES, Completion, Finish
from tasks import TaskError
from tasks.sources.choices import Numbering, choices_of
from tasks.sources.files import TURNS, cell, column_value, is_chat, or_list, read_chat
from tasks.sources.media import check_no_media
from tasks.sources.roles import ROLES, columns_in_role, columns_named, has_grades, spelling
from tasks.sources.texts import choice_numbering, is_unasked, other_golds, read_texts
from tasks.sources.values import (
    counts_of,
    is_missing,
    literal_of,
    number_of,
    parse_count,
    truth_of,
    valid_count,
    value_text,
)

# Names of solve rates, with or without a model's name: `pass_rate`, `llama8b_solve_rate`,
# `passrate`, `qwen_best_pass_rate_per_8`, `avg@8_qwen3_4b`. The number after `@` or `per_` is the
# number of samples.
RATE = re.compile(
    r"(?:.+[_.])?(?:(?:solve|pass|success)_?rate(?:_per_(?P<per>\d+))?(?:_.+)?"
    r"|(?:avg|mean|acc)@(?P<at>\d+)(?:_.+)?)"
)
BIG_MATH_RATE, BIG_MATH_SAMPLES = "llama8b_solve_rate", 64
RATES_ONLY = "solve rates only: without outcomes, hard may also mean unparsed or truncated"
SINGLE_PRECISION = 6e-8  # relative rounding error of a float32, in which rates are often stored
# Counts of one of several models end with its name: num_passed_MODEL of n_MODEL samples.
COUNTS_OF_MODEL = re.compile(r"(?:num_passed|n_passed|num_correct|n_correct)_(.+)")


class RateColumns(NamedTuple):
    """The columns of a row's solve rate; of each list, the first column with a value counts.

    `n` is the number of samples in the rate's own name.
    """

    rate: str | None
    successes: Sequence[str] = ()
    samples: Sequence[str] = ()
    n: int | None = None


def rate_names(names: Iterable[str], model: str | None = None) -> list[str]:
    """The columns that are named like a solve rate, of `model` if it is given, each once."""
    rates = [name for name in dict.fromkeys(names) if RATE.fullmatch(name)]
    return [name for name in rates if model is None or model in name]


def rate_columns(rows: Iterable[Row], hints: Hints, rate: str | None = None) -> RateColumns:
    """The columns of rates and counts of these rows: those of `hints`, else those with known names.

    Names inside objects are dotted, as in `rollout.pass_rate`. Raises TaskError if there are rates
    or counts of several models and `hints` does not choose one.
    """
    names = dict[str, None]()
    for row in rows:
        for name, value in row.items():
            names[name] = None
            if isinstance(value, Mapping):
                names |= dict.fromkeys(f"{name}.{key}" for key in value)
    own = [name for name in names if "." not in name]
    rates = rate_names(own, hints.model) or rate_names(names, hints.model)
    samples = [hints.samples] if isinstance(hints.samples, str) else counts_in(names, "samples")
    successes = [hints.successes] if hints.successes else counts_in(names, "successes")
    models = {name: match[1] for name in names if (match := COUNTS_OF_MODEL.fullmatch(name))}
    models = {name: model for name, model in models.items() if f"n_{model}" in names}
    if not (rate or rates or successes) and models:
        chosen = [name for name in models if hints.model in (None, models[name])]
        if len(chosen) != 1:
            raise TaskError(
                f"counts of several models ({', '.join(models.values())}): choose one: --model "
                f"{next(iter(models.values()))}"
            )
        successes, samples = chosen, [f"n_{models[chosen[0]]}"]
    rate = rate or hints.rate
    if rate is None and not hints.successes and len(rates) > 1:
        raise TaskError(
            f"several columns are named like a solve rate ({', '.join(rates)}): choose one: "
            f"--rate {rates[0]}"
        )
    rate = None if hints.successes else rate or next(iter(rates), None)
    match = RATE.fullmatch(rate) if rate else None
    stated = match and (match["at"] or match["per"])
    return RateColumns(rate, successes, samples, int(stated) if stated else None)


def counts_in(names: Iterable[str], role: str) -> list[str]:
    """The columns of a role of counts, also inside objects; top-level columns come first."""
    names = list(names)
    inside = {name.rpartition(".")[2]: name for name in reversed(names) if "." in name}
    return columns_in_role(role, names) or [inside[key] for key in columns_in_role(role, inside)]


def read_big_math(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Big-Math-RL-Verified: problem, answer, source, domain, llama8b_solve_rate.

    According to its dataset card: the share of 64 rollouts of Llama-3.1-8B that succeed. The values
    are shares from 0 to 1 (public code compares them as such), null if not measured.
    """
    hints = replace(hints, samples=hints.samples or BIG_MATH_SAMPLES)
    columns = rate_columns((row for _, row in rows), hints, BIG_MATH_RATE)
    records = []
    for place, row in rows:
        source = source_question(row, place, row.get("problem"), row.get("answer"), notes)
        if source is not None:
            records.append(rate_record(row, source, columns, hints))
    return records


def rate_record(
    row: Row, source: SourceQuestion, columns: RateColumns, hints: Hints
) -> SolveRateRecord:
    """A row's rate: a number from 0 to 1, a text such as "7/8", or successes of samples."""
    n = _first_count(row, columns.samples, source.place)
    if n is None:
        n = hints.samples if isinstance(hints.samples, int) else columns.n
    successes = _first_count(row, columns.successes, source.place)
    if hints.successes and successes is not None and n is None:
        raise TaskError(
            f"{source.place}: {hints.successes} is {successes}, of an unknown number of samples: "
            f"write --samples"
        )
    value = cell(row, columns.rate) if columns.rate else None
    if counts := counts_of(value):
        successes, n = counts
        value = None
    if n is not None and successes is not None and successes > n:
        raise TaskError(
            f"{source.place}: {counted(successes, 'success', 'successes')} of "
            f"{counted(n, 'sample')}"
        )
    if is_missing(value):
        value = successes / n if n and successes is not None else None
    if value is None:
        return SolveRateRecord(source, None)
    is_word = isinstance(value, bool) or (isinstance(value, str) and not re.search(r"\d", value))
    rate = None if is_word else number_of(value)
    if rate is None or not 0 <= rate <= 1:
        raise TaskError(
            f"{source.place}: invalid solve rate {value!r:.60}: write a number from 0 to 1"
        )
    if successes is None or n is None:  # counts are useless without a number of samples
        successes = counted_successes(rate, n)
    elif not n or abs(successes / n - rate) > 2 * _rounding(rate):  # it may also be truncated
        of_n = f"{counted(successes, 'success', 'successes')} of {counted(n, 'sample')}"
        raise TaskError(
            f"{source.place}: {columns.rate} is {value!r:.60}, and there are {of_n}: correct one "
            f"of them, or name the columns with --rate, --samples and --successes"
        )
    return SolveRateRecord(source, rate, n, successes)


def _first_count(row: Row, names: Sequence[str], place: str) -> int | None:
    values = ((name, cell(row, name)) for name in names)
    # A boolean, such as in `solved`, is not a count.
    name = next((n for n, v in values if not is_missing(v) and not isinstance(v, bool)), None)
    return None if name is None else parse_count(cell(row, name), place, name)


def counted_successes(rate: float, n: int | None) -> int | None:
    """The number of successes of n that gives the rate, up to its written digits.

    None if no number fits, or if several do because the rate has too few digits.
    """
    if n is None:
        return None
    nearest = round(n * rate)
    if abs(n * rate - nearest) <= 1e-6:
        return nearest
    off = _rounding(rate)
    least, most = max(0, ceil(n * (rate - off))), min(n, floor(n * (rate + off)))
    return least if least == most else None


def _rounding(rate: float) -> float:
    """The maximum rounding error of a rate, by its written digits."""
    digits = max(0, -int(Decimal(repr(rate)).as_tuple().exponent))
    return max(0.5 * 10.0**-digits, SINGLE_PRECISION) + 1e-12


TEXTS = tuple(name for name in ROLES["completion"].names if name != "text")  # of any kind
KNOWN_ANSWERS = ROLES["answer beside completions"].names
OUTPUTS = ("output", "response")  # the gold answer in instruction rows


class Columns(NamedTuple):
    """The columns of a layout's texts; of each list, the first column that a row has."""

    question: tuple[str, ...]
    answer: tuple[str, ...]
    completions: tuple[str, ...] = ()


def read_columns(
    rows: Sequence[PlacedRow], columns: Columns, hints: Hints, notes: Notes
) -> Records:
    """Completions if a row has one of their columns (or `hints` names one), else solve rates.

    Texts may be chat messages, and may be inside other columns. Optional columns of completions:
    truncated (true or false, or a list) or finish (stop, length or error, or a list), tokens (a
    count, or a list), sample (a number, with one completion per row). Optional columns of all rows:
    prompt_id, tier. Raises TaskError if a column has any other form.
    """
    # `info` is an object or JSON text in verifiers' data sets.
    rows = [PlacedRow(place, {**json_object(row.get("info")), **row}) for place, row in rows]
    for kind, name in hints.columns.items():
        if all(cell(row, name) is None for _, row in rows):
            known = ", ".join(dict.fromkeys(str(key) for _, row in rows for key in row))
            option = f"--{kind.replace('_', '-')}"
            raise TaskError(f"{option} {name}: no row has a value in it: write one of: {known}")
        if kind in Columns._fields:
            columns = columns._replace(**{kind: (name,)})
    names = [*dict.fromkeys(name for _, row in rows for name in row)]
    columns = Columns(*(tuple(_spelled(names, known)) for known in columns))
    if hints.completions is None:
        # A column named as question or answer is not also the model's completion.
        used = {hints.question, hints.answer}
        columns = columns._replace(
            completions=tuple(name for name in columns.completions if name not in used)
        )
    columns = _with_answer(columns, hints, rows)
    if any(_first(row, columns.completions) is not None for _, row in rows):
        return [
            record
            for row, source in _questions(rows, columns, hints, notes)
            for record in _completions(row, source, columns.completions, notes)
        ]
    rated = rate_columns((row for _, row in rows), hints)
    pairs = _questions(rows, columns, hints, notes)
    return [rate_record(row, source, rated, hints) for row, source in pairs]


def _with_answer(columns: Columns, hints: Hints, rows: Sequence[PlacedRow]) -> Columns:
    """The columns, with the answer column if only an output or a chat's reply can be it.

    Beside a grade, an output is a model's text.
    """
    answered = hints.answer or any(_first(row, columns.answer) is not None for _, row in rows)
    if answered or hints.completions or hints.prompt_id:
        return columns
    names = [*dict.fromkeys(name for _, row in rows for name in row)]
    outputs = [name for name in columns.completions if spelling(name) in OUTPUTS and name in names]
    if outputs and not has_grades(names):
        rest = tuple(name for name in columns.completions if name != outputs[0])
        return columns._replace(answer=(outputs[0],), completions=rest)
    completed = any(_first(row, columns.completions) is not None for _, row in rows)
    chats = [n for n in columns.question if any(is_chat(cell(row, n)) for _, row in rows)]
    return columns if completed or not chats else columns._replace(answer=(chats[0],))


def _questions(
    rows: Sequence[PlacedRow], columns: Columns, hints: Hints, notes: Notes
) -> Iterator[tuple[Row, SourceQuestion]]:
    questions, answers = columns.question, columns.answer
    numbering: Numbering | None = None
    if hints.letters:
        numbering = choice_numbering((row, _first(row, answers)) for _, row in rows)
        for note in numbering.notes:
            notes.add(note)
    places, contents = [place for place, _ in rows], [row for _, row in rows]
    answered = (n for n in answers if any(cell(row, n) is not None for row in contents))
    if note := other_golds(contents, places, next(answered, "")):
        notes.add(note)
    names = dict.fromkeys(name for row in contents for name in row)
    unasked = dict.fromkeys(columns_in_role("context", names, *questions, *answers), 0)
    for place, row in rows:
        question = _first(row, questions)
        answer = _first(row, answers)
        cells = {**row, "": None}  # unnamed columns have no role
        try:
            texts = read_texts(
                cells, question or "", answer or "", choices=numbering, unwrap=hints.unwrap
            )
            choices = None if hints.letters else choices_of(row)
        except TaskError as error:
            raise TaskError(f"{place}: {error}") from error
        if hints.prompt_id is not None:
            row = {**row, "prompt_id": value_text(cell(row, hints.prompt_id))}
        source = source_question(row, place, texts.question, texts.answer, notes)
        if source is None:
            continue
        for name in unasked:
            unasked[name] += is_unasked(row, name, texts.question)
        dropped = list(texts.dropped)
        if question in columns.completions and TURNS in dropped:
            dropped.remove(TURNS)  # the reply to the question is the completion
        try:
            check_no_media(row, cell(row, question or ""), texts.question)
        except TaskError:
            dropped.append("questions have an image, video or sound, which is not read")
        for label in dropped:
            notes.count(label, place)
        if choices and not choices.stand_in(texts.question):
            notes.count("rows dropped: their choices are in a separate column", place)
            continue
        yield row, source
    for name, count in unasked.items():
        if 2 * count > len(rows):
            notes.add(f"{name!r:.40} is not asked: add it to the question if the question needs it")


def _spelled(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The columns that have a known name in any spelling, and dotted names of values inside."""
    inside = [name for name in known if "." in name and name not in names]
    return [*columns_named(known, names), *inside]


def _first(row: Row, names: Iterable[str]) -> str | None:
    return next((name for name in names if cell(row, name) is not None), None)


def _completions(
    row: Row, source: SourceQuestion, names: Sequence[str], notes: Notes
) -> Iterator[CompletionRecord]:
    name = _first(row, names)
    if name is None or cell(row, name) == []:
        notes.count("rows dropped: no completion", source.place)
        return
    place, value = source.place, column_value(row, name)
    drawn = row_completions(row, place, name)
    single = (isinstance(value, str) or is_chat(value)) and len(drawn) == 1
    sample = parse_count(row.get("sample"), place, "sample") if single else None
    counts = _per_completion(row, "tokens", len(drawn), place)
    is_own = row.get("tokens") is not None
    for (text, finish, correct), count in zip(drawn, counts, strict=True):
        tokens = parse_count(count, place, "tokens") if is_own else valid_count(count)
        completion = Completion(text, tokens or 0, finish)
        yield CompletionRecord(source, completion, tokens, sample, correct)


class RowCompletion(NamedTuple):
    """A completion of a row; `correct` is from the source's grader, None if it is unknown."""

    text: str
    finish: Finish
    correct: bool | None


def row_completions(row: Row, place: str, name: str) -> list[RowCompletion]:
    """The completions in a column of a row, with the row's data about each. Raises TaskError."""
    value = cell(row, name)
    texts = _completion_texts(value, name)
    if texts is None:
        kinds = sorted({type(each).__name__ for each in value}) if isinstance(value, list) else []
        inside = f" of {', '.join(kinds)}" if kinds else ""
        raise TaskError(
            f"{place}: {name} has {type(value).__name__}{inside}: write text, a list of texts, "
            f"or chat messages"
        )
    cuts, ends, grades = (
        _per_completion(row, role, len(texts), place) for role in ("truncated", "finish", "correct")
    )
    completions = []
    for text, cut, end, grade in zip(texts, cuts, ends, grades, strict=True):
        end = None if is_missing(end) else _FINISHES.get(str(end), end)
        if end is not None and end not in FINISHES:
            if row.get("finish") is not None:
                raise TaskError(f"{place}: finish {end!r:.60}: write {or_list(FINISHES)}")
            end = None  # a server's own word
        finish: Finish = "length" if truth_of(cut, place, "truncated") else end or "stop"
        number = number_of(grade)
        correct = None if number not in (0, 1, -1) else number == 1
        completions.append(RowCompletion(text, finish, correct))
    return completions


# Names of servers and trainers.
_FINISHES: Mapping[str, Finish] = {
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "stop",
    "max_tokens": "length",
    "max_length": "length",
    "model_length": "length",
}


def _per_completion(row: Row, role: str, count: int, place: str) -> Sequence[Any]:
    """A role's value for each of `count` completions; None if a row does not separate them.

    The column `truncated`, `finish` or `tokens` may have one value for all. Raises TaskError if it
    has a different number of values.
    """
    names = columns_in_role(role, row)
    names += columns_in_role("score", row) if role == "correct" else []
    name = _first(row, names) or role
    value = row.get(name)
    if isinstance(value, list) and len(value) == count:
        return value
    if name != role or role == "correct":  # in files of other tools, it may describe the whole row
        return [value if count == 1 and not isinstance(value, list) else None] * count
    if not isinstance(value, list):
        return [value] * count
    raise TaskError(
        f"{place}: {name} has {counted(len(value), 'entry', 'entries')} for "
        f"{counted(count, 'completion')}"
    )


def _completion_texts(value: Any, name: str = "") -> list[str] | None:
    """The texts of a cell: one text or chat (its reply), or a list of them; None for any other.

    A list may also be JSON or Python text, in a column with a plural name.
    """
    if isinstance(value, str) and name.lower().endswith("s") and value.lstrip().startswith("["):
        texts = literal_of(value)
        is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        value = texts if is_list or is_chat(texts) else value
    values = [value] if isinstance(value, str) or is_chat(value) else value
    if not isinstance(values, list):
        return None
    texts = [read_chat(each).reply if is_chat(each) else each for each in values]
    return texts if all(isinstance(text, str) for text in texts) else None
