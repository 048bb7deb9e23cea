"""Imports external completions, evaluations and solve rates in the form of a probe.

Source questions are matched with prompts: from a task's own pool, or new ones.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator import __version__
from orchestrator.difficulty.estimates import fit_prior, rates
from orchestrator.difficulty.remedies import few_signals_of, unread_answers
from orchestrator.difficulty.table import difficulty
from orchestrator.optional.exchange.columns import RATES_ONLY
from orchestrator.optional.exchange.layouts import BY_COLUMNS, detect_layout, read_layout
from orchestrator.optional.exchange.placed_rows import Notes
from orchestrator.optional.exchange.records import (
    CompletionRecord,
    Hints,
    Records,
    SolveRateRecord,
    SourceQuestion,
)
from orchestrator.optional.exchange.source_files import located, read_source
from orchestrator.plugins.counts import counted_label
from orchestrator.plugins.difficulty_table import DIFFICULTY
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.probing.isolation import mark_answers
from orchestrator.probing.samples import mark_completions, sample_row
from orchestrator.storage.local_files import check_output
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from tasks import Answer, Prompt, Task, TaskError, make_prompt
from tasks.marking.golds import final_answer
from tasks.question_file import QuestionFile
from tasks.sources.texts import INSTRUCTIONS, SOLUTIONS

MAX_LINES = 64  # of a prompt that is searched for a question: the search is quadratic in lines


class PromptMatcher:
    """The prompts of a source. Ids are hashed from the task's name, the question and the answer.

    With a pool, a question of the pool becomes the pool's prompt, with its id, answer and tier.
    This also holds if the source has this task's wording around it, or has it as whole lines of a
    longer prompt. Other questions, such as those of the task's test set, are dropped.
    """

    def __init__(self, task: Task, pool: Iterable[Prompt] | None, notes: Notes) -> None:
        self.task, self.notes = task, notes
        self.has_pool = pool is not None
        self.prompts: dict[str, Prompt] = {}  # by prompt_id, in the order of the source
        self._matched: dict[SourceQuestion, Prompt | None] = {}
        self._other_answers: dict[tuple[str, str], str] = {}  # (source's, pool's) -> place
        self._pool = {prompt.question: prompt for prompt in pool or ()}
        self._by_id = {prompt.prompt_id: prompt for prompt in self._pool.values()}
        self._by_message = {
            task.messages_of(question, prompt.info)[-1]["content"]: prompt
            for question, prompt in self._pool.items()
        }

    def match(self, source: SourceQuestion) -> Prompt | None:
        """The prompt of a question; None, with a note, if the row cannot be used.

        The first question with an id decides its tier.
        """
        if source not in self._matched:
            prompt = (self._pool_prompt if self.has_pool else self._own_prompt)(source)
            if prompt is not None:
                prompt = self.prompts.setdefault(prompt.prompt_id, prompt)
            self._matched[source] = prompt
        return self._matched[source]

    def __getitem__(self, source: SourceQuestion) -> Prompt:
        """The prompt of a question that `match` accepts."""
        prompt = self.match(source)
        if prompt is None:
            raise KeyError(source)
        return prompt

    def check_answers(self) -> None:
        """Note the answers that the task would not mark as equal to the pool's."""
        pairs = list(self._other_answers)
        answers = [Answer(self.task.format_answer(own), gold) for own, gold in pairs]
        marks = mark_answers(self.task, answers)
        for (own, gold), mark in zip(pairs, marks, strict=True):
            if mark.outcome != "correct":
                place = self._other_answers[own, gold]
                self.notes.count(
                    "answers differ from the pool's, which are kept",
                    f"{place}: {own[:40]!r}, the pool's is {gold[:40]!r}",
                )

    def check_golds(self) -> None:
        """Note the source's answers that the task's marker does not mark correct."""
        places = {prompt: s.place for s, prompt in reversed(self._matched.items()) if prompt}
        prompts = [prompt for name, prompt in self.prompts.items() if name not in self._by_id]
        for prompt in prompts:
            if prompt.answer and not self.task.reads(prompt.answer):
                label = "gold answers cannot be read by the marker: only the same text is correct"
                self.notes.count(label, f"{places[prompt]}: {prompt.answer[:40]!r}")
        solutions = [(p, text) for p in prompts if (text := self.task.solution(p)) is not None]
        golds = [Answer.to(prompt, text) for prompt, text in solutions]
        for (prompt, _), mark in zip(solutions, self.task.mark_all(golds), strict=True):
            if mark.outcome != "correct":
                label = "answers are not marked correct themselves: choose another task or marker"
                self.notes.count(label, places[prompt])

    def _pool_prompt(self, source: SourceQuestion) -> Prompt | None:
        text = source.question
        texts = dict.fromkeys((text, self.task.bare_question(text))) if text else ()
        finders = (self._pool.get, self._by_message.get)
        prompts = (find(wording) for wording in texts for find in finders)
        prompt = next(filter(None, prompts), None) or self._by_id.get(source.known_id or "")
        prompt = prompt or next(filter(None, map(self._pool.get, _line_blocks(text))), None)
        if prompt is None:
            self.notes.count("rows dropped: not in the task's training pool", source.place)
            return None
        answer = self.task.read_answer(source.answer) or source.answer
        if answer and answer != prompt.answer:
            self._other_answers.setdefault((answer, prompt.answer), source.place)
        return prompt

    def _own_prompt(self, source: SourceQuestion) -> Prompt | None:
        text, answer, known_id = source.question, source.answer, source.known_id
        if not text:
            return Prompt(str(known_id), "", "", source.tier)
        if not answer:
            self.notes.count("rows dropped: no answer", source.place)
            return None
        bare, gold = self.task.bare_question(text), self.task.read_answer(answer)
        golds = {answer: None} if gold is None else {gold: None, answer: None}
        for question in (text, bare):  # as Decile wrote them, if the id agrees
            for own in golds:
                prompt = make_prompt(self.task.name, question, own, source.tier)
                if prompt.prompt_id == known_id:
                    return prompt
        if gold is None:
            label = f"the marker {self.task.marker_id} cannot use the answer: choose another"
            self.notes.count(f"rows dropped: {label}", source.place)
            return None
        if known_id is not None:
            self.notes.count("rows have the prompt_id of a different task or answer", source.place)
        if bare != text:
            self.notes.count(INSTRUCTIONS, source.place)
        if final_answer(answer.strip()) != answer.strip() and gold != answer:
            self.notes.count(SOLUTIONS, source.place)
        return make_prompt(self.task.name, bare, gold, source.tier)


