"""Exact adaptive probing: which samples can still change a subset. Pure: Arrow and NumPy only.

A policy that scores each prompt by its own pass rate takes the prompts with the lowest key (score,
tie-breaker). The possible final counts of a partly sampled prompt bound its key. The prompt is
certainly chosen if fewer prompts than the subset's size can come before its worst key. It is
certainly left out if at least that many certainly come before its best key. Further samples then
cannot change the subset, so it is not sampled again. Once all K samples are drawn, every bound is a
point. The result is therefore the subset of the full probe, whatever was drawn and in which order.
The score of `middle` depends on the pool's quartiles, which are bounded by the bounds of all pass
rates.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.plugins.user_code import user_errors
from policies import PolicyError, ScorePolicy, choice_rng, tie_breakers

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = 1e300  # score of a prompt without a pass rate: after all others, before the ineligible


class Target(NamedTuple):
    """A subset that will be selected from the probe."""

    policy: ScorePolicy
    size: int
    seed: int
    stream: str | None = None  # see `choice_rng`; None: the policy's


class Counts(NamedTuple):
    """The samples drawn of each prompt so far: arrays of the pool's length."""

    successes: Ints
    unscored: Ints  # errors, and other samples that the pass rate excludes
    drawn: Ints
    first: npt.NDArray[np.object_]  # outcome of sample 0, None until it is drawn


class Bounds(NamedTuple):
    """Lowest and highest possible final score of each prompt; inf if it is not eligible."""

    low: Floats
    high: Floats


def undecided_rows(
    targets: Sequence[Target], counts: Counts, tiers: Sequence[str], samples: int
) -> Ints:
    """Rows that need another sample for some target, the most promising first.

    A row's priority is its best rank over the targets, relative to the target's size, so that
    likely members are confirmed before unlikely ones.
    """
    incomplete = counts.drawn < samples
    priority = np.full(len(incomplete), np.inf)
    for target in targets:
        undecided, order = _undecided(target, counts, tiers, samples)
        rank = np.empty(len(incomplete))
        rank[order] = np.arange(len(incomplete)) / max(1, target.size)
        pending = undecided & incomplete
        priority[pending] = np.minimum(priority[pending], rank[pending])
    rows = np.flatnonzero(np.isfinite(priority))
    return rows[np.argsort(priority[rows], kind="stable")]


def _undecided(
    target: Target, counts: Counts, tiers: Sequence[str], samples: int
) -> tuple[Bools, Ints]:
    """Which rows may still be chosen or left out, and all rows by their best possible key."""
    rows = len(counts.drawn)
    stream = target.policy.stream if target.stream is None else target.stream
    chance = tie_breakers(rows, choice_rng(target.seed, stream))
    needs = target.policy.needs
    if needs == "nothing":
        return np.zeros(rows, dtype=bool), np.argsort(chance)
    if needs == "all":
        return np.ones(rows, dtype=bool), np.argsort(chance)
    if needs == "first":
        return np.array([first is None for first in counts.first]), np.argsort(chance)
    of_pool = needs == "pass_rates"
    with user_errors(f"policy {target.policy.title!r}", PolicyError, target.policy):
        if of_pool:
            bounds = pool_bounds(target.policy, counts, samples)
        else:
            bounds = score_bounds(target.policy, counts, tiers, samples)
    best, worst = _ranks(bounds, chance)
    # The numbers of rows that could come before a row's worst key, and that must come before its
    # best.
    before = np.searchsorted(np.sort(best), worst) - (best < worst)
    surely_before = np.searchsorted(np.sort(worst), best)
    chosen = (before < target.size) & np.isfinite(bounds.high)
    left_out = (surely_before >= target.size) | np.isinf(bounds.low)
    undecided = ~(chosen | left_out)
    if not of_pool:
        return undecided, np.argsort(best, kind="stable")
    incomplete = counts.drawn < samples
    if undecided.any() and not (undecided & incomplete).any():
        undecided = incomplete  # decided rows still move the quartiles
    # Rows that look closest to the median first: they determine how far away other rows must be.
    expected = (counts.successes + 0.5) / (counts.drawn - counts.unscored + 1)
    return undecided, np.argsort(np.abs(expected - np.median(expected)), kind="stable")


