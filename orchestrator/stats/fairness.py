"""Whether cells are comparable, and how to compare them at equal cost. Pure: Arrow and NumPy.

Policies change what training costs: hard prompts have longer answers. Ledgers are therefore
compared, and accuracies can be read at the point where every cell had the same cost.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa

from orchestrator.config.experiment import Axis as Axis

AXES: tuple[str, ...] = get_args(Axis)

# Axis of the ledger -> share of the larger value by which two cells may differ. What the
# experiment fixes must be equal. The length of answers depends on the model; 10 % of the tokens is
# far less than the difference between hard and easy prompts.
TOLERANCE: dict[str, float] = {
    "updates": 0.0,
    "rollouts": 0.0,
    "prompts": 0.0,
    "generated_tokens": 0.10,
}


class Flag(NamedTuple):
    """An axis on which cells are not comparable.

    `cells`: the outliers, in the given order; `values`: the values of all cells; `difference`:
    between the smallest and the largest value, as a share of the largest (0 to 1).
    """

    axis: str
    cells: tuple[str, ...]
    values: dict[str, float]
    difference: float

    def __str__(self) -> str:
        low, high = (f"{f(self.values.values()):,g}" for f in (min, max))
        return (
            f"not comparable on {self.axis.replace('_', ' ')} ({low} to {high}, "
            f"{100 * self.difference:.0f} % apart): {', '.join(self.cells)}"
        )


def check_comparable(
    ledgers: Mapping[str, Mapping[str, float]], tolerance: Mapping[str, float] = TOLERANCE
) -> list[Flag]:
    """The axes on which the cells of one comparison differ beyond a tolerance, with the outliers.

    Two cells agree on an axis when they differ by at most `tolerance[axis]` × the larger value. If
    the largest set of cells that all agree is a majority, the other cells are flagged; otherwise
    all are. Compare cells of one seed at a time where a subset does not divide into whole updates:
    the seed then decides which prompts an epoch leaves out.

    Raises KeyError where an axis is missing from a ledger, ValueError unless every value is finite
    and at least 0.
    """
    flags = []
    for axis, most in tolerance.items():
        values = {name: float(entries[axis]) for name, entries in ledgers.items()}
        for name, value in values.items():
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"the ledger of {name} has {axis} {value}: expected a number >= 0")
        if outliers := _outliers(values, most):
            difference = _difference(min(values.values()), max(values.values()))
            flags.append(Flag(axis, outliers, values, difference))
    return flags


def _difference(low: float, high: float) -> float:
    return (high - low) / high if high else 0.0


def _outliers(values: Mapping[str, float], most: float) -> tuple[str, ...]:
    """Cells outside of the majority that agrees; none where all agree."""
    numbers = sorted(values.values())
    runs = [
        [v for v in numbers if v >= low and _difference(low, v) <= most]
        for low in dict.fromkeys(numbers)
    ]
    size = max(map(len, runs), default=0)
    if size == len(numbers):
        return ()
    if 2 * size <= len(numbers):
        return tuple(values)
    largest = [set(run) for run in runs if len(run) == size]  # of several, their intersection
    majority = set.intersection(*largest)
    return tuple(name for name, value in values.items() if value not in majority)


def cost_curve(
    axis: Axis, updates: int, groups: pa.Table, log: pa.Table, seconds: float
) -> np.ndarray:
    """Cumulative cost of a cell after each update: [updates + 1], rising, 0 for the base model.

    rollouts and (generated) tokens are accumulated from `groups`, which must contain those that
    were drawn and discarded, and prompts that were probed again before an update; seconds from the
    trainer's `step_time` in the log, scaled to the ledger's `seconds`, or in proportion to updates
    where the log has none. Raises ValueError for another axis.
    """
    if axis == "updates":
        return np.arange(updates + 1, dtype=float)
    if axis == "seconds":
        rows = [row for row in log.to_pylist() if row["name"] == "step_time"]
        steps = _cumulative([r["update"] for r in rows], [r["value"] for r in rows], updates)
        if {r["update"] for r in rows} >= set(range(1, updates + 1)) and steps[-1] > 0:
            return np.asarray(steps * (seconds / steps[-1]))
        return np.linspace(0.0, seconds, updates + 1)
    if axis not in AXES:
        raise ValueError(f"compare_at is {axis!r}: expected one of {', '.join(AXES)}")
    tokens = groups["tokens"].to_pylist()
    costs = [len(t) if axis == "rollouts" else sum(t) for t in tokens]
    return _cumulative(groups["update"].to_pylist(), costs, updates)


def _cumulative(at: Sequence[int], costs: Sequence[float], updates: int) -> np.ndarray:
    each = np.bincount(np.array(at, dtype=int), np.array(costs, dtype=float), updates + 1)
    return np.asarray(np.cumsum(each)[: updates + 1])


class Point(NamedTuple):
    """The last evaluation of a cell within the budget: the update, its value, its cost."""

    update: int
    value: float
    cost: float


def common_budget(costs: Mapping[str, np.ndarray]) -> float:
    """The largest budget that every cell reached: the minimum of the cells' total costs."""
    return min(float(curve[-1]) for curve in costs.values())


def truncate_at(
    curves: Mapping[str, Mapping[int, float]],
    costs: Mapping[str, np.ndarray],
    budget: float | None = None,
) -> dict[str, Point]:
    """Each cell at its last evaluated update within one budget (default: the common budget).

    `curves` are evaluated update -> value (an accuracy), `costs` come from `cost_curve` under the
    same names. A cell is read at update 0, the base model, when its first later evaluation already
    exceeds the budget: evaluate more often to get closer to it.

    Raises ValueError where a cell has no evaluation within the budget.
    """
    most = common_budget(costs) if budget is None else budget
    slack = 1e-9 * max(1.0, abs(most))  # sums of the same seconds may differ in the last digit
    points = {}
    for name, curve in curves.items():
        cost = costs[name]
        within = [u for u in curve if u < len(cost) and cost[u] <= most + slack]
        if not within:
            raise ValueError(
                f"{name} was not evaluated within {most:g}: evaluate the base model too"
            )
        last = max(within)
        points[name] = Point(last, curve[last], float(cost[last]))
    return points
