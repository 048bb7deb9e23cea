"""Flaws of a training pool, found before sampling, and the prompts left out because of them.

Questions are compared up to spaces and case. Duplicates are equal questions, and nearly equal ones
(`near_duplicates`) with the same gold answer: a long template question with one changed number is a
different question. A conflict is a question with several gold answers, as compared by the task's
marker, within the training pool or between it and the test set.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.planning.containment import Contained
from orchestrator.planning.near_duplicates import joined, near_groups
from orchestrator.planning.overlap import Overlap
from orchestrator.planning.prompt_texts import most_bytes, prompt_texts
from orchestrator.plugins.counts import counted
from orchestrator.sampling.model import ModelSource, token_counts
from orchestrator.storage.errors import shortened
from tasks import Answer, Prompt, Task, TaskError, is_shipped
from tasks.prompt_table import Bools, Ints, PromptTable, labelled
from tasks.sources.hub import NotCached

NAMED = 3  # places in a note
Pair = tuple[Prompt, Prompt]
_SPACES = r"[\s\p{Z}]+"


class Flaws(NamedTuple):
    """The duplicates and conflicts of some prompts.

    first: for each row, the first row of its group of duplicates, or itself; same: the first row
    with the same question; conflicting: whether the question has several gold answers.
    """

    prompts: PromptTable
    first: Ints
    same: Ints
    conflicting: Bools

    @property
    def repeats(self) -> Bools:
        """The duplicates, except the first of each group."""
        return np.asarray(self.first != np.arange(len(self.first)))

    @property
    def duplicated(self) -> Bools:
        """The duplicates."""
        return np.bincount(self.first, minlength=len(self.first))[self.first] > 1

    def lines(self) -> list[str]:
        """The number of flawed prompts and the places of the first ones, a line for each kind."""
        lines = []
        if self.conflicting.any():
            questions = counted(len(np.unique(self.same[self.conflicting])), "question")
            lines.append(
                f"conflicts: {self._counted(self.conflicting)} ask {questions} with several gold "
                f"answers: {places(self.prompts, self.conflicting)}; correct them, or write "
                "conflicts: drop"
            )
        if self.repeats.any():
            lines.append(
                f"duplicates: {self._counted(self.repeats)} repeat another one "
                f"({self.kinds()}): {places(self.prompts, self.repeats)}; write duplicates: first "
                "to keep one of each"
            )
        return lines

    def kinds(self) -> str:
        """How the duplicates repeat an earlier prompt."""
        texts = _first_rows(self.prompts.column("question"))
        rows = np.flatnonzero(self.repeats)
        equal = int(np.sum(texts[rows] != rows))
        spelled = int(np.sum(self.same[rows] != rows)) - equal
        near = len(rows) - equal - spelled
        return f"{equal:,} word for word, {spelled:,} up to spaces and case, {near:,} nearly"

    def _counted(self, rows: Bools) -> str:
        return f"{int(rows.sum()):,} of {counted(len(rows), 'training prompt')}"


def places(prompts: PromptTable, rows: Bools) -> str:
    """The places of the first of these rows, by file and line or else by id, and how many more."""
    shown = np.flatnonzero(rows)[:NAMED]
    names = [place_of(prompt) for prompt in prompts.take(shown)]
    more = int(rows.sum()) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def place_of(prompt: Prompt) -> str:
    """The name of a prompt in messages: file and line, or else its id."""
    return prompt.place or prompt.prompt_id


def _first_rows(values: pa.ChunkedArray) -> Ints:
    """For each value, the first row with the same value."""
    parts = [chunk.indices.to_numpy() for chunk in values.dictionary_encode().chunks]
    codes = np.concatenate([np.empty(0, dtype=np.int32), *parts])
    _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
    return np.asarray(first[of_row.reshape(-1)], dtype=np.int64)


def find_flaws(prompts: PromptTable, task: Task, *, duplicates: bool = True) -> Flaws:
    """The conflicts and, with `duplicates`, the duplicates. Multi-turn tasks have none."""
    alone = np.arange(len(prompts))
    none = Flaws(prompts, alone, alone, np.zeros(len(prompts), dtype=bool))
    if task.environment is not None or not len(prompts):  # episodes may come from different rows
        return none
    same = _first_rows(_spelled(prompts))
    flaws = none._replace(same=same, conflicting=_conflicting(prompts, task, same))
    if not duplicates:
        return flaws
    golds = _first_rows(prompts.column("answer"))
    golds = np.where(labelled(prompts, task), golds, alone)
    near = near_groups(prompts.column("question"), golds)
    return flaws._replace(first=joined(len(prompts), [(alone, same), (alone, near)]))


def _spelled(prompts: PromptTable) -> pa.ChunkedArray:
    """The questions in lower case, with single spaces."""
    lower = pc.utf8_lower(prompts.column("question"))
    single = pc.replace_substring_regex(lower, pattern=_SPACES, replacement=" ")
    return pc.utf8_trim_whitespace(single)


def _conflicting(prompts: PromptTable, task: Task, same: Ints) -> Bools:
    """The prompts whose question has unequal gold answers."""
    answers = _first_rows(prompts.column("answer"))
    smallest, largest = answers.copy(), answers.copy()
    np.minimum.at(smallest, same, answers)
    np.maximum.at(largest, same, answers)
    different = np.flatnonzero((smallest[same] != largest[same]) & labelled(prompts, task))
    groups: dict[int, dict[str, Prompt]] = {}
    for row, prompt in zip(different.tolist(), prompts.take(different), strict=True):
        groups.setdefault(int(same[row]), {}).setdefault(prompt.answer, prompt)
    pairs = []
    for group, by_answer in groups.items():
        one, *others = (by_answer[answer] for answer in sorted(by_answer))
        pairs += [(group, (one, other)) for other in others]
    unequal = _unequal([pair for _, pair in pairs], task)
    conflicts = {group for (group, _), differ in zip(pairs, unequal, strict=True) if differ}
    return np.isin(same, np.array(sorted(conflicts), dtype=np.int64))


def _unequal(pairs: Sequence[Pair], task: Task) -> list[bool]:
    """For each pair of prompts with one question, whether the marker distinguishes their gold
    answers.

    With a user's own marker, which may expect more than an answer, answers are compared as texts.
    """
    if getattr(task, "function", None) is not None or not is_shipped(task):
        return [one.answer != other.answer for one, other in pairs]
    marked = task.with_marking("lenient")
    answers = [Answer.to(other, marked.solution(one) or "") for one, other in pairs]
    return [mark.outcome != "correct" for mark in marked.mark_all(answers)]


def conflicts_with_test(train: PromptTable, test: PromptTable, task: Task) -> list[Pair]:
    """Every training prompt with each test question that differs only in its gold answer."""
    if task.environment is not None or not len(train) or not len(test):
        return []
    texts, test_texts = _spelled(train), _spelled(test)
    known = pc.is_in(texts, value_set=test_texts.unique())
    texts, shared = texts.filter(known), train.filter(known.to_numpy())
    tested: dict[str, list[Prompt]] = {}
    known = pc.is_in(test_texts, value_set=texts.unique())
    for text, prompt in zip(test_texts.filter(known), test.filter(known.to_numpy()), strict=True):
        tested.setdefault(text.as_py(), []).append(prompt)
    pairs = [
        (prompt, question)
        for text, prompt in zip(texts.to_pylist(), shared, strict=True)
        for question in tested[text]
        if question.answer != prompt.answer
    ]
    return [pair for pair, unequal in zip(pairs, _unequal(pairs, task), strict=True) if unequal]


def conflicts_with_test_line(pairs: Sequence[Pair], total: int, *, droppable: bool) -> str:
    """A line on these pairs, out of `total` training prompts. droppable: some are in the pool."""
    prompts = counted(len({prompt.prompt_id for prompt, _ in pairs}), "training prompt")
    shown = [
        " and ".join(f"{place_of(each)} ({shortened(each.answer, 40)})" for each in pair)
        for pair in pairs[:NAMED]
    ]
    more = f" and {len(pairs) - NAMED:,} more" if len(pairs) > NAMED else ""
    remedy = "write drop_overlap: true to leave these prompts out of training"
    return (
        f"conflicts with test questions: the test set has a different gold answer for {prompts} of "
        f"{total:,}: {'; '.join(shown)}{more}; correct the wrong answers"
        + (f", or {remedy}" if droppable else ": these prompts are left out of training")
    )


class Cleaning(NamedTuple):
    """The settings of a data set that leave prompts out, and the models of its experiment.

    test: whether they also leave out test questions.
    """

    max_prompt_tokens: int | None = None
    duplicates: str = "keep"
    conflicts: str = "keep"
    models: tuple[ModelSource, ...] = ()
    test: bool = False


class Cleaned(NamedTuple):
    """The prompts that are left; for each setting, a note on those left out, and their number."""

    prompts: PromptTable
    notes: list[str]
    left_out: dict[str, int]


def cleaned(
    prompts: PromptTable, task: Task, cleaning: Cleaning, noun: str = "training prompt"
) -> Cleaned:
    """The prompts that the settings leave.

    Each prompt is left out once: for its length, else for a conflict, else as a duplicate. noun:
    the word for a prompt in notes.
    """
    notes, left_out = [], dict[str, int]()

    def left(out: Bools, setting: str, why: str) -> PromptTable:
        if not out.any():
            return prompts
        left_out[f"by {setting}"] = int(out.sum())
        total = counted(len(prompts), noun)
        notes.append(f"dropped: {int(out.sum()):,} of {total}, {why}: {places(prompts, out)}")
        return prompts.filter(~out)

    if cleaning.max_prompt_tokens is not None:
        limit = cleaning.max_prompt_tokens
        long = _long(prompts, task, limit, cleaning.models)
        prompts = left(long, "max_prompt_tokens", f"with more than {counted(limit, 'token')}")
    if cleaning.conflicts == "drop":
        flaws = find_flaws(prompts, task, duplicates=False)
        prompts = left(flaws.conflicting, "conflicts", "whose question has several gold answers")
    if cleaning.duplicates != "keep":
        flaws = find_flaws(prompts, task)
        out = flaws.repeats if cleaning.duplicates == "first" else flaws.duplicated
        why = f"duplicates ({flaws.kinds()} of an earlier one)"
        prompts = left(out, "duplicates", why)
    return Cleaned(prompts, notes, left_out)


def _long(prompts: PromptTable, task: Task, limit: int, models: Sequence[ModelSource]) -> Bools:
    """The prompts with more tokens than the limit for one of the models.

    Tokens are counted in the messages, without those of a chat template.
    """
    models = [model for model in models if not model.recorded]
    if not models:
        raise TaskError("max_prompt_tokens: a recorded model has no tokenizer: leave it out")
    rows = np.flatnonzero(most_bytes(prompts, task) > limit)
    long = np.zeros(len(prompts), dtype=bool)
    for model in models if len(rows) else ():
        tokens = token_counts(model, prompt_texts(prompts.take(rows), task))
        if tokens is None:
            raise NotCached(
                f"max_prompt_tokens: {model.name} has no tokenizer.json on this machine"
            )
        long[rows] |= np.array(tokens) > limit
    return long


def overlap_line(
    prompts: PromptTable,
    overlaps: Sequence[Overlap | Contained],
    text: str,
    *,
    droppable: bool,
    value: str = "true",
) -> str:
    """A line on test questions in the pool: places of the first ones, and how to leave them out."""
    rows = np.zeros(len(prompts), dtype=bool)
    rows[prompts.rows_of(pa.array([each.train_id for each in overlaps], pa.string()))] = True
    remedy = f"; write drop_overlap: {value} to leave them out" if droppable else ""
    return f"{text}: {places(prompts, rows)}{remedy}" if overlaps else text
