"""What `--json` prints of a sweep and of a probe: the values of the analysis, without pages."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from orchestrator.difficulty.outcomes import outcome_counts
from orchestrator.difficulty.proportions import counts
from orchestrator.report.analysis import SweepAnalysis, cell_table, comparison_table
from orchestrator.report.probe_analysis import PoolAnalysis


def sweep_values(analysis: SweepAnalysis) -> dict[str, Any]:
    """A sweep: rows of its files, finished cells, pairs of policies, claims, what a cap left out.

    Before a cell is finished, `pools` has what the probes show.
    """
    claims = [
        {
            "claim": claim.text,
            "verdict": claim.verdict,
            "cells": claim.cells,
            "reason": claim.reason,
            "declared": claim.declared,
        }
        for claim in analysis.claims
    ]
    values = {
        "experiment": analysis.plan.name,
        "planned_cells": len(analysis.plan.cells),
        "datasets": {
            name: {"row_counts": pool.rows.to_dict()} for name, pool in analysis.plan.pools.items()
        },
        "cells": cell_table(analysis.rows).to_pylist(),
        "comparisons": comparison_table(analysis.families).to_pylist(),
        "claims": claims,
        "left_out": analysis.dropped,
        "pools": [pool_values(pool) for pool in analysis.pools],
    }
    finite: dict[str, Any] = _finite(values)
    return finite


def pool_values(pool: PoolAnalysis) -> dict[str, Any]:
    """A probe: completions by outcome, prompts never and always solved, a row per policy."""
    scorable, solved = counts(pool.table, "scorable"), counts(pool.table, "successes")
    policies = [
        {
            "policy": each.policy,
            "note": each.note,
            "command": each.command,
            "sources": each.sources,
            "subset": each.summary and asdict(each.summary),
        }
        for each in pool.policies
    ]
    values = {
        "model": pool.spec.model.name,
        "dataset": pool.spec.dataset.name,
        "prompts": pool.table.num_rows,
        "samples_per_prompt": pool.samples,
        "drawn": pool.drawn,
        "complete": pool.complete,
        "outcomes": outcome_counts(pool.table),
        "never_solved": len(pool.unsolved),
        "always_solved": int(np.count_nonzero((solved == scorable) & (scorable > 0))),
        "reliability": pool.reliability,
        "policies": policies,
    }
    finite: dict[str, Any] = _finite(values)
    return finite


def _finite(value: Any) -> Any:
    """A value as JSON has it: what is not finite is null, and NumPy's numbers are Python's."""
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
