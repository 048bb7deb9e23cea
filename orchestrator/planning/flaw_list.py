"""The flawed prompts of a pool as a file to correct, and the prompts that a corrected one gives.

A row is found again by its prompt_id, a hash of question and answer: a row of the data that has
changed since is noticed, and one that has only moved is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.planning.flaws import Flaws
from orchestrator.plugins.counts import counted
from tasks import Prompt, Task, TaskError, make_prompt
from tasks.mix import Mix
from tasks.prompt_table import PromptTable
from tasks.sources.files import parse_json, read_file

OTHERS = 5  # places of a group that a row names


def flaw_rows(flaws: Flaws, test_questions: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """A row for each flawed prompt, in the order of the data; groups stand together.

    test_questions: by prompt_id, the places of test questions that are the same or nearly.
    """
    prompts = flaws.prompts
    groups = np.minimum(flaws.first, np.where(flaws.conflicting, flaws.same, flaws.first))
    tested = prompts.rows_of(pa.array([*test_questions], pa.string()))
    flawed = flaws.duplicated | flaws.conflicting
    flawed[tested] = True
    rows = np.flatnonzero(flawed)
    rows = rows[np.argsort(groups[rows], kind="stable")]
    shown = prompts.take(rows)
    members: dict[int, list[str]] = {}
    for group, prompt in zip(groups[rows].tolist(), shown, strict=True):
        members.setdefault(group, []).append(prompt.place or prompt.prompt_id)
    listed = []
    for row, prompt in zip(rows.tolist(), shown, strict=True):
        place = prompt.place or prompt.prompt_id
        kinds = {
            "several gold answers": flaws.conflicting[row],
            "duplicate": flaws.duplicated[row],
            "test question": prompt.prompt_id in test_questions,
        }
        others = [other for other in members[int(groups[row])] if other != place]
        kept = {"row": parse_json(prompt.kept, place)} if prompt.kept else {}
        listed.append(
            {"place": place, "prompt_id": prompt.prompt_id, **kept}
            | {"question": prompt.question, "answer": prompt.answer}
            | {"problem": ", ".join(kind for kind, applies in kinds.items() if applies)}
            | {"others": [*others[:OTHERS], *test_questions.get(prompt.prompt_id, [])]}
            | {"keep": True}
        )
    return listed


def corrected(
    train: PromptTable, test: PromptTable, task: Task, file: str
) -> tuple[PromptTable, PromptTable, str]:
    """Both splits with the corrections of a file, and a note that counts them.

    Raises TaskError with the file's line.
    """
    try:
        read = read_file(file, ("prompt_id", "question", "answer", "keep"))
    except TaskError as error:
        raise TaskError(f"corrections: {error}") from error
    edits: dict[str, tuple[str, dict[str, Any]]] = {}
    for place, row in zip(read.places, read.rows, strict=True):
        for name in ("prompt_id", "question", "answer"):
            if not isinstance(row[name], str):
                raise TaskError(f"{place}: {name} is {row[name]!r:.80}: write a text")
        if not isinstance(row["keep"], bool):
            raise TaskError(f"{place}: keep is {row['keep']!r:.80}: write true or false")
        if row["prompt_id"] in edits:
            raise TaskError(f"{place}: repeats a prompt_id: remove one of the two rows")
        edits[row["prompt_id"]] = place, row
    known = {**train.with_ids(edits), **test.with_ids(edits)}
    for prompt_id, (place, row) in edits.items():
        if prompt_id not in known:
            raise TaskError(
                f"{place}: {row.get('place', prompt_id)} is not in the data as it was listed, "
                "which has changed: write the list again (decile init --problems FILE)"
            )
    changed: dict[str, Prompt | None] = {}
    for prompt_id, (place, row) in edits.items():
        prompt = known[prompt_id]
        if not row["keep"]:
            changed[prompt_id] = None
        elif (row["question"], row["answer"]) != (prompt.question, prompt.answer):
            changed[prompt_id] = _edited(prompt, row["question"], row["answer"], task, place)
    left_out = sum(each is None for each in changed.values())
    note = f"{counted(len(changed) - left_out, 'prompt')} corrected and {left_out:,} left out by"
    return _with(train, changed), _with(test, changed), f"{note} {file}"


def _edited(prompt: Prompt, question: str, text: str, task: Task, place: str) -> Prompt:
    """The prompt with another question and answer, and the id that they have in the data."""
    owner, own = task.own(prompt) if isinstance(task, Mix) else (task, prompt)
    answer = text if text == prompt.answer else owner.read_answer(text.strip())
    if not answer or not question.strip():
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
            f"{place}: the marker gets more of this row than question and answer: correct it in "
            "the data, and remove it here"
        )
    prompt_id = _id(owner, question.strip(), answer, own.info, recipes[0])
    return replace(prompt, prompt_id=prompt_id, question=question.strip(), answer=answer)


def _id(task: Task, question: str, answer: str, info: str, in_id: bool) -> str:
    return make_prompt(task.name, question, answer, "", info, info_in_id=in_id).prompt_id


def _with(prompts: PromptTable, changed: Mapping[str, Prompt | None]) -> PromptTable:
    """The prompts in their order, with those of these ids replaced, or left out for None."""
    rows = prompts.rows_of(pa.array([*changed], pa.string()))
    own = {
        row: prompt for row, prompt in zip(rows.tolist(), changed.values(), strict=True) if row >= 0
    }
    unchanged = np.setdiff1d(np.arange(len(prompts)), [*own])
    edited = {row: prompt for row, prompt in own.items() if prompt is not None}
    batches = [*prompts.take(unchanged).batches, *PromptTable.of(edited.values()).batches]
    order = np.argsort(np.concatenate([unchanged, np.array([*edited], dtype=np.int64)]))
    return PromptTable(batches).take(order).distinct()
