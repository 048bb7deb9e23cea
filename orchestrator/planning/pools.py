"""The prompts of a dataset: its training pool and its test set, with content hashes."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.planning.containment import Containment, find_containment
from orchestrator.planning.flaw_list import Corrections, correct_rows, corrected, flaw_rows
from orchestrator.planning.flaws import (
    Cleaning,
    Flaws,
    Pair,
    cleaned,
    conflicts_with_test,
    conflicts_with_test_line,
    find_flaws,
    overlap_line,
)
from orchestrator.planning.near_duplicates import grouped_ids
from orchestrator.planning.overlap import Overlap, describe, find_overlap, without_overlap
from orchestrator.planning.pool_columns import with_pool_columns
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.storage.proof import Unsound, canonical_hash, read_parquet, sequence_hash
from orchestrator.storage.schema import Split
from tasks import Prompt, Task, TaskError, get_task, is_shipped, task_errors, title_of
from tasks.environments import environment_of
from tasks.prompt_table import ROWS, PromptTable, labelled
from tasks.prompts import make_prompt
from tasks.sources.files import check_columns, is_chat, read_chat, read_file
from tasks.sources.labels import not_used, read_labels, with_labels
from tasks.sources.named_files import named_files
from tasks.sources.roles import columns_in_role
from tasks.sources.row_corrections import RowCorrections
from tasks.sources.source import IN_TEST, ReadTask

_FORM = "return a list of tasks.Prompt, such as make_prompt(task, question, answer, tier)"


@dataclass(frozen=True)
class Dataset:
    """A task with its options and marking: everything needed to build it in any process.

    prompt: the chat around a question. max_marking_errors: the share of a batch on which the marker
    may fail. drop_overlap: remove training prompts that are duplicates of questions in the test
    set, in the test sets of `apart_from` or in the files `benchmarks`, or also prompts that contain
    one. cleaning: further settings that leave prompts out. corrections: a corrected list of flawed
    prompts. labels: files of gold answers for prompts that lack one. label_noise: the share of the
    training pool's gold answers that is replaced with wrong ones, see `with_label_noise`. without:
    a table of prompts to leave out.
    """

    name: str
    task: str
    options: dict[str, Any]
    marking: str
    prompt: dict[str, Any] = field(default_factory=dict)
    max_marking_errors: float = 1.0
    drop_overlap: bool | Literal["containment"] = False
    apart_from: tuple["Dataset", ...] = ()
    label_noise: float = 0.0
    label_noise_seed: int = 0
    without: str = ""
    cleaning: Cleaning = Cleaning()
    corrections: str = ""
    labels: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()

    @property
    def variant_key(self) -> str:
        """The name, with the settings that distinguish pools of the same name."""
        if not self.label_noise:
            return self.name
        seed = f" seed {self.label_noise_seed}" if self.label_noise_seed else ""
        return f"{self.name} with label_noise {self.label_noise:g}{seed}"

    def build(self) -> Task:
        """The task. Raises TaskError for an invalid option or data file."""
        prompt = {"prompt": self.prompt} if self.prompt else {}
        return get_task(self.task, marking=self.marking, **prompt, **self.options)


@dataclass(frozen=True)
class Pool:
    """The loaded prompts of a dataset."""

    dataset: Dataset
    task: Task
    train: PromptTable
    test: PromptTable
    notes: tuple[str, ...] = ()  # exclusions from the source, with reasons
    dropped_prompts: int = 0  # training prompts left out as exact or near test questions
    mislabeled: frozenset[str] = frozenset()  # ids of training prompts whose answer was replaced
    unlabelled_test: PromptTable = field(default_factory=PromptTable)  # not evaluated
    # The training prompts before any were left out, including test questions.
    whole: PromptTable = field(default_factory=PromptTable)
    rows: RowCounts = RowCounts(0)  # of the data, for the prompts of both splits
    rows_of: Mapping[str, RowCounts] = field(default_factory=dict)  # of labels and corrections
    benchmarks: Mapping[str, PromptTable] = field(default_factory=dict)  # their questions, by file

    @cached_property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """Whether each training prompt [N] has a gold answer, or does not need one."""
        return labelled(self.train, self.task)

    def prompts(self, split: Split) -> PromptTable:
        """The prompts of one split."""
        return self.train if split == "train" else self.test

    def overlap(self, questions: PromptTable) -> list[Overlap]:
        """The training prompts that are exact or near duplicates of test questions.

        Episodes are not compared: those with the same question may come from different rows.
        """
        if self.task.environment is not None:
            return []
        return find_overlap(self.train, questions)

    def containment(self, questions: PromptTable) -> Containment | None:
        """The test questions that training prompts contain; None for multi-turn tasks."""
        if self.task.environment is not None:
            return None
        return find_containment(self.train, questions)

    @cached_property
    def flaws(self) -> Flaws:
        """The duplicates and conflicts that are left in the training pool."""
        return find_flaws(self.train, self.task)

    @cached_property
    def conflicts_with_test(self) -> list[Pair]:
        """Each training prompt with the test questions that have a different gold answer for it."""
        answered = self.whole.filter(labelled(self.whole, self.task))
        return conflicts_with_test(answered, self.test, self.task)

    @property
    def row_lines(self) -> list[str]:
        """The numbers of used rows of the data, the labels and the corrections, a line for each."""
        return [self.rows.line(), *(rows.line(file) for file, rows in self.rows_of.items())]

    def rows_without(self, left_out: Mapping[str, int]) -> RowCounts:
        """Its `rows` with further ones left out, by reason; a negative number restores rows."""
        return RowCounts.sum([self.rows, RowCounts(0, left_out)])

    @property
    def flaw_lines(self) -> list[str]:
        """A line for each kind of flaw, for prompts that come from rows of the user's files."""
        if not pc.any(pc.not_equal(self.whole.column("place"), "")).as_py():
            return []
        pairs = self.conflicts_with_test
        ids = pa.array([prompt.prompt_id for prompt, _ in pairs], pa.string())
        in_pool = bool((self.train.rows_of(ids) >= 0).any())
        line = conflicts_with_test_line(pairs, len(self.whole), droppable=in_pool)
        return [*self.flaws.lines(), *([line] if pairs else [])]

    @property
    def overlap_lines(self) -> list[str]:
        """A line on test questions in the pool, and on those inside its prompts, if any are."""
        overlaps, containment = self.overlap(self.test), self.containment(self.test)
        text, droppable = describe(overlaps, len(self.train)), not self.dataset.drop_overlap
        lines = [overlap_line(self.train, overlaps, text, droppable=droppable)] if overlaps else []
        if containment and containment.prompts:
            lines.append(self.containment_line(containment, "test"))
        return lines

    def containment_line(self, containment: Containment, evaluation: str) -> str:
        """The test questions that training prompts contain, and how to leave these prompts out."""
        return overlap_line(
            self.train,
            containment.prompts,
            containment.describe(len(self.train), evaluation),
            droppable=self.dataset.drop_overlap != "containment",
            value="containment",
        )

    def flaw_rows(self) -> list[dict[str, Any]]:
        """The flawed prompts, test questions among them, as rows of a file to correct."""
        overlaps = self.overlap(self.test)
        tests = self.test.with_ids([each.evaluation_id for each in overlaps])
        places = {each.train_id: [tests[each.evaluation_id].place] for each in overlaps}
        task, edits = self.dataset.build(), Corrections.of(self.dataset.corrections).rows
        read = correct_rows(task, edits)
        if read:  # both splits
            load_prompts(task, "train")
            load_prompts(task, "test")
        invalid = {
            row_id: row
            for each in read
            for row_id, row in each.invalid.items()
            if not (edit := edits.get(row_id)) or (edit.keep and not row.is_changed_by(edit))
        }
        return flaw_rows(self.flaws, places, self.conflicts_with_test, invalid)

    def tiers(self, split: Split) -> dict[str, str]:
        """prompt_id -> tier."""
        prompts = self.prompts(split)
        ids, tiers = prompts.column("prompt_id"), prompts.column("tier")
        return dict(zip(ids.to_pylist(), tiers.to_pylist(), strict=True))

    @cached_property
    def groups(self) -> dict[str, str]:
        """prompt_id -> group, for test questions that are related to each other.

        A group is named by the task, or has exact or near duplicates.
        """
        ids, names = (self.test.column(name).to_pylist() for name in ("prompt_id", "group"))
        named = {i: name for i, name in zip(ids, names, strict=True) if name}
        if named or self.task.environment is not None:
            return named
        by_id = self.test.take(self.test.order)
        return grouped_ids(by_id.column("prompt_id").to_pylist(), by_id.column("question"))

    @cached_property
    def sources(self) -> dict[str, str]:
        """prompt_id -> source, for the test questions that have one."""
        ids, sources = (self.test.column(name).to_pylist() for name in ("prompt_id", "source"))
        return {i: source for i, source in zip(ids, sources, strict=True) if source}

    @property
    def gold_count(self) -> int:
        """The number of training prompts with a gold answer."""
        return int(np.count_nonzero(self.labelled))

    @cached_property
    def train_hash(self) -> str:
        """Content hash of the training pool, independent of order."""
        return _content_hash(self.train, answers=self.task.optional_answers)

    @cached_property
    def ids_hash(self) -> str:
        """Hash of the ids of the training pool, independent of order and of later gold answers."""
        if not self.task.optional_answers:
            return self.train_hash
        return _content_hash(self.train, answers=False)

    def columns_hash(self, names: Sequence[str]) -> str:
        """Content hash of the user's columns in the training pool; empty for no columns."""
        if not names:
            return ""
        table = self.unprobed(columns=True).take(pa.array(self.train.order))
        values = table.select(sorted(names)).to_pydict()
        return canonical_hash([table["prompt_id"].to_pylist(), values])

    def unprobed(self, *, columns: bool) -> pa.Table:
        """The columns of a difficulty table that training prompts have before they are probed.

        columns: include the user's.
        """
        table = pa.table({name: self.train.column(name) for name in ("prompt_id", "tier")})
        if self.gold_count:
            table = table.append_column("labelled", pa.array(self.labelled))
        return with_pool_columns(table, self.train) if columns else table

    @cached_property
    def test_hash(self) -> str:
        """Content hash of the test set, independent of order."""
        return _content_hash(self.test, answers=self.task.optional_answers)


