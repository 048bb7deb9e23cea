"""Marked samples -> one row of difficulty per prompt. Pure: Arrow and NumPy only."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.schema import DIFFICULTY
from tasks import OUTCOMES

Z95 = 1.959963984540054


def difficulty(samples: pa.Table, tiers: Mapping[str, str] | None = None) -> pa.Table:
    """Per prompt: n, successes, pass rate, counts of each outcome and a Wilson 95 % interval.

    `samples` needs the columns prompt_id and outcome. `tiers` maps prompt_id to tier. Rows come
    sorted by prompt_id. An error is no judgement: it counts in `n` and `error`, and is left out of
    the pass rate, which is null where nothing else is left.
    """
    ids, row = np.unique(samples["prompt_id"].to_numpy(zero_copy_only=False), return_inverse=True)
    outcome = samples["outcome"].to_numpy(zero_copy_only=False)
    counts = {name: np.bincount(row[outcome == name], minlength=len(ids)) for name in OUTCOMES}
    n = np.bincount(row, minlength=len(ids))
    judged = n - counts["error"]
    low, high = wilson(counts["correct"], judged)
    with np.errstate(invalid="ignore"):
        pass_rate = counts["correct"] / judged
    columns: dict[str, Any] = {
        "prompt_id": ids,
        "tier": [(tiers or {}).get(i, "") for i in ids],
        "n": n,
        "successes": counts["correct"],
        "pass_rate": pa.array(pass_rate, mask=judged == 0),
        **{name: counts[name] for name in OUTCOMES if name != "correct"},
        "low": pa.array(low, mask=judged == 0),
        "high": pa.array(high, mask=judged == 0),
    }
    return pa.table({f.name: pa.array(columns[f.name]).cast(f.type) for f in DIFFICULTY})


def wilson(successes: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson 95 % score interval of a proportion; n = 0 gives nan."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = successes / n
        scale = 1 + Z95**2 / n
        centre = (rate + Z95**2 / (2 * n)) / scale
        half = Z95 / scale * np.sqrt(rate * (1 - rate) / n + Z95**2 / (4 * n**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def pass_rate_histogram(table: pa.Table, bins: int) -> np.ndarray:
    """Prompts per pass-rate bin: `bins` + 1 counts, at 0, 1/bins, …, 1 (nearest)."""
    rates = pc.drop_null(table["pass_rate"]).to_numpy()
    return np.bincount(np.rint(rates * bins).astype(int), minlength=bins + 1)
