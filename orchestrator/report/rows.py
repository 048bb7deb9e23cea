"""The store -> one row per cell: the only place where the report reads results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.evaluation.groups import GroupShares, by_tier, group_shares
from orchestrator.evaluation.metrics import bands, by_update, main, part, per_prompt
from orchestrator.planning.cells import Cell
from orchestrator.selection.subsets import read_subset, reason
from orchestrator.stats.fairness import AXES, cost_curve
from orchestrator.stats.inference import Interval, paired_gain
from orchestrator.storage.schema import EVALUATIONS, GROUPS, LOG, empty
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import CellState, cell_state

OWN = ""  # the cell's own test set; other names are out-of-distribution sets

# update -> prompt_id -> (samples without error, correct ones), sampled answers only
Counts = Mapping[int, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True)
class Row:
    """A finished cell.

    censored: some cell of its policy was stopped early, and those that were not would flatter it;
    gain: interval of the difference of accuracies, as shares; counts: test set (OWN, or its name)
    -> what its questions' samples came to; kinds: "tier" and "band" -> question of the own test
    set -> its part; held_out: base counts from samples that chose no band; shares, tier_shares:
    update, tier -> its groups by kind; costs: axis of `fairness.AXES` -> what was spent after each
    update.
    """

    cell: Cell
    result: dict[str, Any]
    gain: Interval
    counts: Mapping[str, Counts]
    kinds: Mapping[str, Mapping[str, str]]
    held_out: Mapping[str, tuple[int, int]]
    shares: Mapping[int, GroupShares]
    tier_shares: Mapping[str, GroupShares]
    costs: Mapping[str, np.ndarray]
    ties: dict[str, int] | None
    stopped: bool = False

    @cached_property
    def curve(self) -> dict[int, float]:
        """Evaluated update -> accuracy on the cell's own test set."""
        return {u: float(np.mean(list(self.scores(u).values()))) for u in self.counts[OWN]}

    def scores(self, update: int) -> dict[str, float]:
        """Question of the own test set -> mean correctness of its samples after an update."""
        return {i: c / n for i, (n, c) in self.counts[OWN][update].items() if n}


def read_rows(store: Store, cells: Sequence[Cell]) -> list[Row]:
    """The rows of those cells that are finished, in their order."""
    stopped = {_policy(c) for c in cells if cell_state(store, c) is CellState.STOPPED}
    rows = (_row(store, cell) for cell in cells)
    return [replace(row, stopped=_policy(row.cell) in stopped) for row in rows if row is not None]


def _policy(cell: Cell) -> tuple[Any, ...]:
    """What the cells of one policy share: every axis but the seed."""
    return tuple(value for axis, value in sorted(cell.axes.items()) if axis != "seed")


def _row(store: Store, cell: Cell) -> Row | None:
    place = ("cells", cell.cell_id)
    result = store.read_json(*place, "result.json")
    evaluations = store.read_table(EVALUATIONS, *place, "evaluations.parquet")
    if result is None or evaluations is None:
        return None
    groups, log = (
        table if (table := store.read_table(schema, *place, file)) is not None else empty(schema)
        for schema, file in ((GROUPS, "groups.parquet"), (LOG, "log.parquet"))
    )
    seconds = result["ledger"]["seconds"]
    costs = {axis: cost_curve(axis, cell.updates, groups, log, seconds) for axis in AXES}  # type: ignore[arg-type]
    subset = read_subset(store, cell)
    ties = reason(subset)["ties"] if subset is not None else None
    counts = _counts(evaluations)
    kinds, held_out = _parts(evaluations)
    return Row(
        cell,
        result,
        _gain(counts[OWN], cell.updates),
        counts,
        kinds,
        held_out,
        group_shares(groups),
        by_tier(groups),
        costs,
        ties,
    )


def _parts(evaluations: pa.Table) -> tuple[dict[str, dict[str, str]], Mapping[str, Any]]:
    """Tier and band of each question, and the base model's counts beside the bands."""
    base = main(by_update(evaluations)[0])
    tiers = dict(zip(base["prompt_id"].to_pylist(), base["tier"].to_pylist(), strict=True))
    by_id, held_out = bands(base)
    return {"tier": {i: tier for i, tier in tiers.items() if tier}, "band": by_id}, held_out


def _counts(evaluations: pa.Table) -> dict[str, Counts]:
    """Every sampled evaluation, by test set and update."""
    found: dict[str, dict[int, dict[str, tuple[int, int]]]] = {OWN: {}}
    for update, table in by_update(evaluations).items():
        for name in pc.unique(table["dataset"]).to_pylist():
            if (sampled := part(table, name, greedy=False)).num_rows:
                found.setdefault(name, {})[update] = per_prompt(sampled)
    return dict(found)


def _gain(counts: Counts, updates: int) -> Interval:
    """The interval of final minus base accuracy over the questions that both could score."""
    pairs = [
        (base, final)
        for i, base in counts[0].items()
        if base[0] and (final := counts[updates].get(i, (0, 0)))[0]
    ]
    before, after = (np.array([c / n for n, c in side]) for side in zip(*pairs, strict=True))
    return paired_gain(before, after)