def _content_hash(prompts: PromptTable, *, answers: bool) -> str:
    """Content hash of prompts: of their ids, and of gold answers that are not part of the ids."""

    def contents() -> Iterator[list[str]]:  # in the order of the ids, many at a time
        for start in range(0, len(prompts), ROWS):
            rows = prompts.order[start : start + ROWS]
            yield prompts.ids(rows).to_pylist()
            if answers:
                yield prompts.take(rows).column("answer").to_pylist()

    return sequence_hash(contents())


def load_pool(dataset: Dataset) -> Pool:
    """Build the task, read both splits, and pass them through STAGES."""
    pool = _read(dataset)
    for stage in STAGES:
        pool = stage(pool)
    return pool


def _read(dataset: Dataset) -> Pool:
    """Both splits as the task reads them, with the corrections of rows."""
    task, corrections = dataset.build(), Corrections.of(dataset.corrections)
    of_rows = correct_rows(task, corrections.rows) if corrections.rows else []
    train, test = load_prompts(task, "train"), load_prompts(task, "test")
    whole = train
    if isinstance(task, ReadTask) and is_shipped(task):
        whole = PromptTable([*train.batches, *task.left_out.batches])
    pool = Pool(
        dataset,
        task,
        train,
        test,
        tuple(task.notes),
        task.dropped_prompts,
        whole=whole,
        rows=_row_counts(task, len(train) + len(test)),
        benchmarks=read_benchmarks(dataset.benchmarks),
    )
    if not dataset.corrections:
        return pool
    return _correct(pool, corrections, of_rows)


