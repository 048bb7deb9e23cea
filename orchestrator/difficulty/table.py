"""Marked samples -> a difficulty table with one row per prompt, and its summary. Pure."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.answers import votes_of, with_answers
from orchestrator.difficulty.disputed import disputed_golds, with_suspected
from orchestrator.difficulty.estimates import fit_p, fit_prior, rates, reliability
from orchestrator.difficulty.pool_spellings import comparison_of
from orchestrator.difficulty.proportions import counts
from orchestrator.difficulty.reprobes import expected_overlap, in_subset_probability
from orchestrator.plugins.counts import counted
from orchestrator.storage.schema import DIFFICULTY
from policies import Policy, PolicyError, SelectFunction, Ties, choice_rng, labelled_rows
from policies.base import FAILURES
from policies.partition import rate_bands
from tasks import OUTCOMES, Task
from tasks.marking.marks import UNSCORED_BY

MISFIT = 0.01  # p below which the correct samples of a pool are no independent ones
SIMULATED = 1_000_000  # prompts of a pool of which second probes are simulated
# Names of RATE_BANDS in a report, and of prompts without a pass rate.
BANDS = ("0 %", "≤ 25 %", "≤ 50 %", "≤ 75 %", "< 100 %", "100 %", "none")


def difficulty(
    samples: pa.Table,
    tiers: Mapping[str, str] | None = None,
    *,
    count_truncated: Literal["wrong", "exclude"] = "wrong",
    group_size: int = 8,
    samples_per_prompt: int | None = None,
    task: Task | None = None,
) -> pa.Table:
    """One row per prompt, sorted by prompt_id: counts by outcome, pass rate, interval, estimates.

    `samples` needs the columns prompt_id and outcome; without `sample`, `first` is null, without
    `tokens`, `tokens` and `tokens_sd`, and without `extracted`, the extracted answers, `suspected`,
    `dispute`, `agreement`, `answers` and `entropy`. Answers are compared as the marker of `task`
    does, as texts without a task. `tiers` maps prompt_id to tier; all its prompts are in the table,
    sampled or not. An error counts in `n` and `error`, but not in `scorable` and the pass rate; so
    does a truncated sample with count_truncated="exclude". `posterior` and `learnability` (of
    groups of `group_size`) are based on the prior fitted to this pool. A prompt whose samples were
    read, and none marked, has no gold answer, and no pass rate. `short` marks prompts with fewer
    than `samples_per_prompt` samples. Raises ValueError on an unknown outcome.
    """
    prompt = samples["prompt_id"].cast(pa.string())
    # Prompts of `tiers` have a row without any sample, too.
    ids = pc.unique(pa.chunked_array([*prompt.chunks, pa.array([*(tiers or {})], pa.string())]))
    ids = ids.take(pc.sort_indices(ids))
    row = pc.index_in(prompt, value_set=ids).to_numpy()  # [samples]: the row of the table
    codes = pc.index_in(samples["outcome"].cast(pa.string()), value_set=pa.array(OUTCOMES))
    if codes.null_count:
        unknown = samples["outcome"].filter(pc.is_null(codes))[0]
        raise ValueError(f"outcome {unknown.as_py()!r}: write one of {', '.join(OUTCOMES)}")
    code = codes.to_numpy()
    # Each (row, outcome) as one number: a count of both at once.
    table = np.bincount(row * len(OUTCOMES) + code, minlength=len(ids) * len(OUTCOMES))
    tier = [(tiers or {}).get(i, "") for i in ids.to_pylist()]
    first = np.full(len(ids), -1)
    if "sample" in samples.column_names:
        at = pc.equal(samples["sample"], 0).to_numpy()
        first[row[at]] = code[at]
    by_outcome = table.reshape(-1, len(OUTCOMES)).T  # [outcomes, prompts]
    sums = None
    if "score" in samples.column_names:
        scored = ~np.isin(code, [OUTCOMES.index(name) for name in UNSCORED_BY[count_truncated]])
        solved = pa.array((code == OUTCOMES.index("correct")).astype(float))
        # Without a score of its own, a sample's is its correctness.
        values = pc.coalesce(samples["score"], solved).to_numpy()[scored]
        sums = np.array([np.bincount(row[scored], values**p, len(ids)) for p in (1, 2)])
    lengths = None
    if "tokens" in samples.column_names:
        known = samples["tokens"].is_valid().to_numpy()
        own = row[known]
        tokens = samples["tokens"].drop_null().to_numpy().astype(float)
        lengths = np.array([np.bincount(own, tokens**p, len(ids)) for p in (0, 1, 2)])
    k = samples_per_prompt or 0
    rated = _table(
        ids, tier, by_outcome, first, count_truncated, group_size, k, sums=sums, lengths=lengths
    )
    if "extracted" not in samples.column_names:
        return rated
    votes = votes_of(samples, rated, comparison_of(task))
    return with_suspected(with_answers(rated, votes), disputed_golds(votes, rated))


def difficulty_of_codes(
    ids: pa.Array,
    tiers: pa.Array,
    codes: np.ndarray,
    *,
    scores: np.ndarray | None = None,
    labelled: np.ndarray | None = None,
    tokens: np.ndarray | None = None,
    count_truncated: Literal["wrong", "exclude"] = "wrong",
    group_size: int = 8,
) -> pa.Table:
    """The table of `difficulty` from outcomes as codes [prompts, K], for prompts sorted by id.

    A code is a position in OUTCOMES; any other value is a sample that is not drawn. `scores`:
    [prompts, K], None where they are 1 for a correct sample and 0 for any other. `labelled`:
    [prompts], whether each has a gold answer, or needs none; None: as its samples tell. `tokens`:
    [prompts, K], -1 where a sample is not drawn.
    """
    by_outcome = np.empty((len(OUTCOMES), len(codes)), dtype=np.int32)
    for code, by_prompt in enumerate(by_outcome):
        by_prompt[:] = np.count_nonzero(codes == code, axis=1)
    first = np.where(codes[:, 0] < len(OUTCOMES), codes[:, 0].astype(np.int8), -1)
    sums = None
    if scores is not None:
        unscored = [OUTCOMES.index(name) for name in UNSCORED_BY[count_truncated]]
        scored = (codes < len(OUTCOMES)) & ~np.isin(codes, unscored)
        sums = np.array([np.sum(scores**p, axis=1, where=scored) for p in (1, 2)])
    lengths = None
    if tokens is not None:
        lengths = np.zeros((3, len(codes)))
        for column in tokens.T:  # one sample of each prompt at a time: pools are large
            drawn = column >= 0
            for power, total in enumerate(lengths):
                total += drawn * column.astype(float) ** power
    k = codes.shape[1]
    return _table(
        ids,
        tiers,
        by_outcome,
        first,
        count_truncated,
        group_size,
        k,
        labelled=labelled,
        sums=sums,
        lengths=lengths,
    )


def _table(
    ids: pa.Array,
    tiers: pa.Array | list[str],
    outcomes: np.ndarray,
    first: np.ndarray,
    count_truncated: str,
    group_size: int,
    samples_per_prompt: int,
    *,
    labelled: np.ndarray | None = None,
    sums: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
) -> pa.Table:
    """The table, from counts [outcomes, prompts] and the code of each prompt's sample 0 or -1.

    sums: [2, prompts], of the scores and of their squares; None where scores are correctness.
    lengths: [3, prompts], the samples whose tokens are known, and the sums of these and of their
    squares.
    """
    by_outcome: dict[str, np.ndarray] = dict(zip(OUTCOMES, outcomes, strict=True))
    n = outcomes.sum(axis=0, dtype=np.int32)
    scorable = n - np.sum([by_outcome[name] for name in UNSCORED_BY[count_truncated]], axis=0)
    if labelled is None:
        marked = by_outcome["correct"] + by_outcome["wrong"]
        labelled = (marked > 0) | (by_outcome["unlabelled"] == 0)
    scorable = np.where(labelled, scorable, 0)
    # 0 and 1 are their own squares.
    total, squares = (by_outcome["correct"],) * 2 if sums is None else sums
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.round(total / scorable, 12)  # equal means tie, in any order of summation
        variance = np.maximum(0.0, np.round(squares - total * mean, 12)) / (scorable - 1)
    prior = fit_prior(by_outcome["correct"], scorable)
    columns: dict[str, np.ndarray | pa.Array | list[str]] = {
        **by_outcome,
        **rates(by_outcome["correct"], scorable, prior, group_size),
        "prompt_id": ids,
        "tier": tiers,
        "n": n,
        "labelled": labelled,
        "first": pa.array(OUTCOMES).take(pa.array(first, mask=first < 0)),
        "short": n < samples_per_prompt,
        "score": pa.array(mean, mask=scorable < 1),
        "score_sd": pa.array(np.sqrt(variance), mask=scorable < 2),
    }
    if lengths is not None and lengths[1].any():  # a recording may not know any
        known, total, squares = lengths
        variance = (known * squares - total**2) / np.maximum(known * (known - 1), 1)
        columns["tokens"] = pa.array(total / np.maximum(known, 1), mask=known < 1)
        columns["tokens_sd"] = pa.array(np.sqrt(variance), mask=known < 2)
    null = pa.nulls(len(ids))
    return pa.table({f.name: pa.array(columns.get(f.name, null)).cast(f.type) for f in DIFFICULTY})


def outcome_counts(table: pa.Table) -> dict[str, int]:
    """Outcome -> samples of all prompts of a difficulty table, as far as it counts them."""
    columns = dict(zip(OUTCOMES, ("successes", *OUTCOMES[1:]), strict=True))
    known = {o: pc.sum(table[name]) for o, name in columns.items() if name in table.column_names}
    return {outcome: int(count.as_py() or 0) for outcome, count in known.items()}


def band_of(table: pa.Table) -> np.ndarray:
    """[prompts]: the position in BANDS of each pass rate."""
    rate = table["pass_rate"].to_numpy(zero_copy_only=False)
    return np.where(np.isnan(rate), len(BANDS) - 1, rate_bands(rate))


def pass_rate_histogram(table: pa.Table, bins: int) -> np.ndarray:
    """Prompts per pass-rate bin: `bins` + 1 counts, at 0, 1/bins, …, 1 (nearest)."""
    rate = pc.drop_null(table["pass_rate"]).to_numpy()
    return np.bincount(np.rint(rate * bins).astype(int), minlength=bins + 1)


def outcome_histogram(table: pa.Table, bins: int) -> np.ndarray:
    """[bins + 2, outcomes]: prompts by pass rate 0, 1/bins, …, 1 (nearest) and outcome.

    Each prompt counts as one, distributed over OUTCOMES like its samples. The last row holds the
    prompts without a pass rate.
    """
    rate = table["pass_rate"].to_numpy()
    bin_of = np.where(np.isnan(rate), bins + 1, np.rint(np.nan_to_num(rate) * bins)).astype(int)
    columns = ("successes", *OUTCOMES[1:])
    known = [column for column in columns if column in table.column_names]
    samples = np.maximum(sum(counts(table, column) for column in known), 1)
    histogram = np.zeros((bins + 2, len(OUTCOMES)))
    for column in known:  # one column of shares at a time: pools are large
        shares = counts(table, column) / samples
        histogram[:, columns.index(column)] = np.bincount(bin_of, shares, minlength=bins + 2)
    return histogram


@dataclass(frozen=True)
class Summary:
    """Summary of the subset that a policy selects from a probe; plain values."""

    policy: str
    size: int
    outcomes: dict[str, int]  # of the subset's samples
    pass_rate: float | None  # expected of new samples: the mean of the posterior means
    unsolved: int  # prompts of the subset with a gold answer and without a correct sample
    suspected: int | None  # prompts of the subset; None where answers were not read
    learnable: float | None  # the subset's expected share of live groups, before training
    ties: Ties | None  # None for a policy without scores
    # Expected share that a second probe would choose again, ties broken anew; None where no counts
    # of samples are known, and where a second probe is not simulated.
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

    `samples` is K. `repeats` second probes of K samples per prompt are simulated, of at most
    SIMULATED prompts. If this probe stopped early, give the table of
    `adaptive.complete_pass_rates`. Where the policy ranks by another difficulty, `own_table` is the
    same prompts' table of their own model, and describes the subset. `stream`: see `choice_rng`;
    None: the policy's. Raises PolicyError if the subset cannot be filled.
    """
    stream = policy.stream if stream is None else stream
    chosen = policy(table, size, choice_rng(seed, stream))
    ties = policy.ties(table, chosen)  # of this choice: the simulated ones are others
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
        # That of the samples which chose the prompts is too low or too high: the winner's curse.
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
    """The prompts of which second probes are simulated, and the rows that the policy takes of them.

    They are the pool, or an even share of a larger one: rows are in the order of hashes.
    """
    step = -(-table.num_rows // SIMULATED)
    if step > 1:
        share = table.take(pa.array(np.arange(0, table.num_rows, step)))
        with suppress(PolicyError):  # too few prompts for the policy in the share alone
            size = max(1, len(chosen) // step)
            return share, np.asarray(rule(share, size, rng))
    return table, chosen


def fit_warning(table: pa.Table) -> str:
    """That a prompt's samples depend on each other, from a complete probe; else empty."""
    p = fit_p(counts(table, "successes"), counts(table, "scorable"))
    if not p < MISFIT:  # nan: not known
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
    prior = fit_prior(counts(table, "successes"), counts(table, "scorable"))
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
        f"{100 * above:.0f} %; reliability {reliability(prior, k):.2f} at "
        f"{counted(k, 'sample')}{note}",
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
