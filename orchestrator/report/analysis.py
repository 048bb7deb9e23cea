"""The analysis of a sweep, computed once, as values: what page, terminal and MLflow show.

The Python API has its rows and comparisons as Arrow tables.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from orchestrator.cost.caps import dropped_summary
from orchestrator.planning.plan import Plan, parts_of
from orchestrator.plugins.json_values import json_value
from orchestrator.report.claim_verdicts import ClaimResult, claim_results
from orchestrator.report.compare import (
    Arms,
    Control,
    Family,
    control_arms,
    difficulty_arms,
    families,
    read_spreads,
)
from orchestrator.report.difficulty_sources import SourceMatrix, source_matrices
from orchestrator.report.looks import Look, take_look
from orchestrator.report.probe_analysis import (
    PoolAnalysis,
    PoolOutcomes,
    analyse_pool,
    pool_outcomes,
)
from orchestrator.report.rows import Row, axes_of, read_rows
from orchestrator.stats.inference import ALPHA
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import Store

FORM = 17  # increase to have the views of finished sweeps rendered again


@dataclass(frozen=True)
class SweepAnalysis:
    """The rows of a sweep's finished cells and their comparisons.

    controls: in a grid over `reward`, the gain of the score beyond rewards without it. dropped: a
    sentence on what a cap left out. sources: the sources of difficulty, compared; difficulty: cells
    that differ only in their source. looks: all looks at these cells, this one last. pools: of the
    training probes, until a cell is finished; then outcomes: the same pools beside the subsets of
    the cells. digest: a hash of all inputs, which shows whether a view is current.
    """

    plan: Plan
    rows: tuple[Row, ...]
    families: tuple[Family, ...]
    controls: tuple[Control, ...]
    claims: tuple[ClaimResult, ...]
    dropped: str
    pools: tuple[PoolAnalysis, ...]
    outcomes: tuple[PoolOutcomes, ...]
    sources: tuple[SourceMatrix, ...]
    difficulty: tuple[Arms, ...]
    looks: tuple[Look, ...]
    digest: str

    @property
    def collapsed(self) -> frozenset[str]:
        """The ids of the cells that ended below their base model beyond chance."""
        policies = (rows for family in self.families for rows in family.collapsed.values())
        return frozenset(row.cell.cell_id for rows in policies for row in rows)

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints: rows of finished cells and of pairs of policies, claims, rows read.

        `pools` has what the probes show, until a cell is finished.
        """
        claims = [
            {
                "claim": claim.text,
                "verdict": claim.verdict,
                "cells": claim.cells,
                "reason": claim.reason,
                "declared": claim.declared,
            }
            for claim in self.claims
        ]
        values: dict[str, Any] = json_value(
            {
                "experiment": self.plan.name,  # its name
                "planned_cells": len(self.plan.cells),  # number of cells of the grid
                "datasets": self.plan.row_counts,  # row counts by data set
                # a row per finished cell: its axes, accuracies and gain (shares), learnable %,
                # ledger
                "cells": cell_table(self.rows).to_pylist(),
                # a row per pair of policies: effect, interval and p of each measure, and verdict
                "comparisons": comparison_table(self.families).to_pylist(),
                "claims": claims,  # each claim with its verdict, reason, number of cells and date
                "left_out": self.dropped,  # ids of cells that a cap leaves out
                # until a cell is finished: the entries that `decile probe` prints
                "pools": [pool.to_dict() for pool in self.pools],
            }
        )
        return values

    @property
    def last_result(self) -> str:
        """When the newest result was written; empty without any."""
        newest = max((row.result.finished_at for row in self.rows), default=None)
        return f"{newest:%Y-%m-%d %H:%M} UTC" if newest else ""