def _correct(pool: Pool, corrections: Corrections, of_rows: Sequence[RowCorrections]) -> Pool:
    """The pool with a user's corrections; `of_rows` are for rows that gave no prompt."""
    invalid = {row_id: row for each in of_rows for row_id, row in each.invalid.items()}
    whole, test, rows, note = corrected(pool.whole, pool.test, pool.task, corrections, invalid)
    train = whole.without_questions(test)
    before, after = len(pool.whole) + len(pool.test), len(whole) + len(test)
    in_test_before, in_test = len(pool.whole) - len(pool.train), len(whole) - len(train)
    left_out = {
        f"left out by {corrections.file}": before - after,
        IN_TEST: in_test - in_test_before,
    }
    return replace(
        pool,
        train=train,
        test=test,
        whole=whole,
        notes=(*pool.notes, note),
        rows=pool.rows_without(left_out),
        rows_of={corrections.file: rows},
    )


def _row_counts(task: Task, prompts: int) -> RowCounts:
    """The rows that a task has read; its prompts count as rows if it does not read rows."""
    if isinstance(task, ReadTask) and is_shipped(task):
        return task.row_counts(prompts)
    return RowCounts(prompts + task.dropped_prompts, {IN_TEST: task.dropped_prompts})


def _label(pool: Pool) -> Pool:
    """Both splits with the gold answers of files, and notes on them. Raises TaskError."""
    if not pool.dataset.labels:
        return pool
    task, train, test = pool.task, pool.train, pool.test
    if not task.optional_answers:
        raise TaskError("labels: its prompts have gold answers: write answers: optional, or none")
    try:
        labels, notes, rows = read_labels([*pool.dataset.labels])
    except TaskError as error:
        raise TaskError(f"labels: {error}") from error
    given = [label.prompt_id for label in labels]
    names, ids = ", ".join(pool.dataset.labels), {*given}
    known = {*train.with_ids(ids), *test.with_ids(ids)}
    if ids and not known:
        raise TaskError(f"labels: {names} has no prompt_id of this data set: write its own file")
    others = [each for each in labels if each.prompt_id not in known]
    unknown = [f"{each.place} {each.prompt_id!r:.40}" for each in others]
    notes += not_used(unknown, "no prompt_id of this data set")
    train, notes_of_train = with_labels(train, labels, task)
    test, notes_of_test = with_labels(test, labels, task)
    notes = [*pool.notes, *notes, *notes_of_train, *notes_of_test]
    answered = {
        prompt_id
        for table in (train, test)
        for prompt_id, prompt in table.with_ids(known).items()
        if prompt.answer and task.own(prompt)[0].optional_answers
    }
    left_out = {
        "without an answer": rows - len(labels),
        "of no prompt of this data set": len(others),
        "with an answer that is not used": sum(i in known - answered for i in given),
    }
    rows_of = {**pool.rows_of, names: RowCounts(rows, left_out)}
    return replace(pool, train=train, test=test, notes=tuple(notes), rows_of=rows_of)


