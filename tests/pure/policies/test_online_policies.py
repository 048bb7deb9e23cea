"""Online policies: what they choose, from the probe and the groups drawn so far."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from orchestrator.config.policy_entries import PolicyEntry
from policies import (
    BuiltOnlinePolicy,
    History,
    PolicyError,
    find_policy,
    get_online_policy,
    get_policy,
    policy_cost,
    policy_names,
)
from policies.online import checked_ids, checked_keep, is_online

ONLINE = [name for name in policy_names() if is_online(find_policy(name))]
GROUP = 8


def history_of(
    successes: list[int], samples: int = 10, *, seed: int = 0, updates: int = 20
) -> History:
    ids = pa.array([f"p{i:04}" for i in range(len(successes))])
    known = [samples] * len(successes)
    return History(ids, known, successes, seed=seed, updates=updates, group_size=GROUP)


def chosen(policy: Any, history: History, update: int, size: int) -> list[int]:
    history.start(update, size)
    ids = checked_ids(policy.next(update, history), "policy", size)
    return [int(prompt_id[1:]) for prompt_id in ids.to_pylist()]


def train(policy: Any, history: History, update: int, size: int, correct: Any = None) -> list[int]:
    """Choose, and record a group for each prompt; `correct` of a row, or half of the group."""
    rows = chosen(policy, history, update, size)
    for row in rows:
        history.add(update, row, GROUP // 2 if correct is None else correct(row), GROUP)
    return rows


@pytest.mark.parametrize("name", ONLINE)
@settings(max_examples=20, deadline=None)
@given(
    successes=st.lists(st.integers(0, 10), min_size=6, max_size=30),
    seed=st.integers(0, 3),
    stop=st.integers(1, 4),
)
def test_a_policy_that_is_built_again_from_the_record_chooses_the_same(
    name: str, successes: list[int], seed: int, stop: int
) -> None:
    def correct(row: int) -> int:
        return (row * 5 + seed) % (GROUP + 1)

    whole, policy = history_of(successes, seed=seed), get_online_policy(name)
    expected = [train(policy, whole, update, 4, correct) for update in range(1, 7)]
    resumed, again = history_of(successes, seed=seed), get_online_policy(name)
    for update, rows in enumerate(expected[:stop], 1):
        for row in reversed(rows):  # the order within an update is not kept
            resumed.add(update, row, correct(row), GROUP)
    rest = range(stop + 1, 7)
    assert [train(again, resumed, update, 4, correct) for update in rest] == expected[stop:]


def test_groups_of_an_update_have_one_order_and_a_policy_cannot_change_what_is_known() -> None:
    histories = [history_of([5] * 6) for _ in range(2)]
    for history, rows in zip(histories, ((3, 1, 5), (5, 3, 1)), strict=True):
        for row in rows:
            history.add(1, row, row, GROUP)
        history.start(2, 2)
    drawn = [[values.tolist() for values in history.drawn] for history in histories]
    assert drawn[0] == drawn[1] == [[1, 1, 1], [1, 3, 5], [1, 3, 5], [GROUP] * 3]
    history = histories[0]
    for name in ("samples", "successes", "pass_rate", "groups", "last_update", "solved"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(history, name)[0] = 1
    history.add(2, 0, GROUP, GROUP)
    assert history.pass_rate[0] == 1


@pytest.mark.parametrize("name", ONLINE)
def test_a_seed_chooses_other_prompts(name: str) -> None:
    firsts = [
        chosen(get_online_policy(name), history_of([5] * 60, seed=seed), 1, 8) for seed in (0, 0, 1)
    ]
    assert firsts[0] == firsts[1] != firsts[2]


@pytest.mark.parametrize("name", ONLINE)
def test_a_policy_can_take_every_prompt_of_a_small_pool(name: str) -> None:
    history, policy = history_of([0, 10, 5, 3]), get_online_policy(name)
    for update in range(1, 6):
        assert sorted(train(policy, history, update, 4, lambda row: GROUP)) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["dynamic", "balanced"])
def test_every_prompt_is_drawn_once_before_any_is_drawn_again(name: str) -> None:
    history, policy = history_of([5] * 10), get_online_policy(name)
    drawn = [row for update in range(1, 6) for row in train(policy, history, update, 4)]
    assert sorted(drawn) == sorted([*range(10)] * 2)
    assert drawn[:10] != [*range(10)] and drawn[:10] != drawn[10:]


@pytest.mark.parametrize("name", ["dynamic", "balanced"])
def test_a_prompt_that_the_update_has_is_left_out_even_if_it_was_drawn_least(name: str) -> None:
    history = history_of([5] * 4)
    for update in (1, 2):
        for row in range(3):
            history.add(update, row, 4, GROUP)
    history.add(3, 3, 4, GROUP)
    policy = get_online_policy(name)
    assert sorted(chosen(policy, history, 3, 3)) == [0, 1, 2]
    assert chosen(policy, history, 4, 1) == [3]


def test_groups_whose_rewards_are_equal_are_discarded_by_whole_groups() -> None:
    correct, marked = np.array([0, 1, 7, 8, 3, 0]), np.array([8, 8, 8, 8, 3, 0])
    dynamic = BuiltOnlinePolicy("dynamic", get_online_policy("dynamic"))
    assert dynamic.keep(correct, marked).tolist() == [False, True, True, False, False, False]
    balanced = get_online_policy("balanced", low=0.0, high=1.0)
    assert np.array_equal(balanced.keep(correct, marked), dynamic.keep(correct, marked))


def test_balanced_keeps_the_ends_of_its_band() -> None:
    balanced = get_online_policy("balanced", low=0.2, high=0.8)
    kept = balanced.keep(np.array([1, 2, 5, 8, 9]), np.full(5, 10))
    assert kept.tolist() == [False, True, True, True, False]


@pytest.mark.parametrize(("first", "rising"), [("easy", False), ("hard", True)])
def test_a_curriculum_goes_from_one_end_to_the_other(first: str, rising: bool) -> None:
    successes = [*np.random.default_rng(1).permutation(40).tolist()]
    history = history_of(successes, samples=40, updates=10)
    policy = get_online_policy("curriculum", first=first)
    means = []
    for update in range(1, 11):
        rows = train(policy, history, update, 4, lambda row: 0)
        means.append(np.mean([successes[row] for row in rows]))
    assert means == sorted(means, reverse=not rising)
    assert {min(means), max(means)} == {1.5, 37.5}


@pytest.mark.parametrize(("updates", "rows"), [(1, [0]), (2, [0, 4]), (3, [0, 2, 4])])
def test_a_short_curriculum_ends_at_the_other_end_too(updates: int, rows: list[int]) -> None:
    history = history_of([9, 7, 5, 3, 1], updates=updates)
    policy = get_online_policy("curriculum")
    assert [chosen(policy, history, u, 1)[0] for u in range(1, updates + 1)] == rows


def test_prompts_without_a_known_pass_rate_end_a_curriculum() -> None:
    ids, samples = pa.array(["p0", "p1", "p2"]), [10, 0, 10]
    history = History(ids, samples, [9, 0, 1], seed=0, updates=3, group_size=GROUP)
    for first, last in (("easy", [0, 2, 1]), ("hard", [2, 0, 1])):
        policy = get_online_policy("curriculum", first=first)
        assert [chosen(policy, history, update, 1)[0] for update in (1, 2, 3)] == last


def test_pools_are_drawn_by_their_shares_and_follow_the_last_groups() -> None:
    history = history_of([0] * 30 + [5] * 30 + [10] * 30)
    policy = get_online_policy("pools", easy=0.25, normal=0.5, hard=0.25)
    rows = chosen(policy, history, 1, 8)
    assert sorted(row // 30 for row in rows) == [0, 0, 1, 1, 1, 1, 2, 2]
    for row in range(30):
        history.add(1, row, 4, GROUP)  # no longer hard
    only_hard = get_online_policy("pools", easy=0, normal=0, hard=1)
    assert not set(chosen(only_hard, history, 2, 8)) & {*range(60, 90)}  # normal ones fill up


@pytest.mark.parametrize(
    ("shares", "size", "counts"),
    [  # normal, hard, easy
        ((0.25, 0.25, 0.5), 6, (2, 1, 3)),  # 1.5, 1.5, 3: of equal ones the first
        ((0.333, 0.333, 0.333), 9, (3, 3, 3)),
        ((0.2, 0.35, 0.45), 10, (2, 3, 5)),  # 2, 3.5, 4.5: the fifth of 0.45 is due before the 12th
        ((0.0, 0.0, 1.0), 5, (0, 0, 5)),
    ],
)
def test_shares_that_give_no_whole_prompts_are_rounded_by_what_is_due_next(
    shares: tuple[float, ...], size: int, counts: tuple[int, ...]
) -> None:
    options = dict(zip(("normal", "hard", "easy"), shares, strict=True))
    policy = get_online_policy("pools", **options)
    pool = np.array(chosen(policy, history_of([0] * 30 + [5] * 30 + [10] * 30), 1, size)) // 30
    assert tuple((pool == of).sum() for of in (1, 0, 2)) == counts


def test_pools_give_small_shares_their_prompts_over_the_updates() -> None:
    known, drawn = history_of([0] * 30 + [5] * 30 + [10] * 30), np.zeros(3)
    for update in range(1, 11):
        policy = get_online_policy("pools", easy=0.05, normal=0.95, hard=0.0)
        rows = chosen(policy, known, update, 8)
        drawn += np.bincount(np.array(rows) // 30, minlength=3)
        for row in rows:
            known.add(update, row, 5 if row // 30 == 1 else 10 * (row // 30 == 2), 10)
        assert np.abs(drawn - 8 * update * np.array([0, 0.95, 0.05])).max() < 1


def test_solved_prompts_retire_until_too_few_are_left() -> None:
    history = history_of([5] * 10)
    policy = get_online_policy("pools", retire=2)
    for update in (1, 2):
        for row in range(4):
            history.add(update, row, GROUP, GROUP)
    history.add(1, 4, GROUP, GROUP)
    for update in range(3, 20):
        assert not set(chosen(policy, history, update, 6)) & {0, 1, 2, 3}
    assert set(chosen(policy, history, 20, 8)) > {4, 5, 6, 7, 8, 9}
    history.add(20, 0, 3, GROUP)  # no longer solved
    assert history.solved[0] == 0


def test_predicted_prefers_prompts_that_are_likely_live_and_learns() -> None:
    history = history_of([0] * 40 + [100] * 40 + [50] * 20, samples=100)
    policy = get_online_policy("predicted", discount=1)
    for update in range(1, 6):
        assert all(row >= 80 for row in chosen(policy, history, update, 8))
    for update in range(1, 40):
        for row in range(80, 100):
            history.add(update, row, GROUP, GROUP)  # all solved now: others are as likely live
        history.add(update, 3, GROUP // 2, GROUP)
    assert 3 in chosen(policy, history, 40, 8)


@pytest.mark.parametrize("solved", [0, 3, 5])
def test_predicted_learns_about_every_prompt_of_the_pool(solved: int) -> None:
    """Also about the first and the last one: whose groups are all solved is not chosen again."""
    history = history_of([5] * 6)
    policy = get_online_policy("predicted", discount=1)
    for update in range(1, 60):
        history.add(update, solved, GROUP, GROUP)
    for update in (60, 61, 62):
        assert sorted({*range(6)} - {*chosen(policy, history, update, 5)}) == [solved]


def test_old_counts_lose_their_weight() -> None:
    """Without weight, everything is as likely live as a prompt that was never sampled."""
    history = history_of([0] * 50 + [50] * 50, samples=100)
    early = chosen(get_online_policy("predicted", discount=0.5), history, 1, 20)
    late = chosen(get_online_policy("predicted", discount=0.5), history, 60, 20)
    assert min(early) >= 50 and min(late) < 50


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dynamic", {"max_draws": 0}, "max_draws is 0"),
        ("dynamic", {"max_draws": True}, "max_draws is True"),
        ("dynamic", {"cap": 3}, "'cap': it takes max_draws"),
        ("balanced", {"low": 0.9, "high": 0.1}, "low 0.9 is above high 0.1"),
        ("balanced", {"high": 80}, "high is 80"),
        ("curriculum", {"first": "middle"}, "first is 'middle': write easy"),
        ("pools", {"easy": 0.5}, "1.4"),
        ("pools", {"retire": 0}, "retire is 0"),
        ("pools", {"low": 2}, "low is 2"),
        ("predicted", {"discount": 0}, "discount is 0"),
        ("dynamic", {"of": "harder"}, "of: unknown policy 'harder'"),
        ("dynamic", {"of": "predicted"}, "of: policy 'predicted'"),
        ("dynamic", {"of": 3}, "of is 3"),
        ("dynamic", {"of": {"band": {"low": 0.5}}}, "of: policy 'band' needs high"),
    ],
)
def test_wrong_options_are_one_line_errors(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PolicyEntry(policy=name, options=options)


def test_equal_settings_have_equal_forms_and_two_parts() -> None:
    short = PolicyEntry(policy="dynamic", options={})
    for options in ({"max_draws": 4}, {"of": "full"}, {"of": {"full": {}}}):
        assert PolicyEntry(policy="dynamic", options=options) == short
    rule, online = short.parts
    assert (rule, online) == (PolicyEntry(policy="full"), short)
    banded = PolicyEntry(
        policy="predicted", options={"of": {"band": {"low": 0.2, "high": 0.8}}, "discount": 0.9}
    )
    rule, online = banded.parts
    assert rule == PolicyEntry(policy="band", options={"low": 0.2, "high": 0.8})
    assert online == PolicyEntry(policy="predicted", options={"discount": 0.9})
    assert PolicyEntry(policy=banded.policy, options=dict(banded.options)) == banded
    assert PolicyEntry(policy="hard").parts == (PolicyEntry(policy="hard"), None)


def test_the_draws_of_a_users_policy_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_online.py").write_text(
        "class Own:\n"
        "    max_draws = 0\n"
        "    def next(self, update, history): return history.ids([0])\n"
        "    def keep(self, correct, marked): return correct > 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with refused("own_online:Own: max_draws is 0:", by=PolicyError):
        get_online_policy("own_online:Own")


def test_static_and_online_policies_are_not_confused() -> None:
    with pytest.raises(PolicyError, match="'dynamic'"):
        get_policy("dynamic", of="hard")
    with pytest.raises(PolicyError, match="'hard'.* next"):
        get_online_policy("hard")
    built = {name: BuiltOnlinePolicy(name, get_online_policy(name)) for name in ONLINE}
    discarding = {name for name, policy in built.items() if policy.discards}
    assert discarding == {"dynamic", "balanced", "greso", "lilo"}
    assert built["predicted"].max_draws == 1
    assert policy_cost("random") == "nothing" and policy_cost("hard") == "a probe"
    assert "discarded" in policy_cost("dynamic") and "a probe" in policy_cost("predicted")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "a"], r"2 prompt_ids \(1 distinct\)"),
        ({"a", "b"}, "a set"),
        (["a"], r"1 prompt_ids"),
        ([1.5, None], "prompt_ids"),
        (["a", None], "2 prompt_ids"),
    ],
)
def test_what_a_policy_returns_is_checked(ids: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        checked_ids(ids, "mine", 2)
    for valid in (["a", "b"], ("a", "b"), np.array(["a", "b"]), pa.chunked_array([["a"], ["b"]])):
        assert checked_ids(valid, "mine", 2).to_pylist() == ["a", "b"]


def test_what_keep_returns_is_checked() -> None:
    for wrong in ([True], [1, 0], None, "ab", [[True], [False]]):
        with pytest.raises(PolicyError, match="'mine'.* boolean"):
            checked_keep(wrong, "mine", 2)
    assert checked_keep([True, False], "mine", 2).tolist() == [True, False]
