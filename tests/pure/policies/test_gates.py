"""Shares of an update by a column, and gates, of every online policy."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policies_cases import ONLINE
from remedies import refused

from orchestrator.config.policy_entries import PolicyEntry
from policies import BuiltOnlinePolicy, PolicyError, get_online_policy, settled_options
from policies.composed import MEASURED
from policies.gates import Gaussian, Rates, Rest, Retire
from policies.online import History
from policies.partition import Schedule

COUNT, GROUP, UPDATES = 60, 8, 10
SOURCES = np.array(["a", "b", "c"])[np.arange(COUNT) % 3]
FOLLOWED = {"from": 1, "to": 0}, {"from": 0, "to": 1, "schedule": "cosine"}


def history(successes: Any = None, sources: Any = SOURCES, seed: int = 1) -> History:
    """What is known of prompts p00, p01, … before the first update."""
    count = len(sources)
    known = np.arange(count) % (GROUP + 1) if successes is None else successes
    return History(
        pa.array([f"p{i:02}" for i in range(count)]),
        [GROUP] * count,
        known,
        seed=seed,
        updates=UPDATES,
        group_size=GROUP,
        columns={"source": np.asarray(sources)},
    )


def built(name: str, **options: Any) -> BuiltOnlinePolicy:
    return BuiltOnlinePolicy(name, get_online_policy(name, **options))


def chosen_rows(
    policy: BuiltOnlinePolicy,
    known: History,
    update: int,
    size: int = 12,
    right: Callable[[int], int] = lambda row: 3,
) -> list[int]:
    """The rows of an update, of which every group is recorded with `right` of 8 correct."""
    rows = [int(i[1:]) for i in policy.next_ids(known, update, size).to_pylist()]
    if policy.discards:
        correct = np.array([right(row) for row in rows])
        assert len(policy.keep(correct, np.full(size, GROUP))) == size
    for row in rows:
        known.add(update, row, right(row), GROUP)
    return rows


def test_a_schedule_goes_from_one_number_to_another() -> None:
    linear = Schedule.of({"from": 0.8, "to": 0.2}, "x")
    assert [round(linear.at(u, 4), 9) for u in (1, 2, 3, 4)] == [0.8, 0.6, 0.4, 0.2]
    cosine = Schedule.of({"from": 0, "to": 1, "schedule": "cosine"}, "x")
    assert [round(cosine.at(u, 5), 3) for u in (1, 2, 3, 4, 5)] == [0.0, 0.146, 0.5, 0.854, 1.0]
    listed = Schedule.of([1, 2, 3], "x")
    assert [listed.at(u, 7) for u in range(1, 8)] == [1, 1, 1, 2, 2, 3, 3]
    assert (
        Schedule.of(0.5, "x").at(1, 1) == Schedule.of({"from": 0.5, "to": 1}, "x").at(1, 1) == 0.5
    )


def test_gates_follow_pass_rates_and_the_updates_of_each_prompt() -> None:
    known = history(successes=[0, 4, 8], sources=["a"] * 3)
    assert Rates(low=0.2, high=0.5).passes(1, known).tolist() == [False, True, False]
    known.add(1, 0, 8, 8)
    known.add(2, 0, 8, 8)
    known.add(2, 1, 8, 8)
    assert Rest(updates=1).passes(3, known).tolist() == [False, False, True]
    assert Rest(updates=1).passes(4, known).tolist() == [True, True, True]
    assert Retire(solved=2).passes(3, known).tolist() == [False, True, True]
    assert Rates(low=0.0, high=0.5, age=2).passes(3, known).tolist() == [False, False, False]


def test_a_gaussian_passes_most_prompts_near_a_mean_that_moves() -> None:
    rates = np.repeat(np.arange(GROUP + 1), 200)
    known = history(successes=rates, sources=["a"] * len(rates))
    gate = Gaussian(mean={"from": 0.75, "to": 0.25}, sd=0.2)
    for update, mean in ((1, 0.75), (UPDATES, 0.25)):
        opened = gate.passes(update, known).reshape(GROUP + 1, 200).mean(axis=1)
        expected = np.exp(-((np.arange(GROUP + 1) / GROUP - mean) ** 2) / (2 * 0.2**2))
        assert np.abs(opened - expected).max() < 0.12  # four standard errors of 200 draws
    unknown = History(pa.array(["p"]), [0], [0], seed=0, updates=1, group_size=GROUP)
    assert gate.passes(1, unknown).tolist() == [True]


@pytest.mark.parametrize("name", ONLINE)
def test_shares_are_exact_while_every_stratum_has_enough_prompts(name: str) -> None:
    policy = built(name, within={"source": {"a": FOLLOWED[0], "b": FOLLOWED[1]}})
    known, counts = history(), []
    for update in range(1, UPDATES + 1):
        counts.append(Counter(SOURCES[chosen_rows(policy, known, update)].tolist()))
    assert counts[0] == {"a": 12}
    assert counts[-1] == {"b": 12}
    assert all(count["c"] == 0 and sum(count.values()) == 12 for count in counts)
    equal = built(name, within={"source": "equal"})
    assert Counter(SOURCES[chosen_rows(equal, history(), 1)].tolist()) == dict.fromkeys("abc", 4)


@pytest.mark.parametrize("name", ONLINE)
@pytest.mark.parametrize("weights", [(95, 5), (1,) * 10, (60, 25, 5, 5, 5)])
def test_shares_of_a_run_are_exact_to_one_prompt(name: str, weights: tuple[int, ...]) -> None:
    """Also after a resume, since they follow from the history."""
    sources = np.array([f"s{i}" for i in range(len(weights))])[np.arange(COUNT) % len(weights)]
    shares = {f"s{i}": weight for i, weight in enumerate(weights)}
    known, drawn = history(sources=sources), Counter[str]()
    for update in range(1, UPDATES + 1):
        policy = built(name, within={"source": shares})
        drawn.update(sources[chosen_rows(policy, known, update, size=6)].tolist())
        due = {s: 6 * update * weight / sum(weights) for s, weight in shares.items()}
        assert max(abs(drawn[source] - n) for source, n in due.items()) < 1


def test_shares_that_change_stay_exact_to_one_prompt() -> None:
    shares = {"a": {"from": 0.9, "to": 0}, "b": 0.06, "c": {"from": 0.04, "to": 0.94}}
    policy, known = built("dynamic", within={"source": shares}), history()
    drawn, due = np.zeros(3), np.zeros(3)
    for update in range(1, UPDATES + 1):
        rows = chosen_rows(policy, known, update, size=4)
        drawn += np.bincount(np.array(rows) % 3, minlength=3)
        due += 4 * np.array([0.9 - 0.1 * (update - 1), 0.06, 0.04 + 0.1 * (update - 1)])
        assert np.abs(drawn - due).max() < 1


def test_a_large_draw_lacks_groups_of_a_small_share_too() -> None:
    """`lilo` draws four times the groups that it trains on, of which 5 % are 0.4 per update."""
    sources = np.where(np.arange(400) % 20 < 19, "a", "b")
    policy, kept = built("lilo", within={"source": {"a": 95, "b": 5}}), Counter[str]()
    known = history(sources=sources, successes=[0] * 400)
    for update in range(1, 61):
        rows = [int(i[1:]) for i in policy.next_ids(known, update, 32, 8).to_pylist()]
        kept.update(sources[rows][policy.keep(np.full(32, 4), np.full(32, GROUP))].tolist())
        for row in rows:
            known.add(update, row, 4, GROUP)
    assert sum(kept.values()) == 480 and 12 <= kept["b"] <= 36  # 24 on average


def test_what_short_strata_lack_goes_to_small_shares_too() -> None:
    """Of 4 prompts that c should give, 5 % are due to b: 0.2 per update."""
    rates = np.where(SOURCES == "c", 0, 4)
    gates, shares = [{"rates": {"low": 0.1, "high": 1}}], {"a": 95, "b": 5, "c": 100}
    policy, drawn = built("dynamic", within={"source": shares}, gates=gates), Counter[str]()
    for seed in range(200):
        rows = chosen_rows(policy, history(successes=rates, seed=seed), 1, size=8)
        drawn.update(SOURCES[rows].tolist())
    assert drawn["c"] == 0 and 20 <= drawn["b"] <= 60  # 40 on average


def reopened(gate: dict[str, Any], right: float, updates: int) -> list[float]:
    """The share of 100 prompts, all of a pass rate, that is open before each update of 10."""
    known, shares = history(successes=[4] * 100, sources=["a"] * 100), []
    policy, rng = built("dynamic", gates=[gate]), np.random.default_rng(3)
    for update in range(1, updates + 1):
        chosen_rows(policy, known, update, 10, lambda _: int(rng.binomial(GROUP, right)))
        shares.append(policy.metrics["gates/open"])
    return shares


@pytest.mark.parametrize(
    ("gate", "right"),
    [
        ({"rates": {"low": 0.2, "high": 0.8}}, 0.7),
        ({"gaussian": {"mean": 0.5, "sd": 0.1}}, 0.5),
        ({"retire": {"solved": 1}}, 0.9),
    ],
)
def test_prompts_that_chance_has_closed_open_again(gate: dict[str, Any], right: float) -> None:
    [(name, options)] = gate.items()
    with_age, without = (
        np.mean(reopened({name: options | {"age": age}}, right, 60)[-20:]) for age in (1, None)
    )
    assert with_age > 0.2 > 1.25 * without


def test_a_prompt_opens_again_after_twice_as_long_each_time() -> None:
    """10 groups are an epoch of these prompts, one of which has entirely wrong groups."""
    known = history(successes=[4] * 10, sources=["a"] * 10)
    gate, opened = Rates(low=0.2, high=0.8), list[bool]()
    for update in range(1, 17):
        passes = bool(gate.passes(update, known)[0])
        opened.append(passes)
        for row in [0, *range(1, 5)] if passes else range(1, 6):
            known.add(update, row, 0 if row == 0 else 4, GROUP)
    assert [u for u, passes in enumerate(opened, 1) if passes] == [1, 4, 9]
    known.add_refresh(17, [0], [0], [4])
    assert not gate.passes(18, known)[0] and known.epochs_since(18)[0] == 0


def test_a_prompt_closed_by_its_probe_alone_opens_after_an_epoch() -> None:
    known = history(successes=[0, *[4] * 9], sources=["a"] * 10)
    for update in (1, 2):
        assert not Rates(low=0.2, high=0.8).passes(update, known)[0]
        for row in range(1, 6):
            known.add(update, row, 4, GROUP)
    assert Rates(low=0.2, high=0.8).passes(3, known)[0]
    assert not Rates(low=0.2, high=0.8, age=None).passes(3, known)[0]


@pytest.mark.parametrize("name", ONLINE)
@pytest.mark.parametrize("size", [4, 30])
def test_a_composed_policy_passes_the_check_before_a_cell_trains(name: str, size: int) -> None:
    entry = PolicyEntry(policy=name, options={"within": "source", "gates": ["gaussian"]})
    entry.build_online().check(history(), size)


@pytest.mark.parametrize("name", ONLINE)
def test_a_resumed_policy_chooses_the_same_prompts(name: str) -> None:
    options = {"within": "source", "gates": [{"rest": {"updates": 2}}, "gaussian"]}
    whole, undisturbed = built(name, **options), history()
    expected = [chosen_rows(whole, undisturbed, update) for update in range(1, 6)]
    resumed = history()
    for update, rows in enumerate(expected[:3], 1):
        for row in rows:
            resumed.add(update, row, 3, GROUP)
    again = built(name, **options)
    assert [chosen_rows(again, resumed, update) for update in (4, 5)] == expected[3:]


@pytest.mark.parametrize("name", ONLINE)
def test_a_gate_that_is_always_open_changes_nothing(name: str) -> None:
    plain, gated = built(name), built(name, gates=[{"rates": {"low": 0, "high": 1}}])
    known, same = history(), history()
    for update in range(1, 5):
        assert chosen_rows(plain, known, update) == chosen_rows(gated, same, update)


@settings(max_examples=50, deadline=None)
@given(solved=st.sets(st.integers(0, 29), max_size=29), seed=st.integers(0, 3))
def test_closed_prompts_are_chosen_only_where_too_few_are_open(solved: set[int], seed: int) -> None:
    known = history(sources=["a"] * 30, seed=seed)
    for row in solved:
        known.add(1, row, GROUP, GROUP)
    rows = chosen_rows(built("pools", gates=[{"retire": {"solved": 1}}]), known, 2, size=10)
    assert len({*rows}) == 10
    assert len({*rows} - solved) == min(10, 30 - len(solved))


def test_all_gates_have_to_agree() -> None:
    policy = built(
        "curriculum", gates=[{"rates": {"low": 0.5, "high": 1}}, {"rest": {"updates": 1}}]
    )
    known = history()
    open_rows = {i for i in range(COUNT) if i % (GROUP + 1) >= 4}
    first = {*chosen_rows(policy, known, 1)}
    second = {*chosen_rows(policy, known, 2, size=20)}
    assert first < open_rows
    assert len(second & first) == 0  # the last pass rate of `first` is 3/8, and they rest


class OddRows:
    """A gate of a user's own."""

    def passes(self, update: int, known: History) -> Any:
        return np.arange(len(known.prompt_ids)) % 2 == 1