def _leave_out_unlabelled_tests(pool: Pool) -> Pool:
    notes = [*pool.notes]
    known = int(np.count_nonzero(labelled(pool.train, pool.task)))
    if 0 < known < len(pool.train):
        count = f"{known:,} of {counted(len(pool.train), 'training prompt')}"
        notes.append(f"train: {count} have a gold answer: subsets are chosen from these")
    evaluated = labelled(pool.test, pool.task)
    unlabelled, test = pool.test.filter(~evaluated), pool.test.filter(evaluated)
    if unlabelled:
        total = counted(len(evaluated), "test question")
        notes.append(f"test: {len(unlabelled):,} of {total} left out: no gold answer")
    rows = pool.rows_without({"test questions without a gold answer": len(unlabelled)})
    return replace(pool, test=test, unlabelled_test=unlabelled, notes=tuple(notes), rows=rows)


def _clean_tests(pool: Pool) -> Pool:
    if not pool.dataset.cleaning.test:
        return pool
    test, notes, left_out = cleaned(pool.test, pool.task, pool.dataset.cleaning, "test question")
    rows = pool.rows_without(left_out)
    return replace(pool, test=test, notes=(*pool.notes, *notes), rows=rows)


def _drop_overlap(pool: Pool) -> Pool:
    """The pool without duplicates of test questions, if `drop_overlap` is set."""
    if not pool.dataset.drop_overlap:
        return pool
    others = {d.name: load_prompts(d.build(), "test") for d in pool.dataset.apart_from}
    train, notes, left_out = pool.train, [*pool.notes], dict[str, int]()
    for name, prompts in {"test": pool.test, **others, **pool.benchmarks}.items():
        question = "a test question" if name == "test" else f"a question of {name}"
        if overlaps := find_overlap(train, prompts):
            rest = without_overlap(train, overlaps)
            left_out[f"equal or similar to {question}"] = len(train) - len(rest)
            text = f"dropped: {describe(overlaps, len(train), name)}"
            notes.append(overlap_line(train, overlaps, text, droppable=False))
            train = rest
        if pool.dataset.drop_overlap == "containment":
            containment = find_containment(train, prompts)
            if containment.prompts:
                rest = without_overlap(train, containment.prompts)
                left_out[f"with {question} inside"] = len(train) - len(rest)
                text = f"dropped: {containment.describe(len(train), name)}"
                notes.append(overlap_line(train, containment.prompts, text, droppable=False))
                train = rest
    dropped = len(pool.train) - len(train)
    return replace(
        pool,
        train=train,
        notes=tuple(notes),
        dropped_prompts=pool.dropped_prompts + dropped,
        rows=pool.rows_without(left_out),
    )


def _clean(pool: Pool) -> Pool:
    train, notes, left_out = cleaned(pool.train, pool.task, pool.dataset.cleaning)
    rows = pool.rows_without(left_out)
    return replace(pool, train=train, notes=(*pool.notes, *notes), rows=rows)