def _line_blocks(text: str) -> Iterable[str]:
    """Every run of whole lines, the longest first."""
    lines: Sequence[str] = text.split("\n")
    if len(lines) > MAX_LINES:
        return
    for length in range(len(lines) - 1, 0, -1):
        for start in range(len(lines) - length + 1):
            yield "\n".join(lines[start : start + length])


GROUP_SIZE = 8  # of the column learnability, the default of `difficulty`


def samples_table(
    records: Sequence[CompletionRecord], task: Task, matcher: PromptMatcher, notes: Notes
) -> pa.Table:
    """One row per completion (SAMPLES), numbered per prompt as in the file, or in file order."""
    if not matcher.has_pool:
        first: dict[str, SourceQuestion] = {}
        for source in (record.source for record in records):
            other = first.setdefault(source.question, source)
            if other.answer != source.answer:  # usually the column has the model's answers
                raise TaskError(
                    f"{source.place} gives the answer {source.answer[:40]!r} to the question of "
                    f"{other.place}, which gives {other.answer[:40]!r}: write the correct answer "
                    f"in both (the column answer must not have the model's answers)"
                )
        function = task.function if isinstance(task, QuestionFile) else None
        if function and (needed := function.needed_columns([task.answer_name])):
            raise TaskError(
                f"reward function {function.reference!r} needs {', '.join(needed)}, which an "
                f"import does not read: write --pool, and --option path=FILE, for the columns of "
                f"the task's own file"
            )
    prompts = [matcher[record.source] for record in records]
    numbers = _sample_numbers(records, prompts)
    completions = [record.completion for record in records]
    marks = mark_completions(task, completions, prompts)
    samples = zip(prompts, numbers, strict=True)
    rows = [
        sample_row(sample, record.completion, mark, task.marker_id) | {"tokens": record.tokens}
        for record, sample, mark in zip(records, samples, marks, strict=True)
    ]
    outcomes = [mark.mark.outcome for mark in marks]
    rated = difficulty(pa.table({"prompt_id": [p.prompt_id for p in prompts], "outcome": outcomes}))
    if warning := few_signals_of(rated, 1) or unread_answers(Counter(outcomes)):
        notes.add(warning)
    _compare_graders(records, outcomes, notes)
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def uneven_difficulty(samples: pa.Table, matcher: PromptMatcher, notes: Notes) -> pa.Table | None:
    """The difficulty of prompts with different numbers of samples; None if all have K.

    A probe with fewer samples for some prompts counts as stopped early on purpose, but an import is
    not. Rates with all counts carry the same information, and a policy can use them.
    """
    counts = Counter(samples["prompt_id"].to_pylist())
    fewest, most = min(counts.values()), max(counts.values())
    if fewest == most == max(samples["sample"].to_pylist()) + 1:
        return None
    notes.add(
        f"prompts have {fewest} to {most} samples: kept as a difficulty table, without texts "
        "of completions"
    )
    tiers = {name: prompt.tier for name, prompt in matcher.prompts.items()}
    return difficulty(samples, tiers, task=matcher.task)


