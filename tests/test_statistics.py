"""What may be said of a gain: the paired bootstrap over questions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.report.statistics import paired_gain

RATES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40)


def pairs(count: int, gain: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    return rng.random(count), rng.random(count) + gain


@settings(max_examples=50, deadline=None)
@given(RATES)
def test_the_interval_lies_between_the_smallest_and_the_largest_difference(
    rates: list[tuple[float, float]],
) -> None:
    before, after = np.array(rates).T
    low, high = paired_gain(before, after, resamples=200)
    difference = after - before
    assert difference.min() - 1e-12 <= low <= high <= difference.max() + 1e-12


@settings(max_examples=50, deadline=None)
@given(RATES)
def test_swapping_before_and_after_mirrors_the_interval(rates: list[tuple[float, float]]) -> None:
    before, after = np.array(rates).T
    forth, back = (paired_gain(*pair, resamples=200) for pair in ((before, after), (after, before)))
    assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low))


@pytest.mark.parametrize("count", [20, 100, 500])
def test_the_interval_holds_the_mean_and_has_the_width_of_theory(count: int) -> None:
    before, after = pairs(count)
    low, high = paired_gain(before, after)
    difference = after - before
    assert low < difference.mean() < high
    normal = 2 * 1.96 * difference.std() / np.sqrt(count)
    assert high - low == pytest.approx(normal, rel=0.12)


def test_more_questions_narrow_the_interval() -> None:
    widths = [
        interval.high - interval.low
        for interval in (paired_gain(*pairs(n)) for n in (25, 100, 400))
    ]
    assert widths[0] > 1.5 * widths[1] > 1.5**2 * widths[2]


def test_the_same_data_give_the_same_interval_and_are_left_alone() -> None:
    before, after = pairs(50)
    copies = before.copy(), after.copy()
    assert paired_gain(before, after) == paired_gain(before, after)
    assert (before == copies[0]).all() and (after == copies[1]).all()


def test_pairing_takes_out_what_questions_share() -> None:
    rng = np.random.default_rng(0)
    before = rng.random(200)
    after = before + rng.normal(0.05, 0.01, 200)
    paired, unpaired = paired_gain(before, after), paired_gain(before, rng.permutation(after))
    assert 10 * (paired.high - paired.low) < unpaired.high - unpaired.low
    assert paired.low > 0


@pytest.mark.parametrize("gain", [-0.25, 0.0, 0.5])
def test_equal_differences_leave_no_doubt(gain: float) -> None:
    before = np.linspace(0, 1, 11)
    assert paired_gain(before, before + gain) == pytest.approx((gain, gain))


def test_one_question_is_no_more_than_itself() -> None:
    assert paired_gain(np.array([0.25]), np.array([1.0])) == (0.75, 0.75)


@pytest.mark.parametrize("resamples", [1, 499, 501])
def test_any_number_of_resamples_fills_its_last_block(resamples: int) -> None:
    low, high = paired_gain(*pairs(30), resamples=resamples)
    assert -2 < low <= high < 2


def test_unequal_lengths_are_refused_with_both_shapes() -> None:
    with pytest.raises(ValueError, match=r"equal lengths, not \(3,\) and \(4,\)"):
        paired_gain(np.zeros(3), np.zeros(4))