def _replace_golds(pool: Pool) -> Pool:
    return _with_wrong_golds(pool, pool.dataset.label_noise, pool.dataset.label_noise_seed)


def _leave_out_listed(pool: Pool) -> Pool:
    """The pool without a table's training prompts, or its suspected ones if it has this column."""
    if not (file := pool.dataset.without):
        return pool
    try:
        table = read_parquet(Path(file))
    except (Unsound, OSError, pa.ArrowException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        message = f"without: {file}: {reason}: write a Parquet file with the column prompt_id"
        raise TaskError(message) from error
    if "prompt_id" not in table.column_names or not pa.types.is_string(table["prompt_id"].type):
        raise TaskError(f"without: {file}: has no column prompt_id of text: write one")
    if "suspected" in table.column_names:
        if table["suspected"].null_count or not pa.types.is_boolean(table["suspected"].type):
            raise TaskError(
                f"without: {file}: its column suspected is null for some prompts: write the "
                "table of decile probe, or prompt_id alone"
            )
        table = table.filter(table["suspected"])
    ids = table["prompt_id"].combine_chunks()
    kept = pc.invert(pc.is_in(pool.train.column("prompt_id"), value_set=ids)).to_numpy()
    count, total = int(np.count_nonzero(~kept)), len(pool.train)
    if not kept.any():
        raise TaskError(f"without: {file}: lists every training prompt: leave some")
    note = f"{count:,} of {total:,} training prompts left out: listed in {file}"
    train, rows = pool.train.filter(kept), pool.rows_without({f"listed in {file}": count})
    return replace(pool, train=train, notes=(*pool.notes, note), rows=rows)


# The stages of a pool after it is read, in this order. Each stage notes the prompts that it leaves
# out or changes, with the reason.
STAGES: tuple[Callable[[Pool], Pool], ...] = (
    _label,
    _leave_out_unlabelled_tests,
    _clean_tests,
    _drop_overlap,
    _clean,
    _replace_golds,
    _leave_out_listed,
)
LISTED_ANSWERS = 26  # up to this many distinct gold answers, any other one is a plausible mistake


def with_label_noise(pool: Pool, share: float, seed: int) -> Pool:
    """The same pool with label noise, added before prompts are left out."""
    if pool.dataset.without:
        return load_pool(replace(pool.dataset, label_noise=share, label_noise_seed=seed))
    return _with_wrong_golds(pool, share, seed)


def _with_wrong_golds(pool: Pool, share: float, seed: int) -> Pool:
    """The pool with wrong gold answers for a share of its training prompts; the test set is
    unchanged.

    The prompts and answers depend only on the seed and the prompts' ids. A larger share replaces
    the same answers and further ones. A prompt with a new answer has a new id: it is sampled again,
    and samples of unchanged prompts are kept.

    A gold answer is replaced with another one of the pool; with one in the question, as in multiple
    choice, if the question contains the gold answer; or with the next number, if it is a number and
    the pool has many distinct answers.
    """
    if not share:
        return pool
    train, task = pool.train, pool.task
    if task.optional_answers:
        raise TaskError("label_noise replaces gold answers: leave answers: optional out")
    draws = _draws(train, seed)
    rows = np.argsort(draws, kind="stable")[: round(share * len(train))]
    golds = sorted(pc.unique(train.column("answer")).to_pylist())
    if len(golds) == 1:
        raise TaskError("label_noise: all gold answers of the pool are equal: leave it out")
    wrong = []
    for prompt, draw in zip(train.take(rows), draws[rows].tolist(), strict=True):
        if len(golds) > LISTED_ANSWERS and re.fullmatch(r"-?[\d,]+", prompt.answer):
            with task_errors(task, "perturb()"):
                answer = task.perturb(prompt)
            if not isinstance(answer, str) or answer == prompt.answer:
                form = f"for the gold {prompt.answer!r:.80}: return another answer"
                raise TaskError(f"{title_of(task)}: perturb() returned {answer!r:.80} {form}")
        elif len(golds) > LISTED_ANSWERS:
            index = draw % (len(golds) - 1)
            answer = golds[index + (index >= bisect_left(golds, prompt.answer))]
        else:
            others = [gold for gold in golds if gold != prompt.answer]
            options = [gold for gold in others if gold in prompt.question]
            others = options if options and prompt.answer in prompt.question else others
            answer = others[draw % len(others)]
        _check_replaceable(task, prompt)
        other = make_prompt(task.name, prompt.question, answer, prompt.tier, prompt.info)
        travelling = {name: getattr(prompt, name) for name in ("source", "place", "kept")}
        wrong.append(replace(other, **travelling))
    kept = np.ones(len(train), dtype=bool)
    kept[rows] = False
    batches = [*train.filter(kept).batches, *PromptTable.of(wrong).batches]
    return replace(
        pool,
        dataset=replace(pool.dataset, label_noise=share, label_noise_seed=seed),
        train=PromptTable(batches).distinct(),
        notes=(*pool.notes, f"{len(wrong):,} of {len(train):,} gold answers are replaced"),
        mislabeled=frozenset(prompt.prompt_id for prompt in wrong),
    )


def _check_replaceable(task: Task, prompt: Prompt) -> None:
    """Raise TaskError for a prompt with marks that depend on more than its gold answer."""
    own = make_prompt(
        task.name, prompt.question, prompt.answer, prompt.tier, prompt.info, info_in_id=True
    )
    if prompt.info and own.prompt_id == prompt.prompt_id:
        raise TaskError(
            "label_noise: marks depend on more columns than the answer, but only answers can be "
            "replaced: leave it out"
        )


def _draws(prompts: PromptTable, seed: int) -> npt.NDArray[np.uint64]:
    """A pseudo-random number per prompt, from its id and the seed (the mixer of SplitMix64)."""
    x = prompts.keys
    if x is None:  # a user's own task has different ids
        ids = prompts.column("prompt_id").to_pylist()
        x = np.array([int(make_prompt("", i, "", "").prompt_id, 16) for i in ids], dtype=np.uint64)
    x = x + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def load_prompts(task: Task, split: Split) -> PromptTable:
    """The prompts of one split. Raises TaskError if a custom task returns anything else."""
    place = f"{title_of(task)}: {split}()"
    shipped = is_shipped(task)
    if shipped and isinstance(task, ReadTask):
        return task.prompt_table(split)
    read = task.train if split == "train" else task.test
    # Bugs in Decile keep their traceback.
    with nullcontext() if shipped else task_errors(task, f"{split}()"):
        prompts: Any = read()
    if not isinstance(prompts, list | tuple):
        raise TaskError(f"{place} returned {type(prompts).__name__}: {_FORM}")
    ids: set[str] = set()
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, Prompt):
            raise TaskError(f"{place}[{index}] is {type(prompt).__name__}: {_FORM}")
        for name in Prompt.__slots__:
            if not isinstance(value := getattr(prompt, name), str):
                raise TaskError(f"{place}[{index}].{name} is {value!r:.80}: write a string")
        if prompt.prompt_id in ids:
            raise TaskError(f"{place}[{index}] repeats a prompt_id: return it once")
        ids.add(prompt.prompt_id)
    try:
        return PromptTable.of(prompts)
    except TaskError as error:
        raise TaskError(f"{place}: {error}") from error


