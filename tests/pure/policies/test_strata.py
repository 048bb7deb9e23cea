"""The options `within`, `where` and `exclude` by columns, which every static policy has."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from difficulty_tables import rates_table, selected_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from policies import (
    BuiltOnlinePolicy,
    Policy,
    PolicyError,
    get_online_policy,
    get_policy,
    settled_options,
)
from policies.partition import MAX_STRATA, RATE_BANDS, filled

ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 1.0, None])),
    min_size=4,
    max_size=60,
)


def sourced(rows: list[tuple[str | None, float | None]]) -> pa.Table:
    """A table of rows with a source and a pass rate."""
    table = rates_table([rate for _, rate in rows])
    return table.append_column("source", pa.array([source for source, _ in rows], pa.string()))


def build(name: str, **options: Any) -> Policy:
    return Policy(name, get_policy(name, **options))


def chosen_sources(table: pa.Table, rows: list[int]) -> Counter[str | None]:
    return Counter(table["source"].take(pa.array(rows)).to_pylist())


@settings(max_examples=100)
@given(
    rows=ROWS, shares=st.sampled_from(["proportional", "equal", {"a": 0.5, "b": 0.25, "c": 0.25}])
)
def test_each_stratum_has_its_share_or_the_shortage_is_named(rows: Any, shares: Any) -> None:
    table = sourced([("a", 0.0), ("b", 0.5), ("c", 1.0), *rows])
    policy = build("hardest_nonzero", within={"source": shares})
    size = policy.capacity(table) // 2 + 1
    rows = policy(table, size, np.random.default_rng(0))
    selected = rows.tolist()
    sizes = Counter(table["source"].to_pylist())
    weights = {
        "equal": dict.fromkeys("abc", 1 / 3),
        "proportional": {name: count / table.num_rows for name, count in sizes.items()},
    }
    given_shares = weights[shares] if isinstance(shares, str) else shares
    counts = chosen_sources(table, selected)
    short = {name for name in "abc" if counts[name] < int(given_shares[name] * size)}
    named = {name for note in policy.notes(table, rows) for name in "abc" if f"'{name}'" in note}
    assert short <= named
    for name in named:  # all that may be selected is
        own = [i for i in range(table.num_rows) if table["source"][i].as_py() == name]
        eligible = policy.eligible(table)[own].sum()
        assert counts[name] == eligible


@pytest.mark.parametrize("policy", ["hard", "easy", "middle", "random", "hardest_nonzero"])
@settings(max_examples=25)
@given(
    rates=st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=40),
    seed=st.integers(0, 3),
)
def test_a_pool_of_one_source_is_selected_from_as_without_strata(
    policy: str, rates: list[float | None], seed: int
) -> None:
    table = sourced([("one", 0.25), *(("one", rate) for rate in rates)])
    size = build(policy).capacity(table) // 2 + 1
    alone = selected_rows(table, policy, min(size, build(policy).capacity(table)), seed)
    assert selected_rows(table, policy, len(alone), seed, within="source") == alone


def test_the_hardest_within_each_source_are_others_than_the_hardest_overall() -> None:
    table = sourced([("hard", 0.0)] * 4 + [("easy", rate) for rate in (0.5, 0.75, 1.0, 1.0)])
    assert chosen_sources(table, selected_rows(table, "hard", 4)) == {"hard": 4}
    rows = selected_rows(table, "hard", 4, within="source")
    assert chosen_sources(table, rows) == {"hard": 2, "easy": 2}
    assert {4, 5} < {*rows}


def test_the_middle_of_a_stratum_is_about_its_own_median() -> None:
    rates = [0.0, 0.1, 0.2, 0.8, 0.9, 1.0]
    table = sourced([("low" if rate < 0.5 else "high", rate) for rate in rates])
    assert sorted(selected_rows(table, "middle", 2, within={"source": "equal"})) == [1, 4]


def test_the_first_ranks_have_about_the_same_shares_as_the_whole() -> None:
    table = sourced([("a", 0.0)] * 60 + [("b", 0.0)] * 40)
    rows = selected_rows(table, "hard", 50, within="source")
    assert chosen_sources(table, rows[:10]) == {"a": 6, "b": 4}


def test_pass_rates_are_strata_too() -> None:
    rates: list[float | None] = [0.0, 0.25, 0.3, 0.5, 0.75, 0.8, 1.0, None]
    table = rates_table(rates)
    quotas = build("random", within={"pass_rate": "equal"}).rule.quotas(table, 7)
    assert {q.stratum.name: q.stratum.rows.tolist() for q in quotas} == {
        "(none)": [7],
        **dict(zip(RATE_BANDS, [[0], [1], [2, 3], [4], [5], [6]], strict=True)),
    }


def test_rows_are_kept_and_left_out_by_columns() -> None:
    table = sourced([("a", 0.0), ("b", 0.0), ("c", 0.0), (None, 0.0)])
    table = table.append_column("level", pa.array([1, 2, 1, 1]))
    assert sorted(selected_rows(table, "random", 2, where={"source": ["a", "b"]})) == [0, 1]
    assert sorted(
        selected_rows(table, "random", 2, where={"level": 1}, exclude={"source": "c"})
    ) == [0, 3]
    assert build("hard", where={"level": 2}).capacity(table) == 1


def test_names_and_columns_may_both_be_excluded() -> None:
    table = sourced([("a", 0.0), ("a", 0.5), ("b", 0.5)])
    policy = build("hard", exclude=["unsolved", {"source": "b"}])
    assert policy(table, 1, np.random.default_rng(0)).tolist() == [1]
    assert policy.capacity(table) == 1


def test_a_mixture_selects_its_shares_within_each_stratum() -> None:
    table = sourced([(source, rate) for source in "ab" for rate in (0.0, 0.0, 1.0, 1.0)])
    options = {"shares": {"hard": 0.5, "easy": 0.5}, "within": "source"}
    rows = selected_rows(table, "mixture", 4, **options)
    pairs = Counter((row // 4, table["pass_rate"][row].as_py()) for row in rows)
    assert pairs == dict.fromkeys([(0, 0.0), (0, 1.0), (1, 0.0), (1, 1.0)], 1)


def first_rows(table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
    """A policy of a user's own, as a function."""
    return np.arange(size)


