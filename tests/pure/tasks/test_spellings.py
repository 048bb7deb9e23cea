"""Equal spellings of generated values are marked correct, and altered ones never are.

`python -m benchmarks.spellings` does the same for 100,000 pairs a marker.
"""

import pytest

from benchmarks.spellings import faults

COUNTS = {"expression": 2_000, "number": 2_000, "letter": 500, "text": 500}


@pytest.mark.parametrize("marker", COUNTS)
def test_equal_spellings_are_correct_and_altered_ones_are_not(marker: str) -> None:
    for kind, result in faults(marker, COUNTS[marker]).items():
        assert len(result.tried) > 20, kind
        assert result.accepted == [], kind
        assert result.refused == [], kind
