"""Equal spellings of generated values are marked correct, and altered ones never are.

`python -m benchmarks.spellings` does the same for 100,000 pairs a marker.
"""

import random

import pytest

from benchmarks.spellings import KINDS, faults
from tasks.marking.equivalence import mark_expression

COUNTS = {"expression": 2_000, "number": 2_000, "letter": 500, "text": 500}


@pytest.mark.parametrize("marker", COUNTS)
def test_equal_spellings_are_correct_and_altered_ones_are_not(marker: str) -> None:
    for kind, result in faults(marker, COUNTS[marker]).items():
        assert len(result.tried) > 20, kind
        assert result.accepted == [], kind
        assert result.refused == [], kind


def test_every_spelling_of_the_table_is_marked_once() -> None:
    for kind in KINDS:
        if kind.marker == "expression":
            gold, same, other = kind.make(random.Random(1))
            for answers, equal in ((same, True), (other, False)):
                for answer in answers:
                    mark = mark_expression(rf"\boxed{{{answer}}}", gold, "lenient", truncated=False)
                    assert (mark.outcome == "correct") == equal, (gold, answer)
