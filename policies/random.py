"""The control: a subset that knows nothing of difficulty."""

import numpy as np
import pyarrow as pa

from policies.base import check_size


def random(difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform without replacement: the control that every other policy must beat."""
    check_size(difficulty, size)
    return rng.permutation(difficulty.num_rows)[:size]
