"""What exact adaptive probing saves: share of the draws, on generated pools and on a stored probe.

Pools of 1,000 prompts whose pass rates follow Beta(.24, .21), the prior fitted to a public GSM8K
probe. Every line also checks that the subset equals that of the full probe.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from orchestrator.config.entries import PolicyEntry
from orchestrator.probing.adaptive import Target, simulate
from orchestrator.selection.subsets import build_policy
from policies import ScorePolicy

GRIDS = [
    ["hard"],
    ["easy"],
    ["random"],
    ["hard", "easy"],
    ["hard", "easy", "random"],
    ["hardest_nonzero"],
    ["base_wrong"],
]


def main() -> None:
    """Simulate, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptive", description=__doc__)
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.1, help="the budget")
    parser.add_argument("--pools", type=int, default=5, help="generated pools per line")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 128, 512])
    parser.add_argument("--probe", type=Path, help="a stored probe's folder, in place of pools")
    wanted = parser.parse_args()
    pools = [stored(wanted.probe)] if wanted.probe else generated(wanted)
    print("policies".ljust(26) + "".join(f"batch {b}".rjust(14) for b in wanted.batches))
    for names in GRIDS:
        shares = [drawn(pools, names, wanted.share, batch) for batch in wanted.batches]
        print(", ".join(names).ljust(26) + "".join(f"{s:13.1%} " for s in shares))
    print("with middle, learnable, or intervals: 100 %, and known before anything is drawn")


def generated(wanted: argparse.Namespace) -> list[np.ndarray]:
    """Outcomes [prompts, K] of pools drawn from the prior."""
    pools = []
    for seed in range(wanted.pools):
        rng = np.random.default_rng(seed)
        rates = rng.beta(0.24, 0.21, wanted.prompts)
        pools.append(rng.random((wanted.prompts, wanted.samples)) < rates[:, None])
    return pools


def stored(probe: Path) -> np.ndarray:
    """Outcomes [prompts, K] of a full probe in the store."""
    rows = pq.ParquetDataset(probe).read(["prompt_id", "sample", "outcome"]).to_pandas()
    table = rows.drop_duplicates(["prompt_id", "sample"]).pivot(
        index="prompt_id", columns="sample", values="outcome"
    )
    return np.asarray(table.to_numpy() == "correct")


def drawn(pools: list[np.ndarray], names: list[str], share: float, batch: int) -> float:
    """Mean share of the draws; AssertionError where a subset differs from the full probe's."""
    shares = []
    for pool in pools:
        size = int(share * len(pool))
        targets = [Target(policy(name), size, seed=0) for name in names]
        counts = simulate(pool, targets, batch)
        for target in targets:
            assert same_subset(target, pool, counts.drawn), names
        shares.append(counts.drawn.sum() / pool.size)
    return float(np.mean(shares))


def policy(name: str) -> ScorePolicy:
    """A built-in policy with scores."""
    found = build_policy(PolicyEntry(policy=name))
    assert isinstance(found, ScorePolicy)
    return found


def same_subset(target: Target, pool: np.ndarray, drawn: np.ndarray) -> bool:
    """Whether what was drawn decides the subset that all samples decide."""
    seen = pool & (np.arange(pool.shape[1]) < drawn[:, None])
    return subset(target, seen) == subset(target, pool)


def subset(target: Target, outcomes: np.ndarray) -> set[int]:
    """Row numbers; samples that were not drawn count as failures, as any other way would do."""
    import pyarrow as pa

    first = np.where(outcomes[:, 0], "correct", "wrong")
    table = pa.table(
        {"pass_rate": outcomes.mean(axis=1), "tier": [""] * len(outcomes), "first": first}
    )
    return set(target.policy(table, target.size, np.random.default_rng(target.seed)).tolist())


if __name__ == "__main__":
    main()
