"""The flawed rows of a data set as a file to correct, and the prompts that a corrected one gives.

A prompt is identified by its prompt_id, a hash of question and answer; a row without a prompt, by
its row_id, a hash of all its columns. Rows that have changed since are therefore detected, and rows
that have only moved still match.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.planning.flaws import Flaws, Pair, place_of
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from tasks import Prompt, Task, TaskError, make_prompt
from tasks.prompt_table import PromptTable
from tasks.question_file import QuestionFile
from tasks.sources.files import parse_json, read_file
from tasks.sources.row_corrections import InvalidRow, RowCorrections, RowEdit

OTHERS = 5  # places of a group that a row names


def flaw_rows(
    flaws: Flaws,
    test_questions: Mapping[str, Sequence[str]],
    conflicts: Sequence[Pair],
    invalid: Mapping[str, InvalidRow],
) -> list[dict[str, Any]]:
    """A row for each flawed prompt, in the order of the data; groups are adjacent.

    test_questions: places of equal or nearly equal test questions, by prompt_id. conflicts:
    training prompts and test questions with different gold answers; those that are not in the pool
    follow the rest. invalid: the rows that give no prompt, by row_id; they are at the end.
    """
    listed: dict[str, tuple[Prompt, list[str], list[str]]] = {}  # problems, places of others
    for row, prompt, group in _grouped(flaws, test_questions):
        kinds = {
            "several gold answers": flaws.conflicting[row],
            "duplicate": flaws.duplicated[row],
            "test question": prompt.prompt_id in test_questions,
        }
        others = [other for other in group if other != place_of(prompt)]
        others = [*others[:OTHERS], *test_questions.get(prompt.prompt_id, [])]
        problems = [kind for kind, applies in kinds.items() if applies]
        listed[prompt.prompt_id] = prompt, problems, others
    for prompt, question in conflicts:
        for one, other, split in ((prompt, question, "test set"), (question, prompt, "training")):
            _, problems, others = listed.setdefault(one.prompt_id, (one, [], []))
            for texts, text in ((problems, f"other answer in {split}"), (others, place_of(other))):
                texts += [text] if text not in texts else []
    return [
        {"place": place_of(prompt), "prompt_id": prompt.prompt_id}
        | ({"row": parse_json(prompt.kept, place_of(prompt))} if prompt.kept else {})
        | {"question": prompt.question, "answer": prompt.answer}
        | {"problem": ", ".join(problems), "others": others, "keep": True}
        for prompt, problems, others in listed.values()
    ] + [
        {"place": row.places[0], "row_id": row_id}
        | {"question": row.question, "answer": row.answer, "problem": f"invalid: {row.problem}"}
        | {"others": row.places[1 : OTHERS + 1], "keep": True}
        for row_id, row in invalid.items()
    ]


def _grouped(
    flaws: Flaws, test_questions: Mapping[str, Sequence[str]]
) -> list[tuple[int, Prompt, list[str]]]:
    """Row number, prompt, and places of its group, for each flawed prompt of the pool."""
    prompts = flaws.prompts
    groups = np.minimum(flaws.first, np.where(flaws.conflicting, flaws.same, flaws.first))
    tested = prompts.rows_of(pa.array([*test_questions], pa.string()))
    flawed = flaws.duplicated | flaws.conflicting
    flawed[tested] = True
    rows = np.flatnonzero(flawed)
    rows = rows[np.argsort(groups[rows], kind="stable")]
    shown = list(prompts.take(rows))
    members: dict[int, list[str]] = {}
    for group, prompt in zip(groups[rows].tolist(), shown, strict=True):
        members.setdefault(group, []).append(place_of(prompt))
    of_row = [members[group] for group in groups[rows].tolist()]
    return [*zip(rows.tolist(), shown, of_row, strict=True)]


class Corrections(NamedTuple):
    """A corrected list: edits of prompts, by prompt_id, and of invalid rows, by row_id."""

    file: str
    prompts: dict[str, RowEdit]
    rows: dict[str, RowEdit]

    @classmethod
    def of(cls, file: str) -> "Corrections":
        """The corrections in a file; none for "". Raises TaskError with the file's line."""
        corrections = cls(file, {}, {})
        if not file:
            return corrections
        try:
            read = read_file(file, ("question", "answer", "keep"))
        except TaskError as error:
            raise TaskError(f"corrections: {error}") from error
        for place, row in zip(read.places, read.rows, strict=True):
            kind = "row_id" if "row_id" in row else "prompt_id"
            for name in (kind, "question", "answer"):
                if not isinstance(value := row.get(name), str):
                    raise TaskError(f"{place}: {name} is {value!r:.80}: write a text")
            if not isinstance(row["keep"], bool):
                raise TaskError(f"{place}: keep is {row['keep']!r:.80}: write true or false")
            edits = corrections.rows if kind == "row_id" else corrections.prompts
            if row[kind] in edits:
                raise TaskError(f"{place}: repeats a {kind}: remove one of the two rows")
            listed = str(row.get("place", row[kind]))
            edits[row[kind]] = RowEdit(place, listed, row["question"], row["answer"], row["keep"])
        return corrections


