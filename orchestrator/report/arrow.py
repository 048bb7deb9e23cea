"""The numbers of an analysis as Arrow tables, for the Python API."""

from collections.abc import Sequence

import pyarrow as pa

from orchestrator.report.compare import Family
from orchestrator.report.rows import Row

# Of a cell's ledger.
_COSTS = ("prompts", "rollouts", "updates", "generated_tokens", "seconds", "gpu_seconds")
_COMPARED = {
    "family": pa.string(),
    "measure": pa.string(),
    **dict.fromkeys(("a", "b"), pa.string()),
    **dict.fromkeys(("effect", "low", "high", "p", "p_holm"), pa.float64()),
    **dict.fromkeys(("seeds", "items"), pa.int64()),
    "verdict": pa.string(),
}


def cell_table(rows: Sequence[Row]) -> pa.Table:
    """A row per finished cell: axes, accuracies and gain with its interval (shares), costs."""
    axes = dict.fromkeys(axis for row in rows for axis in row.cell.axes)
    body = [
        {
            **{axis: row.cell.axes.get(axis) for axis in axes},
            "cell_id": row.cell.cell_id,
            **{n: row.result[n] for n in ("accuracy_base", "accuracy_final")},
            "gain": row.gain.mean,
            "gain_low": row.gain.low,
            "gain_high": row.gain.high,
            "learnable_pct": row.result["learnable_pct"],
            **{name: row.result["ledger"].get(name) for name in _COSTS},
        }
        for row in rows
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
