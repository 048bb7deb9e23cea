"""Published selection rules choose what a few plain lines of each rule choose."""

import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from policies import History, PolicyError, checked_ids, discards, get_online_policy

GROUP, UPDATES, SIZE, POOL = 8, 12, 6, 40


def history_of(seed: int = 0, pool: int = POOL, samples: int = 4) -> History:
    """A pool whose pass rates are mostly 0 or 1; the first prompt was never sampled."""
    rng = np.random.default_rng(1)
    successes = rng.binomial(samples, rng.beta(0.4, 0.4, pool))
    known = np.full(pool, samples)
    known[0] = successes[0] = 0
    ids = pa.array([f"p{i:04}" for i in range(pool)])
    return History(ids, known, successes, seed=seed, updates=UPDATES, group_size=GROUP)


def outcome(update: int, row: int) -> tuple[int, int]:
    """Correct and marked completions of a group: prompts that become easier, some unmarked."""
    rng = np.random.default_rng([update, row])
    marked = int(rng.choice([GROUP, GROUP - 1, 0], p=[0.9, 0.08, 0.02]))
    rate = [0, 0.2, 0.5, 0.9, 1][row % 5]
    return int(rng.binomial(marked, min(1, rate * (0.5 + update / 8)))), marked


def choices(
    policy: Any, history: History, updates: range = range(1, UPDATES + 1)
) -> list[list[int]]:
    """The rows of each update; further ones are drawn for an update that is not full."""
    chosen: list[list[int]] = []
    for update in updates:
        rows: list[int] = []
        missing, left = SIZE, SIZE * getattr(policy, "max_draws", 1)
        while missing := min(missing, left):
            history.start(update, missing)
            ids = checked_ids(policy.next(update, history), "policy", missing)
            new = [int(prompt_id[1:]) for prompt_id in ids.to_pylist()]
            groups = [outcome(update, row) for row in new]
            for row, (correct, marked) in zip(new, groups, strict=True):
                history.add(update, row, correct, marked)
            rows, left = rows + new, left - missing
            correct, marked = np.array(groups).T
            kept = policy.keep(correct, marked) if discards(policy) else np.ones(missing, bool)
            missing -= int(np.count_nonzero(kept))
        chosen.append(rows)
    return chosen


RULES = {
    "adarft": [{}, {"eta": 20, "alpha": 1.5, "beta": 0.3}],
}
CASES = [(name, options) for name, cases in RULES.items() for options in cases]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_resumed_cell_chooses_the_same(name: str, options: dict[str, Any], stop: int) -> None:
    expected = choices(get_online_policy(name, **options), history_of())
    history = history_of()
    for update, rows in enumerate(expected[:stop], 1):
        for row in sorted(rows):  # the order within an update is not kept
            history.add(update, row, *outcome(update, row))
    rest = range(stop + 1, UPDATES + 1)
    assert choices(get_online_policy(name, **options), history, rest) == expected[stop:]


@pytest.mark.parametrize("options", RULES["adarft"])
def test_adarft_is_closest_to_a_target_that_follows_the_reward(options: dict[str, Any]) -> None:
    eta, alpha, beta = ({"eta": 50, "alpha": 2, "beta": 0.5} | options).values()
    history = history_of()
    chosen = choices(get_online_policy("adarft", **options), history)
    ranks = np.random.default_rng(0).permutation(POOL)
    target, drawn, targets = 0.0, [0] * POOL, set()
    for update, rows in enumerate(chosen, 1):

        def place(row: int) -> tuple[float, int, int]:
            n, solved = int(history.samples[row]), int(history.successes[row])
            distance = abs(100 * (1 - solved / n) - target) if n else math.inf  # noqa: B023
            return round(distance, 6), drawn[row], int(ranks[row])

        assert rows == sorted(range(POOL), key=place)[:SIZE]
        groups = [outcome(update, row) for row in rows]
        reward = sum(c for c, _ in groups) / sum(m for _, m in groups)
        target = min(100.0, max(0.0, target + eta * math.tanh(alpha * (reward - beta))))
        targets.add(round(target))
        for row in rows:
            drawn[row] += 1
    assert len(targets) > 4


def test_an_update_without_marks_leaves_the_target_of_adarft() -> None:
    history, policy = history_of(), get_online_policy("adarft")
    history.add(1, 3, 8, 8)
    before = policy.target(history)  # type: ignore[attr-defined]
    history.add(2, 3, 0, 0)
    assert before == policy.target(history) == pytest.approx(50 * math.tanh(1))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("adarft", {"eta": 0}, "adarft: eta is 0: write a number above 0"),
        ("adarft", {"alpha": "x"}, "adarft: alpha is 'x': write a number above 0"),
        ("adarft", {"eta": True}, "adarft: eta is True"),
        ("adarft", {"alpha": math.inf}, "adarft: alpha is inf"),
        ("adarft", {"alpha": math.nan}, "adarft: alpha is nan"),
        ("adarft", {"beta": 50}, "adarft: beta is 50: write a mean reward from 0 to 1"),
        ("adarft", {"target": 1}, "no option 'target': it takes eta, alpha, beta"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        get_online_policy(name, **options)
