"""The game of guesses: its answers, limit and reward, and the questions of its splits."""

from collections import Counter
from typing import Any

import pytest

from tasks.number_guess import GUESSES, LARGEST, WIDTHS, NumberGuess, games, is_test


def started(number: int = 7, low: int = 1, high: int = 10, guesses: int = 3) -> NumberGuess:
    game = NumberGuess()
    game.reset(low=low, high=high, number=number, guesses=guesses, prompt=[], thing="page")
    return game


def test_answers_lead_to_the_number_and_only_finding_it_is_rewarded() -> None:
    game = started()
    assert (game.guess(5), game.get_reward()) == ("higher", 0.0)
    assert (game.guess(8), game.get_reward()) == ("lower", 0.0)
    assert (game.guess(7), game.get_reward()) == ("correct", 1.0)
    with pytest.raises(ValueError, match="game over"):
        game.guess(7)
    assert game.get_reward() == 1.0


def test_the_last_guess_ends_the_game_and_a_reset_starts_another() -> None:
    game = started(guesses=2)
    assert [game.guess(1), game.guess(9)] == ["higher", "lower, game over"]
    with pytest.raises(ValueError, match="game over"):
        game.guess(7)
    assert game.get_reward() == 0.0
    game.reset(low=1, high=10, number=3, guesses=1)
    assert (game.guess(3), game.get_reward()) == ("correct", 1.0)


@pytest.mark.parametrize("number", [0, 11, -1, "7", 7.0, True, None])
def test_a_guess_that_cannot_be_right_is_an_error_and_counts(number: Any) -> None:
    game = started(guesses=1)
    with pytest.raises(ValueError, match="not in range"):
        game.guess(number)
    with pytest.raises(ValueError, match="game over"):
        game.guess(7)


def test_games_are_valid_and_of_every_width_equally_often() -> None:
    for split in ("train", "test"):
        drawn = games(split, 100)
        assert len(set(drawn)) == 100
        assert all(1 <= g.low <= g.number <= g.high <= LARGEST for g in drawn)
        assert Counter(g.high - g.low + 1 for g in drawn) == dict.fromkeys(WIDTHS, 20)
        assert {g.guesses for g in drawn} == {GUESSES}


def test_the_splits_share_no_question_and_each_seed_has_its_own_games() -> None:
    train = [*games("train", 300), *games("train", 300, seed=1)]
    test = [*games("test", 100), *games("test", 100, seed=1)]
    assert not any(map(is_test, train))
    assert not {g.question() for g in train} & {g.question() for g in test}
    assert games("train", 20) == games("train", 300)[:20] != games("train", 20, seed=1)
