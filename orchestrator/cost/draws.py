"""How many rollouts an online policy discards, by the pass rates of its prompts. Pure."""

from math import comb

import numpy as np
import numpy.typing as npt

from policies import OnlinePolicy, discards, max_draws_of

UNKNOWN = 2.0  # before anything is known of the pass rates


def expected_draws(
    policy: OnlinePolicy, rates: npt.NDArray[np.float64] | None, group_size: int
) -> float:
    """Rollouts drawn per rollout that is trained on; 1 for a policy that discards none.

    `rates`: pass rates of the prompts (nan: unknown), or None without a probe. Training changes
    them, so this is a rough estimate.
    """
    if not discards(policy):
        return 1.0
    most = max_draws_of(policy)
    known = np.empty(0) if rates is None else rates[~np.isnan(rates)]
    if not len(known):
        return min(UNKNOWN, most)
    correct = np.arange(group_size + 1)
    kept = np.asarray(policy.keep(correct, np.full(group_size + 1, group_size)))
    values, counts = np.unique(known, return_counts=True)
    ways = np.array([comb(group_size, c) for c in correct])
    chances = ways * values[:, None] ** correct * (1 - values[:, None]) ** (group_size - correct)
    share = float(counts @ chances @ kept) / len(known)
    return most if share * most <= 1 else 1 / share
