"""Marks stored completions of any source, in several processes, all or nothing."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa

from cluster.resources import usable_cpus
from orchestrator.probing.samples import mark_completions
from orchestrator.sampling.base import Completion
from orchestrator.storage import schema
from orchestrator.storage.store import Store, check_output
from tasks import (
    OUTCOMES,
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
    choice_numbering,
    column_value,
    completion_texts,
    is_chat,
    json_text,
    one_answer,
    read_file,
)

CHUNK = 2_000  # completions per call of a process
_INPUT = {
    "prompt_id": pa.string(),
    "sample": pa.int32(),
    "answer": pa.string(),
    "completion": pa.string(),
}
OUTPUT = pa.schema({**_INPUT, **{f.name: f.type for f in schema.MARKED if f.name not in _INPUT}})


def mark_file(
    task: str,
    options: Mapping[str, Any],
    source: str | Path,
    target: str | Path,
    processes: int | None = None,
    *,
    answer: str = "answer",
    completions: str | None = None,
    notes: list[str] | None = None,
) -> dict[str, int]:
    """Mark every completion of `source` into `target`; returns completions by outcome.

    Both are JSON lines or Parquet. Columns: `answer`; `completion` (a text) or `completions` (a
    list); optional `prompt_id`, and `truncated` (a bool, or a list like the completions). The first
    two can have other names, or be values inside a column (`messages.-1.content`); an answer may be
    a worked solution, and a completion may be chat messages. A reward function also gets the other
    columns. The target has one row per completion (OUTPUT). `notes` gets what is unusual.
    Raises TaskError where the input is wrong, and UserError where the target cannot be written.
    """
    marker, source, target = get_task(task, **options), Path(source), Path(target)
    if marker.environment is not None and scores_itself(marker):
        reference = environment_of(marker.environment).reference
        raise TaskError(
            f"task {task} takes the score of an episode from its environment {reference}, which a "
            "file of completions does not hold: play episodes with decile probe, or name a task "
            "with a marker"
        )
    check_output(target, (".jsonl", ".parquet"), [source])
    rows = list(
        _read_completions(source, marker, answer, completions, [] if notes is None else notes)
    )
    if not rows:
        raise TaskError(f"{source} holds no completions: write one row per prompt")
    processes = processes or usable_cpus()
    chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
    if not is_shipped(marker) or _calls_function(marker):  # its marker has processes of its own
        with task_errors(marker, "mark_limits"):
            marker.mark_limits = MarkLimits(*marker.mark_limits)._replace(processes=processes)
        marked = mark_rows(marker, rows)
    elif len(chunks) == 1 or processes == 1:
        marked = [row for chunk in chunks for row in mark_rows(marker, chunk)]
    else:
        # Spawned, not forked: a fork would copy locks held by threads that it does not copy.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            parts = pool.map(partial(mark_rows, marker), chunks)
            marked = [row for part in parts for row in part]
    store = Store(str(target.parent))
    if target.name.endswith(".parquet"):
        store.write_table(pa.Table.from_pylist(marked, schema=OUTPUT), target.name)
    else:
        lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in marked)
        store.write_bytes(lines.encode(), target.name)
    counts = Counter(row["outcome"] for row in marked)
    # Rows without a gold answer are refused, but for a task that lets them come later.
    shown = [outcome for outcome in OUTCOMES if outcome != "unlabelled" or counts[outcome]]
    return {outcome: counts[outcome] for outcome in shown}


def _read_completions(
    source: Path, task: Task, answer: str, completions: str | None, notes: list[str]
) -> Iterator[Row]:
    """One row per completion, in the file's order."""
    read = read_file(source, [answer, *([completions] if completions else [])])
    letters = isinstance(task, QuestionFile) and task.marker == "letter"
    numbering = Numbering()
    if letters:
        try:
            numbering = choice_numbering((row, answer) for row in read.rows)
        except TaskError as error:
            raise TaskError(f"{source}: {error}") from error
        notes += numbering.notes
    for index, (place, row) in enumerate(zip(read.places, read.rows, strict=True)):
        value = row.get("completions")
        value = row.get("completion") if value is None else value  # a null of a Parquet file
        texts = completion_texts(column_value(row, completions) if completions else value)
        if texts is None:
            raise TaskError(f"{place} has no completion (a text) or completions (a list of texts)")
        cut = row.get("truncated")
        cut = False if cut is None else cut
        cuts = cut if isinstance(cut, list) else [cut] * len(texts)
        if len(cuts) != len(texts) or not all(isinstance(c, bool) for c in cuts):
            raise TaskError(
                f"{place}: truncated must be true or false, or a list of {len(texts)} of them"
            )
        own = column_value(row, answer)
        if type(task) is QuestionFile and task.function is None:
            own, _ = one_answer(own)
        if letters:
            try:
                choices = choices_of(row)
                own = choices.letter(own, numbering.first) if choices else own
            except TaskError as error:
                raise TaskError(f"{place}: {error}") from error
        is_json = isinstance(own, Mapping | list) and not is_chat(own)
        text = json_text(own) if is_json else str(own)
        gold = None if own is None else task.read_answer(text)
        if gold is None:
            raise TaskError(
                f"{place}: the marker {task.marker_id} cannot use the answer {own!r:.80}: "
                "choose another task or marker"
            )
        question = info = ""
        if _calls_function(task):
            unread = {"prompt_id", "truncated", "completion", "completions", completions or ""}
            question, info = task.question_of(row), task.info_of(row, place, gold, unread)
        prompt_id = str(row.get("prompt_id", index))
        for sample, (text, truncated) in enumerate(zip(texts, cuts, strict=True)):
            yield {
                "prompt_id": prompt_id,
                "sample": sample,
                "question": question,
                "answer": gold,
                "info": info,
                "completion": text,
                "truncated": truncated,
            }


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
