"""Which cells are comparable, and comparisons at equal cost."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planning.result import Ledger
from orchestrator.report.fairness import (
    TOLERANCE,
    at_budget,
    cost_curve,
    difference,
    outliers,
)
from orchestrator.storage.schema import GROUPS, LOG

SAME = 1000.0


def test_equal_cells_are_comparable_and_small_differences_of_tokens_too() -> None:
    assert outliers({"a": SAME, "b": 900}, TOLERANCE["generated_tokens"]) == ()
    assert outliers({"a": SAME}, 0.0) == outliers({}, 0.0) == ()


@pytest.mark.parametrize("axis", ["updates", "rollouts", "prompts"])
def test_what_the_experiment_fixes_must_be_equal(axis: str) -> None:
    values = {"a": SAME, "b": SAME - 1, "c": SAME}
    assert outliers(values, TOLERANCE[axis]) == ("b",)
    assert difference(values.values()) == pytest.approx(1 / SAME)


def test_two_cells_that_differ_are_both_named() -> None:
    assert outliers({"a": SAME, "b": 1500.0}, TOLERANCE["generated_tokens"]) == ("a", "b")


def test_with_two_majorities_only_common_outliers_remain() -> None:
    assert outliers({"a": 91.0, "b": 100.0, "c": 110.0}, 0.10) == ("a", "c")


def agree(one: float, other: float, most: float) -> bool:
    high = max(one, other)
    return high == 0 or (high - min(one, other)) / high <= most


@settings(max_examples=300)
@given(st.lists(st.integers(0, 12), max_size=6), st.sampled_from([0.0, 0.1, 0.25]))
def test_outliers_agree_with_comparing_every_pair(numbers: list[int], most: float) -> None:
    cells = {f"c{i}": float(n) for i, n in enumerate(numbers)}
    found = outliers(cells, most)
    pairs = combinations(numbers, 2)
    assert bool(found) == any(not agree(a, b, most) for a, b in pairs)
    if not found:
        return
    assert difference(numbers) == pytest.approx(1 - min(numbers) / max(numbers))
    sets = [
        kept
        for size in range(1, len(cells) + 1)
        for kept in combinations(cells, size)
        if all(agree(cells[a], cells[b], most) for a, b in combinations(kept, 2))
    ]
    size = max(len(kept) for kept in sets)
    largest = [set(kept) for kept in sets if len(kept) == size]
    standing = set.intersection(*largest) if 2 * size > len(cells) else set()
    assert found == tuple(name for name in cells if name not in standing)


def groups(*rows: tuple[int, list[int]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                **{"update": u, "prompt_id": "p", "tier": "", "tokens": t},
                **{"rewards": [0.0] * len(t), "outcomes": ["wrong"] * len(t)},
                **{"other_outcomes": ["wrong"] * len(t), "components": []},
            }
            for u, t in rows
        ],
        schema=GROUPS,
    )


def log(*steps: tuple[int, float]) -> pa.Table:
    rows = [
        {"update": u, "name": name, "value": v}
        for u, seconds in steps
        for name, v in (("loss", 9.0), ("step_time", seconds))
    ]
    return pa.Table.from_pylist(rows, schema=LOG)


def test_costs_are_cumulated_over_updates() -> None:
    table = groups((1, [3, 4]), (1, [5, 5]), (3, [1, 1]))
    cost = {axis: cost_curve(axis, 4, table, log(), 8.0) for axis in ("updates", "rollouts")}
    assert cost["updates"].tolist() == [0, 1, 2, 3, 4]
    assert cost["rollouts"].tolist() == [0, 4, 4, 6, 6]
    assert cost_curve("tokens", 4, table, log(), 8.0).tolist() == [0, 17, 17, 19, 19]
    assert cost_curve("seconds", 4, table, log(), 8.0).tolist() == [0, 2, 4, 6, 8]


def test_seconds_follow_the_trainers_own_where_all_are_there() -> None:
    none = GROUPS.empty_table()
    assert cost_curve("seconds", 2, none, log((1, 3.0), (2, 1.0)), 8.0).tolist() == [0, 6, 8]
    assert cost_curve("seconds", 2, none, log((1, 3.0)), 8.0).tolist() == [0, 4, 8]
    assert cost_curve("seconds", 2, none, log((1, 0.0), (2, 0.0)), 8.0).tolist() == [0, 4, 8]


COST = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from("abc"), st.tuples(COST, st.integers(1, 3)), min_size=1))
def test_each_cell_is_read_at_the_common_budget(
    drawn: dict[str, tuple[list[int], int]],
) -> None:
    costs = {name: np.cumsum([0.0, *each]) for name, (each, _) in drawn.items()}
    curves = {
        name: {u: u / 100 for u in range(0, len(each) + 1, every)}
        for name, (each, every) in drawn.items()
    }
    budget = min(sum(each) for each, _ in drawn.values())
    for name, curve in curves.items():
        point = at_budget(curve, costs[name], budget)
        later = [u for u in curve if u > point.update]
        assert all(costs[name][u] > budget for u in later) and costs[name][point.update] <= budget
        if not point.update or not later:
            assert point.cost == costs[name][point.update] and point.position == point.update
        else:
            evaluated = sorted(curve)
            assert point.cost == pytest.approx(budget)
            at = np.interp(budget, costs[name][evaluated], evaluated) if point.share else 0
            assert point.position == pytest.approx(at or point.update)
        assert point.value == pytest.approx(point.position / 100)


def test_a_budget_is_met_in_spite_of_rounding() -> None:
    cost, curve = np.array([0.0, 10.0, 20.0]), {0: 0.1, 1: 0.2, 2: 0.3}
    assert at_budget(curve, cost, 15) == (1, 0.25, 15.0, 2, 0.5)
    assert at_budget(curve, cost, 10) == (1, 0.2, 10.0, 0, 0)
    assert at_budget(curve, cost, 9) == (0, 0.1, 0.0, 0, 0), "no evaluation but the base model's"
    cost = np.cumsum([0.0, 0.1, 0.2])
    assert cost[-1] > 0.3 and at_budget({0: 0.0, 2: 1.0}, cost, 0.3).update == 2


def test_every_tolerance_axis_is_a_ledger_column() -> None:
    assert {*TOLERANCE} <= {*Ledger.model_fields}
