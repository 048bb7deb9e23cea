"""The game of guesses: its answers, limit and reward, and the questions of its splits."""

import json
from collections import Counter
from typing import Any

import pytest
from pools import pool_hash

from tasks import TaskError, get_task
from tasks.number_guess import LARGEST, MAX_TEST, MAX_TRAIN, WIDTHS, NumberGuess


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
    task = get_task("number_guess", train=100, test=100, guesses=4)
    for prompts in (task.train(), task.test()):
        assert len({p.prompt_id for p in prompts}) == 100
        assert Counter(p.tier for p in prompts) == {str(width): 20 for width in WIDTHS}
        for prompt in prompts:
            row = json.loads(prompt.info)
            assert 1 <= row["low"] <= row["number"] <= row["high"] <= LARGEST
            assert row["high"] - row["low"] + 1 == int(prompt.tier)
            wording = f"Find the {row['thing']} from {row['low']} to {row['high']} in 4 guesses."
            assert (prompt.question, prompt.answer) == (wording, str(row["number"]))
            started(**{key: row[key] for key in ("number", "low", "high", "guesses")})


def test_the_splits_share_no_question_and_each_seed_has_its_own_games() -> None:
    first, second = (get_task("number_guess", train=300, seed=seed) for seed in (0, 1))
    train = {p.question for p in (*first.train(), *second.train())}
    assert not train & {p.question for p in (*first.test(), *second.test())}
    assert first.train()[:20] == get_task("number_guess", train=20).train() != second.train()[:20]


def test_the_largest_splits_can_be_drawn_from_any_seed() -> None:
    for seed in range(3):
        task = get_task("number_guess", train=MAX_TRAIN, test=MAX_TEST, seed=seed)
        assert (len(task.train()), len(task.test())) == (MAX_TRAIN, MAX_TEST)
    with pytest.raises(TaskError, match="write at most 8,000"):
        get_task("number_guess", train=MAX_TRAIN + 1)


def test_the_default_pool_has_the_pinned_hash() -> None:
    """Stored probes name these ids; a change here must come with a new `version`."""
    assert pool_hash("number_guess") == "0a8c5e56138f34b2"


def test_the_last_call_of_a_game_is_marked() -> None:
    task = get_task("number_guess")
    call = task.format_answer
    assert task.mark(f"1-9\n{call('5')}\nhigher\n6-9\n{call('7')}\ncorrect\nFound it.", "7").reward
    assert task.mark(f"{call('7')}\nhigher\n{call('5')}", "7").outcome == "wrong"
    assert task.mark("I give up.", "7").outcome == "unparsed"
    assert task.mark("1-9\n<tool_call>", "7", truncated=True).outcome == "truncated"