def analyse(plan: Plan, store: Store, failed: Collection[str] = ()) -> SweepAnalysis:
    """Analyse the stored results of a plan, which counts as a look at them (`report.looks`).

    failed: cells that a run has just tried and given up.
    """
    mislabeled = {key: pool.mislabeled for key, pool in plan.noisy_pools.items()}
    groups = {name: pool.groups for name, pool in plan.pools.items()}
    sources = {name: pool.sources for name, pool in plan.pools.items()}
    rows = read_rows(store, plan.cells, mislabeled, groups, sources)
    spreads = read_spreads(store, [row.cell for row in rows])
    again = (  # a cell may also stand for further combinations of axes
        replace(row, cell=row.cell.model_copy(update={"setting_axes": axes}))
        for row in rows
        for axes in plan.shared.get(row.cell.cell_id, ())
    )
    manifest = store.read_json("sweeps", f"{plan.name}.json") or {}
    shown = {row.cell.cell_id for row in rows}
    dropped = set((manifest.get("dropped") or {}).get("cells", ())) - shown
    missing = [cell for cell in plan.cells if cell.cell_id not in shown | dropped]
    looks = take_look(plan, store, shown, failed, dropped)
    level = looks[-1].level if looks else ALPHA
    compared = families([*rows, *again], plan.compare_at, spreads, missing, level)
    parts = {}
    if any(claim.part for claim in plan.claims):
        parts = {name: parts_of(pool) for name, pool in plan.pools.items()}
    declared = manifest.get("claims", {})
    probes = plan.training_probes
    pools = [] if rows else [pool for spec in probes if (pool := analyse_pool(plan, store, spec))]
    inputs = {
        "form": FORM,
        "experiment": plan.experiment.model_dump(mode="json"),
        "cells": [[cell.cell_id, cell.name, cell.probe.marker] for cell in plan.cells],
        "results": [row.result.as_json() for row in rows],
        "claims": manifest.get("claims"),
        "dropped": manifest.get("dropped"),
        "looks": [len(looks), level],
        "missing": [cell.cell_id for cell in missing],
        "spreads": spreads,
        "groups": groups,
        "sources": sources,
    }
    return SweepAnalysis(
        plan,
        tuple(rows),
        tuple(compared),
        tuple(control_arms(compared)),
        tuple(claim_results(plan.claims, compared, declared, parts, spreads, missing, looks)),
        dropped_summary(manifest.get("dropped"), manifest.get("cells", ())),
        tuple(pools),
        outcomes=() if pools else tuple(pool_outcomes(plan, store, spec) for spec in probes),
        sources=tuple(source_matrices(plan, store)),
        difficulty=tuple(difficulty_arms(compared)),
        looks=tuple(looks),
        digest=canonical_hash(inputs),
    )


# Of a cell's ledger.
_COSTS = ("prompts", "labels", "rollouts", "updates", "generated_tokens", "seconds", "gpu_seconds")
_COMPARED = {
    "family": pa.string(),
    "measure": pa.string(),
    **dict.fromkeys(("a", "b"), pa.string()),
    **dict.fromkeys(("effect", "low", "high", "p", "p_holm"), pa.float64()),
    **dict.fromkeys(("seeds", "items", "groups", "left_out"), pa.int64()),
    **dict.fromkeys(("missing_a", "missing_b", "bounds_low", "bounds_high"), pa.float64()),
    "verdict": pa.string(),
}


def cell_table(rows: Sequence[Row]) -> pa.Table:
    """A row per finished cell: axes, accuracies and gain with its interval (shares), costs."""
    body = [
        {
            **axes,
            "cell_id": row.cell.cell_id,
            "accuracy_base": row.result.accuracy_base,
            "accuracy_final": row.result.accuracy_final,
            "gain": row.gain.mean,
            "gain_low": row.gain.low,
            "gain_high": row.gain.high,
            "learnable_pct": row.result.learnable_pct,
            **{name: row.result.ledger.get(name) for name in _COSTS},
        }
        for row, axes in zip(rows, axes_of(rows), strict=True)
    ]
    return pa.Table.from_pylist(body)


def comparison_table(families: Sequence[Family]) -> pa.Table:
    """A row per pair of policies and measure (accuracy, learnable): a minus b, in points.

    verdict: the better policy's name, or inconclusive; of accuracy only.
    """
    body = [
        {
            "family": family.title,
            "measure": measure,
            **dict(zip(("missing_a", "missing_b"), each.missing, strict=True)),
            **dict(zip(("bounds_low", "bounds_high"), each.bounds, strict=True)),
            **{name: getattr(each, name) for name in _COMPARED if hasattr(each, name)},
            "verdict": {"a": each.a, "b": each.b}.get(each.verdict, each.verdict)
            if measure == "accuracy"
            else None,
        }
        for family in families
        for measure, pairs in (("accuracy", family.accuracy), ("learnable", family.learnable))
        for each in pairs
    ]
    return pa.Table.from_pylist(body, pa.schema(_COMPARED))