class NoGate:
    """A gate that returns something else."""

    def passes(self, update: int, known: History) -> Any:
        return [1, 0]


def test_a_gate_may_be_of_the_users_own() -> None:
    rows = chosen_rows(built("pools", gates=[f"{__name__}:OddRows"]), history(), 1)
    assert {row % 2 for row in rows} == {1}
    with refused("NoGate", by=PolicyError):
        chosen_rows(built("pools", gates=f"{__name__}:NoGate"), history(), 1)


@pytest.mark.parametrize("within", [{}, {"within": "source"}])
@pytest.mark.parametrize("name", ONLINE)
def test_a_gate_may_keep_a_state_that_the_drawn_groups_give(
    name: str, within: dict[str, Any]
) -> None:
    """A resumed cell adds the groups of an update in another order, all before its first choice."""
    options = within | {"gates": ["policies_of_users:Fading"]}
    whole, undisturbed = built(name, **options), history()
    expected = []
    for update in range(1, 7):
        rows = chosen_rows(whole, undisturbed, update, right=lambda row: row % 8)
        expected.append((rows, whole.metrics))
    assert len({metrics["gate/policies_of_users:Fading/mean"] for _, metrics in expected}) == 6
    again, resumed = built(name, **options), history()
    for update, (rows, _) in enumerate(expected[:4], 1):
        for row in reversed(rows):
            resumed.add(update, row, row % 8, GROUP)
    for update in (5, 6):
        rows = chosen_rows(again, resumed, update, right=lambda row: row % 8)
        assert (rows, again.metrics) == expected[update - 1]


