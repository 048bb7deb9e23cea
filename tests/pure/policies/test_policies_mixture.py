"""Shares of several policies in one subset."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from difficulty_tables import RATES, rates_table
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.selection.subsets import SubsetRequest, select
from policies import PolicyError, get_policy, settled_options
from policies.mixture import Mixture

NAMES = st.lists(
    st.sampled_from(["hard", "easy", "middle", "random", "full"]), min_size=1, max_size=4
)


def mixture(shares: Any, **options: Any) -> Mixture:
    policy = get_policy("mixture", shares=shares, **options)
    assert isinstance(policy, Mixture)
    return policy


def evenly(names: list[str]) -> list[dict[str, float]]:
    return [{name: 1 / len(names)} for name in names]


@settings(max_examples=100)
@given(rates=RATES, names=NAMES, seed=st.integers(0, 3), data=st.data())
def test_parts_fill_exactly_the_size_with_distinct_rows(
    rates: list[float | None], names: list[str], seed: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(rates)))
    policy = mixture(evenly(names))
    rows = policy(rates_table(rates), size, np.random.default_rng(seed))
    assert len(set(rows.tolist())) == len(rows) == size
    again = policy(rates_table(rates), size, np.random.default_rng(seed))
    assert rows.tolist() == again.tolist()


@settings(max_examples=100)
@given(rates=RATES, names=NAMES, seed=st.integers(0, 3))
def test_the_first_part_selects_the_same_rows_as_alone(
    rates: list[float | None], names: list[str], seed: int
) -> None:
    policy, size = mixture(evenly(names)), len(rates)
    rows = policy(rates_table(rates), size, np.random.default_rng(seed))
    alone = get_policy(names[0])(rates_table(rates), size, np.random.default_rng(seed))
    count = policy.counts(size)[0]
    assert rows[:count].tolist() == alone[:count].tolist()


@given(weights=st.lists(st.integers(1, 50), min_size=1, max_size=5), size=st.integers(1, 1000))
def test_counts_add_up_and_are_within_one_of_the_share(weights: list[int], size: int) -> None:
    shares = [w / sum(weights) for w in weights]
    counts = mixture([{"random": share} for share in shares]).counts(size)
    assert sum(counts) == size
    assert all(abs(c - s * size) < 1 for c, s in zip(counts, shares, strict=True))


def test_the_largest_remainder_is_rounded_up_first_and_ties_follow_the_written_order() -> None:
    assert mixture({"hard": 0.5, "random": 0.5}).counts(3) == [2, 1]
    assert mixture({"hard": 0.2, "easy": 0.3, "random": 0.5}).counts(3) == [1, 1, 1]
    assert mixture({"hard": 0.29, "random": 0.71}).counts(100) == [29, 71]
    many = mixture([{"random": 0.06}, {"hard": 0.04}] * 10)  # of 12 rows, 0.72 and 0.48
    assert many.counts(12) == [1, 1] * 2 + [1, 0] * 8
    for third in (0.333, 0.334):
        rounded = mixture([{"hard": third}, {"easy": third}, {"random": third}])
        assert rounded.counts(3000) == [1000, 1000, 1000]


def test_a_later_part_selects_from_the_remaining_rows() -> None:
    rates: list[float | None] = [0.0, 0.1, 0.9, 1.0]
    rows = mixture({"hard": 0.5, "easy": 0.5})(rates_table(rates), 4, np.random.default_rng(0))
    assert rows.tolist() == [0, 1, 3, 2]
    twice = mixture([{"hard": 0.5}, {"hard": 0.5}])(rates_table(rates), 4, np.random.default_rng(0))
    assert twice.tolist() == [0, 1, 2, 3]


def test_rows_that_lost_a_tie_in_the_first_part_may_be_selected_by_random() -> None:
    """Half of the remaining rows tied in the first part, and so do half of those of `random`."""
    rates: list[float | None] = [0.0] * 60 + [1.0] * 50
    policy = mixture({"hard": 0.5, "random": 0.5})
    drawn = [
        policy(rates_table(rates), 20, np.random.default_rng(seed))[10:] for seed in range(200)
    ]
    assert np.mean(np.concatenate(drawn) < 60) == pytest.approx(0.5, abs=0.04)


def test_parts_have_options_and_the_mixture_may_require() -> None:
    difficulty = pa.table(
        {
            "pass_rate": [0.0, 0.1, 0.5, 0.6, 1.0],
            "wrong": [0, 5, 5, 0, 0],
            "unparsed": [9, 1, 0, 0, 0],
            "truncated": [0, 0, 0, 4, 0],
        }
    )
    shares = {"hard": 0.5, "band": {"share": 0.5, "low": 0.4, "high": 0.7}}
    rng = np.random.default_rng
    assert sorted(mixture(shares)(difficulty, 4, rng(0)).tolist()) == [0, 1, 2, 3]
    assert mixture(shares, require="parsed")(difficulty, 2, rng(0)).tolist() == [1, 2]
    parsed = {"hard": {"share": 0.5, "require": "parsed"}, "random": 0.5}
    assert mixture(parsed)(difficulty, 2, rng(0))[0] == 1
    assert mixture(shares, require="parsed").eligible(difficulty).sum() == 3
    band = mixture({"band": {"share": 1, "low": 0.4, "high": 0.7}})
    assert band.eligible(difficulty).sum() == 2


def test_a_part_without_enough_rows_is_named() -> None:
    policy = mixture({"random": 0.5, "band": {"share": 0.5, "low": 0, "high": 0.2}})
    with pytest.raises(PolicyError, match=r"mixture: band has \d of 2 "):
        policy(rates_table([0.1, 0.9, 0.9, 0.9]), 4, np.random.default_rng(0))


def test_a_mixture_names_the_strata_of_its_parts_that_earlier_parts_have_emptied() -> None:
    table = rates_table([0.125] * 5 + [1.0] * 20)
    table = table.append_column("source", [["a"] * 5 + ["b"] * 20])
    stratified = {"share": 0.5, "within": {"source": "equal"}}
    named = []
    for shares in (
        [{"hard": 0.5}, {"random": stratified}],
        [{"random": stratified}, {"easy": 0.5}],
    ):
        entry = PolicyEntry(policy="mixture", options={"shares": shares})
        _, why = select(table, SubsetRequest(entry, 8))
        named.append(why.get("notes", []))
    [note], none = named
    assert "random" in note and "'a'" in note and re.findall(r"\d+", note) == ["1", "2"]
    assert none == []


def test_a_mixture_needs_no_samples_when_no_part_does() -> None:
    levels = {"share": 0.5, "levels": "1-3"}
    assert mixture({"random": 0.5, "tiers": levels}).needs == "nothing"
    assert mixture({"random": 0.5, "tiers": levels}, require="parsed").needs == "all"
    assert mixture({"random": 0.5, "base_wrong": 0.5}).needs == "all"


def test_mixtures_can_contain_mixtures_and_custom_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_part.py").write_text(
        "import numpy as np\n"
        "def last(t, n, rng): return np.arange(t.num_rows)[::-1][:n]\n"
        "def twice(t, n, rng): return [0] * n\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rates = rates_table([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    rows = mixture({"easy": 0.5, "own_part:last": 0.5})(rates, 4, np.random.default_rng(0))
    assert rows.tolist() == [5, 4, 3, 2]
    nested = {"easy": 0.5, "mixture": {"share": 0.5, "shares": {"hard": 0.5, "easy": 0.5}}}
    assert mixture(nested)(rates, 4, np.random.default_rng(0)).tolist() == [5, 4, 0, 3]
    with pytest.raises(PolicyError, match="mixture: policy 'own_part:twice' must return 2"):
        mixture({"easy": 0.5, "own_part:twice": 0.5})(rates, 4, np.random.default_rng(0))
    both = {"own_part:last": 0.5, "hard": 0.5}
    with pytest.raises(PolicyError, match="between 1 and 6"):
        mixture(both)(rates, 7, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (3, "shares is 3:"),
        ({"hard": 0.5, "easy": 0.4}, "sum to 0.9, not 1"),
        ({"hard": 0, "easy": 1}, "hard is 0:"),
        ({"band": {"low": 0.2, "high": 0.3}}, "band is None"),
        ({"hard": True}, "hard is True"),
        ({"hrad": 1}, "'hrad'.*did you mean 'hard'"),
        ({"band": 1}, "'band' needs low and high"),
    ],
)
def test_invalid_shares_are_refused(shares: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        get_policy("mixture", shares=shares)


def test_settled_shares_keep_their_order_in_json_and_give_the_same_mixture() -> None:
    shares = {"random": 0.25, "hard": 0.5, "tiers": {"levels": "1-2", "share": 0.25}}
    policy = mixture(shares)
    settled = settled_options(policy, {"shares": shares})
    assert settled == {
        "shares": [
            {"random": {"share": 0.25}},
            {"hard": {"share": 0.5}},
            {"tiers": {"share": 0.25, "levels": ["1", "2"]}},
        ]
    }
    again = mixture(**json.loads(json.dumps(settled, sort_keys=True)))
    assert settled_options(again, settled) == settled
    difficulty = pa.table({"pass_rate": np.arange(40) / 40, "tier": list("1234") * 10})
    rows = [p(difficulty, 12, np.random.default_rng(3)).tolist() for p in (policy, again)]
    assert rows[0] == rows[1]
