"""Chains of additions and subtractions: what the pool holds, and its gold answers."""

import re
from collections import Counter
from typing import Any

import pytest
from pools import pool_hash
from remedies import refused

from tasks import TaskError, get_task
from tasks.prompts import in_test_split


def test_gold_answers_and_tiers_follow_from_the_question() -> None:
    task = get_task("plus_minus", train=200, test=100)
    for prompt in (*task.train(), *task.test()):
        start = re.match(r"Start with (\d+)\.\n", prompt.question)
        steps = re.findall(r"^\d\) (add|subtract) (\d+)$", prompt.question, re.MULTILINE)
        value = int(start[1])
        for word, number in steps:
            value += int(number) if word == "add" else -int(number)
            assert 1 <= value <= 99
        assert len(steps) == 4
        assert prompt.tier == str(sum(word == "subtract" for word, _ in steps))
        assert task.mark(f"\\boxed{{{value}}}", prompt.answer).outcome == "correct"
        assert task.mark(f"\\boxed{{{value + 1}}}", prompt.answer).outcome == "wrong"


def test_subtractions_are_rare_in_the_pool_and_equally_frequent_in_the_test_set() -> None:
    task = get_task("plus_minus", train=300, test=80, rare=0.2)
    assert Counter(p.tier for p in task.train()) == {"0": 240, "1": 20, "2": 20, "3": 20}
    assert Counter(p.tier for p in task.test()) == {"0": 20, "1": 20, "2": 20, "3": 20}
    assert {p.tier for p in get_task("plus_minus", train=50, rare=0).train()} == {"0"}


def test_the_splits_share_no_question_and_each_seed_has_its_own() -> None:
    first, second = (get_task("plus_minus", seed=seed) for seed in (0, 1))
    assert not any(in_test_split(p) for p in (*first.train(), *second.train()))
    assert all(in_test_split(p) for p in (*first.test(), *second.test()))
    assert first.train() == get_task("plus_minus").train() != second.train()


def test_the_default_pool_has_the_pinned_hash() -> None:
    """Stored probes name these ids; a change here must come with a new `version`."""
    assert pool_hash("plus_minus") == "56721bee780c0f49"


@pytest.mark.parametrize("rare", [-0.1, 1.1, True, "0.1", float("nan")])
def test_an_invalid_share_is_refused(rare: Any) -> None:
    with refused(f"rare {rare!r}", "from 0 to 1", by=TaskError):
        get_task("plus_minus", rare=rare)
