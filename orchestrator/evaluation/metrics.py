"""Accuracy, pass@k and tiers from marked samples of a test set."""

import re
from collections.abc import Mapping, Sequence
from math import comb
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.probe import PASS_AT
from orchestrator.evaluation.turns import episode_numbers, total, turns_by
from orchestrator.stats.churn import Marks
from orchestrator.stats.factors import AnswerCounts, factors_of
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.schema import EVALUATIONS
from tasks import OUTCOMES
from tasks.marking.marks import FACTORS

# Base difficulty of a test question, by the base model's pass rate on it.
BANDS = (("low", 0.0, 1 / 3), ("middle", 1 / 3, 2 / 3), ("high", 2 / 3, 1.01))


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of pass@k from n samples of which c are correct (Chen et al. 2021, eq. 1).

    Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass_at_k needs 0 <= c <= n and 1 <= k <= n, not n={n}, c={c}, k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def as_evaluation(
    samples: pa.Table,
    update: int,
    tiers: Mapping[str, str],
    *,
    groups: Mapping[str, str] = MappingProxyType({}),
    sources: Mapping[str, str] = MappingProxyType({}),
    dataset: str = "",
    greedy: bool = False,
) -> pa.Table:
    """Marked samples of a test set as rows of `evaluations`, after `update` updates.

    `groups` has the questions that are related to others (`Pool.groups`), `sources` those with a
    source (`Pool.sources`). `dataset` is empty for
    the cell's own test set, and names an out-of-distribution one.
    """
    ids = samples["prompt_id"].to_pylist()
    columns = {
        "update": pa.array([update] * len(ids), pa.int32()),
        "dataset": pa.array([dataset] * len(ids), pa.string()),
        "greedy": pa.array([greedy] * len(ids), pa.bool_()),
        "tier": pa.array([tiers[i] for i in ids], pa.string()),
        **{name: samples[name] for name in samples.column_names},
        "group": pa.array([groups.get(i) for i in ids], pa.string()),
        "source": pa.array([sources.get(i) for i in ids], pa.string()),
    }
    return pa.table(columns).cast(EVALUATIONS)


def own_test_set(evaluation: pa.Table) -> pa.Table:
    """The sampled answers to the cell's own test set."""
    return part(evaluation, "", greedy=False)


def part(evaluation: pa.Table, dataset: str, *, greedy: bool) -> pa.Table:
    """The rows of one test set, sampled or greedy."""
    same = pc.equal(evaluation["dataset"], dataset)
    return evaluation.filter(pc.and_(same, pc.equal(evaluation["greedy"], greedy)))


def per_prompt(evaluation: pa.Table, reading: str = "outcome") -> dict[str, tuple[int, int]]:
    """prompt_id -> (samples without error, correct ones), of one evaluation.

    `reading` is "outcome", or "other_outcome" for the reading that rewards do not use.
    """
    counts: dict[str, tuple[int, int]] = {}
    ids, outcomes = evaluation["prompt_id"].to_pylist(), evaluation[reading].to_pylist()
    for prompt_id, outcome in zip(ids, outcomes, strict=True):
        n, c = counts.get(prompt_id, (0, 0))
        counts[prompt_id] = (n + (outcome != "error"), c + (outcome == "correct"))
    return counts


def answer_counts(evaluation: pa.Table, reading: str = "outcome") -> dict[str, AnswerCounts]:
    """prompt_id -> its marked samples, and those finished, parsed and correct, of one evaluation.

    `reading` as in `per_prompt`.
    """
    outcomes: dict[str, list[str]] = {}
    columns = (evaluation[name].to_pylist() for name in ("prompt_id", reading))
    for prompt_id, outcome in zip(*columns, strict=True):
        outcomes.setdefault(prompt_id, []).append(outcome)
    return {i: AnswerCounts.of(own) for i, own in outcomes.items()}


def marks(evaluation: pa.Table) -> dict[str, Marks]:
    """prompt_id -> its samples by their numbers, of one evaluation."""
    words: dict[str, list[int]] = {}
    columns = (evaluation[name].to_pylist() for name in ("prompt_id", "sample", "outcome"))
    for prompt_id, sample, outcome in zip(*columns, strict=True):
        word = words.setdefault(prompt_id, [0, 0])
        word[0] |= (outcome != "error") << sample
        word[1] |= (outcome == "correct") << sample
    return {i: Marks(*word) for i, word in words.items()}


def scores(evaluation: pa.Table, reading: str = "outcome") -> dict[str, float]:
    """prompt_id -> mean correctness of its samples, if any has no error."""
    return {i: c / n for i, (n, c) in per_prompt(evaluation, reading).items() if n}


def accuracy(evaluation: pa.Table, reading: str = "outcome") -> float:
    """Mean over prompts of the mean correctness of each one's samples; errors are left out."""
    rates = [*scores(evaluation, reading).values()]
    return float(np.mean(rates)) if rates else float("nan")