def correct_rows(task: Task, edits: Mapping[str, RowEdit]) -> list[RowCorrections]:
    """Let a task, or the parts of a mix, correct rows that it would otherwise skip."""
    given = []
    for each in task.mixed_tasks or [task]:
        if isinstance(each, QuestionFile) and each.skip_invalid:
            each.corrections = RowCorrections(edits)
            given.append(each.corrections)
    return given


def corrected(
    train: PromptTable,
    test: PromptTable,
    task: Task,
    corrections: Corrections,
    invalid: Mapping[str, InvalidRow],
) -> tuple[PromptTable, PromptTable, RowCounts, str]:
    """Both splits with the corrections of a file, its rows, and a note that counts them.

    invalid: the rows that gave no prompt before correction, by row_id. Raises TaskError with the
    file's line.
    """
    edits = corrections.prompts
    known: Mapping[str, Any] = {**train.with_ids(edits), **test.with_ids(edits), **invalid}
    for own_id, edit in {**edits, **corrections.rows}.items():
        if own_id not in known:
            raise TaskError(
                f"{edit.place}: the data no longer contains {edit.listed} as it was listed: "
                "write the list again (decile init --problems FILE)"
            )
    changed: dict[str, Prompt | None] = {}
    for prompt_id, edit in edits.items():
        prompt = known[prompt_id]
        if not edit.keep:
            changed[prompt_id] = None
        elif (edit.question, edit.answer) != (prompt.question, prompt.answer):
            changed[prompt_id] = _edited(prompt, edit.question, edit.answer, task, edit.place)
    left_out = sum(not edit.keep for edit in {**edits, **corrections.rows}.values())
    count = sum(prompt is not None for prompt in changed.values())
    count += sum(invalid[row_id].is_changed_by(edit) for row_id, edit in corrections.rows.items())
    note = f"{counted(count, 'row')} corrected and {left_out:,} left out by {corrections.file}"
    every = len(edits) + len(corrections.rows)
    rows = RowCounts(every, {"that change nothing": every - count - left_out})
    return _with(train, changed), _with(test, changed), rows, note


def _edited(prompt: Prompt, question: str, text: str, task: Task, place: str) -> Prompt:
    """The prompt with a new question and answer, and the id that these have in the data."""
    owner, own = task.own(prompt)
    answer = text if text == prompt.answer else owner.read_answer(text.strip())
    if not (answer or owner.optional_answers) or not question.strip():
        what = "question" if answer else "answer"
        raise TaskError(
            f"{place}: the {what} cannot be used: write one of the form of the data, or keep: false"
        )
    recipes = [
        in_id
        for in_id in (False, True)
        if _id(owner, own.question, own.answer, own.info, in_id) == prompt.prompt_id
    ]
    info = parse_json(own.info, place) if own.info.startswith("{") else {}
    if not recipes or (owner.answer_name in info and answer != prompt.answer):
        raise TaskError(
            f"{place}: the marker reads more of this row than question and answer: correct it in "
            "the data, and remove it here"
        )
    prompt_id = _id(owner, question.strip(), answer or "", own.info, recipes[0])
    return replace(prompt, prompt_id=prompt_id, question=question.strip(), answer=answer or "")


def _id(task: Task, question: str, answer: str, info: str, in_id: bool) -> str:
    answer = "" if task.optional_answers else answer
    return make_prompt(task.name, question, answer, "", info, info_in_id=in_id).prompt_id


def _with(prompts: PromptTable, changed: Mapping[str, Prompt | None]) -> PromptTable:
    """The prompts in their order, with these ids replaced, or left out for None."""
    rows = prompts.rows_of(pa.array([*changed], pa.string()))
    own = {
        row: prompt for row, prompt in zip(rows.tolist(), changed.values(), strict=True) if row >= 0
    }
    unchanged = np.setdiff1d(np.arange(len(prompts)), [*own])
    edited = {row: prompt for row, prompt in own.items() if prompt is not None}
    batches = [*prompts.take(unchanged).batches, *PromptTable.of(edited.values()).batches]
    order = np.argsort(np.concatenate([unchanged, np.array([*edited], dtype=np.int64)]))
    return PromptTable(batches).take(order).distinct()
