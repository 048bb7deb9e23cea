"""Import records -> tables of samples or difficulty, as a probe would have written them."""

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.estimates import fit_prior, rates
from orchestrator.difficulty.table import difficulty
from orchestrator.exchange.pool import PromptMatcher
from orchestrator.exchange.rates import RATES_ONLY
from orchestrator.exchange.records import CompletionRecord, Notes, SolveRateRecord
from orchestrator.probing.samples import mark_completions
from orchestrator.storage.schema import DIFFICULTY, SAMPLES
from tasks import Prompt, Task, TaskError

GROUP_SIZE = 8  # of the column learnability, the default of `difficulty`


def samples_table(
    records: Sequence[CompletionRecord], task: Task, matcher: PromptMatcher, notes: Notes
) -> pa.Table:
    """One row per completion (SAMPLES), numbered per prompt as in the file, or in its order."""
    if not matcher.has_pool:
        _check_one_answer(records)
    prompts = [matcher[record.source] for record in records]
    numbers = _sample_numbers(records, prompts)
    completions = [record.completion for record in records]
    marks = mark_completions(task, completions, [prompt.answer for prompt in prompts])
    rows = [
        {
            "prompt_id": prompt.prompt_id,
            "sample": number,
            "completion": record.completion.text,
            "tokens": record.tokens,
            "finish": record.completion.finish,
            **mark.columns(),
            "marker": task.marker_id,
        }
        for record, prompt, number, mark in zip(records, prompts, numbers, marks, strict=True)
    ]
    _compare_graders(records, [mark.mark.outcome for mark in marks], notes)
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def uneven_difficulty(samples: pa.Table, matcher: PromptMatcher, notes: Notes) -> pa.Table | None:
    """The difficulty of prompts with different numbers of samples; None where all have K.

    A probe with fewer samples of some prompts counts as one that stopped early on purpose, which an
    import did not. Rates with all counts carry the same information, and a policy can use them.
    """
    counts = Counter(samples["prompt_id"].to_pylist())
    fewest, most = min(counts.values()), max(counts.values())
    if fewest == most == max(samples["sample"].to_pylist()) + 1:
        return None
    notes.add(
        f"prompts have {fewest} to {most} samples: kept as a difficulty table, without texts "
        "of completions"
    )
    return difficulty(samples, {name: prompt.tier for name, prompt in matcher.prompts.items()})


def _check_one_answer(records: Sequence[CompletionRecord]) -> None:
    """Refuse two answers to one question: most often that column holds the model's answers."""
    first: dict[str, CompletionRecord] = {}
    for record in records:
        source = record.source
        other = first.setdefault(source.question, record).source
        if other.answer != source.answer:
            raise TaskError(
                f"{source.place} gives the answer {source.answer[:40]!r} to the question "
                f"of {other.place}, which gives {other.answer[:40]!r}: write the correct answer in "
                "both (the column answer must not hold the model's answers)"
            )


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
                "give each its own number, or leave the column sample out"
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
    """One row per prompt, sorted by id; None where no record has a rate."""
    if all(record.rate is None for record in records):
        notes.add("no solve rates: a pool of prompts only, to probe before a policy can choose")
        return None
    first: dict[str, SolveRateRecord] = {}
    for record in records:
        kept = first.setdefault(matcher[record.source].prompt_id, record)
        if kept is not record:
            other = "" if kept.rate == record.rate else " with another rate"
            notes.count(f"rows dropped: duplicate prompt{other}", record.source.place)
    answers: dict[str, str] = {}
    for source in (record.source for record in first.values()):
        if source.question and answers.setdefault(source.question, source.answer) != source.answer:
            notes.count("questions are repeated with another answer; both are kept", source.place)
    notes.add(RATES_ONLY)
    return _known_columns(dict(sorted(first.items())), matcher)


def _known_columns(records: dict[str, SolveRateRecord], matcher: PromptMatcher) -> pa.Table:
    """The columns of DIFFICULTY that are known; a policy that needs another one reports it."""
    rows = list(records.values())
    columns: dict[str, Sequence[Any] | pa.Array] = {
        "prompt_id": list(records),
        "tier": [matcher.prompts[name].tier for name in records],
        "pass_rate": [row.rate for row in rows],
        "n": [row.n for row in rows],
        "successes": [row.successes for row in rows],
        "error": [row.errors for row in rows],
        "scorable": [None if row.n is None else row.n - (row.errors or 0) for row in rows],
    }
    # The file's own rate stays: it may be rounded where counts are not known.
    columns = _estimates(columns) | columns
    arrays = {f.name: pa.array(columns[f.name], f.type) for f in DIFFICULTY if f.name in columns}
    return pa.table({n: array for n, array in arrays.items() if array.null_count < len(array)})


def _estimates(columns: dict[str, Any]) -> dict[str, pa.Array]:
    """Interval, posterior and learnability where the counts are known; null elsewhere."""
    successes, scorable = columns["successes"], columns["scorable"]
    counted = [s is not None and n is not None for s, n in zip(successes, scorable, strict=True)]
    if not any(counted):
        return {}
    s, n = (np.array(list(compress(values, counted)), np.int64) for values in (successes, scorable))
    row = np.where(counted, np.cumsum(counted) - 1, -1)
    indices = pa.array(row, mask=row < 0)
    estimates = rates(s, n, fit_prior(s, n), GROUP_SIZE)
    return {name: column.take(indices) for name, column in estimates.items()}
