"""Marks stored completions of any source in several processes, all or nothing."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import pyarrow as pa

from cluster.resources import usable_cpus
from orchestrator.optional.exchange.columns import TEXTS, row_completions
from orchestrator.optional.exchange.disagreement import Disagreement
from orchestrator.plugins.counts import counted, counted_label
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.probing.attacks import Attacked, attacked
from orchestrator.probing.samples import mark_completions
from orchestrator.sampling.base import Completion
from orchestrator.storage import schema
from orchestrator.storage.errors import UserError
from orchestrator.storage.local_files import check_output
from orchestrator.storage.store import Store
from tasks import (
    OUTCOMES,
    Mark,
    MarkLimits,
    Task,
    TaskError,
    get_task,
    is_shipped,
    make_prompt,
    task_errors,
)
from tasks.environments import environment_of, scores_itself
from tasks.question_file import QuestionFile
from tasks.sources.choices import Numbering, choices_of
from tasks.sources.files import (
    Row,
    cell,
    check_columns,
    column_value,
    is_chat,
    read_file,
)
from tasks.sources.roles import columns_in_role, columns_named
from tasks.sources.texts import ANSWERS, choice_numbering, one_answer, other_golds, read_texts
from tasks.sources.values import json_text, value_text

CHUNK = 2_000  # completions per call of a process
_INPUT = {
    "prompt_id": pa.string(),
    "sample": pa.int32(),
    "answer": pa.string(),
    "completion": pa.string(),
}
OUTPUT = pa.schema({**_INPUT, **{f.name: f.type for f in schema.MARKED if f.name not in _INPUT}})
AGAINST = "against_"  # prefix of the columns with the second marker's marks
_OF_SECOND = [f"{AGAINST}{name}" for name in (*Mark._fields, "marker")]
COMPARED = pa.schema(
    [*OUTPUT, *(OUTPUT.field(n.removeprefix(AGAINST)).with_name(n) for n in _OF_SECOND)]
)
SUFFIXES = (".jsonl", ".parquet")


class Source(NamedTuple):
    """A file of completions: its columns of gold answers and of completions (None: by name)."""

    file: Path
    answer: str | None = None
    completions: str | None = None


class MarkedFile(NamedTuple):
    """The completions of a file by outcome, and its rows: a row is a prompt with completions."""

    outcomes: Mapping[str, int]
    rows: RowCounts


def mark_file(
    task: str,
    options: Mapping[str, Any],
    source: str | Path,
    target: str | Path,
    processes: int | None = None,
    *,
    answer: str | None = None,
    completions: str | None = None,
    notes: list[str] | None = None,
) -> MarkedFile:
    """Mark every completion of `source` into `target`; returns completions by outcome.

    The source is any file of rows, the target JSON lines or Parquet. Columns: the answer, and a
    completion (text) or a list of them, under the names of `roles`; optional `prompt_id`, and
    `truncated` (a bool, or a list like the completions). The first two can have different names, or
    be values inside a column (`messages.-1.content`); an answer may be a worked solution, and a
    completion may be chat messages. A reward function also gets the other columns. The target has
    one row per completion (OUTPUT). `notes` receives remarks. Raises TaskError if the input is
    invalid, and UserError if the target cannot be written.
    """
    marker, source, target = open_marker(task, options), Path(source), Path(target)
    check_output(target, SUFFIXES, [source])
    notes = [] if notes is None else notes
    rows, read = _read_completions(Source(source, answer, completions), marker, notes)
    marked = _marked(marker, rows, processes)
    _write(marked, OUTPUT, target)
    counts = Counter(row["outcome"] for row in marked)
    # Rows without a gold answer are rejected, except for a task that allows them later.
    shown = [outcome for outcome in OUTCOMES if outcome != "unlabelled" or counts[outcome]]
    outcomes: dict[str, int] = {outcome: counts[outcome] for outcome in shown}
    return MarkedFile(outcomes, replace(read, written=len(marked)))


def compare_markers(
    source: Source, markers: Sequence[Task], target: Path | None, notes: list[str]
) -> Disagreement:
    """Mark every completion with two markers; the target, if any, has both (COMPARED).

    Raises the errors of `mark_file`, and UserError if both markers are the same.
    """
    first, second = markers
    if first.marker_id == second.marker_id:
        raise UserError(
            f"both markers are {first.marker_id}: write a different task in --against, or a "
            f"different option, such as --against-option marking=strict"
        )
    if target is not None:
        check_output(target, SUFFIXES, [source.file])
    rows, read = _read_completions(source, first, notes)
    marked = _marked(first, rows)
    of_second, _ = _read_completions(source, second, [])
    others = _marked(second, of_second)
    for row, other in zip(marked, others, strict=True):
        row |= {name: other[name.removeprefix(AGAINST)] for name in _OF_SECOND}
    if target is not None:
        _write(marked, COMPARED, target)
        read = replace(read, written=len(marked))
    questions = [row["question_text"] for row in rows]
    return Disagreement.of(marked, questions, (first.marker_id, second.marker_id), read)


class AttackedFile(NamedTuple):
    """The attacks with the gold answers of a file, and its rows."""

    attacks: list[Attacked]
    rows: RowCounts


def attack_file(source: Source, marker: Task, notes: list[str]) -> AttackedFile:
    """Attack a marker with the gold answers and questions of a file, which needs no completions.

    Raises TaskError if the input is invalid.
    """
    rows = [row for row, _ in _read_prompts(source, marker, notes, sampled=False)]
    prompts = [
        make_prompt(marker.name, r["question_text"], r["answer"], "", r["info"]) for r in rows
    ]
    without = sum(not prompt.answer for prompt in prompts)
    if without == len(prompts):
        raise TaskError(f"{source.file} has no gold answers: write one row per prompt")
    counts = RowCounts(len(prompts), {"without a gold answer": without})
    return AttackedFile(attacked(marker, prompts), counts)


def open_marker(task: str, options: Mapping[str, Any]) -> Task:
    """The task whose marker reads completions. Raises TaskError."""
    marker = get_task(task, **options)
    if marker.environment is not None and scores_itself(marker):
        reference = environment_of(marker.environment).reference
        raise TaskError(
            f"task {task} takes the score of an episode from its environment {reference}, which "
            f"is not in a file of completions: play episodes with decile probe, or name a task "
            f"with a marker"
        )
    return marker


def _marked(marker: Task, rows: Sequence[Row], processes: int | None = None) -> list[Row]:
    """The rows with their marks (schema OUTPUT), made in several processes."""
    processes = processes or usable_cpus()
    chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
    if not is_shipped(marker) or _calls_function(marker):  # its marker has its own processes
        with task_errors(marker, "mark_limits"):
            marker.mark_limits = MarkLimits(*marker.mark_limits)._replace(processes=processes)
        return mark_rows(marker, rows)
    if len(chunks) == 1 or processes == 1:
        return [row for chunk in chunks for row in mark_rows(marker, chunk)]
    # Spawned, not forked: a fork would copy locks of threads that it does not copy.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return [row for part in pool.map(partial(mark_rows, marker), chunks) for row in part]


def _write(rows: Sequence[Row], columns: pa.Schema, target: Path) -> None:
    store = Store(str(target.parent))
    if target.name.endswith(".parquet"):
        store.write_table(pa.Table.from_pylist(rows, schema=columns), target.name)
    else:
        lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        store.write_bytes(lines.encode(), target.name)


def _read_completions(source: Source, task: Task, notes: list[str]) -> tuple[list[Row], RowCounts]:
    """One row per completion, in the file's order, and the rows of the file.

    Raises TaskError if there are no completions.
    """
    rows = []
    empty = 0
    golds: list[str] = []
    samples = Counter[str]()  # by prompt: its completions may be in several rows
    for prompt, texts in _read_prompts(source, task, notes):
        golds.append(prompt["answer"])
        empty += not texts
        for text, truncated in texts:
            sample = samples[prompt["prompt_id"]]
            samples[prompt["prompt_id"]] += 1
            rows.append({**prompt, "sample": sample, "completion": text, "truncated": truncated})
    if not rows:
        raise TaskError(f"{source.file} has no completions: write one row per prompt")
    if note := task.unread_golds(golds):
        notes.append(note)
    return rows, RowCounts(len(golds), {"without a completion": empty})


def _read_prompts(
    source: Source, task: Task, notes: list[str], *, sampled: bool = True
) -> Iterator[tuple[Row, list[tuple[str, bool]]]]:
    """For each row: the prompt, and its completions with whether they were truncated.

    Rows may lack completions only if they are not `sampled`.
    """
    read = read_file(source.file, [name for name in source[1:] if name])
    names = [*dict.fromkeys(name for row in read.rows for name in row)]
    answers = columns_in_role("answer beside completions", names, source.completions)
    answer = source.answer or next(iter(answers), "answer")
    known = [name for name in columns_named(TEXTS, names) if name != answer]
    completions = [source.completions] if source.completions else known
    asked = next(iter(columns_in_role("question", names, answer, *completions)), "question")
    for place, row in zip(read.places, read.rows, strict=True):
        check_columns(place, row, [answer])
    if note := other_golds(read.rows, read.places, answer, source.completions or ""):
        notes.append(note)
    letters = isinstance(task, QuestionFile) and task.marker == "letter"
    numbering, first_of_several = Numbering(), 0
    if letters:
        try:
            numbering = choice_numbering((row, answer) for row in read.rows)
        except TaskError as error:
            raise TaskError(f"{source.file}: {error}") from error
        notes += numbering.notes
    ids = _ids(read.rows, answer, asked, notes)
    for prompt_id, place, row in zip(ids, read.places, read.rows, strict=True):
        texts = _completions_of(row, place, completions) if sampled else []
        own = column_value(row, answer)
        if type(task) is QuestionFile and task.function is None:
            own, is_first = one_answer(own)
            first_of_several += is_first
        if letters:
            try:
                choices = choices_of(row)
                own = choices.letter(own, numbering.first) if choices else own
            except TaskError as error:
                raise TaskError(f"{place}: {error}") from error
        as_json = isinstance(own, Mapping | list) and not is_chat(own)
        gold = None if own is None else task.read_answer(json_text(own) if as_json else str(own))
        if gold is None:
            raise TaskError(
                f"{place}: the marker {task.marker_id} cannot use the answer {own!r:.80}: "
                "choose a different task or marker"
            )
        question = info = ""
        if _calls_function(task):
            unread = {"prompt_id", "truncated", "completion", "completions", *completions[:1]}
            question, info = task.question_of(row), task.info_of(row, place, gold, unread)
        prompt = {
            "prompt_id": prompt_id,
            "question": question,
            "question_text": question or _question_text(row, asked, letters),
            "answer": gold,
            "info": info,
        }
        yield prompt, texts
    if first_of_several:
        notes.append(counted_label(first_of_several, ANSWERS))


def _ids(rows: Sequence[Row], answer: str, asked: str, notes: list[str]) -> list[str]:
    """The id of each row's prompt: from a column of ids, or else a hash of its question.

    A column in which an id has two answers is not a column of ids. Without both, the id is the
    row's number, and `notes` reports it.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    given = [""] * len(rows)
    for name in columns_in_role("id", names, answer):
        answers: dict[str, str] = {}
        ids = [value_text(cell(row, name)) for row in rows]
        golds = [repr(cell(row, answer)) for row in rows]
        if all(
            answers.setdefault(i, gold) == gold for i, gold in zip(ids, golds, strict=True) if i
        ):
            given = ids
            break
    numbered = 0
    for number, row in enumerate(rows):
        if given[number]:
            continue
        question = _question_text(row, asked, letters=False)
        given[number] = make_prompt("", question, "", "").prompt_id if question else str(number)
        numbered += not question
    if numbered:
        notes.append(
            f"{counted(numbered, 'row')} without an id and a question: prompt_id is the number "
            f"of the row, so decile compare pairs them by the order of the file; add a column id"
        )
    return given


