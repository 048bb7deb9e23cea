"""What to change where completions fail, by how they fail. Pure.

An answer that is not read says nothing about the prompt or the model. So the marker and the form of
the answer come first, then the token limit; other prompts or another model come last.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.outcomes import outcome_counts
from orchestrator.plugins.counts import counted

NAMED = 1 / 4  # share of the failures from which on an outcome is named
ANY_LIMIT = "the token limit"  # where the setting is not known
FORM = "ask for the answer in the form that the marker reads, or choose another marker or marking"


def reading_remedies(outcomes: Mapping[str, int], limit: str = ANY_LIMIT) -> list[str]:
    """What to change so that answers are read; empty where most failures are wrong answers.

    outcomes: completions by outcome. limit: the setting of the token limit, and its value.
    """
    remedies = {"error": "run decile doctor (the marker fails)", "unparsed": FORM}
    remedies["truncated"] = f"raise {limit}"
    unread = {name: outcomes.get(name, 0) for name in remedies}
    read = outcomes.get("wrong", 0) + outcomes.get("unlabelled", 0)
    failed = read + sum(unread.values())
    if not failed or 2 * sum(unread.values()) < failed:
        return []
    return [remedies[name] for name, count in unread.items() if count >= NAMED * failed]


def unread_answers(outcomes: Mapping[str, int], limit: str = ANY_LIMIT) -> str:
    """That most failed completions have no answer that was read, and what to change; else empty."""
    remedies = reading_remedies(outcomes, limit)
    if not remedies:
        return ""
    failed = {name: count for name, count in outcomes.items() if name != "correct" and count}
    kinds = ", ".join(f"{count:,} {name}" for name, count in failed.items() if name != "wrong")
    return (
        f"most failures are not wrong answers ({kinds} of "
        f"{counted(sum(failed.values()), 'failed completion')}): {', or '.join(remedies)}"
    )


def few_signals_of(table: pa.Table, size: int) -> str:
    """`few_signals` of a difficulty table, which may hold pass rates alone.

    A prompt with a rate of an unknown number of samples counts as one with several.
    """
    rates = pc.fill_null(table["pass_rate"].cast(pa.float64()), float("nan")).to_numpy()
    scorable = np.full(len(rates), 2.0)
    for name in ("n", "scorable"):
        if name in table.column_names:
            counts = pc.fill_null(table[name].cast(pa.float64()), float("nan")).to_numpy()
            scorable = np.where(np.isnan(counts), scorable, counts)
    rated = ~np.isnan(rates)
    scorable = np.where(rated, scorable, 0.0)
    successes = np.where(rated, rates, 0.0) * scorable
    return few_signals(successes, scorable, size, unread_answers(outcome_counts(table)))


def pool_warning(
    successes: np.ndarray,
    scorable: np.ndarray,
    size: int,
    outcomes: Mapping[str, int],
    limit: str = ANY_LIMIT,
) -> str:
    """Why subsets of `size` prompts may teach nothing, and what to change; else empty.

    successes, scorable: [prompts], of a complete probe; outcomes: of all its completions. Either
    fewer prompts were solved in some samples only, or most failures are answers that were not read.
    Prompts with one sample each that are not all alike do not show which are solved sometimes.
    """
    unread = unread_answers(outcomes, limit)
    return few_signals(successes, scorable, size, unread) or unread


def few_signals(successes: np.ndarray, scorable: np.ndarray, size: int, unread: str) -> str:
    """That fewer prompts than `size` were solved in some samples only, and what to change.

    Empty otherwise. Of a subset that is the whole pool, one is enough. unread: the remedy where
    most failures are answers that were not read.
    """
    size = size if size < len(successes) else 1
    if scorable.max(initial=0) < 2 and 0 < successes.sum() < scorable.sum():
        return ""
    mixed = int(np.count_nonzero((successes > 0) & (successes < scorable)))
    if mixed >= size:
        return ""
    never = np.count_nonzero(successes == 0)
    always = np.count_nonzero(successes == scorable)
    others = "use a stronger model, easier data or more samples"
    others = others if never >= always else "use harder data or more samples"
    needed = f", fewer than a subset's {size:,}" if size > 1 else ""
    return (
        f"only {mixed:,} of {counted(len(successes), 'prompt')} can give a signal "
        f"(solved in some samples, failed in others){needed}: {unread or others}"
    )
