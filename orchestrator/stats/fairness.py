"""Whether cells may be compared, and how they compare at equal cost. Pure: Arrow and NumPy only.

Policies change what training costs: hard prompts have longer answers. So ledgers are held against
each other, and accuracies can be read where each cell had spent the same.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

Axis = Literal["updates", "rollouts", "tokens", "seconds"]
AXES: tuple[str, ...] = get_args(Axis)

# Axis of the ledger -> share of the larger value by which two cells may differ. What the
# experiment fixes must be equal; how long answers are is the model's, and 10 % of tokens is far
# less than what hard and easy prompts differ by.
TOLERANCE: dict[str, float] = {
    "updates": 0.0,
    "rollouts": 0.0,
    "prompts": 0.0,
    "generated_tokens": 0.10,
}


class Flag(NamedTuple):
    """On this axis cells are not comparable.

    `cells` are those that stand outside, in the order given; `values` those of all cells;
    `difference` is between the least and the greatest, as a share of the greatest (0 to 1).
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
    """The axes on which the cells of one comparison differ beyond a tolerance, worst cells named.

    Two cells agree on an axis when they differ by at most `tolerance[axis]` × the larger value. The
    largest set of cells that all agree stands, if it holds more than half; the others are flagged.
    Without such a majority all are. Compare cells of one seed at a time where a subset does not
    divide into whole updates: the seed then decides which prompts an epoch leaves out.

    Raises KeyError where a ledger lacks an axis, ValueError where a value is no number of at least
    0.
    """
    flags = []
    for axis, most in tolerance.items():
        values = {name: float(entries[axis]) for name, entries in ledgers.items()}
        for name, value in values.items():
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"the ledger of {name} has {axis} {value}: write a number >= 0")
        odd = _outside(values, most)
        if odd:
            flags.append(Flag(axis, odd, values, _difference(*_ends(values))))
    return flags


def _ends(values: Mapping[str, float]) -> tuple[float, float]:
    return min(values.values()), max(values.values())


def _difference(low: float, high: float) -> float:
    return (high - low) / high if high else 0.0


def _outside(values: Mapping[str, float], most: float) -> tuple[str, ...]:
    """Cells that do not belong to the majority that agrees; none where all agree."""
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
    largest = [set(run) for run in runs if len(run) == size]  # several: only what they share stands
    standing = set.intersection(*largest)
    return tuple(name for name, value in values.items() if value not in standing)


def cost_curve(
    axis: Axis, updates: int, groups: pa.Table, log: pa.Table, seconds: float
) -> np.ndarray:
    """What a cell had spent after each update: [updates + 1], rising, 0 for the base model.

    rollouts and tokens (generated ones) are cumulated from `groups`; seconds from the trainer's
    `step_time` in the log, scaled to the ledger's `seconds`, or in proportion to updates where the
    log lacks it. Raises ValueError for another axis.
    """
    if axis == "updates":
        return np.arange(updates + 1, dtype=float)
    if axis == "seconds":
        return _seconds(updates, log, seconds)
    if axis not in AXES:
        raise ValueError(f"compare_at is {axis!r}: write one of {', '.join(AXES)}")
    tokens = groups["tokens"].to_pylist()
    spent = [len(t) if axis == "rollouts" else sum(t) for t in tokens]
    return _cumulated(groups["update"].to_pylist(), spent, updates)


def _cumulated(at: Sequence[int], spent: Sequence[float], updates: int) -> np.ndarray:
    each = np.bincount(np.array(at, dtype=int), np.array(spent, dtype=float), updates + 1)
    return np.asarray(np.cumsum(each)[: updates + 1])


def _seconds(updates: int, log: pa.Table, seconds: float) -> np.ndarray:
    rows = [row for row in log.to_pylist() if row["name"] == "step_time"]
    steps = _cumulated([r["update"] for r in rows], [r["value"] for r in rows], updates)
    if {r["update"] for r in rows} >= set(range(1, updates + 1)) and steps[-1] > 0:
        return np.asarray(steps * (seconds / steps[-1]))
    return np.linspace(0.0, seconds, updates + 1)


class Point(NamedTuple):
    """A cell where it had spent at most the budget: the evaluated update, its value, its cost."""

    update: int
    value: float
    cost: float


def common_budget(costs: Mapping[str, np.ndarray]) -> float:
    """The most that every cell reached: the least of the cells' total costs."""
    return min(float(curve[-1]) for curve in costs.values())


def truncate_at(
    curves: Mapping[str, Mapping[int, float]],
    costs: Mapping[str, np.ndarray],
    budget: float | None = None,
) -> dict[str, Point]:
    """Each cell at its last evaluated update within one budget, the common one where none is given.

    `curves` are evaluated update -> value (an accuracy), `costs` come from `cost_curve` under the
    same names. A cell stands at update 0, the base model, when its first later evaluation is
    already over the budget: evaluate more often to compare closer to it; `cost` says how close.

    Raises ValueError where a cell has no evaluation within the budget.
    """
    most = common_budget(costs) if budget is None else budget
    return {name: _last_within(name, curve, costs[name], most) for name, curve in curves.items()}


def _last_within(name: str, curve: Mapping[int, float], cost: np.ndarray, budget: float) -> Point:
    slack = 1e-9 * max(1.0, abs(budget))  # sums of the same seconds may differ in their last digit
    within = [u for u in curve if u < len(cost) and cost[u] <= budget + slack]
    if not within:
        raise ValueError(f"{name} was not evaluated within {budget:g}: evaluate the base model too")
    last = max(within)
    return Point(last, curve[last], float(cost[last]))