def evaluation_metrics(
    evaluation: pa.Table, base: pa.Table | None = None, pass_at: Sequence[int] = PASS_AT
) -> dict[str, float]:
    """One evaluation (one update) in numbers, under their MLflow names.

    `base`, the evaluation of the base model, adds accuracy by base difficulty.
    """
    own, greedy = own_test_set(evaluation), part(evaluation, "", greedy=True)
    metrics = {f"eval/{name}": value for name, value in _set_metrics(own, pass_at).items()}
    metrics["eval/accuracy_other_reading"] = accuracy(own, "other_outcome")
    outcomes = own["outcome"].to_pylist()
    for outcome in OUTCOMES[: OUTCOMES.index("unlabelled")]:  # test questions have gold answers
        metrics[f"eval/{outcome}"] = outcomes.count(outcome) / max(1, len(outcomes))
    metrics |= {f"eval/{name}": value for name, value in _factor_metrics(own).items()}
    if greedy.num_rows:
        metrics["eval/greedy_accuracy"] = accuracy(greedy)
    for name in pc.unique(evaluation["dataset"]).to_pylist():
        if name:
            ood = _set_metrics(part(evaluation, name, greedy=False), pass_at)
            metrics |= {f"ood/{name}/{key}": value for key, value in ood.items()}
    for kind in ("tier", "source"):
        for name in filter(None, pc.unique(own[kind]).to_pylist()):
            own_part = own.filter(pc.equal(own[kind], name))
            segment = f"{kind}/{metric_segment(name)}"
            metrics[f"{segment}/accuracy"] = accuracy(own_part)
            if kind == "source":
                of_part = _factor_metrics(own_part)
                metrics |= {f"{segment}/{name}": value for name, value in of_part.items()}
    bands = by_band(base, own) if base is not None else {}
    return metrics | {f"band/{n}/accuracy": v for n, v in bands.items()}


def _factor_metrics(rows: pa.Table) -> dict[str, float]:
    """The factors of the accuracy (`stats.factors`) that are known, under their metrics' names."""
    factors = zip(FACTORS, factors_of([answer_counts(rows)]), strict=True)
    return {name.replace("-", "_"): value for name, value in factors if value is not None}


def metric_segment(name: str) -> str:
    """A tier or source as one part of a metric's name, distinct from all others.

    Where characters have to be replaced, or it is long, a hash follows.
    """
    plain = re.sub(r"[^\w.\- ]", "_", name).strip(". ")[:100]
    return plain if plain == name else f"{plain}-{canonical_hash(name)[:6]}"


def _set_metrics(rows: pa.Table, pass_at: Sequence[int]) -> dict[str, float]:
    """Accuracy, pass@k for each k that some prompt has samples for, and lengths in tokens.

    Beside a pass@k, how many prompts it leaves out because errors left them with fewer samples.

    Where scores are not correctness alone, also the mean over prompts of their mean score; of
    episodes, turns and tool calls per episode, and the % of tool calls answered by an error.
    """
    counts = [*per_prompt(rows).values()]
    most = max((n for n, _ in counts), default=0)
    tokens = rows["tokens"].to_numpy()
    metrics = {"accuracy": accuracy(rows)}
    correct = pc.equal(rows["outcome"], "correct").cast(pa.float64())
    if pc.any(pc.not_equal(rows["score"], correct)).as_py():  # the marker gives scores of its own
        means = rows.group_by("prompt_id").aggregate([("score", "mean")])
        metrics["score"] = float(pc.mean(means["score_mean"]).as_py())
    for k in (k for k in pass_at if k <= most):
        values = [pass_at_k(n, c, k) for n, c in counts if n >= k]
        metrics[f"pass_at_{k}"] = float(np.mean(values))
        if len(values) < len(counts):
            metrics[f"pass_at_{k}_left_out"] = float(len(counts) - len(values))
    if turns := total(turns_by(episode_numbers(rows), "prompt_id").values()):
        metrics["turns"] = turns.turns / turns.episodes
        metrics["tool_calls"] = turns.tool_calls / turns.episodes
        metrics["tool_errors_pct"] = 100 * turns.tool_errors / max(1, turns.tool_calls)
    if len(tokens):
        metrics["mean_tokens"] = float(np.mean(tokens))
        metrics["p95_tokens"] = float(np.quantile(tokens, 0.95))
    return metrics


def bands(base: pa.Table) -> dict[str, str]:
    """prompt_id -> low, middle or high third of the base model's pass rate, by its even samples.

    Empty if the base model has one sample per question. Accuracies of the bands are those of
    `held_out`.
    """
    base = own_test_set(base)
    odd = pc.equal(pc.bit_wise_and(base["sample"], 1), 1)
    if not pc.any(odd).as_py():
        return {}
    rates = scores(base.filter(pc.invert(odd)))
    return {i: name for i, r in rates.items() for name, low, high in BANDS if low <= r < high}


def held_out(evaluation: pa.Table) -> dict[str, tuple[int, int]]:
    """Counts (as `per_prompt`) of an evaluation's odd samples, which assign no bands.

    With the same samples of the base model the low band would seem to gain (regression to the
    mean). Later evaluations draw sample i with the random numbers of the base model's sample i, so
    their even samples would also follow the bands.
    """
    own = own_test_set(evaluation)
    return per_prompt(own.filter(pc.equal(pc.bit_wise_and(own["sample"], 1), 1)))


def by_band(base: pa.Table, evaluation: pa.Table) -> dict[str, float]:
    """Accuracy by base difficulty (see `bands`), of the held-out samples."""
    named, counts = bands(base), held_out(evaluation)
    accuracies = {}
    for name, _, _ in BANDS:
        ids = [i for i, band in named.items() if band == name]
        if ids:
            rates = [counts[i][1] / counts[i][0] for i in ids if counts.get(i, (0, 0))[0]]
            accuracies[name] = float(np.mean(rates)) if rates else float("nan")
    return accuracies


def by_update(evaluations: pa.Table) -> dict[int, pa.Table]:
    """Each evaluation of a cell, by the update that it followed."""
    updates = evaluations["update"].to_numpy()
    return {int(u): evaluations.filter(pa.array(updates == u)) for u in np.unique(updates)}