def _sample_numbers(records: Sequence[CompletionRecord], prompts: Sequence[Prompt]) -> list[int]:
    numbered = [record.sample is not None for record in records]
    if not all(numbered):
        if any(numbered):
            place = records[numbered.index(False)].source.place
            raise TaskError(f"{place} has no sample number: number all rows, or none")
        counts: Counter[str] = Counter()
        return [(counts.update([p.prompt_id]) or counts[p.prompt_id]) - 1 for p in prompts]
    numbers = [record.sample or 0 for record in records]
    places: dict[tuple[str, int], str] = {}
    for record, prompt, number in zip(records, prompts, numbers, strict=True):
        place = places.setdefault((prompt.prompt_id, number), record.source.place)
        if place != record.source.place:
            raise TaskError(
                f"{record.source.place} is sample {number} of the same prompt as {place}: "
                "give each sample its own number, or leave out the column sample"
            )
    return numbers


def _compare_graders(
    records: Sequence[CompletionRecord], outcomes: Sequence[str], notes: Notes
) -> None:
    """Note how often the source's grader and this marker disagree."""
    pairs = [
        (record.correct, outcome == "correct")
        for record, outcome in zip(records, outcomes, strict=True)
        if record.correct is not None and outcome != "error"
    ]
    if not pairs:
        return
    theirs = sum(a and not b for a, b in pairs)
    ours = sum(b and not a for a, b in pairs)
    notes.add(
        f"the source's grader and this marker agree on {len(pairs) - theirs - ours:,} of "
        f"{len(pairs):,} ({theirs:,} correct for the source only, {ours:,} for this marker only)"
    )


def difficulty_table(
    records: Sequence[SolveRateRecord], matcher: PromptMatcher, notes: Notes
) -> pa.Table | None:
    """One row per prompt, sorted by id; None if no record has a rate.

    It has the known columns of DIFFICULTY: a policy that needs a different column reports it.
    """
    first: dict[str, SolveRateRecord] = {}
    for record in records:
        kept = first.setdefault(matcher[record.source].prompt_id, record)
        if kept is not record:
            other = "" if kept.rate == record.rate else " with a different rate"
            notes.count(f"rows dropped: duplicate prompt{other}", record.source.place)
    answers: dict[str, str] = {}
    for source in (record.source for record in first.values()):
        if source.question and answers.setdefault(source.question, source.answer) != source.answer:
            notes.count("questions are repeated with different answers; all are kept", source.place)
    if all(record.rate is None for record in records):
        notes.add(
            "no solve rates: only a pool of prompts, which must be probed before a policy "
            "can choose"
        )
        return None
    notes.add(RATES_ONLY)
    names = sorted(first)
    rows = [first[name] for name in names]
    columns: dict[str, Any] = {
        "prompt_id": names,
        "tier": [matcher.prompts[name].tier for name in names],
        "pass_rate": [row.rate for row in rows],
        "n": [row.n for row in rows],
        "successes": [row.successes for row in rows],
        "error": [row.errors for row in rows],
        "scorable": [None if row.n is None else row.n - (row.errors or 0) for row in rows],
    }
    scorable = columns["scorable"]
    counted = [n is not None for n in scorable]
    if any(counted):  # interval, posterior and learnability, null without a number of samples
        exact = zip(columns["successes"], columns["pass_rate"], scorable, strict=True)
        counts = [rate * (n or 0) if s is None else s for s, rate, n in exact]
        s, n = (np.array([*compress(each, counted)], float) for each in (counts, scorable))
        row = np.where(counted, np.cumsum(counted) - 1, -1)
        estimates = _estimates(s, n.astype(np.int64))
        taken = {k: column.take(pa.array(row, mask=row < 0)) for k, column in estimates.items()}
        columns = taken | columns  # the file's own rate stays: it may be rounded
    if 0 < (unknown := counted.count(False)) < len(counted):
        notes.add(
            f"{counted_label(unknown, 'prompts have no number of samples')}: without one they have "
            "no learnability"
        )
    arrays = {f.name: pa.array(columns[f.name], f.type) for f in DIFFICULTY if f.name in columns}
    table = pa.table({n: array for n, array in arrays.items() if array.null_count < len(array)})
    if warning := few_signals_of(table, 1):
        notes.add(warning)
    return table