def own_within(table: pa.Table, size: int, rng: np.random.Generator, within: str = "") -> Any:
    """A policy of a user's own that has an option of this name."""
    return np.full(size, 0) if within else np.arange(size)


def test_a_function_of_the_users_own_selects_within_strata() -> None:
    table = sourced([("a", 0.0), ("b", 0.0), ("a", 0.0), ("b", 0.0)])
    assert selected_rows(table, f"{__name__}:first_rows", 2, within="source") == [0, 1]
    assert selected_rows(table, f"{__name__}:own_within", 1, within="x") == [0]


@pytest.mark.parametrize(
    "options",
    [
        {"within": "source"},
        {"within": {"source": {"b": 0.25, "a": 0.75}}},
        {"where": {"source": ["b", "a", "b"], "level": 3}},
        {"exclude": [{"source": "a"}, "unsolved", {"source": ["c"], "x": True}]},
    ],
)
def test_settled_options_mean_the_same_and_settle_once(options: dict[str, Any]) -> None:
    settled = settled_options(get_policy("hard", **options), options)
    assert settled_options(get_policy("hard", **settled), settled) == settled


def test_ties_are_those_at_the_cutoff_of_each_stratum() -> None:
    table = sourced([("a", 0.0)] * 3 + [("b", 0.0)] + [("b", 0.5)] * 2)
    policy = build("hard", within={"source": "equal"})
    rows = policy(table, 4, np.random.default_rng(0))
    ties, tied = policy.tied(table, rows)
    assert ties == (3 + 2, 2 + 1)  # two of three in a, and one of two in b
    assert [bool(tied[rows.tolist().index(3)]), int(tied.sum())] == [False, 3]


def test_counts_are_filled_up_in_proportion_to_the_shares_of_the_others() -> None:
    assert filled(np.array([0.5, 0.25, 0.25]), [1, 10, 10], [5, 2, 2]) == [1, 4, 4]
    assert filled(np.array([1.0, 0.0]), [2, 10], [5, 0]) == [2, 0]  # no share, no row
    assert filled(np.array([1.0, 1.0]), [5, 5], [5, 5]) == [5, 5]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"within": 3}, "3"),
        ({"within": {"source": "most"}}, "most"),
        ({"within": {"source": {"a": 0.5}}}, "0.5"),
        ({"within": {"source": {"a": True}}}, "True"),
        ({"within": {"source": {"z": 1.0}}}, "'z'"),
        ({"within": "sorce"}, "sorce"),
        ({"where": {"source": "z"}}, "'z'"),
        ({"where": "source"}, "source"),
        ({"exclude": {"source": [{}]}}, "source"),
        ({"exclude": {"sorce": "a"}}, "keep: [sorce, …]"),
        ({"within": "sorce"}, "did you mean 'source'?"),
        ({"where": {"source": "a"}, "within": {"source": {"b": 1.0}}}, "2 prompts"),
    ],
)
def test_a_wrong_restriction_is_refused(options: dict[str, Any], named: str) -> None:
    table = sourced([("a", 0.0), ("b", 0.0), ("b", 0.5)])
    with refused("hard", named, by=PolicyError):
        build("hard", **options)(table, 2, np.random.default_rng(0))


