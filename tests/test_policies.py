"""Which prompts each policy takes."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.subsets import reason, select, with_reason
from policies import PolicyError, get_policy, policy_names

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


@given(rates=RATES, seed=st.integers(0, 3), policy=st.sampled_from(policy_names()))
def test_exactly_so_many_distinct_rows_and_the_same_for_the_same_seed(
    rates: list[float], seed: int, policy: str
) -> None:
    size = 1 + len(rates) // 3
    rows = get_policy(policy)(table(rates), size, np.random.default_rng(seed))
    again = get_policy(policy)(table(rates), size, np.random.default_rng(seed))
    assert len(set(rows.tolist())) == size
    assert rows.tolist() == again.tolist()


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
