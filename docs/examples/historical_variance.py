"""A policy of one's own: the prompts whose pass rate varied most in an earlier run (One-Shot RLVR).

Its groups are those of a finished cell of the policy `full`; the cell's id does not depend on them:

    policies:
      varied:
        policy: "historical_variance:historical_variance"
        options: {groups: runs/cells/1a2b3c4d5e6f7a8b/groups.parquet}

A group of G completions adds the noise of G draws to each share, so that a prompt which is always
solved half of the time ranks high, too.
"""

import numpy as np
import pyarrow.parquet as pq


def historical_variance(table, size, rng, groups):
    """The prompts whose share of correct completions varied most over the groups of a run."""
    series = {}
    for row in pq.read_table(groups, columns=["prompt_id", "outcomes"]).to_pylist():
        share = row["outcomes"].count("correct") / len(row["outcomes"])
        series.setdefault(row["prompt_id"], []).append(share)
    spread = np.array([np.std(series.get(i, [0.0])) for i in table["prompt_id"].to_pylist()])
    return np.lexsort((rng.permutation(len(spread)), -spread))[:size]
