"""Exact adaptive probing: which samples can still change a subset. Pure: Arrow and NumPy only.

A policy that looks at each prompt's own pass rate takes the prompts of the lowest key, (score,
lottery number). Of a prompt that was sampled in part, the possible final counts bound its key. It
is certainly in when fewer prompts than the subset holds can come before its worst key, and
certainly out when as many certainly come before its best. Nothing it could still say changes the
subset then, so it is sampled no more; the others go on. With all K samples drawn every bound is a
point, so the outcome is the subset of the full probe, whatever was drawn and in which order.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from policies import ScorePolicy, lottery, needs_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = 1e300  # the score of a prompt without a pass rate: behind all, before the ineligible


class Target(NamedTuple):
    """A subset that somebody will take from the probe."""

    policy: ScorePolicy
    size: int
    seed: int


class Counts(NamedTuple):
    """What was drawn of each prompt: four arrays of the pool's length, and the first outcome."""

    successes: Ints
    uncounted: Ints  # errors, and whatever else the pass rate leaves out
    drawn: Ints
    first: npt.NDArray[np.object_]  # outcome of sample 0, None while it is not drawn


class Bounds(NamedTuple):
    """Lowest and highest score that each prompt can end with; inf where it is not eligible."""

    low: Floats
    high: Floats


def owed_rows(
    targets: Sequence[Target], counts: Counts, tiers: Sequence[str], samples: int
) -> Ints:
    """Rows that need another sample for some target, the most promising first.

    A row's turn is its best place, over the targets, among the rows that may come into that
    target's subset: what looks like a member is made sure of before what looks like none.
    """
    left = counts.drawn < samples
    turn = np.full(len(left), np.inf)
    for target in targets:
        open_rows, order = _undecided(target, counts, tiers, samples)
        place = np.empty(len(left))
        place[order] = np.arange(len(left)) / max(1, target.size)
        wanted = open_rows & left
        turn[wanted] = np.minimum(turn[wanted], place[wanted])
    rows = np.flatnonzero(np.isfinite(turn))
    return rows[np.argsort(turn[rows], kind="stable")]


def _undecided(
    target: Target, counts: Counts, tiers: Sequence[str], samples: int
) -> tuple[Bools, Ints]:
    """Which rows may still be in or out, and all rows by their best possible key."""
    rows = len(counts.drawn)
    chance = lottery(rows, np.random.default_rng(target.seed))
    needs = needs_of(target.policy)
    if needs == "nothing":
        return np.zeros(rows, dtype=bool), np.argsort(chance)
    if needs == "all":
        return np.ones(rows, dtype=bool), np.argsort(chance)
    if needs == "first":
        return np.array([first is None for first in counts.first]), np.argsort(chance)
    bounds = score_bounds(target.policy, counts, tiers, samples)
    best, worst = _ranks(bounds, chance)
    before = np.searchsorted(np.sort(best), worst) - (best < worst)
    surely_before = np.searchsorted(np.sort(worst), best)
    sure = (before < target.size) & np.isfinite(bounds.high)
    hopeless = (surely_before >= target.size) | np.isinf(bounds.low)
    return ~(sure | hopeless), np.argsort(best, kind="stable")


def _ranks(bounds: Bounds, chance: Ints) -> tuple[Ints, Ints]:
    """Each row's best and worst (score, lottery) as whole numbers in one common order."""
    scores, twice = np.concatenate(bounds), np.concatenate([chance, chance])
    order = np.lexsort((twice, scores))
    sorted_scores, sorted_chance = scores[order], twice[order]
    changes = sorted_scores[1:] != sorted_scores[:-1]
    changes |= sorted_chance[1:] != sorted_chance[:-1]
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(changes)])
    return ranks[: len(chance)], ranks[len(chance) :]