def read_benchmarks(files: Sequence[str]) -> dict[str, PromptTable]:
    """The questions of each file as prompts, from a column with a known name for questions.

    Raises TaskError if a file has no such column, or a question is not a text.
    """
    tables = {}
    for file in named_files(files) if files else ():
        read = read_file(file, ())
        names = dict.fromkeys(name for row in read.rows if isinstance(row, Mapping) for name in row)
        if not (columns := columns_in_role("question", names)):
            raise TaskError(
                f"benchmarks: {file} has no column of questions: name it question; it has "
                f"{', '.join(map(str, names)) or 'no rows'}"
            )
        prompts = []
        for row, place in zip(read.rows, read.places, strict=True):
            check_columns(place, row, columns[:1])
            text = row[columns[0]]
            text = read_chat(text).question if is_chat(text) else text
            if not isinstance(text, str) or not text.strip():
                raise TaskError(f"benchmarks: {place}: {columns[0]} is not text: write a question")
            prompts.append(replace(make_prompt("benchmark", text, "", ""), place=place))
        tables[file] = PromptTable.of(prompts).distinct()
    return tables


def template_hash(task: Task) -> str:
    """Hash of the chat around a question: template, system prompt and examples.

    It includes what determines further turns.
    """
    with task_errors(task, "name, version or messages()"):
        content = [*task.template_content]
    if task.environment is not None:
        environment = environment_of(task.environment)
        content.append([environment.reference, environment.version, task.turns])
    return canonical_hash(content)
