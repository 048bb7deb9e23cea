"""The rule of each policy, its options, and the errors for invalid ones."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from difficulty_tables import RATES, full_table, rates_table, selected_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from policies import Policy, PolicyError, get_policy, settled_options

FAILURES = st.fixed_dictionaries(
    dict.fromkeys(("wrong", "unparsed", "truncated"), st.integers(0, 4))
)


def test_hard_easy_and_learnable_select_from_their_end_and_unknown_ones_last() -> None:
    difficulty = rates_table([0.2, None, 0.9, 0.5])
    assert selected_rows(difficulty, "hard", 4) == [0, 3, 2, 1]
    assert selected_rows(difficulty, "easy", 4) == [2, 3, 0, 1]
    learnability = pa.table({"learnability": [0.2, None, 0.9, 0.5]})
    assert selected_rows(learnability, "learnable", 4) == [2, 3, 0, 1]


@settings(max_examples=100)
@given(rates=RATES)
def test_middle_selects_the_interquartile_range_first_and_then_the_nearest(
    rates: list[float | None],
) -> None:
    values = np.array(rates, dtype=float)
    low, median, high = np.percentile(values, [25, 50, 75]).round(12)
    distance = np.abs(values - median).round(12)
    outside = (values < low) | (values > high)
    rows = selected_rows(rates_table(rates), "middle", len(rates))
    keys = [(bool(outside[row]), float(distance[row])) for row in rows]
    assert keys == sorted(keys)


def test_middle_prefers_a_far_prompt_within_the_range_to_a_near_one_outside() -> None:
    rates = [0.1, 0.3, 0.3, 0.3, 0.4, 0.9, 0.9, 0.9]  # quartiles 0.3, 0.35, 0.9
    assert selected_rows(rates_table(rates), "middle", 8)[-1] == 0
    assert sorted(selected_rows(rates_table(rates), "middle", 4)) == [1, 2, 3, 4]


def test_middle_selects_from_both_sides_of_the_median_equally() -> None:
    rates: list[float | None] = [0.0, 0.4, 0.5, 0.6, 1.0]
    assert {selected_rows(rates_table(rates), "middle", 2, seed)[1] for seed in range(9)} == {1, 3}


def test_band_and_hardest_nonzero_never_select_rows_outside_or_unknown() -> None:
    rates: list[float | None] = [0.0, None, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0]
    assert sorted(selected_rows(rates_table(rates), "band", 3, low=0.2, high=0.8)) == [3, 4, 5]
    assert selected_rows(rates_table(rates), "hardest_nonzero", 6) == [2, 3, 4, 5, 6, 7]
    with refused("band has 3 of 4", "0.2 to 0.8", "wider band", by=PolicyError):
        selected_rows(rates_table(rates), "band", 4, low=0.2, high=0.8)
    with refused("hardest_nonzero has 6 of 7", "more samples", by=PolicyError):
        selected_rows(rates_table(rates), "hardest_nonzero", 7)


def test_a_band_includes_its_ends_despite_rounding_errors() -> None:
    assert selected_rows(rates_table([0.9, 1.0, None]), "band", 1, low=1, high=1) == [1]
    assert selected_rows(rates_table([0.1, 0.0, None]), "band", 1, low=0, high=0) == [1]
    assert selected_rows(rates_table([0.1 + 0.2]), "band", 1, low=0, high=0.3) == [0]
    assert selected_rows(rates_table([1 - 0.9]), "band", 1, low=0.1, high=0.1) == [0]


def test_base_wrong_and_base_right_use_the_first_sample() -> None:
    first = ["correct", "wrong", "unparsed", "truncated", "error", None, "correct"]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        difficulty = pa.table({"first": pa.array(first).cast(kind)})
        assert sorted(selected_rows(difficulty, "base_wrong", 3)) == [1, 2, 3]
        assert sorted(selected_rows(difficulty, "base_right", 2)) == [0, 6]
        sizes = [
            Policy("", get_policy(n)).capacity(difficulty) for n in ("base_wrong", "base_right")
        ]
        assert sizes == [3, 2]
    with refused("base_right has 2 of 3", "first sample", by=PolicyError):
        selected_rows(difficulty, "base_right", 3)


def test_full_selects_every_eligible_prompt_for_any_size() -> None:
    assert sorted(selected_rows(rates_table([0.1, None, 0.3]), "full", 1)) == [0, 1, 2]
    mixed = pa.table({"wrong": [0, 1], "unparsed": [1, 0], "truncated": [0, 0]})
    assert selected_rows(mixed, "full", 2, require="parsed") == [1]


@pytest.mark.parametrize(
    ("levels", "rows"),
    [
        ("1-2", [0, 1]),
        ([1, 3], [0, 2]),
        ("easy", [3]),
        (["easy", 3], [2, 3]),
        (["1-2"], [5]),
    ],
)
def test_tiers_selects_the_requested_levels(levels: Any, rows: list[int]) -> None:
    difficulty = pa.table({"tier": ["1", "2", "3", "easy", None, "1-2"]})
    assert sorted(selected_rows(difficulty, "tiers", len(rows), levels=levels)) == rows
    assert selected_rows(pa.table({"tier": [3, 1]}), "tiers", 1, levels=[1]) == [1]


def test_tiers_lists_the_tiers_of_the_table_when_short() -> None:
    difficulty = pa.table({"tier": [str(i) for i in range(12)]})
    with pytest.raises(PolicyError) as refused:
        selected_rows(difficulty, "tiers", 3, levels=["hard", 1])
    assert "tiers has 1 of 3 prompts in the tiers 1, hard" in str(refused.value)
    assert "(the table has '0', '1', '10', '11', '2', '3', '4', '5' and 4 more)" in str(
        refused.value
    )


@settings(max_examples=100)
@given(failures=FAILURES)
def test_require_parsed_keeps_prompts_whose_failures_are_mostly_answers(
    failures: dict[str, int],
) -> None:
    row = {"pass_rate": 0.5, "tier": "1", "first": "wrong", "learnability": 0.1, **failures}
    total = sum(failures.values())
    eligible = get_policy("hard", require="parsed").eligible(full_table([row]))[0]
    assert eligible == (total == 0 or failures["wrong"] / total >= 0.5)
    assert get_policy("hard").eligible(full_table([row]))[0]


def test_excluded_prompts_are_never_selected_and_a_shortage_names_the_requirement() -> None:
    difficulty = pa.table(
        {
            "pass_rate": [0.0, 0.1, 0.2],
            "wrong": [0, 3, 3],
            "unparsed": [5, 2, 3],
            "truncated": pa.array([0, 0, None], pa.int32()),
        }
    )
    assert selected_rows(difficulty, "hard", 2, require="parsed") == [1, 2]
    with pytest.raises(PolicyError, match="hard has 2 of 3 .*leave out require: parsed"):
        selected_rows(difficulty, "hard", 3, require="parsed")


def test_suspected_and_unsolved_prompts_are_excluded_where_the_options_say_so() -> None:
    difficulty = pa.table(
        {"pass_rate": [0.0, 0.1, 0.2, 0.0, None], "suspected": [True, True, False, False, False]}
    )
    assert selected_rows(difficulty, "hard", 3, exclude="suspected") == [3, 2, 4]
    assert selected_rows(difficulty, "hard", 2, exclude="unsolved") == [1, 2]
    assert selected_rows(difficulty, "hard", 1, exclude=["unsolved", "suspected"]) == [2]
    assert not get_policy("hard", exclude="unsolved").reads_answers
    mixed = get_policy("mixture", shares={"hard": {"share": 1, "exclude": "suspected"}})
    assert mixed.reads_answers
    with pytest.raises(PolicyError, match="has 1 of 2 .*leave out exclude: suspected, unsolved"):
        selected_rows(difficulty, "hard", 2, exclude=["unsolved", "suspected"])
    unread = difficulty.set_column(1, "suspected", pa.nulls(5, pa.bool_()))
    with refused("suspected", "answers", by=PolicyError):
        selected_rows(unread, "hard", 1, exclude="suspected")
    numbers = difficulty.set_column(1, "suspected", pa.array([0, 1, 0, 1, 0]))
    with pytest.raises(PolicyError, match="hard needs booleans .*suspected"):
        selected_rows(numbers, "hard", 1, exclude="suspected")


def test_middle_uses_the_median_of_the_required_prompts() -> None:
    row = {"tier": "1", "first": None, "learnability": None, "unparsed": 0, "truncated": 0}
    rows = [{**row, "pass_rate": p, "wrong": 1} for p in (0.7, 0.8, 0.9)]
    rows += [{**row, "pass_rate": 0.0, "wrong": 0, "truncated": 9}] * 7
    assert selected_rows(full_table(rows), "middle", 1, require="parsed") == [1]


@pytest.mark.parametrize(
    ("name", "options", "missing"),
    [
        ("hard", {}, "pass_rate"),
        ("middle", {}, "pass_rate"),
        ("band", {"low": 0.1, "high": 0.2}, "pass_rate"),
        ("base_wrong", {}, "first"),
        ("learnable", {}, "learnability"),
        ("tiers", {"levels": 1}, "tier"),
        ("random", {"require": "parsed"}, "wrong"),
        ("mixture", {"shares": {"random": 1}, "require": "parsed"}, "wrong"),
        ("easy", {"exclude": "suspected"}, "suspected"),
    ],
)
def test_a_missing_column_is_named_with_its_origin(
    name: str, options: dict[str, Any], missing: str
) -> None:
    with pytest.raises(PolicyError, match=f"{name} needs the column {missing} .*probe's folder"):
        selected_rows(pa.table({"prompt_id": ["a", "b"]}), name, 1, **options)


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(PolicyError, match="hard needs numbers .*pass_rate"):
        selected_rows(pa.table({"pass_rate": ["0.1"]}), "hard", 1)
    with pytest.raises(PolicyError, match="base_wrong needs text .*first"):
        selected_rows(pa.table({"first": [[1]]}), "base_wrong", 1)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("hard", {"requires": "parsed"}, "'hard' .*'requires': it takes .*require"),
        ("band", {"lo": 1}, "'band' .*'lo': it takes .*low, high"),
        ("band", {}, "'band' needs low and high: .*low: 0.2, high: 0.8"),
        ("band", {"low": 0, "high": 1.5}, "high is 1.5"),
        ("band", {"low": -0.1, "high": 1}, "low is -0.1"),
        ("band", {"low": True, "high": 1}, "low is True"),
        ("band", {"low": float("nan"), "high": 1}, "low is nan"),
        ("band", {"low": 0.8, "high": 0.2}, "low 0.8 is above high 0.2"),
        ("tiers", {}, "needs levels: .*levels: 1-3"),
        ("tiers", {"levels": []}, r"levels is \[\]: .*1-3"),
        ("tiers", {"levels": "3-1"}, "levels is '3-1'"),
        ("tiers", {"levels": True}, "levels is True"),
        ("easy", {"require": "answers"}, "require: 'answers': write parsed"),
        ("easy", {"exclude": "wrong"}, "exclude: 'wrong': write suspected, unsolved, form"),
        ("easy", {"exclude": [{"suspected": True}]}, "exclude: .*: write suspected alone"),
    ],
)
def test_invalid_options_are_refused_with_what_to_write(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(PolicyError, match=words):
        get_policy(name, **options)


def test_equivalent_options_settle_to_the_same_value() -> None:
    forms = ["1-3", "1–3", [3, 1, 2], ["1", "2", "3"], [1, 1, 2, 3]]
    settled = [settled_options(get_policy("tiers", levels=f), {"levels": f}) for f in forms]
    assert settled == [{"levels": ["1", "2", "3"]}] * len(forms)
    assert settled_options(get_policy("hard", require=None), {"require": None}) == {}
    both = get_policy("hard", exclude=("unsolved", "suspected", "unsolved"))
    assert settled_options(both, {}) == {"exclude": ["suspected", "unsolved"]}
    assert settled_options(get_policy("hard", exclude=[]), {}) == {}
    assert settled_options(len, {"own": 1}) == {"own": 1}  # type: ignore[arg-type]
