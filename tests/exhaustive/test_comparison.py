"""Comparisons of pairs of policies, and their sentences."""

import numpy as np
import pytest

from benchmarks.compare_null import equal_policies, errors, scatters_of
from orchestrator.stats.comparison import (
    compare_policies,
)
from orchestrator.stats.inference import (
    ALPHA,
    Variances,
)
from orchestrator.stats.power import Design, needed


@pytest.mark.parametrize("scatters", scatters_of(4))
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_equal_policies_rarely_differ(seeds: int, scatters: list[float]) -> None:
    """With a variance shared by all policies, 8 to 13 % of pairs of unequal scatter do."""
    pairs, _, families = errors(seeds, scatters, 300)
    assert pairs <= 0.06 and families <= 0.06


def test_the_range_of_needed_seeds_contains_the_right_number_in_80_of_100() -> None:
    """Four policies × three seeds × 300 questions, of which one is 3 points ahead."""
    rng, ids = np.random.default_rng(2), [f"q{i}" for i in range(300)]
    pairs = []
    for _ in range(60):
        arms = equal_policies([6.0] * 4, [3] * 4, rng, 300, ahead=3.0)
        scores = {str(n): {s: (ids, r) for s, r in enumerate(arm)} for n, arm in enumerate(arms)}
        pairs.append(compare_policies(scores)[0])
    true = Variances(*np.mean([c.variances for c in pairs], axis=0))
    right = needed(true, 0.03, Design(3, 300, ALPHA / 6)).seeds
    assert right and right > 30
    ranges = [[each.seeds or np.inf for each in c.needed_range] for c in pairs]
    assert np.mean([least <= right <= most for least, most in ranges]) >= 0.8