def test_metrics_are_of_all_choices_of_an_update() -> None:
    gates = [{"rates": {"low": 0, "high": 0.5}}, {"rates": {"low": 0.5, "high": 1}}]
    policy = built("dynamic", within={"source": {"a": 3, "b": 1}}, gates=gates)
    assert policy.metrics == {}
    known = history(successes=[0] * 20 + [4] * 20 + [8] * 20)
    chosen_rows(policy, known, 1, size=8)
    opened = {"gate/rates_1/open": 2 / 3, "gate/rates_2/open": 2 / 3, "gates/open": 1 / 3}
    shares = {"stratum/a/share": 6 / 8, "stratum/b/share": 2 / 8, "stratum/c/share": 0}
    assert policy.metrics == opened | shares | {"gates/taken_closed": 0}
    closed = known.pass_rate != 0.5
    rows = chosen_rows(policy, known, 1, size=20)  # 5 of a and b are open, 7 of c have no share
    drawn = Counter(SOURCES[known.last_update == 1].tolist())
    shares = {f"stratum/{source}/share": drawn[source] / 28 for source in "abc"}
    taken_closed = int(closed[rows].sum())
    assert 8 <= taken_closed <= 15 and drawn["c"] > 0
    assert policy.metrics == opened | shares | {"gates/taken_closed": taken_closed / 28}
    chosen_rows(policy, known, 2, size=4)
    assert policy.metrics["gates/open"] < 1 / 3
    assert policy.metrics["stratum/a/share"] + policy.metrics["stratum/b/share"] <= 1


