"""Comparisons of pairs of policies, and their sentences."""

import numpy as np
import pytest

from benchmarks.compare_null import equal_policies, family_wise_error
from orchestrator.stats.comparison import (
    compare_policies,
)
from orchestrator.stats.inference import (
    LEVEL,
    Variances,
)
from orchestrator.stats.power import Grid, needed


@pytest.mark.parametrize(("seeds", "policies"), [(2, 8), (3, 4)])
def test_equal_policies_rarely_differ_after_holms_correction(seeds: int, policies: int) -> None:
    """A pair's own seeds alone, with Cochran's quantile, name a winner in 20 and in 10 %."""
    assert family_wise_error(seeds, [6.0] * policies, 200) <= 0.05


def test_the_range_of_needed_seeds_contains_the_right_number_in_80_of_100() -> None:
    """Four policies × three seeds × 300 questions, of which one is 3 points ahead."""
    rng, ids = np.random.default_rng(2), [f"q{i}" for i in range(300)]
    pairs = []
    for _ in range(60):
        arms = equal_policies([6.0] * 4, [3] * 4, rng, 300, ahead=3.0)
        scores = {str(n): {s: (ids, r) for s, r in enumerate(arm)} for n, arm in enumerate(arms)}
        pairs.append(compare_policies(scores)[0])
    true = Variances(*np.mean([c.variances for c in pairs], axis=0))
    right = needed(true, 0.03, Grid(3, 300, LEVEL / 6, arms=4)).seeds
    assert right and right > 30
    ranges = [[each.seeds or np.inf for each in c.needed_range] for c in pairs]
    assert np.mean([least <= right <= most for least, most in ranges]) >= 0.8
