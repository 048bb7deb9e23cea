"""Properties of all policies, and custom policies."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from difficulty_tables import RATES, full_table, rates_table, selected_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from policies_cases import OPTIONS, ROWS, SCORED, STATIC, policy_of
from remedies import refused

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.selection.subsets import SubsetRequest, reason, select, with_reason
from policies import (
    Policy,
    PolicyError,
    ScorePolicy,
    get_policy,
    policy_line,
    policy_names,
    tie_breakers,
)

WITHOUT_GOLDS = ("least_agreed", "most_agreed", "agreement_band", "uncertain", "longest")


def selected(rates: list[float | None], policy: str, size: int, seed: int = 0) -> list[int]:
    return selected_rows(rates_table(rates), policy, size, seed, **OPTIONS.get(policy, {}))


def ties(rates: list[float | None], policy: str, size: int) -> Any:
    rule, difficulty = policy_of(policy), rates_table(rates)
    chosen = rule(difficulty, size, np.random.default_rng(0))
    counts = Policy(policy, rule).ties(difficulty, chosen)
    return counts and tuple(counts)


@settings(max_examples=300)
@given(
    rows=ROWS,
    seed=st.integers(0, 3),
    policy=st.sampled_from(SCORED),
    require=st.sampled_from([None, "parsed"]),
    data=st.data(),
)
def test_the_subset_agrees_with_a_full_sort_by_score_and_tie_breaker(
    rows: list[dict[str, Any]], seed: int, policy: str, require: str | None, data: st.DataObject
) -> None:
    difficulty, rule = full_table(rows), policy_of(policy, require=require)
    capacity = rule.capacity(difficulty)
    size = data.draw(st.integers(1, len(rows)))
    if capacity < (1 if rule.takes_all else size):
        with pytest.raises(PolicyError, match=f"has {capacity} of"):
            rule(difficulty, size, np.random.default_rng(seed))
        return
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed)
    subset = rule(difficulty, size, rng)
    assert len(subset) == (capacity if rule.takes_all else size)
    numbers = tie_breakers(len(rows), other)
    assert rng.integers(1000) == other.integers(1000), "a policy draws nothing else"
    order = np.lexsort((numbers, rule.score(difficulty), ~rule.eligible(difficulty)))
    assert subset.tolist() == order[: len(subset)].tolist()


def test_each_policy_declares_the_samples_it_needs() -> None:
    needs = {name: Policy("", policy_of(name)).needs for name in STATIC}
    assert needs == {
        **dict.fromkeys(("random", "full", "tiers", "diverse"), "nothing"),
        **dict.fromkeys(("base_wrong", "base_right"), "first"),
        **dict.fromkeys(("hard", "easy", "band", "hardest_nonzero"), "pass_rate"),
        "middle": "pass_rates",
        **dict.fromkeys(("learnable", "mixture", *WITHOUT_GOLDS), "all"),
    }
    assert {Policy("", policy_of(name, require="parsed")).needs for name in STATIC} == {"all"}
    assert Policy("", lambda table, size, rng: np.arange(size)).needs == "all"


@settings(max_examples=50)
@given(rates=RATES, seed=st.integers(0, 3))
def test_random_ignores_pass_rates_and_orders_by_tie_breaker(
    rates: list[float | None], seed: int
) -> None:
    numbers = np.random.default_rng(seed).permutation(len(rates))
    for same in (rates, [0.5] * len(rates)):
        assert selected(same, "random", len(rates), seed) == np.argsort(numbers).tolist()


def test_ties_are_broken_by_seed_and_counted() -> None:
    rates: list[float | None] = [0.0] * 10 + [1.0] * 5
    assert ties(rates, "hard", 4) == (10, 4)
    assert selected(rates, "hard", 4, seed=0) != selected(rates, "hard", 4, seed=1)
    assert ties(rates, "random", 4) is None
    assert ties(rates, "full", 4) is None
    assert ties(rates, "mixture", 4) is None


@settings(max_examples=50)
@given(rates=RATES, policy=st.sampled_from(["hard", "easy", "middle"]))
def test_ties_are_the_rows_decided_by_chance(rates: list[float | None], policy: str) -> None:
    size = 1 + len(rates) // 3
    pool, chosen = ties(rates, policy, size)
    assert 1 <= chosen <= min(pool, size)
    if pool == chosen:
        assert set(selected(rates, policy, size, 0)) == set(selected(rates, policy, size, 1))


def test_ties_count_eligible_rows_only() -> None:
    difficulty = pa.table({"pass_rate": [0.5] * 3 + [0.1] * 4, "tier": ["1"] * 7})
    rule = get_policy("band", low=0.4, high=0.6)
    subset = rule(difficulty, 2, np.random.default_rng(0))
    assert Policy("", rule).ties(difficulty, subset) == (3, 2)


def test_prompts_without_a_known_pass_rate_tie_and_come_last() -> None:
    for name in ("hard", "easy", "middle"):
        assert ties([None, None, None], name, 2) == (3, 2)
        assert selected([None, 0.2, 0.4], name, 3)[-1] == 0


def test_over_many_seeds_chance_reaches_every_tied_prompt() -> None:
    for policy in ("hard", "random"):
        assert {selected([0.0] * 6, policy, 1, seed)[0] for seed in range(80)} == set(range(6))


@pytest.mark.parametrize("size", [0, -1, 3])
def test_an_empty_or_too_large_subset_is_refused(size: int) -> None:
    for policy in set(STATIC) - {"full"}:
        with pytest.raises(PolicyError, match="between 1 and 2"):
            policy_of(policy)(rates_table([0.1, 0.2]), size, np.random.default_rng(0))


def test_a_custom_policy_is_imported_by_module_and_attribute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        '"""Mine."""\nimport numpy as np\n\n\n'
        'def first(difficulty, size, rng, skip=0):\n    "The first."\n'
        "    return np.arange(skip, skip + size)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = get_policy("mine:first", skip=1)
    assert own(rates_table([0.3, 0.2, 0.1]), 2, np.random.default_rng(0)).tolist() == [1, 2]
    assert policy_line("mine:first") == "The first."
    built = Policy("", own)
    assert built.capacity(rates_table([0.1])) == 1
    assert built.eligible(rates_table([0.1])).tolist() == [True]
    with refused("'jump'", "skip", by=PolicyError):
        get_policy("mine:first", jump=1)
    sys.modules.pop("mine")
    for wrong, why in (
        ("mine:second", "AttributeError: .*'second'; correct"),
        ("absent:first", "ModuleNotFoundError: .*'absent'; run"),
    ):
        with pytest.raises(PolicyError, match=f"{wrong}' .*{why}"):
            get_policy(wrong)
    with pytest.raises(PolicyError, match="hard, easy, middle, random"):
        get_policy("harder")


@pytest.mark.parametrize("module", ["tasks", "json"])
def test_a_module_that_another_one_hides_is_to_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text("def first(t, n, rng): return range(n)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError) as refused:
        get_policy(f"{module}:first")
    owner = {"tasks": "Decile's own package", "json": f"imported from {json.__file__}"}[module]
    assert str(refused.value).endswith(
        f"; module {module!r} is {owner}: rename {tmp_path / module}.py"
    )


def test_installed_policies_are_found_by_their_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "own_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[decile.policies]\nzuletzt = own_policies:last\nanfangs = own_policies:first\n"
        "hard = own_policies:first\n[other.group]\nelsewhere = own_policies:first\n"
    )
    (tmp_path / "own_policies.py").write_text(
        "def first(t, n, rng): return list(range(n))\n"
        "def last(t, n, rng): return list(range(t.num_rows - n, t.num_rows))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert policy_names()[-2:] == ["anfangs", "zuletzt"], "sorted, after the built-in ones"
    assert policy_names().count("hard") == 1 and "elsewhere" not in policy_names()
    table, rng = rates_table([0.1, 0.2, 0.3]), np.random.default_rng(0)
    assert [[*get_policy(name)(table, 1, rng)] for name in ("anfangs", "zuletzt")] == [[0], [2]]
    assert isinstance(get_policy("hard"), ScorePolicy), "a built-in policy keeps its name"
    with pytest.raises(PolicyError, match="unknown policy 'elsewhere': .*, anfangs, zu"):
        get_policy("elsewhere")


def test_scores_of_a_custom_policy_are_ranked_and_their_ties_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scored_by_me.py").write_text(
        "import numpy as np\nfrom policies import ScorePolicy\n\n\n"
        "class Late(ScorePolicy):\n"
        "    def __init__(self, by=2):\n"
        "        self.by = by\n"
        "    def score(self, difficulty):\n"
        "        return -np.arange(difficulty.num_rows) // self.by\n\n\n"
        "class Short(ScorePolicy):\n"
        "    def score(self, difficulty):\n"
        "        return np.zeros(1)\n\n\n"
        "class Unlucky:\n"
        "    def __init__(self):\n"
        "        raise RuntimeError('no\\n  luck')\n\n\n"
        "ready = Late(by=1)\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(get_policy("scored_by_me:Late"), ScorePolicy)
    subset, why = select(
        rates_table([0.1] * 6), SubsetRequest(PolicyEntry(policy="scored_by_me:Late"), 3)
    )
    assert subset["prompt_id"][0].as_py() == "p5"
    assert why["ties"] == {"pool": 2, "chosen": 2}
    every = rates_table([0.1] * 3)
    rows = [
        get_policy(name, **options)(every, 3, np.random.default_rng(0)).tolist()
        for name, options in (("scored_by_me:Late", {"by": 1}), ("scored_by_me:ready", {}))
    ]
    assert rows == [[2, 1, 0], [2, 1, 0]]
    with pytest.raises(PolicyError, match=r"Short returned scores of shape \(1,\) for 3 rows"):
        get_policy("scored_by_me:Short")(every, 2, np.random.default_rng(0))
    for name, options, words in (
        ("Late", {"of": 1}, "has no option 'of': it takes by"),
        ("ready", {"by": 1}, "has no option 'by': it takes no options"),
        ("Unlucky", {}, r"cannot be built: RuntimeError: no luck \(.*scored_by_me.py:19\)$"),
        ("number", {}, "is not callable"),
    ):
        with pytest.raises(PolicyError, match=words):
            get_policy(f"scored_by_me:{name}", **options)
    sys.modules.pop("scored_by_me")


def test_the_reason_is_stored_with_the_subset() -> None:
    subset, why = select(rates_table([0.1, 0.2]), SubsetRequest(PolicyEntry(policy="easy"), 1, 5))
    assert reason(with_reason(subset, why)) == why
    assert reason(rates_table([0.1])) == {}


@pytest.mark.parametrize("rows", [[0], [0, 0], [0, 9], [-1, 0], [0.0, 1.0], [[0, 1]]])
def test_rows_of_a_custom_policy_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[float]
) -> None:
    (tmp_path / "own_rows.py").write_text("rows = []\ndef own(t, n, rng): return rows\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_rows

    monkeypatch.setattr(own_rows, "rows", rows)
    with pytest.raises(PolicyError, match="policy 'own_rows:own'"):
        select(rates_table([0.1, 0.2, 0.3]), SubsetRequest(PolicyEntry(policy="own_rows:own"), 2))


def test_every_policy_has_a_one_line_description() -> None:
    lines = [policy_line(name) for name in policy_names()]
    assert len(set(lines)) == len(lines)
    for line in lines:
        assert len(line) > 30
        assert not str(ScorePolicy.__doc__).startswith(line), "inherited"


@settings(max_examples=200)
@given(rows=ROWS, policy=st.sampled_from(SCORED), data=st.data())
def test_scores_and_eligibility_do_not_depend_on_the_order_of_rows(
    rows: list[dict[str, Any]], policy: str, data: st.DataObject
) -> None:
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    rule, there = policy_of(policy, require="parsed"), full_table(rows)
    moved = there.take(pa.array(order))
    assert np.array_equal(rule.score(moved), rule.score(there)[order], equal_nan=True)
    assert np.array_equal(rule.eligible(moved), rule.eligible(there)[order])


# What a row may keep while everything else about the table changes, by what a policy needs.
KEPT = {
    "nothing": {"tier"},
    "first": {"tier", "first"},
    "pass_rate": {"tier", "first", "pass_rate"},
    "pass_rates": {"tier", "first", "pass_rate"},  # of every row
}


@settings(max_examples=300)
@given(rows=ROWS, others=ROWS, policy=st.sampled_from(SCORED))
def test_values_that_a_policy_does_not_need_never_change_score_or_eligibility(
    rows: list[dict[str, Any]], others: list[dict[str, Any]], policy: str
) -> None:
    rule = policy_of(policy)
    if rule.needs == "all":
        return
    changed = others
    if rule.needs == "pass_rates":
        changed = [
            {**others[i % len(others)], "pass_rate": r["pass_rate"]} for i, r in enumerate(rows)
        ]
    kept = {name: rows[0][name] for name in KEPT[rule.needs]}
    before, after = full_table(rows), full_table([{**changed[0], **kept}, *changed[1:]])
    assert np.array_equal(rule.score(before)[0], rule.score(after)[0], equal_nan=True)
    assert rule.eligible(before)[0] == rule.eligible(after)[0]