def test_many_strata_and_ungated_policies_have_no_metrics() -> None:
    sources = [f"s{i}" for i in range(MEASURED + 1)]
    for options, named in (
        ({"within": "source"}, set[str]()),
        ({"within": "source", "gates": "gaussian"}, {"gate", "gates"}),
        ({}, set()),
    ):
        policy = built("pools", **options)
        chosen_rows(policy, history(sources=sources), 1)
        assert {name.partition("/")[0] for name in policy.metrics} == named


class NoMetrics(OddRows):
    """A gate whose metrics are none."""

    def metrics(self, update: int, known: History) -> Any:
        return {"mean": "high"}


def test_metrics_of_a_gate_of_the_users_own_are_numbers() -> None:
    policy = built("pools", gates="policies_of_users:Fading")
    chosen_rows(policy, history(), 1)
    assert {"mean", "open", "taken_closed"} == {n.rpartition("/")[2] for n in policy.metrics}
    assert policy.metrics["gate/policies_of_users:Fading/mean"] == 0.5
    assert policy.metrics["gate/policies_of_users:Fading/open"] == policy.metrics["gates/open"] < 1
    with pytest.raises(PolicyError, match="NoMetrics"):
        chosen_rows(built("pools", gates=f"{__name__}:NoMetrics"), history(), 1)


