"""Which prompts each policy takes."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.subsets import reason, select, with_reason
from policies import PolicyError, ScorePolicy, get_policy, policy_names

RATES = st.lists(st.sampled_from([i / 5 for i in range(6)]), min_size=1, max_size=60)


def table(rates: list[float | None]) -> pa.Table:
    ids = [f"p{i}" for i in range(len(rates))]
    return pa.table(
        {
            "prompt_id": ids,
            "tier": [""] * len(rates),
            "pass_rate": pa.array(rates, pa.float64()),
        }
    )


@settings(max_examples=50, deadline=None)
@given(rates=RATES, seed=st.integers(0, 3), policy=st.sampled_from(policy_names()))
def test_exactly_so_many_distinct_rows_and_the_same_for_the_same_seed(
    rates: list[float], seed: int, policy: str
) -> None:
    size = 1 + len(rates) // 3
    rows = get_policy(policy)(table(rates), size, np.random.default_rng(seed))
    again = get_policy(policy)(table(rates), size, np.random.default_rng(seed))
    assert len(set(rows.tolist())) == size
    assert rows.tolist() == again.tolist()


@settings(max_examples=50, deadline=None)
@given(rates=RATES)
def test_hard_takes_the_lowest_easy_the_highest_middle_the_nearest(rates: list[float]) -> None:
    size = 1 + len(rates) // 4
    values = np.array(rates)
    for policy, score in (
        ("hard", values),
        ("easy", -values),
        ("middle", np.abs(values - np.median(values)).round(12)),
    ):
        rows = get_policy(policy)(table(rates), size, np.random.default_rng(0))
        rest = np.delete(score, rows)
        assert not len(rest) or score[rows].max() <= rest.min()


def test_ties_are_broken_by_seed_and_counted() -> None:
    rates = [0.0] * 10 + [1.0] * 5
    first, why = select(table(rates), "hard", 4, seed=0)
    second, _ = select(table(rates), "hard", 4, seed=1)
    assert why["ties"] == {"pool": 10, "chosen": 4}
    assert first["prompt_id"].to_pylist() != second["prompt_id"].to_pylist()
    assert first["rank"].to_pylist() == [0, 1, 2, 3]
    assert select(table(rates), "random", 4, seed=0)[1]["ties"] is None


def test_an_unknown_pass_rate_comes_last() -> None:
    for policy in ("hard", "easy", "middle"):
        chosen, _ = select(table([None, 0.2, 0.4]), policy, 2, seed=0)
        assert "p0" not in chosen["prompt_id"].to_pylist()


def test_too_large_a_subset_is_refused() -> None:
    for policy in policy_names():
        with pytest.raises(PolicyError, match="between 1 and 2"):
            select(table([0.1, 0.2]), policy, 3, seed=0)


def test_the_users_own_policy_is_found_by_module_and_attribute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\n\ndef first(difficulty, size, rng):\n    return np.arange(size)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    chosen, _ = select(table([0.3, 0.2, 0.1]), "mine:first", 2, seed=0)
    assert chosen["prompt_id"].to_pylist() == ["p0", "p1"]
    sys.modules.pop("mine")
    for wrong in ("mine:second", "absent:first"):
        with pytest.raises(PolicyError, match="cannot be imported"):
            get_policy(wrong)
    with pytest.raises(PolicyError, match="hard, easy, middle, random"):
        get_policy("harder")


def test_the_reason_travels_with_the_subset() -> None:
    chosen, why = select(table([0.1, 0.2]), "easy", 1, seed=5)
    assert reason(with_reason(chosen, why)) == why


@settings(max_examples=50, deadline=None)
@given(rates=RATES, seed=st.integers(0, 3), policy=st.sampled_from(policy_names()))
def test_a_larger_subset_holds_the_smaller_one_in_the_same_order(
    rates: list[float], seed: int, policy: str
) -> None:
    every = get_policy(policy)(table(rates), len(rates), np.random.default_rng(seed))
    assert sorted(every.tolist()) == list(range(len(rates)))
    size = 1 + len(rates) // 2
    part = get_policy(policy)(table(rates), size, np.random.default_rng(seed))
    assert part.tolist() == every[:size].tolist()


@settings(max_examples=50, deadline=None)
@given(rates=RATES, seed=st.integers(0, 3))
def test_ranks_of_hard_rise_and_random_never_looks(rates: list[float], seed: int) -> None:
    chosen, _ = select(table(rates), "hard", len(rates), seed)
    assert chosen["pass_rate"].to_pylist() == sorted(rates)
    blind = [0.5] * len(rates)
    for policy_table in (table(rates), table(blind)):
        rows = get_policy("random")(policy_table, len(rates), np.random.default_rng(seed))
        assert rows.tolist() == np.random.default_rng(seed).permutation(len(rates)).tolist()


@settings(max_examples=50, deadline=None)
@given(rates=RATES, policy=st.sampled_from(["hard", "easy", "middle"]))
def test_ties_are_those_that_chance_decided(rates: list[float], policy: str) -> None:
    size = 1 + len(rates) // 3
    chosen, why = select(table(rates), policy, size, seed=0)
    pool, taken = why["ties"]["pool"], why["ties"]["chosen"]
    assert 1 <= taken <= min(pool, size)
    if pool == taken:
        again = select(table(rates), policy, size, seed=1)[0]
        assert set(again["prompt_id"].to_pylist()) == set(chosen["prompt_id"].to_pylist())


def test_middle_takes_both_sides_of_the_median_alike() -> None:
    rates = [0.0, 0.4, 0.5, 0.6, 1.0]
    seen = {select(table(rates), "middle", 2, seed)[0]["prompt_id"][1].as_py() for seed in range(9)}
    assert seen == {"p1", "p3"}
    assert select(table(rates), "middle", 2, 0)[1]["ties"] == {"pool": 2, "chosen": 1}


def test_over_many_seeds_chance_reaches_every_tied_prompt() -> None:
    for policy in ("hard", "random"):
        chosen = [
            select(table([0.0] * 6), policy, 1, s)[0]["prompt_id"][0].as_py() for s in range(80)
        ]
        assert set(chosen) == {f"p{i}" for i in range(6)}


@pytest.mark.parametrize("size", [0, -1])
def test_a_subset_of_nothing_is_refused(size: int) -> None:
    for policy in policy_names():
        with pytest.raises(PolicyError, match="between 1 and 2"):
            select(table([0.1, 0.2]), policy, size, seed=0)


def test_the_users_own_scores_are_ranked_and_their_ties_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scored_by_me.py").write_text(
        "import numpy as np\nfrom policies import ScorePolicy\n\n\n"
        "class Late(ScorePolicy):\n"
        "    def score(self, difficulty):\n"
        "        return -np.arange(difficulty.num_rows) // 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(get_policy("scored_by_me:Late"), ScorePolicy)
    chosen, why = select(table([0.1] * 6), "scored_by_me:Late", 3, seed=0)
    assert chosen["prompt_id"][0].as_py() == "p5"
    assert why["ties"] == {"pool": 2, "chosen": 2}
    sys.modules.pop("scored_by_me")


def test_a_table_without_a_reason_has_an_empty_one() -> None:
    assert reason(table([0.1])) == {}


@pytest.mark.parametrize("rows", [[0], [0, 0], [0, 9], [-1, 0], [0.0, 1.0]])
def test_rows_of_the_users_own_policy_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[float]
) -> None:
    (tmp_path / "own_rows.py").write_text("rows = []\ndef own(t, n, rng): return rows\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_rows

    monkeypatch.setattr(own_rows, "rows", rows)
    with pytest.raises(PolicyError, match="policy 'own_rows:own'"):
        select(table([0.1, 0.2, 0.3]), "own_rows:own", 2, 0)


def test_with_no_rate_known_all_rows_tie() -> None:
    unknown = table([None, None, None])
    for name in ("hard", "easy", "middle"):
        _, why = select(unknown, name, 2, 0)
        assert why["ties"] == {"pool": 3, "chosen": 2}
