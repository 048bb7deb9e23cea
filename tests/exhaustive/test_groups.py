"""Related questions: a group counts as one in every test, and the mean stays that of all."""

import pytest

from benchmarks.compare_null import CLUSTERS, related_pairs


@pytest.mark.parametrize("clusters", CLUSTERS)
@pytest.mark.parametrize("seeds", [2, 5])
def test_equal_arms_on_related_questions_rarely_differ(clusters: str, seeds: int) -> None:
    by_question, by_cluster = related_pairs(CLUSTERS[clusters], seeds, 150)
    assert by_cluster <= 0.05 + 3 * (0.05 * 0.95 / 150) ** 0.5
    assert by_question >= by_cluster
