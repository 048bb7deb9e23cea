"""Missing scores: every score that is there counts, and none that is missing decides a verdict."""

import pytest

from benchmarks.compare_null import missing_verdicts


@pytest.mark.parametrize("kind", ["5 % at random", "10 % of the wrong ones of one"])
@pytest.mark.parametrize("seeds", [2, 10])
def test_missing_scores_rarely_make_equal_arms_differ(kind: str, seeds: int) -> None:
    assert missing_verdicts(kind, seeds, 0, 120) <= 0.05 + 3 * (0.05 * 0.95 / 120) ** 0.5
