"""docs/examples/whole_idea.py agrees with a cell, on an embedded model that subtracts badly."""

from types import ModuleType

import numpy as np
import pytest
from whole_idea_cases import idea  # noqa: F401 (fixtures)


def test_its_interval_is_that_of_seeds_and_questions(idea: ModuleType) -> None:
    """Of 3 seeds × 4 questions, by hand: only seeds differ, only questions differ, neither."""
    other = np.zeros((3, 4))
    points, half = idea.compare(other + np.array([[0.1], [0.2], [0.3]]), other)
    assert points == pytest.approx(20) and half == pytest.approx(4.30 * 10 / np.sqrt(3))
    points, half = idea.compare(other + np.array([0.0, 0.2, 0.4, 0.6]), other)
    assert points == pytest.approx(30)
    assert half == pytest.approx(3.18 * np.std([0, 20, 40, 60], ddof=1) / 2)
    assert idea.compare(other, other) == (0, 0)
    assert np.isinf(idea.compare(np.ones((1, 4)), np.zeros((1, 4)))[1])