def _completions_of(row: Row, place: str, columns: Sequence[str]) -> list[tuple[str, bool]]:
    """The completions of a row, and whether each was truncated. Raises TaskError.

    They are in the first column with a value: in a Parquet file, the others are null.
    """
    column = next((name for name in columns if cell(row, name) is not None), None)
    if column is None:
        raise TaskError(f"{place} has no completion: write text or a list of texts")
    return [(text, finish == "length") for text, finish, *_ in row_completions(row, place, column)]


def _question_text(row: Row, column: str, letters: bool) -> str:
    """The question of a row, for display and attacks; "" if it cannot be read."""
    with suppress(KeyError, TaskError):
        choices = Numbering() if letters else None
        return read_texts(row, column, column, choices=choices).question
    return ""


def _calls_function(task: Task) -> TypeGuard[QuestionFile]:
    return isinstance(task, QuestionFile) and task.function is not None


def mark_rows(task: Task, rows: Sequence[Row]) -> list[Row]:
    """The rows with their marks (schema OUTPUT)."""
    completions = [
        Completion(r["completion"], 0, "length" if r["truncated"] else "stop") for r in rows
    ]
    prompts = [make_prompt(task.name, r["question"], r["answer"], "", r["info"]) for r in rows]
    marks = mark_completions(task, completions, prompts)
    return [
        {**{name: row[name] for name in _INPUT}, **mark.columns(), "marker": task.marker_id}
        for row, mark in zip(rows, marks, strict=True)
    ]
