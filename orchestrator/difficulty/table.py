"""Marked samples -> a difficulty table with one row per prompt. Pure."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.answers import votes_of, with_answers
from orchestrator.difficulty.disputed import disputed_golds, with_suspected
from orchestrator.difficulty.estimates import fit_prior, rates
from orchestrator.difficulty.pool_spellings import comparison_of
from orchestrator.plugins.difficulty_table import DIFFICULTY
from orchestrator.probing.answers import only_otherwise_correct
from tasks import OUTCOMES, Task
from tasks.marking.marks import UNSCORED_BY


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

    `samples` needs the columns prompt_id and outcome. If optional columns are missing, these
    results are null: `first` without `sample`; `tokens` and `tokens_sd` without `tokens`;
    `suspected`, `dispute`, `agreement`, `answers` and `entropy` without `extracted`;
    `form_failures` and `other_form` without the marks of both readings (`other_outcome`, `rule`,
    `other_rule`).

    Answers are compared by the marker of `task`, or as texts without a task. `tiers` maps prompt_id
    to tier; all its prompts are in the table, sampled or not. An error counts in `n` and `error`,
    but not in `scorable` or the pass rate; the same applies to a truncated sample with
    count_truncated="exclude". `posterior` and `learnability` (of groups of `group_size`) use the
    prior fitted to this pool. A prompt with samples but without marks has no gold answer and no
    pass rate. `short` marks prompts with fewer than `samples_per_prompt` samples. Raises ValueError
    on an unknown outcome.
    """
    prompt = samples["prompt_id"].cast(pa.string())
    # Prompts of `tiers` without samples also have a row.
    ids = pc.unique(pa.chunked_array([*prompt.chunks, pa.array([*(tiers or {})], pa.string())]))
    ids = ids.take(pc.sort_indices(ids))
    row = pc.index_in(prompt, value_set=ids).to_numpy()  # [samples]: the row of the table
    codes = pc.index_in(samples["outcome"].cast(pa.string()), value_set=pa.array(OUTCOMES))
    if codes.null_count:
        unknown = samples["outcome"].filter(pc.is_null(codes))[0]
        raise ValueError(f"outcome {unknown.as_py()!r}: write one of {', '.join(OUTCOMES)}")
    code = codes.to_numpy()
    # Each (row, outcome) as one number, to count both at once.
    table = np.bincount(row * len(OUTCOMES) + code, minlength=len(ids) * len(OUTCOMES))
    tier = [(tiers or {}).get(i, "") for i in ids.to_pylist()]
    first = np.full(len(ids), -1)
    if "sample" in samples.column_names:
        at = pc.equal(samples["sample"], 0).to_numpy()
        first[row[at]] = code[at]
    by_outcome = table.reshape(-1, len(OUTCOMES)).T  # [outcomes, prompts]
    scored = ~np.isin(code, [OUTCOMES.index(name) for name in UNSCORED_BY[count_truncated]])
    rated = _table(
        ids,
        tier,
        by_outcome,
        first,
        count_truncated,
        group_size,
        samples_per_prompt or 0,
        sums=_sums(samples.filter(pa.array(scored)), row[scored], len(ids)),
        lengths=_lengths(samples, row, len(ids)),
        misread=_misread(samples, row, len(ids)),
    )
    if "extracted" not in samples.column_names:
        return rated
    votes = votes_of(samples, rated, comparison_of(task))
    return with_suspected(with_answers(rated, votes), disputed_golds(votes, rated))


def _sums(samples: pa.Table, row: np.ndarray, prompts: int) -> np.ndarray | None:
    """`sums` of `_table`, of samples that count; the default score is correctness."""
    if "score" not in samples.column_names:
        return None
    solved = pc.equal(samples["outcome"], "correct").cast(pa.float64())
    values = pc.coalesce(samples["score"], solved).to_numpy()
    return np.array([np.bincount(row, values**p, prompts) for p in (1, 2)])


def _lengths(samples: pa.Table, row: np.ndarray, prompts: int) -> np.ndarray | None:
    """`lengths` of `_table`; row: [samples], the row of each sample's prompt."""
    if "tokens" not in samples.column_names:
        return None
    own = row[samples["tokens"].is_valid().to_numpy()]
    tokens = samples["tokens"].drop_null().to_numpy().astype(float)
    return np.array([np.bincount(own, tokens**p, prompts) for p in (0, 1, 2)])


def _misread(samples: pa.Table, row: np.ndarray, prompts: int) -> np.ndarray | None:
    """`misread` of `_table`, from both readings of samples; None if they have only one.

    row: [samples], the row of each sample's prompt. If all rules are equal, the marker has one
    reading.
    """
    if not {"other_outcome", "rule", "other_rule"} <= {*samples.column_names}:
        return None
    if samples["other_outcome"].null_count or samples["rule"].equals(samples["other_rule"]):
        return None
    other = only_otherwise_correct(samples)
    wrong = other & pc.equal(samples["outcome"], "wrong").to_numpy()
    return np.array([np.bincount(row[each], minlength=prompts) for each in (other, wrong)])


def difficulty_of_codes(
    ids: pa.Array,
    tiers: pa.Array,
    codes: np.ndarray,
    *,
    scores: np.ndarray | None = None,
    labelled: np.ndarray | None = None,
    tokens: np.ndarray | None = None,
    other_form: np.ndarray | None = None,
    count_truncated: Literal["wrong", "exclude"] = "wrong",
    group_size: int = 8,
) -> pa.Table:
    """The table of `difficulty` from outcomes as codes [prompts, K], for prompts sorted by id.

    A code is a position in OUTCOMES; any other value means that the sample was not drawn. scores:
    [prompts, K]; None for 1 for a correct sample and 0 otherwise. labelled: [prompts], whether each
    has a gold answer or does not need one; None to infer it from the samples. tokens: [prompts, K],
    -1 if a sample was not drawn. other_form: [prompts, K], whether a failed sample contains the
    gold answer in another form; None if unknown.
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
    misread = None
    if other_form is not None:
        wrong = other_form & (codes == OUTCOMES.index("wrong"))
        misread = np.array([np.count_nonzero(each, axis=1) for each in (other_form, wrong)])
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
        misread=misread,
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
    misread: np.ndarray | None = None,
) -> pa.Table:
    """The table, from counts [outcomes, prompts] and the code of each prompt's sample 0 or -1.

    sums: [2, prompts], of the scores and of their squares; None if scores are correctness. lengths:
    [3, prompts], the number of samples with known tokens, and the sums of tokens and of their
    squares. misread: [2, prompts], the number of failed samples with the gold answer in another
    form, and the wrong ones among these; None if unknown.
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
    if lengths is not None and lengths[1].any():  # a recording may lack token counts
        known, total, squares = lengths
        variance = (known * squares - total**2) / np.maximum(known * (known - 1), 1)
        columns["tokens"] = pa.array(total / np.maximum(known, 1), mask=known < 1)
        columns["tokens_sd"] = pa.array(np.sqrt(variance), mask=known < 2)
    if misread is not None:
        unread = by_outcome["unparsed"] + by_outcome["truncated"]
        columns["other_form"], columns["form_failures"] = misread[0], unread + misread[1]
    null = pa.nulls(len(ids))
    return pa.table({f.name: pa.array(columns.get(f.name, null)).cast(f.type) for f in DIFFICULTY})