def _estimates(successes: np.ndarray, n: np.ndarray) -> dict[str, pa.Array]:
    """The columns of `rates`; if a rate is not a share of n, its neighbors are interpolated."""
    least, most = np.floor(successes).astype(np.int64), np.ceil(successes).astype(np.int64)
    prior, weight = fit_prior(np.rint(successes).astype(np.int64), n), successes - least
    ends = [rates(count, n, prior, GROUP_SIZE) for count in (least, np.minimum(most, n))]
    return {
        name: pa.array(
            (1 - weight) * low.to_numpy(zero_copy_only=False)
            + weight * ends[1][name].to_numpy(zero_copy_only=False),
            mask=n == 0,
        )
        for name, low in ends[0].items()
    }


MAX_SAMPLES = 1_000_000  # per prompt
TEXTS = pa.schema({"question": pa.string(), "answer": pa.string(), "tier": pa.string()})


@dataclass(frozen=True)
class Imported:
    """The content of a source: `samples`, or `difficulty`, or (a pool without rates) neither.

    `samples` has the schema SAMPLES, marked by the task's own marker. `difficulty` has the known
    columns of DIFFICULTY; if prompts have different numbers of samples, it is set besides `samples`
    and is written. `prompts` are all prompts of either. `source` is the file's name and sha256.
    `notes` list detected, dropped and unusual content. `read` are its rows.
    """

    source: str
    layout: str
    task: str
    marker: str
    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...]
    read: RowCounts
    samples: pa.Table | None = None
    difficulty: pa.Table | None = None

    @property
    def kind(self) -> str:
        """samples, difficulty or prompts."""
        if self.difficulty is not None:
            return "difficulty"
        return "prompts" if self.samples is None else "samples"

    @property
    def table(self) -> pa.Table:
        """The rows to write: difficulty, samples or prompts."""
        if self.difficulty is not None:
            return self.difficulty
        if self.samples is not None:
            return self.samples
        return pa.table({"prompt_id": [prompt.prompt_id for prompt in self.prompts]})

    def summary(self) -> dict[str, Any]:
        """Everything except the tables, as JSON values; also stored in the written file."""
        return {
            "kind": self.kind,  # samples or rates
            "source": self.source,  # the file, with its SHA-256
            "layout": self.layout,  # the layout of the source
            "task": self.task,  # the task
            "marker": self.marker,  # the id of its marker
            "prompts": len(self.prompts),  # number of prompts
            "rows": self.table.num_rows,  # rows that were written
            "row_counts": replace(self.read, written=self.table.num_rows).to_dict(),
            "notes": list(self.notes),
            "decile": __version__,  # the version of Decile, as in the written file
        }