@pytest.mark.parametrize("name", ONLINE)
def test_settled_options_settle_once(name: str) -> None:
    options = {"within": {"source": {"a": [1, 2], "b": 1}}, "gates": {"rest": {"updates": 1}}}
    settled = settled_options(get_online_policy(name, **options), options)
    assert settled_options(get_online_policy(name, **settled), settled) == settled
    assert settled["gates"] == [{"rest": {"updates": 1}}]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"gates": 3}, "3"),
        ({"gates": [{"rest": {}}]}, "rest"),
        ({"gates": [{"rest": {"updates": 0}}]}, "0"),
        ({"gates": ["nope"]}, "nope"),
        ({"gates": [{"gaussian": {"sd": [0.1, 0]}}]}, "sd"),
        ({"gates": [{"retire": {"solved": 2, "age": 0}}]}, "age"),
        ({"gates": [{"gaussian": {"mean": {"from": 1}}}]}, "mean"),
        ({"gates": [{"rates": {"low": 2, "high": 3}}]}, "2"),
        ({"within": {"source": {"a": "x"}}}, "'x'"),
        ({"within": {"source": {"a": -1}}}, "source"),
        ({"within": {"source": {"a": {"from": 1, "to": 0, "schedule": "step"}}}}, "step"),
    ],
)
def test_a_wrong_gate_or_share_is_refused(options: dict[str, Any], named: str) -> None:
    with refused("pools" if "within" in options else "", named, by=PolicyError):
        get_online_policy("pools", **options)


def test_a_pool_is_checked_for_the_column_and_its_values() -> None:
    prompts = pa.table({"prompt_id": ["p"], "source": ["a"]})
    built("pools", within={"source": {"a": 1}}).check_columns(prompts)
    built("pools").check_columns(prompts)
    for within, named in (("sorce", "sorce"), ({"source": {"z": 1}}, "'z'")):
        with refused("pools", named, by=PolicyError):
            built("pools", within=within).check_columns(prompts)


class Reader:
    """An online policy, and a gate, of a user's own that read columns."""

    needs = "nothing"
    reads_columns = ("source",)

    def next(self, update: int, known: History) -> Any:
        return known.ids(np.flatnonzero(known.columns["source"] == "b")[: known.size])

    def passes(self, update: int, known: History) -> Any:
        return known.columns["source"] == "b"


def test_columns_of_policies_and_gates_of_the_users_own_reach_them() -> None:
    name = f"{__name__}:Reader"
    for policy in (built(name, gates=[{"rest": {"updates": 1}}]), built("pools", gates=[name])):
        assert policy.reads_columns == ["source"]
        assert {*SOURCES[chosen_rows(policy, history(), 1)]} == {"b"}
    entry = PolicyEntry(
        policy="pools", options={"of": {"hard": {"where": {"level": 1}}}, "gates": name}
    )
    assert entry.reads_columns == ["level", "source"]
