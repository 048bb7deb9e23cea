"""Gold answers that are added later, from files by prompt_id."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.plugins.counts import counted
from tasks.base import Task
from tasks.errors import TaskError
from tasks.sources.files import cell, check_columns, read_file
from tasks.sources.named_files import named_files
from tasks.sources.texts import one_answer
from tasks.sources.user_files import Files
from tasks.sources.values import value_text

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable

NAMED = 100  # answers that a note names; an annotator needs every place
NOT_OF_FORM = "not of the marker's form"


class Label(NamedTuple):
    """A gold answer as an annotator wrote it, and its place."""

    prompt_id: str
    answer: str
    place: str


class Labels(NamedTuple):
    """The answers in files, notes on rows with empty answers, and the number of all rows."""

    answers: list[Label]
    notes: list[str]
    rows: int


def read_labels(files: Files) -> Labels:
    """The answers in files with the columns `prompt_id` and `answer`.

    Raises TaskError with the file's line for a value of any other form.
    """
    labels, notes, rows = list[Label](), list[str](), 0
    for file in named_files(files):
        read = read_file(file, ())
        if not read.rows and not Path(file).stat().st_size:
            raise TaskError(f"{file} is empty: write the columns prompt_id and answer")
        for row, place in zip(read.rows, read.places, strict=True):
            if isinstance(row, Mapping) and "prompt_id" not in row:
                why = "has no column 'prompt_id': add it, as in the list of prompts"
                raise TaskError(f"{place} {why}")
            check_columns(place, row, ("prompt_id",))
        if read.rows and not any("answer" in row for row in read.rows):
            raise TaskError(
                f"{file} has no column 'answer': write the answers into a column of that name"
            )
        before = len(labels)
        rows += len(read.rows)
        for row, place in zip(read.rows, read.places, strict=True):
            prompt_id, value = row["prompt_id"], one_answer(cell(row, "answer"))[0]
            if isinstance(value, bool) or not isinstance(value, str | int | float | None):
                raise TaskError(f"{place}: the answer is {value!r:.80}: write text or a number")
            if text := value_text(value):
                labels.append(Label(str(prompt_id), text, place))
        if (filled := len(labels) - before) < len(read.rows):
            notes.append(f"{file}: {filled:,} of {counted(len(read.rows), 'row')} have an answer")
    return Labels(labels, notes, rows)


def not_used(texts: Sequence[str], why: str) -> list[str]:
    """A note that names the first of these answers; none without answers."""
    more = f" and {len(texts) - NAMED:,} more" if len(texts) > NAMED else ""
    return [f"not used: {'; '.join(texts[:NAMED])}{more} ({why})"] if texts else []


def with_labels(
    prompts: "PromptTable", labels: Sequence[Label], task: Task
) -> tuple["PromptTable", list[str]]:
    """The prompts, each id once, with their gold answers, and notes on unused answers.

    Three kinds of answers are not used: answers without the marker's form; answers of a prompt that
    differ for the marker, so that it has no gold answer until they agree; and labels of a data set
    of a mix whose answers are not optional, because its ids depend on them. Labels of other prompts
    are skipped.
    """
    import pyarrow as pa

    from tasks.prompt_table import SCHEMA, PromptTable, labelled

    distinct = prompts.distinct()
    known = distinct.with_ids({label.prompt_id for label in labels})
    answers = {i: {p.answer: p.place} if p.answer else {} for i, p in known.items()}
    if len(distinct) < len(prompts):  # a question in several rows
        for prompt in prompts.filter(labelled(prompts, task)):
            answers.setdefault(prompt.prompt_id, {}).setdefault(prompt.answer, prompt.place)
            known.setdefault(prompt.prompt_id, prompt)
    required, unreadable, conflicts = list[str](), list[str](), list[str]()
    for label in labels:
        if label.prompt_id in known:
            owner, _ = task.own(known[label.prompt_id])
            if not owner.optional_answers:
                required.append(label.place)
            elif gold := owner.read_answer(label.answer):
                answers[label.prompt_id].setdefault(gold, label.place)
            else:
                unreadable.append(f"{label.place} {label.answer!r:.40}")
    changed = {}
    for prompt_id, places in answers.items():
        owner, _ = task.own(known[prompt_id])
        first, *others = places or [""]
        marks = (owner.mark(owner.format_answer(other), first) for other in others)
        if all(mark.outcome == "correct" for mark in marks):
            changed[prompt_id] = first
        else:
            changed[prompt_id] = ""
            conflicts.append(", ".join(f"{place} {text!r:.40}" for text, place in places.items()))
    if not changed:
        return distinct, []
    notes = []
    for texts, why in (
        (required, "their data set's answers are not optional"),
        (unreadable, NOT_OF_FORM),
        (conflicts, "prompts whose answers contradict each other"),
    ):
        notes += not_used(texts, why)
    rows = distinct.rows_of(pa.array([*changed], pa.string()))
    values = distinct.column("answer").to_pylist()
    for row, answer in zip(rows.tolist(), changed.values(), strict=True):
        values[row] = answer
    table = pa.Table.from_batches(distinct.batches, SCHEMA)
    at = SCHEMA.get_field_index("answer")
    table = table.set_column(at, SCHEMA.field(at), pa.array(values, pa.string()))
    return PromptTable(table.combine_chunks().to_batches(max_chunksize=65_536)), notes