def import_file(
    source: str | Path,
    task: Task,
    out: str | Path,
    *,
    layout: str | None = None,
    pool: Iterable[Prompt] | None = None,
    hints: Hints = Hints(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """Import `source` into the Parquet file `out`; returns the summary.

    Raises TaskError as `import_probe` does, and UserError if `out` cannot be written.
    """
    source, out = Path(source), Path(out)
    check_output(out, (".parquet",), [source])
    imported = import_probe(source, layout, task, pool=pool, hints=hints)
    write_import(imported, out)
    return imported.summary()


def import_probe(
    source: str | Path,
    layout: str | None,
    task: Task,
    *,
    pool: Iterable[Prompt] | None = None,
    hints: Hints = Hints(),  # noqa: B008 (frozen)
) -> Imported:
    """Read a file, or a run's folder, written by another tool.

    Without `layout`, the layout is detected from the columns. With `pool` (a task's training
    prompts), questions are matched with the pool, so that ids, answers and tiers are those of the
    task's own data; rows of other questions are dropped. Raises TaskError if no layout or several
    layouts fit, or if a row has any other form.
    """
    if isinstance(hints.samples, int) and not 1 <= hints.samples <= MAX_SAMPLES:
        raise TaskError(f"--samples {hints.samples}: expected an integer from 1 to {MAX_SAMPLES:,}")
    notes = Notes()
    opened = read_source(Path(source))
    name = detect_layout(opened, layout, hints)
    letters = isinstance(task, QuestionFile) and task.marker == "letter"
    unwrap = isinstance(task, QuestionFile) and task.unwrap
    own_hints = replace(hints, letters=letters, unwrap=unwrap)
    records = read_layout(opened, name, own_hints, notes)
    matcher = PromptMatcher(task, pool, notes)
    completions, rated = _usable(records, matcher, notes)
    if not completions and not rated:
        columns = "; name the columns with --question and --answer" if name in BY_COLUMNS else ""
        reasons = "; ".join(notes.lines())
        raise TaskError(f"{opened.file}: every row was dropped. {reasons}{columns}")
    samples: pa.Table | None = None
    try:
        if completions:
            samples = samples_table(completions, task, matcher, notes)
            difficulty = uneven_difficulty(samples, matcher, notes)
        else:
            difficulty = difficulty_table(rated, matcher, notes)
    except TaskError as error:
        raise located(opened.file, error) from error
    matcher.check_answers()
    if completions:
        matcher.check_golds()
    return Imported(
        source=opened.origin,
        layout=name,
        task=task.name,
        marker=task.marker_id,
        prompts=tuple(matcher.prompts.values()),
        notes=(f"layout {name}", *notes.lines()),
        read=RowCounts(opened.count, notes.rows_left_out()),
        samples=samples,
        difficulty=difficulty,
    )


def _usable(
    records: Records, matcher: PromptMatcher, notes: Notes
) -> tuple[list[CompletionRecord], list[SolveRateRecord]]:
    """The completions and solve rates of complete rows; other rows are noted."""
    completions, rated = [], []
    some_rated = any(isinstance(r, SolveRateRecord) and r.rate is not None for r in records)
    for record in records:
        if some_rated and isinstance(record, SolveRateRecord) and record.rate is None:
            notes.count("rows dropped: no solve rate", record.source.place)
            continue
        prompt = matcher.match(record.source)
        if prompt is None:
            continue
        if isinstance(record, SolveRateRecord):
            rated.append(record)
            if not prompt.question:
                label = "prompts have no text, so subsets cannot be exported"
                notes.count(label, record.source.place)
        elif prompt.question:
            completions.append(record)
        else:
            matcher.prompts.pop(prompt.prompt_id, None)
            notes.count("rows dropped: no question", record.source.place)
    return completions, rated


def write_import(imported: Imported, out: str | Path) -> None:
    """Write atomically a Parquet file that `decile select --probe` reads.

    It has the columns of samples or difficulty, then question and answer (and tier); the summary is
    in the metadata under `decile`, as JSON. A pool without rates is only a table of prompts.
    """
    out = Path(out)
    check_output(out, (".parquet",))
    table = imported.table
    by_id = {prompt.prompt_id: prompt for prompt in imported.prompts}
    rows = [by_id[name] for name in table["prompt_id"].to_pylist()]
    for field in TEXTS:
        if field.name not in table.column_names:
            texts = [getattr(prompt, field.name) for prompt in rows]
            table = table.append_column(field, pa.array(texts, field.type))
    metadata = {"decile": json.dumps(imported.summary(), sort_keys=True)}
    Store(str(out.parent)).write_table(table.replace_schema_metadata(metadata), out.name)
