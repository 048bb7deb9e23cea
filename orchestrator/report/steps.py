"""Steps to match: how soon a policy is as good as training on the whole pool. Pure: NumPy."""

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

import numpy as np

from orchestrator.stats.inference import LEVEL

BLOCK = 250  # resamples at once


class Steps(NamedTuple):
    """The update at which a target is reached, with a 95 % interval; None: not within the run.

    `reached` is the share of resamples in which it is reached at all.
    """

    update: float | None
    low: float | None
    high: float | None
    reached: float


def steps_to_match(
    curve: Mapping[int, np.ndarray], target: np.ndarray, resamples: int = 2000
) -> Steps:
    """The update at which a policy's accuracy first reaches a target (paper B's "45 % of steps").

    curve: update -> [seeds, items], the mean correctness of each question (over its samples) after
    that update; target: [seeds, items], the full pool's final evaluation on the same questions,
    with its own seeds. The curve is interpolated linearly between evaluations. Whole questions are
    resampled jointly in curve and target, and the seeds of each separately; with one seed the
    interval covers new questions only. A noisy curve crosses the target early: evaluate with enough
    questions. Raises ValueError on unequal lengths or an empty curve.
    """
    updates = sorted(curve)
    shapes = {curve[u].shape for u in updates}
    if len(shapes) != 1 or shapes.pop()[1:] != target.shape[1:] or target.ndim != 2:
        raise ValueError("curve and target need the same questions, after at least one update")
    stacked, at = np.array([curve[u] for u in updates]), np.array(updates, float)
    resampled = _crossings(at, _resampled(stacked, target, resamples))
    ends = np.quantile(resampled, [LEVEL / 2, 1 - LEVEL / 2], method="inverted_cdf")
    lead = stacked.mean(axis=(1, 2)) - target.mean()
    first = _crossings(at, lead[None, :])[0]
    update, low, high = (float(x) if isfinite(x) else None for x in (first, *ends))
    return Steps(update, low, high, float(np.isfinite(resampled).mean()))


def _resampled(curve: np.ndarray, target: np.ndarray, resamples: int) -> np.ndarray:
    """[resamples, updates]: the lead over the target's mean, seeds and questions resampled."""
    rng, items = np.random.default_rng(0), target.shape[1]
    leads = []
    for start in range(0, resamples, BLOCK):
        count = min(BLOCK, resamples - start)
        drawn = rng.integers(0, items, (count, items)) + items * np.arange(count)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=count * items).reshape(count, items) / items
        policy, reference = (_seed_means(side, weights, rng) for side in (curve, target[None]))
        leads.append(policy - reference)
    return np.concatenate(leads)


def _seed_means(scores: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[rows, updates]: weighted means of scores [updates, seeds, items] over resampled seeds."""
    updates, seeds, items = scores.shape
    each = (weights @ scores.reshape(-1, items).T).reshape(-1, updates, seeds)
    drawn = rng.integers(0, seeds, (len(weights), 1, seeds))
    return np.asarray(np.take_along_axis(each, drawn, axis=2).mean(axis=2))


def _crossings(updates: np.ndarray, lead: np.ndarray) -> np.ndarray:
    """[rows]: the update where each row of lead [rows, updates] first reaches zero, else inf."""
    above = lead >= -1e-12
    first = above.argmax(axis=1)
    rows, before = np.arange(len(lead)), np.maximum(first - 1, 0)
    low, high = lead[rows, before], lead[rows, first]
    share = np.where(first > 0, -low / np.where(high > low, high - low, 1), 0.0)
    at = updates[before] + np.clip(share, 0, 1) * (updates[first] - updates[before])
    return np.asarray(np.where(above.any(axis=1), at, np.inf))
