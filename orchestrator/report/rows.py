"""The store -> one row per finished cell: the only module of the report that reads results."""

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
from orchestrator.selection.stored import read_subset
from orchestrator.selection.subsets import reason
from orchestrator.stats.fairness import AXES, cost_curve
from orchestrator.stats.inference import Effect, mean_effect
from orchestrator.storage.schema import EVALUATIONS, GROUPS, LOG, empty
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import CellState, cell_state

OWN = ""  # the cell's own test set; other names are out-of-distribution test sets

# update -> prompt_id -> (samples without error, correct samples); sampled answers only
Counts = Mapping[int, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True)
class Row:
    """A finished cell.

    gain: final minus base accuracy with its 95 % interval, as shares; nan where no question could
    be scored in both. counts: test set (OWN, or its name) -> sample counts. kinds: "tier" and
    "band" -> question of the own test set -> its tier or band. held_out: base counts from samples
    that were not used to assign bands. shares, tier_shares: update, tier -> its groups by kind.
    costs: axis of `fairness.AXES` -> cumulative cost after each update. policy_stopped: some cell
    of its policy was stopped early, so comparing the others would favour the policy.
    """

    cell: Cell
    result: dict[str, Any]
    gain: Effect
    counts: Mapping[str, Counts]
    kinds: Mapping[str, Mapping[str, str]]
    held_out: Mapping[str, tuple[int, int]]
    shares: Mapping[int, GroupShares]
    tier_shares: Mapping[str, GroupShares]
    costs: Mapping[str, np.ndarray]
    ties: dict[str, int] | None
    policy_stopped: bool = False

    @cached_property
    def curve(self) -> dict[int, float]:
        """Evaluated update -> accuracy on the own test set; nan without a scored question."""
        scores = {update: list(self.scores(update).values()) for update in self.counts[OWN]}
        return {u: float(np.mean(values)) if values else np.nan for u, values in scores.items()}

    def scores(self, update: int) -> dict[str, float]:
        """Question of the own test set -> mean correctness of its samples after an update."""
        return {i: c / n for i, (n, c) in self.counts[OWN][update].items() if n}


def read_rows(store: Store, cells: Sequence[Cell]) -> list[Row]:
    """The rows of the finished cells, in the given order."""

    def without_seed(cell: Cell) -> tuple[Any, ...]:
        return tuple(value for axis, value in sorted(cell.axes.items()) if axis != "seed")

    stopped = {without_seed(c) for c in cells if cell_state(store, c) is CellState.STOPPED}
    rows = (_read_row(store, cell) for cell in cells)
    return [
        replace(row, policy_stopped=without_seed(row.cell) in stopped)
        for row in rows
        if row is not None
    ]


def _read_row(store: Store, cell: Cell) -> Row | None:
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
    subset = read_subset(store, cell)
    counts = _counts(evaluations)
    base = main(by_update(evaluations)[0])
    tiers = zip(base["prompt_id"].to_pylist(), base["tier"].to_pylist(), strict=True)
    band_of, held_out = bands(base)
    return Row(
        cell,
        result,
        gain=_gain(counts[OWN], cell.updates),
        counts=counts,
        kinds={"tier": {i: tier for i, tier in tiers if tier}, "band": band_of},
        held_out=held_out,
        shares=group_shares(groups),
        tier_shares=by_tier(groups),
        costs={
            axis: cost_curve(axis, cell.updates, groups, log, seconds)  # type: ignore[arg-type]
            for axis in AXES
        },
        ties=reason(subset)["ties"] if subset is not None else None,
    )


def _counts(evaluations: pa.Table) -> dict[str, Counts]:
    """Every sampled evaluation, by test set and update."""
    counts: dict[str, dict[int, dict[str, tuple[int, int]]]] = {OWN: {}}
    for update, table in by_update(evaluations).items():
        for name in pc.unique(table["dataset"]).to_pylist():
            if (sampled := part(table, name, greedy=False)).num_rows:
                counts.setdefault(name, {})[update] = per_prompt(sampled)
    return dict(counts)


def _gain(counts: Counts, updates: int) -> Effect:
    """Final minus base accuracy over the questions that were scored in both."""
    final_counts = counts[updates]
    scored = [i for i, (n, _) in counts[0].items() if n and final_counts.get(i, (0, 0))[0]]
    if not scored:
        return Effect(np.nan, np.nan, np.nan, 1.0)
    before, after = (
        np.array([c / n for n, c in map(side.__getitem__, scored)])
        for side in (counts[0], final_counts)
    )
    return mean_effect((after - before)[None, :])
