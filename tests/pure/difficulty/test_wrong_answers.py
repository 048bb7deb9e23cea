"""The mixture of scattered and attractive wrong answers."""

import numpy as np
import pytest

from orchestrator.difficulty.wrong_answers import FAR, fit_wrong_answers


def counts_of(answers: np.ndarray, near: bool = True) -> np.ndarray:
    """Answers [prompts, wrong ones] as rows, votes, and whether they are near: [3, answers]."""
    columns = [np.empty((3, 0), int)]
    for row, given in enumerate(answers):
        votes = np.unique(given, return_counts=True)[1]
        columns.append(np.stack([np.full(len(votes), row), votes, np.full(len(votes), near)]))
    return np.concatenate(columns, axis=1)


def wrong_answers(rng: np.random.Generator, prompts: int, wrong: int, attracted: float):
    """Of a share of the prompts, 80 % of the answers are the same; all others differ."""
    same = rng.random((prompts, 1)) < attracted
    return np.where(same & (rng.random((prompts, wrong)) < 0.8), 0, rng.integers(1, 10**6, wrong))


EXPOSED = np.array([[0] * 50, [8] * 50, [6] * 50])
SIX_OF_EIGHT = 0.797  # the binomial chance of 6 or more of 8 at .8


@pytest.mark.parametrize("attracted", [0.0, 0.3, 1.0])
def test_agreement_is_that_of_the_attracted_share(attracted: float) -> None:
    rng = np.random.default_rng(0)
    number, deviation, share = fit_wrong_answers(
        *counts_of(wrong_answers(rng, 400, 6, attracted))
    ).agreement(EXPOSED)
    assert number == pytest.approx(50 * attracted * SIX_OF_EIGHT, abs=2 * deviation + 0.5)
    assert share == pytest.approx(number / 50)


def test_the_deviation_is_that_of_repeated_pools() -> None:
    rng, seen = np.random.default_rng(1), []
    for _ in range(12):
        fit = fit_wrong_answers(*counts_of(wrong_answers(rng, 100, 6, 0.3)))
        rows, votes, _ = counts_of(wrong_answers(rng, 50, 8, 0.3))
        agreed = np.count_nonzero(np.bincount(rows[votes >= 6], minlength=50))
        seen.append((agreed - fit.agreement(EXPOSED).number, fit.agreement(EXPOSED).deviation))
    differences, deviations = np.transpose(seen)
    assert np.std(differences) == pytest.approx(np.mean(deviations), rel=0.4)
    assert np.mean(differences) == pytest.approx(0, abs=2)


def test_prompts_with_other_pass_rates_count_as_few() -> None:
    rng = np.random.default_rng(2)
    far = counts_of(wrong_answers(rng, 400, 6, 0.0), near=False)
    near = counts_of(wrong_answers(rng, 100, 6, 1.0))
    near[0] += 400
    both = fit_wrong_answers(*np.concatenate([far, near], axis=1)).agreement(EXPOSED)
    alone = [fit_wrong_answers(*each).agreement(EXPOSED) for each in (far, near)]
    assert alone[0].number < 2 and alone[1].number == pytest.approx(50 * SIX_OF_EIGHT, abs=4)
    assert alone[1].number * (1 - 2 * FAR / 100) < both.number < alone[1].number


def test_without_wrong_answers_little_is_known() -> None:
    none = fit_wrong_answers(*np.zeros((3, 0), int))
    number, deviation, _ = none.agreement(EXPOSED)
    assert 0 < number < 50 and deviation > 5
    assert none.agreement(EXPOSED[:, :0]) == (0, 0, 0)
