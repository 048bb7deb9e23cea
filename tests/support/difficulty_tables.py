"""Small difficulty tables, and the rows that a policy selects from them."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from policies import get_policy

RATES = st.lists(st.sampled_from([i / 5 for i in range(6)]), min_size=1, max_size=60)


def rates_table(rates: list[float | None]) -> pa.Table:
    """A table with these pass rates and no tiers."""
    ids = [f"p{i}" for i in range(len(rates))]
    return pa.table(
        {
            "prompt_id": ids,
            "tier": [""] * len(rates),
            "pass_rate": pa.array(rates, pa.float64()),
        }
    )


def full_table(rows: list[dict[str, Any]]) -> pa.Table:
    """A difficulty table with every column that a built-in policy may need."""
    of_floats = ("pass_rate", "learnability", "agreement", "entropy", "tokens")
    kinds = dict.fromkeys(of_floats, pa.float64())
    kinds |= dict.fromkeys(("tier", "first"), pa.string())
    kinds |= dict.fromkeys(("wrong", "unparsed", "truncated"), pa.int32())
    return pa.table({n: pa.array([r.get(n) for r in rows], kind) for n, kind in kinds.items()})


def selected_rows(
    difficulty: pa.Table, policy: str, size: int, seed: int = 0, **options: Any
) -> list[int]:
    rows = get_policy(policy, **options)(difficulty, size, np.random.default_rng(seed))
    return [int(row) for row in rows]
