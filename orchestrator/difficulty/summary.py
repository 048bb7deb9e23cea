"""What a policy can learn from a difficulty table, and with what certainty. Pure."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isnan

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.estimates import fit_p, fit_prior, reliability
from orchestrator.difficulty.outcomes import outcome_counts, outcome_histogram
from orchestrator.difficulty.proportions import counts
from orchestrator.difficulty.reprobes import expected_overlap, in_subset_probability
from orchestrator.plugins.counts import counted
from policies import Policy, PolicyError, SelectFunction, Ties, choice_rng, labelled_rows
from policies.base import FAILURES
from tasks import OUTCOMES

MISFIT = 0.01  # p below which the samples of a prompt count as dependent
SIMULATED = 1_000_000  # most prompts of a pool in simulated second probes


@dataclass(frozen=True)
class Summary:
    """Summary of the subset that a policy selects from a probe, as plain values."""

    policy: str
    size: int
    outcomes: dict[str, int]  # of the subset's samples
    pass_rate: float | None  # expected in new samples: the mean of the posterior means
    unsolved: int  # prompts of the subset with a gold answer and without a correct sample
    suspected: int | None  # prompts of the subset; None if answers were not read
    learnable: float | None  # the subset's expected share of live groups, before training
    ties: Ties | None  # None for a policy without scores
    # Expected share that a second probe would choose again, with ties broken anew; None if sample
    # counts are unknown, or if a second probe is not simulated.
    overlap: float | None


def summarise(
    table: pa.Table,
    size: int,
    policy: Policy,
    seed: int,
    samples: int,
    *,
    repeats: int = 50,
    group_size: int = 8,
    own_table: pa.Table | None = None,
    stream: str | None = None,
) -> Summary:
    """The summary of the `size` prompts that the policy selects from a difficulty table.

    samples: K. repeats: number of simulated second probes, with K samples per prompt and at most
    SIMULATED prompts. If this probe stopped early, pass the table of `complete_pass_rates`.
    own_table: if the policy ranks by another difficulty, the table of the prompts' own model, which
    describes the subset. stream: see `choice_rng`; None means the policy's. Raises PolicyError if
    the subset cannot be filled.
    """
    stream = policy.stream if stream is None else stream
    chosen = policy(table, size, choice_rng(seed, stream))
    ties = policy.ties(table, chosen)  # of this choice, not of simulated ones
    overlap = None
    if policy.simulated and not table["n"].null_count:
        pool, members = _simulated(table, chosen, policy, choice_rng(seed, stream))
        simulated = size if pool is table else len(members)
        again = in_subset_probability(
            pool, simulated, policy, seed, samples, repeats=repeats, group_size=group_size
        )
        overlap = expected_overlap(again, members)
    subset = (table if own_table is None else own_table).take(pa.array(chosen))
    return Summary(
        policy=policy.name,
        size=len(chosen),
        outcomes=outcome_counts(subset),
        # The rate of the samples that chose the prompts is biased: the winner's curse.
        pass_rate=pc.mean(subset["posterior"]).as_py(),
        unsolved=int(np.sum((counts(subset, "successes") == 0) & labelled_rows(subset))),
        suspected=pc.sum(subset["suspected"]).as_py(),
        learnable=pc.mean(subset["learnability"]).as_py(),
        ties=ties,
        overlap=overlap,
    )


def _simulated(
    table: pa.Table, chosen: np.ndarray, rule: SelectFunction, rng: np.random.Generator
) -> tuple[pa.Table, np.ndarray]:
    """The prompts in simulated second probes, and the rows that the policy takes of them.

    They are the pool, or an even share of a larger one; rows are in the order of hashes.
    """
    step = -(-table.num_rows // SIMULATED)
    if step > 1:
        share = table.take(pa.array(np.arange(0, table.num_rows, step)))
        with suppress(PolicyError):  # too few prompts for the policy in the share alone
            size = max(1, len(chosen) // step)
            return share, np.asarray(rule(share, size, rng))
    return table, chosen


def fit_warning(table: pa.Table) -> str:
    """A warning if samples of a complete probe depend on each other; else empty."""
    p = fit_p(counts(table, "successes"), counts(table, "scorable"))
    if not p < MISFIT:  # nan: unknown
        return ""
    return (
        f"no pass rates explain how many samples are correct (p = {p:.3f}), so a prompt's samples "
        "depend on each other and every estimate is doubtful: check that completions of a prompt "
        "are not repeated (the engine's seed, its cache, or a file with duplicates)"
    )


def summary_lines(table: pa.Table, samples: int, summary: Summary) -> list[str]:
    """A probe of K = `samples`, and the summary of a subset, as text, one line per fact."""
    s, k = summary, samples
    histogram = outcome_histogram(table, k)
    prompts = histogram.sum(axis=1)
    by_outcome = histogram.sum(axis=0)
    successes, scorable = counts(table, "successes"), counts(table, "scorable")
    prior, reliable = fit_prior(successes, scorable), reliability(successes, scorable, k)
    below, above = prior.ends
    unknown = f"; {prompts[-1]:.0f} without a scorable sample" if prompts[-1] else ""
    note = f" ({prior.note})" if prior.note else ""
    ties = ""
    if s.ties and s.ties.chosen < s.ties.pool:
        tied = "all" if s.ties.chosen == s.size else f"{s.ties.chosen} of them"
        ties = f"; {tied} chosen at random among {s.ties.pool} tied at the cutoff"
    agreed = pc.mean(table["agreement"]).as_py()
    learnable = "unknown" if s.learnable is None else f"{100 * s.learnable:.1f} %"
    overlap = "unknown" if s.overlap is None else f"{100 * s.overlap:.0f} %"
    return [
        f"prompts by correct samples, 0 to {k}: {' '.join(f'{c:.0f}' for c in prompts[:-1])}"
        f"{unknown}",
        f"outcomes: {shares_text(dict(zip(OUTCOMES, by_outcome, strict=True)))}",
        f"pass rates: below 1 % for about {100 * below:.0f} % of the prompts, above 99 % for "
        f"{100 * above:.0f} %{note}; reliability "
        f"{'unknown' if isnan(reliable) else f'{reliable:.2f}'} at {counted(k, 'sample')}",
        *([] if agreed is None else [f"agreement: {agreed:.2f} on average"]),
        f"subset of policy {s.policy}: {counted(s.size, 'prompt')}{ties}",
        f"  failures: {shares_text({name: s.outcomes[name] for name in FAILURES})}",
        f"  expected overlap with the subset of a second probe: {overlap}",
        f"  expected share of live groups before training: {learnable}",
    ]


def shares_text(by_outcome: Mapping[str, float]) -> str:
    """The share of each outcome that occurs."""
    total = sum(by_outcome.values())
    shown = (f"{100 * n / total:.1f} % {name}" for name, n in by_outcome.items() if n)
    return ", ".join(shown) or "none"
