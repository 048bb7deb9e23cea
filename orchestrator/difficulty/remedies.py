"""What to change if completions fail, by the kind of failure. Pure.

An answer that is not read is not evidence about the prompt or the model. So the marker and the form
of the answer come first, then the token limit; different prompts or a different model come last.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.outcomes import outcome_counts
from orchestrator.difficulty.proportions import counts
from orchestrator.plugins.counts import counted
from policies.base import fails_by_form

NAMED = 1 / 4  # least share of the failures for naming an outcome
ANY_LIMIT = "the token limit"  # if the setting is unknown
FORM_SHARE = 1 / 20  # least share of prompts for naming failures by form
# Why a completion fails by form -> in words.
FORMS = {
    "other form": "the completion has the gold answer in another form",
    "unparsed": "no answer is parsed",
    "truncated": "completions are truncated before an answer",
}
FORM = "ask for the answer in the form that the marker reads, or choose another marker or marking"


def reading_remedies(outcomes: Mapping[str, int], limit: str = ANY_LIMIT) -> list[str]:
    """What to change so that answers are read; empty if most failures are wrong answers.

    outcomes: completions by outcome. limit: the setting of the token limit, and its value.
    """
    remedies = {"error": "run decile doctor (the marker fails)", "unparsed": FORM}
    remedies["truncated"] = f"raise {limit}"
    unread = {name: outcomes.get(name, 0) for name in remedies}
    read = outcomes.get("wrong", 0) + outcomes.get("unlabelled", 0)
    failed = read + sum(unread.values())
    if 2 * sum(unread.values()) <= failed:
        return []
    return [remedies[name] for name, count in unread.items() if count >= NAMED * failed]


def unread_answers(outcomes: Mapping[str, int], limit: str = ANY_LIMIT) -> str:
    """A warning if most failed completions lack a read answer, with remedies; else empty."""
    remedies = reading_remedies(outcomes, limit)
    if not remedies:
        return ""
    failed = {name: count for name, count in outcomes.items() if name != "correct" and count}
    kinds = ", ".join(f"{count:,} {name}" for name, count in failed.items() if name != "wrong")
    return (
        f"most failures are not wrong answers ({kinds} of "
        f"{counted(sum(failed.values()), 'failed completion')}): {', or '.join(remedies)}"
    )


def form_counts(table: pa.Table) -> dict[str, int] | None:
    """Prompts that fail by form (`fails_by_form`), by the reason: a key of FORMS.

    The reason is an answer in another form if at least half of these failures have one, or more
    samples than are correct; else the more frequent of the other two. None if `form_failures` is
    unknown for a prompt.
    """
    names = ("form_failures", "other_form", "successes", "unparsed", "truncated")
    needed = (*names, "wrong")
    if any(name not in table.column_names or table[name].null_count for name in needed):
        return None
    by_form, other_form, successes, unparsed, truncated = (counts(table, n) for n in names)
    misread = (2 * other_form >= by_form) | (other_form > successes)
    reason = np.where(misread, 0, np.where(unparsed >= truncated, 1, 2))
    rows = fails_by_form(table, "form_counts")
    numbers = np.bincount(reason[rows], minlength=len(FORMS))
    return dict(zip(FORMS, numbers.tolist(), strict=True))


def form_remedies(table: pa.Table, share: float, limit: str = ANY_LIMIT) -> list[str]:
    """What to change if at least this share of prompts fails by form; empty if unknown."""
    numbers = form_counts(table) or {}
    if not any(numbers.values()) or sum(numbers.values()) < share * table.num_rows:
        return []
    remedies = {name: f"raise {limit}" if name == "truncated" else FORM for name in numbers}
    return [*dict.fromkeys(remedies[name] for name, count in numbers.items() if count)]


def form_note(table: pa.Table, limit: str = ANY_LIMIT) -> str:
    """The number of prompts that fail mostly by form, with reasons and remedies.

    Empty for less than the share FORM_SHARE of the prompts, or if unknown.
    """
    if not (remedies := form_remedies(table, FORM_SHARE, limit)):
        return ""
    numbers = form_counts(table) or {}
    reasons = ", ".join(f"{FORMS[name]} ({n:,})" for name, n in numbers.items() if n)
    return (
        f"{sum(numbers.values()):,} of {counted(table.num_rows, 'prompt')} fail mostly by the "
        f"form of completions: {reasons}; {', or '.join(remedies)}, or leave them out with "
        "exclude: form"
    )


def unsolved_note(chosen: pa.Table, pool: pa.Table) -> str:
    """The number of chosen prompts that were never solved, with remedies that the pool allows.

    Empty unless these are most of the chosen prompts, or without pass rates.
    """
    if "pass_rate" not in pool.column_names:
        return ""
    number = pc.sum(pc.equal(chosen["pass_rate"], 0)).as_py() or 0
    if 2 * number <= chosen.num_rows:
        return ""
    solved = pc.sum(pc.greater(pool["pass_rate"], 0)).as_py() or 0
    leave_out = ", or leave them out with exclude: unsolved" if solved >= chosen.num_rows else ""
    return (
        f"never solved: {number:,} of {counted(chosen.num_rows, 'prompt')}; a wrong gold answer "
        f"looks the same: read these prompts before training on them{leave_out}"
    )


def few_signals_of(table: pa.Table, size: int) -> str:
    """`few_signals` of a difficulty table, which may have only pass rates.

    A prompt with an unknown number of samples counts as one with several.
    """
    rates = pc.fill_null(table["pass_rate"].cast(pa.float64()), float("nan")).to_numpy()
    scorable = np.full(len(rates), 2.0)
    for name in ("n", "scorable"):
        if name in table.column_names:
            known = pc.fill_null(table[name].cast(pa.float64()), float("nan")).to_numpy()
            scorable = np.where(np.isnan(known), scorable, known)
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

    successes, scorable: [prompts], of a complete probe. outcomes: of all its completions. The
    warning appears if fewer prompts were solved in only some samples, or if most failures are
    answers that were not read. With one sample per prompt and mixed results, it is unknown which
    prompts are solved sometimes.
    """
    unread = unread_answers(outcomes, limit)
    return few_signals(successes, scorable, size, unread) or unread


def few_signals(successes: np.ndarray, scorable: np.ndarray, size: int, unread: str) -> str:
    """A warning if fewer prompts than `size` were solved in only some samples; else empty.

    For a subset that is the whole pool, one such prompt is enough. unread: the remedy if most
    failures are answers that were not read.
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