def test_a_pool_is_checked_for_columns_before_it_is_probed() -> None:
    prompts = sourced([("a", None), ("b", None)]).drop_columns("pass_rate")
    build("hard", within="pass_rate", where={"source": "a"}).check_columns(prompts)
    build("hard").check_columns(prompts)
    for options in ({"within": "sorce"}, {"where": {"source": "z"}}):
        with refused("hard", by=PolicyError):
            build("hard", **options).check_columns(prompts)


def test_a_restricted_policy_needs_every_sample_unless_it_needs_none() -> None:
    assert build("hard", within="source").needs == "all"
    assert build("random", where={"source": "a"}).needs == "nothing"
    assert build("random", within="pass_rate").needs == "all"
    assert build("hard", within="source", where={"level": 1}).reads_columns == ["level", "source"]
    assert build("hard", within="pass_rate").reads_columns == []
    assert build("hard").reads_columns == []
    assert build("full", where={"source": "a"}).takes_all


class Declares:
    """A policy of a user's own that differs from every default that a built policy reads."""

    needs = "nothing"
    takes_all = True
    reads_answers = reads_questions = reads_golds = True
    simulated = excludes_suspected = False
    reads_columns = ("mine",)
    easier, harder, ranks_by, stream = "go up", "go down", "mine", "mixture"
    columns = check = chat = None  # names of its own that nobody reads

    def __call__(self, table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        return np.arange(table.num_rows)

    def eligible(self, table: pa.Table) -> np.ndarray:
        return np.ones(table.num_rows, dtype=bool)

    def ties(self, table: pa.Table, chosen: np.ndarray) -> None:
        return None


class Traced:
    """Records the attributes that are read of it."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.read.append(name)
        raise AttributeError(name)


def test_a_restricted_policy_passes_on_whatever_a_built_policy_reads() -> None:
    traced = Traced()
    properties = [n for n, v in vars(Policy).items() if isinstance(v, property)]
    properties += [n for n, v in vars(Policy.__mro__[1]).items() if isinstance(v, property)]
    for name in properties:
        getattr(Policy("traced", traced), name)
    for end in ("easy", "hard"):
        Policy("traced", traced).change_towards(end)  # type: ignore[arg-type]
    names = {*traced.read} - {"__class__", "whole"}  # the earlier name of takes_all
    assert {"needs", "takes_all", "reads_columns", "easier", "harder"} <= names
    assert names <= {*vars(Declares)}, "give Declares a value of the new attribute"
    inner = f"{__name__}:Declares"
    restricted = build(inner, where={"source": "a"})
    mixed = build("mixture", shares={inner: {"share": 1, "where": {"source": "a"}}})
    for name in names - {"reads_columns"}:
        assert getattr(restricted.rule, name) == getattr(Declares, name), name
    for policy in (restricted, mixed):
        assert policy.reads_columns == ["mine", "source"]
        assert policy.reads_answers and policy.reads_questions and policy.reads_golds
        assert policy.needs == "nothing"
        with refused("mine", by=PolicyError):
            policy.check_columns(sourced([("a", None)]))


def any_options(table: pa.Table, size: int, rng: np.random.Generator, **options: Any) -> Any:
    """A policy of a user's own that takes any option."""
    assert options == {"where": {"source": "a"}}
    return np.arange(size)


def test_a_function_that_takes_any_option_gets_all_of_them() -> None:
    rows = selected_rows(sourced([("b", 0.0)]), f"{__name__}:any_options", 1, where={"source": "a"})
    assert rows == [0]


def test_a_column_of_ids_is_no_column_of_strata() -> None:
    count = MAX_STRATA + 1
    table = pa.table({"prompt_id": ["p"] * count, "id": list(map(str, range(count)))})
    build("random", within="id").check_columns(table.slice(1))
    with refused("id", f"{count:,}", by=PolicyError):
        build("random", within="id").check_columns(table)
    with refused("id", f"{count:,}", by=PolicyError):
        BuiltOnlinePolicy("pools", get_online_policy("pools", within="id")).check_columns(table)
