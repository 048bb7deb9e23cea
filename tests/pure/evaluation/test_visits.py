"""Prompts compared with themselves at their earlier visits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluation import visits as module
from orchestrator.evaluation.visits import ALPHA, Visits, pairs_needed, threshold

UPDATES, PROMPTS = 30, 8


def visits(values: np.ndarray, pool: int = 40) -> Visits:
    """One value of a group per place of a run; prompts come in the same order in each epoch."""
    place = np.arange(len(values))
    return Visits(1 + place // PROMPTS, place % pool, values, (0.0, 1.0))


def noisy(level: np.ndarray, seed: int) -> np.ndarray:
    """Shares of 8 completions that are correct, with a chance that changes by update."""
    chance = np.repeat(level, PROMPTS)
    return np.random.default_rng(seed).binomial(8, chance) / 8


def test_the_threshold_is_that_of_hoeffding() -> None:
    assert np.exp(-(threshold(20) ** 2) / 2) == pytest.approx(ALPHA / 20)
    assert pairs_needed(20) == 20  # 2 ln 20,000 = 19.8
    every_one_falls = Visits(
        np.repeat([1, 9], 20), np.tile(np.arange(20), 2), np.repeat([1.0, 0.5], 20), (0.0, 1.0)
    )
    assert every_one_falls.trend.score == pytest.approx(20**0.5)


def test_runs_without_a_fall_have_none() -> None:
    for seed in range(60):
        flat = visits(noisy(np.full(UPDATES, 0.5), seed))
        assert not flat.lasting
        assert flat.step is None


def test_a_lasting_fall_is_found_at_its_update() -> None:
    level = np.where(np.arange(UPDATES) < 15, 0.7, 0.3)
    fall = max(visits(noisy(level, 0)).lasting, key=lambda pairs: pairs.score)
    assert abs(fall.update - 16) <= 1
    assert (fall.before, fall.after) == pytest.approx((0.7, 0.3), abs=0.05)


def test_a_step_back_to_the_start_is_told_from_one_that_lasts() -> None:
    rises = np.linspace(0.2, 0.7, 15)
    back = visits(noisy(np.r_[rises, rises], 0)).step
    assert back is not None
    assert back.back
    assert abs(back.update - 16) <= 1
    down = visits(noisy(np.r_[np.linspace(0.4, 0.7, 15), np.full(15, 0.05)], 0)).step
    assert down is not None
    assert not down.back


def test_prompts_that_are_drawn_again_because_they_were_solved_do_not_fall() -> None:
    """A tenth of 2,000 prompts, those that chance has solved best, are drawn a second time."""
    first = np.random.default_rng(0).binomial(8, 0.2, 2000) / 8
    best = np.argsort(-first)[:200]
    second = np.random.default_rng(1).binomial(8, 0.2, 200) / 8
    update = np.r_[np.arange(2000) // 200, np.arange(200) // 40 + 10]
    again = Visits(update, np.r_[np.arange(2000), best], np.r_[first, second], (0.0, 1.0))
    assert again.available == 200
    assert not again.lasting


def test_a_part_of_the_prompts_of_a_large_log_is_permuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PERMUTED", 400)
    rises = np.linspace(0.2, 0.7, 60)
    large = visits(noisy(np.r_[rises, rises], 0), pool=80)
    assert large.step is not None
    assert abs(large.step.update - 61) <= 10
    alone = visits(noisy(np.full(60, 0.5), 0), pool=1)  # one prompt is no part of itself
    assert alone.step is None


def test_without_a_second_visit_nothing_is_compared() -> None:
    once = visits(noisy(np.linspace(0.9, 0.1, UPDATES), 0), pool=UPDATES * PROMPTS)
    assert once.available == 0 < once.needed
    assert once.step is None
    assert not once.lasting
    empty = Visits(np.zeros(0, int), np.zeros(0, int), np.zeros(0), (0.0, 1.0))
    assert empty.available == 0
    assert empty.step is None


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=40))
def test_pairs_are_of_one_prompt_and_on_both_sides(groups: list[tuple[int, int]]) -> None:
    update, prompt = np.array(groups).T
    # Each value names its prompt and update, so that differences show which were paired.
    found = Visits(update, prompt, prompt * 1000.0 + update, (0.0, 1e6))
    for place in found.places.tolist():
        pairs = found._at(place)
        early = np.bincount(prompt[update < place], minlength=4)
        late = np.bincount(prompt[update >= place], minlength=4)
        assert pairs.number == np.minimum(early, late).sum()
    if found.trend.number:
        assert -10 < found.trend.before - found.trend.after <= 0
