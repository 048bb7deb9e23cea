"""Steps to match: the update at which a curve reaches a target, and its interval."""

import numpy as np
import pytest

from orchestrator.report.compare import steps_to_match


def curve(*marks: float, items: int = 300) -> dict[int, np.ndarray]:
    """Evaluations every ten updates with these exact accuracies."""
    order = np.random.default_rng(1).permutation(items)
    return {10 * k: (order < round(m * items))[None] * 1.0 for k, m in enumerate(marks)}


def test_the_target_is_reached_between_two_evaluations() -> None:
    target = curve(0.6)[0]
    crossing = steps_to_match(curve(0.2, 0.4, 0.8, 0.9), target)
    assert crossing.update == pytest.approx(15)
    assert crossing.low is not None and crossing.high is not None
    assert 10 < crossing.low < 15 < crossing.high < 20 and crossing.reached == 1


def test_a_target_that_is_never_reached_has_no_update() -> None:
    assert steps_to_match(curve(0.2, 0.3), curve(0.9)[0]) == (None, None, None, 0)


def test_a_base_above_the_target_reaches_it_at_once() -> None:
    assert steps_to_match(curve(0.9, 0.9), curve(0.5)[0]) == (0, 0, 0, 1)


def test_a_target_barely_reached_has_an_open_end() -> None:
    rng = np.random.default_rng(0)
    target = (rng.random((1, 200)) < 0.6) * 1.0
    last = rng.permutation(target, axis=1)
    crossing = steps_to_match({0: np.zeros((1, 200)), 10: last}, target)
    assert crossing.high is None and 0.3 < crossing.reached < 0.7


def test_seeds_that_differ_widen_the_interval() -> None:
    one, target = curve(0.2, 0.4, 0.8, 0.9), curve(0.6)[0]
    lucky = curve(0.3, 0.7, 0.9, 0.95)
    unlucky = curve(0.1, 0.2, 0.6, 0.85)
    both = {u: np.concatenate([lucky[u], unlucky[u]]) for u in one}
    alone = {u: np.concatenate([one[u], one[u]]) for u in one}
    wide, narrow = steps_to_match(both, target), steps_to_match(alone, target)
    assert wide.low is not None and wide.high is not None
    assert narrow.low is not None and narrow.high is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_the_interval_covers_the_true_step_in_about_95_of_100() -> None:
    covered = 0
    for key in range(100):
        rng = np.random.default_rng(key)
        base = rng.random((1, 400))
        side = {u: (base < 0.3 + 0.01 * u)[:, :] * 1.0 for u in range(0, 51, 10)}
        crossing = steps_to_match(side, (rng.permutation(base, axis=1) < 0.55) * 1.0, 400)
        covered += (crossing.low or 0) <= 25 <= (crossing.high or 99)
    assert covered >= 88


def test_the_order_of_questions_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    side = {u: (rng.random((2, 60)) < 0.3 + u / 50) * 1.0 for u in (0, 10, 20)}
    target, order = (rng.random((3, 60)) < 0.5) * 1.0, rng.permutation(60)
    one = steps_to_match(side, target)
    assert steps_to_match({u: x[:, order] for u, x in side.items()}, target[:, order]) == one
