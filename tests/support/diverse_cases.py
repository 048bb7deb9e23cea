"""What the tests of diverse share."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from policies import get_policy

KINDS = {
    "sum": "Add {a} and {b}, and write the sum.",
    "name": "Which of the {a} colleagues of Maria wears hat number {b}?",
    "word": "苹果有{a}个，梨有{b}个，一共有多少水果？",
}


def pool_of(**counts: int) -> pa.Table:
    """Questions of each kind, with numbers of their own, in a fixed random order."""
    rng = np.random.default_rng(5)
    kinds = rng.permutation([kind for kind, count in counts.items() for _ in range(count)])
    texts = [KINDS[str(k)].format(a=i, b=int(rng.integers(1000))) for i, k in enumerate(kinds)]
    ids = [f"p{i:04}" for i in range(len(kinds))]
    return pa.table({"prompt_id": ids, "tier": kinds.tolist(), "question": texts})


def chosen(table: pa.Table, size: int, seed: int = 0, **options: Any) -> list[int]:
    policy = get_policy("diverse", **{"clusters": 3, **options})
    return [int(row) for row in policy(table, size, np.random.default_rng(seed))]


def kinds_of(table: pa.Table, rows: list[int]) -> Counter[str]:
    return Counter(table["tier"].take(rows).to_pylist())
