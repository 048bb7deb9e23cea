"""Whether cells are comparable, and how to compare them at equal cost. Pure: Arrow and NumPy.

Policies change what training costs: hard prompts have longer answers. Ledgers are therefore
compared, and accuracies can be read at the point where every cell had the same cost.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa

from orchestrator.config.experiment import Axis
from orchestrator.stats.inference import Effect, available, group_codes, mean_effect

AXES: tuple[Axis, ...] = get_args(Axis)

# Axis of the ledger -> share of the larger value by which two cells may differ. What the
# experiment fixes must be equal. The length of answers depends on the model; 10 % of the tokens is
# far less than the difference between hard and easy prompts.
_FIXED = ("updates", "rollouts", "prompts")
TOLERANCE: dict[str, float] = {**dict.fromkeys(_FIXED, 0.0), "generated_tokens": 0.10}


def outliers(values: Mapping[str, float], most: float) -> tuple[str, ...]:
    """The cells that differ from the others, in the given order; none if all agree.

    Two cells agree if they differ by at most `most` × the larger value. If the largest set of cells
    that all agree is a majority, the other cells are returned; otherwise all are. Compare cells of
    one seed at a time where a subset does not divide into whole updates: the seed then decides
    which prompts an epoch leaves out.
    """
    numbers = sorted(values.values())
    runs = [
        [v for v in numbers if v >= low and difference([low, v]) <= most]
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


def difference(values: Collection[float]) -> float:
    """Between the smallest and the largest value, as a share of the largest (0 to 1)."""
    largest = max(values)
    return (largest - min(values)) / largest if largest else 0.0


def cost_curve(
    axis: Axis,
    updates: int,
    groups: pa.Table,
    log: pa.Table,
    seconds: float,
    labels: int | None = None,
) -> np.ndarray:
    """Cumulative cost of a cell after each update: [updates + 1], rising, 0 for the base model.

    rollouts and (generated) tokens are accumulated from `groups`, which must contain those that
    were drawn and discarded, and prompts that were probed again before an update; seconds from the
    trainer's `step_time` in the log, scaled to the ledger's `seconds`, or in proportion to updates
    where the log has none. labels: those used before the first update, to which no update adds any;
    None: the distinct prompts of `groups`.
    """
    if axis == "labels" and labels is not None:
        return np.concatenate([[0.0], np.full(updates, float(labels))])
    if axis == "labels":
        first = groups.group_by("prompt_id").aggregate([("update", "min")])["update_min"]
        return _cumulative(first.to_pylist(), [1.0] * len(first), updates)
    if axis == "updates":
        return np.arange(updates + 1, dtype=float)
    if axis == "seconds":
        rows = [row for row in log.to_pylist() if row["name"] == "step_time"]
        steps = _cumulative([r["update"] for r in rows], [r["value"] for r in rows], updates)
        if {r["update"] for r in rows} >= set(range(1, updates + 1)) and steps[-1] > 0:
            return np.asarray(steps * (seconds / steps[-1]))
        return np.linspace(0.0, seconds, updates + 1)
    tokens = groups["tokens"].to_pylist()
    costs = [len(t) if axis == "rollouts" else sum(t) for t in tokens]
    return _cumulative(groups["update"].to_pylist(), costs, updates)


def _cumulative(at: Sequence[int], costs: Sequence[float], updates: int) -> np.ndarray:
    each = np.bincount(np.array(at, dtype=int), np.array(costs, dtype=float), updates + 1)
    return np.asarray(np.cumsum(each)[: updates + 1])


class Point(NamedTuple):
    """Where a cell is read: `share` of the way from an evaluated update to the next one, `later`.

    value, cost: linear in between.
    """

    update: int
    value: float
    cost: float
    later: int = 0
    share: float = 0.0

    @property
    def position(self) -> float:
        """The point as a number of updates."""
        return self.update + self.share * (self.later - self.update)


def at_budget(curve: Mapping[int, float], cost: np.ndarray, budget: float) -> Point:
    """A cell at a budget: between its last evaluation within it and the next one.

    `curve`: evaluated update -> value (an accuracy), including the base model's. If the first later
    evaluation exceeds the budget, the cell is read at the base model: evaluate more often to get
    closer to the budget. `cost` comes from `cost_curve`. If each cell were read at its last
    evaluation, one with expensive updates would be read at a smaller cost than the others.
    """
    slack = 1e-9 * max(1.0, budget)  # sums of the same seconds may differ in the last digit
    evaluated = sorted(u for u in curve if u < len(cost))
    last = max(u for u in evaluated if cost[u] <= budget + slack)
    later = min((u for u in evaluated if u > last), default=last)
    if not last or later == last or budget <= cost[last] + slack:
        return Point(last, curve[last], float(cost[last]))
    share = float((budget - cost[last]) / (cost[later] - cost[last]))
    value = (1 - share) * curve[last] + share * curve[later]
    return Point(last, value, budget, later, share)


def area_weights(cost: np.ndarray, limit: float) -> np.ndarray:
    """The weight of each value of a curve in its mean over costs up to `limit`.

    cost: of each value, rising from 0. The curve is linear between its values.
    """
    units = np.eye(len(cost))
    within = cost < limit
    ends = [np.interp(limit, cost, unit) for unit in units]
    curves = np.vstack([units[within], ends])
    return np.asarray(np.trapezoid(curves, np.append(cost[within], limit), axis=0) / limit)


def above_mean_cost(gains: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """[runs]: the gain of each run's cost beyond the mean, at the rate of all runs.

    Gains less this, divided by the mean cost, have mean gain by mean cost as their mean, and
    scatter as the linearized ratio estimator does (Cochran 1977). The mean of the runs' own ratios
    would count a cheap run more than an expensive one.
    """
    mean = costs.mean()
    return np.asarray(gains.mean() / mean * (costs - mean))


def per_cost(gains: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Gains [runs, items] by cost [runs], as values whose mean is mean gain by mean cost."""
    excess = above_mean_cost(gains.mean(axis=1), costs)
    return np.asarray((gains - excess[:, None]) / costs.mean())


def gain_rates(
    changes: Sequence[Mapping[str, float]],
    used: Sequence[Mapping[str, float]],
    groups: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Effect]:
    """Unit of cost -> points gained per unit, as in `per_cost`, with a 95 % interval.

    changes: for each cell, question -> change of its accuracy (a share); used: for each cell, unit
    -> how much training has used. Units that some cell did not use are left out. The interval
    covers new questions and, with several cells, new seeds.
    """
    gains = available(changes)
    if not gains.items:
        return {}
    codes, rates = group_codes(gains.items, groups), {}
    for unit in used[0]:
        costs = np.array([each.get(unit, 0.0) for each in used])
        if costs.all():
            rates[unit] = mean_effect(100 * per_cost(gains.values, costs), codes)
    return rates