def score_bounds(policy: ScorePolicy, counts: Counts, tiers: Sequence[str], samples: int) -> Bounds:
    """Lowest and highest score over all that each prompt's missing samples could say.

    Prompts in the same state have the same bounds, so each state is worked out once.
    """
    columns = [counts.successes, counts.uncounted, counts.drawn]
    names = [
        np.unique(np.array(texts, dtype=str), return_inverse=True)
        for texts in ([f or "" for f in counts.first], list(tiers))
    ]
    table = np.stack([*columns, *(codes for _, codes in names)], axis=1)
    states, row = np.unique(table, axis=0, return_inverse=True)
    (firsts, _), (levels, _) = names
    found = [
        _state_bounds(policy, (s, u, d), str(firsts[f]), str(levels[t]), samples)
        for s, u, d, f, t in states.tolist()
    ]
    both = np.array(found, dtype=float).reshape(-1, 2)[row.reshape(-1)]
    return Bounds(both[:, 0], both[:, 1])


def _state_bounds(
    policy: ScorePolicy, state: tuple[int, int, int], first: str, tier: str, samples: int
) -> tuple[float, float]:
    successes, uncounted, drawn = state
    left = samples - drawn
    finals = [(a, b) for a, b in product(range(left + 1), repeat=2) if a + b <= left]
    judged = np.array([samples - uncounted - b for _, b in finals])
    right = np.array([successes + a for a, _ in finals])
    table = pa.table(
        {
            "pass_rate": pa.array(right / np.maximum(judged, 1), mask=judged == 0),
            "tier": [tier] * len(finals),
            "first": [first or None] * len(finals),
        }
    )
    scores = np.asarray(policy.score(table), dtype=float)
    scores = np.where(np.isnan(scores), UNKNOWN, scores)
    scores = np.where(policy.eligible(table), scores, np.inf)
    return float(scores.min()), float(scores.max())


def resolved(table: pa.Table, samples: int, count_truncated: str = "wrong") -> pa.Table:
    """A difficulty table whose pass rates decide as those of the full probe would.

    The missing samples of a prompt that was decided early are taken as failures; every other
    answer would lead to the same subset.
    """
    short = table["n"].to_numpy() < samples
    left_out = (
        table["error"].to_numpy() + (count_truncated == "exclude") * table["truncated"].to_numpy()
    )
    full = table["successes"].to_numpy() / np.maximum(samples - left_out, 1)
    rate = np.where(short, full, table["pass_rate"].to_numpy(zero_copy_only=False).astype(float))
    place = table.column_names.index("pass_rate")
    return table.set_column(place, "pass_rate", pa.array(rate, mask=np.isnan(rate)))


def simulate(
    outcomes: npt.NDArray[np.bool_],
    targets: Sequence[Target],
    batch: int,
    watch: Callable[[Counts], None] | None = None,
) -> Counts:
    """Replay recorded samples [prompts, K] as an adaptive probe would draw them, `batch` at a time.

    Returns what was drawn; the share of draws saved is 1 − drawn.sum() / outcomes.size.
    """
    prompts, samples = outcomes.shape
    none = np.zeros(prompts, dtype=np.int64)
    counts = Counts(none.copy(), none.copy(), none.copy(), np.full(prompts, None, dtype=object))
    tiers = [""] * prompts
    while (rows := owed_rows(targets, counts, tiers, samples)[:batch]).size:
        said = outcomes[rows, counts.drawn[rows]]
        fresh = counts.drawn[rows] == 0
        counts.first[rows[fresh]] = np.where(said[fresh], "correct", "wrong")
        counts.successes[rows] += said
        counts.drawn[rows] += 1
        if watch:
            watch(counts)
    return counts


def known_counts(
    outcomes: Mapping[str, Mapping[int, str]], ids: Sequence[str], uncounted: frozenset[str]
) -> Counts:
    """Counts of the samples drawn so far: prompt_id -> sample index -> outcome."""
    drawn = [outcomes.get(i, {}) for i in ids]
    return Counts(
        np.array([sum(o == "correct" for o in d.values()) for d in drawn], dtype=np.int64),
        np.array([sum(o in uncounted for o in d.values()) for d in drawn], dtype=np.int64),
        np.array([len(d) for d in drawn], dtype=np.int64),
        np.array([d.get(0) for d in drawn], dtype=object),
    )
