"""Comparisons of learnable shares, and of trained models with their base model. Pure."""

from collections.abc import Mapping
from math import inf, nan
from types import MappingProxyType

import numpy as np

from orchestrator.stats.comparison import Comparison, RunScores, adjust, compare_policies
from orchestrator.stats.inference import (
    ALPHA,
    Effect,
    SeedSpread,
    available,
    group_codes,
    mean_effect,
    seed_spread,
)


def compare_learnable(
    percentages: Mapping[str, Mapping[int, float]],
    live_shares: Mapping[str, Mapping[int, Mapping[int, float]]],
    stored: Mapping[str, SeedSpread] = MappingProxyType({}),
    level: float = ALPHA,
) -> list[Comparison]:
    """Learnable % of all pairs: policy -> seed -> percentage; … -> update -> share of live groups.

    Only seeds vary: the result is a t interval over seeds. With one seed it is infinite, unless
    `stored` has the variance of learnable shares between more seeds. A pair with one seed each and
    without such a variance is compared by its live groups, paired by update, which covers other
    updates of this seed only.
    """
    numbers = {
        policy: {seed: (("",), np.array([value / 100])) for seed, value in by_seed.items()}
        for policy, by_seed in percentages.items()
    }
    pairs = []
    for c in compare_policies(numbers, stored, item="run", level=level):
        if c.runs == (1, 1) and not c.covers_seeds:
            run_a, run_b = (
                (list(map(str, shares)), np.array(list(shares.values())))
                for shares in (next(iter(live_shares[policy].values())) for policy in (c.a, c.b))
            )
            sides = {c.a: {0: run_a}, c.b: {0: run_b}}
            [by_update] = compare_policies(sides, item="update", level=level)
            c = by_update if by_update.items > 1 else c
        pairs.append(c)
    return adjust(pairs, level)


def compare_with_base(
    changes: RunScores,
    groups: Mapping[str, str] = MappingProxyType({}),
    *,
    of_shares: bool = True,
    level: float = ALPHA,
) -> Comparison:
    """A policy's runs minus their base model: seed -> items and their changes.

    The base model has no seeds, so only the runs' seeds vary. of_shares: cut the interval off at
    ±1, unless a change exceeds 1.
    """
    runs = [dict(zip(run[0], run[1], strict=True)) for run in changes.values()]
    items, values = available(runs)
    codes = group_codes(items, groups)
    mean = Effect(nan, -inf, inf, 1.0)
    spread = None
    if items:
        mean = mean_effect(values, codes, level)
        spread = seed_spread([*map(float, values.mean(axis=1))])
    sizes = [abs(change) for run in runs for change in run.values() if change == change]
    if of_shares and max(sizes) <= 1:
        mean = mean.within(-1.0, 1.0)
    return Comparison(
        a="the policy",
        b="the base model",
        runs=(len(runs), len(runs)),
        items=len(items),
        left_out=len(set.union(*map(set, runs))) - len(items),
        effect=100 * mean.mean,
        low=100 * mean.low,
        high=100 * mean.high,
        p=mean.p,
        p_holm=mean.p,
        spreads=(spread, spread),
        groups=None if codes is None else int(codes.max()) + 1,
        level=level,
    )
