"""What readers gave -> the tables that a probe would have left."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.estimates import fit_prior, rates
from orchestrator.difficulty.table import difficulty
from orchestrator.exchange.entries import CompletionRecord, Notes, SolveRateRecord
from orchestrator.exchange.pool import Prompts
from orchestrator.exchange.rates import RATES_ONLY
from orchestrator.probing.samples import mark_completions
from orchestrator.storage.schema import DIFFICULTY, SAMPLES
from tasks import Prompt, Task, TaskError

GROUP = 8  # of the column learnability, as where difficulty is told from samples


def samples_table(
    drawn: Sequence[CompletionRecord], task: Task, prompts: Prompts, notes: Notes
) -> pa.Table:
    """One row a completion (SAMPLES), numbered by prompt as the file does or in its order."""
    _refuse_two_answers(drawn, prompts)
    asked = [prompts.of(entry.asked) for entry in drawn]
    numbers = _numbers(drawn, asked)
    marks = mark_completions(
        task, [entry.completion for entry in drawn], [prompt.answer for prompt in asked]
    )
    rows = [
        {
            "prompt_id": prompt.prompt_id,
            "sample": number,
            "completion": entry.completion.text,
            "tokens": entry.tokens,
            "finish": entry.completion.finish,
            **both.columns(),
            "marker": task.marker_id,
        }
        for entry, prompt, number, both in zip(drawn, asked, numbers, marks, strict=True)
    ]
    _compare(drawn, [both.mark.outcome for both in marks], notes)
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def uneven_table(samples: pa.Table, prompts: Prompts, notes: Notes) -> pa.Table | None:
    """The difficulty of prompts with unlike numbers of samples; None where all have K of them.

    A probe with fewer samples of some prompts is one that stopped early, on purpose; an import is
    none. Rates with all counts say the same, and a policy can choose from them.
    """
    drawn = Counter(samples["prompt_id"].to_pylist())
    fewest, most = min(drawn.values()), max(drawn.values())
    if fewest == most == max(samples["sample"].to_pylist()) + 1:
        return None
    notes.say(
        f"prompts have {fewest} to {most} samples: kept as a difficulty table, without texts "
        "of completions"
    )
    return difficulty(samples, {name: prompt.tier for name, prompt in prompts.found.items()})


def _refuse_two_answers(drawn: Sequence[CompletionRecord], prompts: Prompts) -> None:
    """One question with two answers is most often a column of what the model answered."""
    if prompts.matched:
        return
    first: dict[str, CompletionRecord] = {}
    for entry in drawn:
        other = first.setdefault(entry.asked.question, entry).asked
        if other.answer != entry.asked.answer:
            raise TaskError(
                f"{entry.asked.place} gives the answer {entry.asked.answer[:40]!r} to the question "
                f"of {other.place}, which gives {other.answer[:40]!r}: write the right answer in "
                "both (the column answer is not what the model answered)"
            )


def _numbers(drawn: Sequence[CompletionRecord], asked: Sequence[Prompt]) -> list[int]:
    given = [entry.sample is not None for entry in drawn]
    if not all(given):
        if any(given):
            place = drawn[given.index(False)].asked.place
            raise TaskError(f"{place} has no sample number: number all rows, or none")
        seen: Counter[str] = Counter()
        return [(seen.update([p.prompt_id]) or seen[p.prompt_id]) - 1 for p in asked]
    numbers = [entry.sample or 0 for entry in drawn]
    places: dict[tuple[str, int], str] = {}
    for entry, prompt, number in zip(drawn, asked, numbers, strict=True):
        place = places.setdefault((prompt.prompt_id, number), entry.asked.place)
        if place != entry.asked.place:
            raise TaskError(
                f"{entry.asked.place} is sample {number} of the same prompt as {place}: "
                "give each its own number, or leave the column sample out"
            )
    return numbers


def _compare(drawn: Sequence[CompletionRecord], outcomes: Sequence[str], notes: Notes) -> None:
    """How often the source's own judge says the other of right and wrong."""
    judged = [
        (entry.correct, outcome == "correct")
        for entry, outcome in zip(drawn, outcomes, strict=True)
        if entry.correct is not None and outcome != "error"
    ]
    if not judged:
        return
    theirs = sum(a and not b for a, b in judged)
    ours = sum(b and not a for a, b in judged)
    agreed = len(judged) - theirs - ours
    notes.say(
        f"the source's judge and this marker agree on {agreed:,} of {len(judged):,} "
        f"({theirs:,} right for the source only, {ours:,} for this marker only)"
    )


def difficulty_table(
    rated: Sequence[SolveRateRecord], prompts: Prompts, notes: Notes
) -> pa.Table | None:
    """One row a prompt, sorted by id; None where no row has a rate."""
    if all(entry.rate is None for entry in rated):
        for entry in rated:
            prompts.of(entry.asked)
        notes.say("no solve rates: a pool of prompts only, to probe before a policy can choose")
        return None
    first: dict[str, SolveRateRecord] = {}
    for entry in rated:
        if entry.rate is None:
            notes.case("rows dropped: no solve rate", entry.asked.place)
            continue
        kept = first.setdefault(prompts.of(entry.asked).prompt_id, entry)
        if kept is not entry:
            odd = "" if kept.rate == entry.rate else ", with another rate"
            notes.case(f"rows dropped: the prompt was there before{odd}", entry.asked.place)
    _note_two_answers(first.values(), notes)
    notes.say(RATES_ONLY)
    return _table(dict(sorted(first.items())), prompts)


def _note_two_answers(rated: Iterable[SolveRateRecord], notes: Notes) -> None:
    answers: dict[str, str] = {}
    for entry in rated:
        asked = entry.asked
        if asked.question and answers.setdefault(asked.question, asked.answer) != asked.answer:
            notes.case("questions come again with another answer; both are kept", asked.place)


def _table(rated: dict[str, SolveRateRecord], prompts: Prompts) -> pa.Table:
    """The columns of DIFFICULTY that are known: absent ones let a policy say what it lacks."""
    entries = list(rated.values())
    errors = [entry.errors for entry in entries]
    columns: dict[str, Sequence[Any] | pa.Array] = {
        "prompt_id": list(rated),
        "tier": [prompts.found[name].tier for name in rated],
        "pass_rate": [entry.rate for entry in entries],
        "n": [entry.n for entry in entries],
        "successes": [entry.successes for entry in entries],
        "error": errors,
        "scorable": [None if e.n is None else e.n - (e.errors or 0) for e in entries],
    }
    estimates = _estimates(columns)
    # The file's own rate stands: it may be rounded where counts are not known.
    columns = {**estimates, **columns}
    known = [f for f in DIFFICULTY if f.name in columns and not _empty(columns[f.name])]
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in known})


def _estimates(columns: dict[str, Any]) -> dict[str, pa.Array]:
    """Interval, posterior and learnability where the counts are known; null elsewhere."""
    right, scorable = columns["successes"], columns["scorable"]
    counted = [s is not None and n is not None for s, n in zip(right, scorable, strict=True)]
    s, n = (np.array(list(compress(values, counted)), np.int64) for values in (right, scorable))
    found = rates(s, n, fit_prior(s, n), GROUP) if any(counted) else {}
    rows = np.where(counted, np.cumsum(counted) - 1, -1)
    taken = pa.array(rows, mask=rows < 0)
    return {name: column.take(taken) for name, column in found.items()}


def _empty(values: Sequence[Any] | pa.Array) -> bool:
    if isinstance(values, pa.Array):
        return bool(values.null_count == len(values))
    return all(value is None for value in values)
