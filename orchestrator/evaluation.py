"""Accuracy, pass@k and tiers from marked samples of a test set."""

from collections.abc import Mapping
from math import comb

import numpy as np
import pyarrow as pa

from orchestrator.schema import EVALUATIONS
from tasks import OUTCOMES


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of pass@k from n samples of which c are correct (Chen et al. 2021, eq. 1).

    Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass_at_k needs 0 <= c <= n and 1 <= k <= n, not n={n}, c={c}, k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def as_evaluation(samples: pa.Table, update: int, tiers: Mapping[str, str]) -> pa.Table:
    """Marked samples of the test set as rows of `evaluations`, after `update` updates."""
    ids = samples["prompt_id"].to_pylist()
    columns = {
        "update": pa.array([update] * len(ids), pa.int32()),
        "tier": pa.array([tiers[i] for i in ids], pa.string()),
        **{name: samples[name] for name in samples.column_names},
    }
    return pa.table(columns).cast(EVALUATIONS)


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


def accuracy(evaluation: pa.Table, reading: str = "outcome") -> float:
    """Mean over prompts of the mean correctness of each one's samples; errors are left out."""
    rates = [c / n for n, c in per_prompt(evaluation, reading).values() if n]
    return float(np.mean(rates)) if rates else float("nan")


def evaluation_metrics(evaluation: pa.Table) -> dict[str, float]:
    """One evaluation (one update) in numbers, under their MLflow names."""
    counts = [(n, c) for n, c in per_prompt(evaluation).values() if n]
    most = min(n for n, _ in counts) if counts else 0
    metrics = {"eval/accuracy": accuracy(evaluation)}
    for k in (k for k in (2, 4, 8, 16, 32) if k <= most):
        metrics[f"eval/pass_at_{k}"] = float(np.mean([pass_at_k(n, c, k) for n, c in counts]))
    metrics["eval/accuracy_other_reading"] = accuracy(evaluation, "other_outcome")
    outcomes = evaluation["outcome"].to_pylist()
    for outcome in OUTCOMES:
        metrics[f"eval/{outcome}"] = outcomes.count(outcome) / max(1, len(outcomes))
    metrics["eval/mean_tokens"] = float(np.mean(evaluation["tokens"].to_numpy()))
    return metrics | _tier_metrics(evaluation)


def _tier_metrics(evaluation: pa.Table) -> dict[str, float]:
    tiers = np.array(evaluation["tier"].to_pylist())
    return {
        f"tier/{tier}/accuracy": accuracy(evaluation.filter(pa.array(tiers == tier)))
        for tier in np.unique(tiers)
        if tier
    }


def by_update(evaluations: pa.Table) -> dict[int, pa.Table]:
    """Each evaluation of a cell, by the update that it followed."""
    updates = evaluations["update"].to_numpy()
    return {int(u): evaluations.filter(pa.array(updates == u)) for u in np.unique(updates)}