def pool_bounds(policy: ScorePolicy, counts: Counts, samples: int) -> Bounds:
    """Lowest and highest scores if scores depend on the pass rates of the whole pool."""
    scorable = (samples - counts.unscored).astype(float)
    scorable[scorable == 0] = np.nan
    missing = samples - counts.drawn
    low, high = policy.score_bounds(
        counts.successes / scorable, (counts.successes + missing) / scorable
    )
    without = counts.drawn == counts.unscored  # they may end without a pass rate
    low, high = (np.where(np.isnan(scores), UNKNOWN, scores) for scores in (low, high))
    return Bounds(low, np.where(without, UNKNOWN, high))


def _ranks(bounds: Bounds, chance: Ints) -> tuple[Ints, Ints]:
    """Each row's best and worst (score, tie-breaker) as integer ranks in one common order."""
    scores = np.concatenate(bounds)
    twice = np.concatenate([chance, chance])
    # Equal (score, tie-breaker) pairs share a rank; best ones first, then worst ones.
    order = np.lexsort((twice, scores))
    sorted_scores = scores[order]
    sorted_chance = twice[order]
    changes = sorted_scores[1:] != sorted_scores[:-1]
    changes |= sorted_chance[1:] != sorted_chance[:-1]
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(changes)])
    return ranks[: len(chance)], ranks[len(chance) :]


def score_bounds(policy: ScorePolicy, counts: Counts, tiers: Sequence[str], samples: int) -> Bounds:
    """Lowest and highest score over all outcomes that each prompt's missing samples can have.

    Prompts in the same state have the same bounds, so each state is computed once.
    """
    firsts, levels = (
        pa.array(texts, pa.string()).dictionary_encode() for texts in (counts.first, tiers)
    )
    columns = (
        *(counts.successes, counts.unscored, counts.drawn),
        firsts.indices.fill_null(len(firsts.dictionary)).to_numpy(),
        levels.indices.to_numpy(),
    )
    sizes = (*[samples + 1] * 3, len(firsts.dictionary) + 1, max(1, len(levels.dictionary)))
    # A state of five numbers as one number: the distinct states, and each prompt's.
    states, row = np.unique(np.ravel_multi_index(columns, sizes), return_inverse=True)
    names = [*firsts.dictionary.to_pylist(), ""], levels.dictionary.to_pylist()
    bounds = [
        _state_bounds(policy, (s, u, d), names[0][f], names[1][t], samples)
        for s, u, d, f, t in np.transpose(np.unravel_index(states, sizes)).tolist()
    ]
    both = np.array(bounds, dtype=float).reshape(-1, 2)[row]
    return Bounds(both[:, 0], both[:, 1])


def _state_bounds(
    policy: ScorePolicy, state: tuple[int, int, int], first: str, tier: str, samples: int
) -> tuple[float, float]:
    successes, unscored, drawn = state
    left = samples - drawn
    # Of the missing samples, a may be correct and b unscorable.
    finals = [(a, b) for a, b in product(range(left + 1), repeat=2) if a + b <= left]
    scorable = np.array([samples - unscored - b for _, b in finals])
    correct = np.array([successes + a for a, _ in finals])
    table = pa.table(
        {
            "pass_rate": pa.array(correct / np.maximum(scorable, 1), mask=scorable == 0),
            "tier": [tier] * len(finals),
            "first": [first or None] * len(finals),
        }
    )
    scores = np.asarray(policy.score(table), dtype=float)
    scores = np.where(np.isnan(scores), UNKNOWN, scores)
    scores = np.where(policy.eligible(table), scores, np.inf)
    return float(scores.min()), float(scores.max())


def count_outcomes(
    outcomes: Mapping[str, Mapping[int, str]], ids: Sequence[str], unscored: frozenset[str]
) -> Counts:
    """Counts per prompt of `ids`, from prompt_id -> sample index -> outcome."""
    drawn = [outcomes.get(i, {}) for i in ids]
    return Counts(
        np.array([sum(o == "correct" for o in d.values()) for d in drawn], dtype=np.int64),
        np.array([sum(o in unscored for o in d.values()) for d in drawn], dtype=np.int64),
        np.array([len(d) for d in drawn], dtype=np.int64),
        np.array([d.get(0) for d in drawn], dtype=object),
    )
