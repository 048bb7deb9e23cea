"""The share of samples that an adaptive probe draws, on generated pools or a stored probe.

Pools of 1,000 prompts whose pass rates follow Beta(.24, .21), the prior fitted to a public GSM8K
probe. Every row also checks that the subset equals that of the full probe.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.command_line import benchmark_parser
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.probing.adaptive import Counts, Target, undecided_rows
from policies import ScorePolicy

GRIDS = [
    ["hard"],
    ["easy"],
    ["random"],
    ["hard", "easy"],
    ["hard", "easy", "random"],
    ["middle"],
    ["hard", "easy", "middle", "random"],
    ["hardest_nonzero"],
    ["base_wrong"],
]


def main() -> None:
    """Simulate the probes and print a table."""
    parser = benchmark_parser("adaptive", __doc__)
    parser.add_argument("--prompts", type=int, default=1000, help="prompts per pool (default 1000)")
    parser.add_argument("--samples", type=int, default=10, help="samples per prompt (default 10)")
    parser.add_argument(
        "--share", type=float, default=0.1, help="share of the pool to select (default 0.1)"
    )
    parser.add_argument("--pools", type=int, default=5, help="generated pools per row (default 5)")
    parser.add_argument(
        "--batches",
        type=int,
        nargs="+",
        default=[1, 32, 128, 512],
        help="samples drawn between decisions",
    )
    parser.add_argument(
        "--probe", type=Path, help="folder of a stored probe to use instead of generated pools"
    )
    arguments = parser.parse_args()
    pools = [stored(arguments.probe)] if arguments.probe else generated(arguments)
    print("policies".ljust(26) + "".join(f"batch {b}".rjust(14) for b in arguments.batches))
    for names in GRIDS:
        shares = [drawn(pools, names, arguments.share, batch) for batch in arguments.batches]
        print(", ".join(names).ljust(26) + "".join(f"{s:13.1%} " for s in shares))
    print("learnable, mixture and require need every sample: 100 %")


def generated(arguments: argparse.Namespace) -> list[np.ndarray]:
    """Outcomes [prompts, K] of pools drawn from the prior."""
    pools = []
    for seed in range(arguments.pools):
        rng = np.random.default_rng(seed)
        rates = rng.beta(0.24, 0.21, arguments.prompts)
        pools.append(rng.random((arguments.prompts, arguments.samples)) < rates[:, None])
    return pools


def stored(probe: Path) -> np.ndarray:
    """Outcomes [prompts, K] of a full probe in the store."""
    rows = pq.ParquetDataset(probe).read(["prompt_id", "sample", "outcome"]).to_pandas()
    table = rows.drop_duplicates(["prompt_id", "sample"]).pivot(
        index="prompt_id", columns="sample", values="outcome"
    )
    return np.asarray(table.to_numpy() == "correct")


def simulate(
    outcomes: npt.NDArray[np.bool_],
    targets: Sequence[Target],
    batch: int,
    on_draw: Callable[[Counts], None] | None = None,
) -> Counts:
    """Replay recorded outcomes [prompts, K] as an adaptive probe would draw them, in batches.

    Returns the counts drawn; the share of draws saved is 1 − drawn.sum() / outcomes.size.
    """
    prompts, samples = outcomes.shape
    none = np.zeros(prompts, dtype=np.int64)
    counts = Counts(none.copy(), none.copy(), none.copy(), np.full(prompts, None, dtype=object))
    tiers = [""] * prompts
    while (rows := undecided_rows(targets, counts, tiers, samples)[:batch]).size:
        correct = outcomes[rows, counts.drawn[rows]]
        fresh = counts.drawn[rows] == 0
        counts.first[rows[fresh]] = np.where(correct[fresh], "correct", "wrong")
        counts.successes[rows] += correct
        counts.drawn[rows] += 1
        if on_draw:
            on_draw(counts)
    return counts


def drawn(pools: list[np.ndarray], names: list[str], share: float, batch: int) -> float:
    """Mean share of samples drawn; AssertionError if a subset differs from the full probe's."""
    shares = []
    for pool in pools:
        size = int(share * len(pool))
        targets = [Target(score_policy(name), size, seed=0) for name in names]
        counts = simulate(pool, targets, batch)
        for target in targets:
            assert same_subset(target, pool, counts.drawn), names
        shares.append(counts.drawn.sum() / pool.size)
    return float(np.mean(shares))


def score_policy(name: str) -> ScorePolicy:
    """A built-in policy with scores."""
    policy = PolicyEntry(policy=name).build()
    assert isinstance(policy, ScorePolicy)
    return policy


def same_subset(target: Target, pool: np.ndarray, drawn: np.ndarray) -> bool:
    """Whether the drawn samples select the same subset as all samples."""
    seen = pool & (np.arange(pool.shape[1]) < drawn[:, None])
    return subset(target, seen) == subset(target, pool)


def subset(target: Target, outcomes: np.ndarray) -> set[int]:
    """Row numbers of the subset; samples that were not drawn count as wrong."""
    first = np.where(outcomes[:, 0], "correct", "wrong")
    table = pa.table(
        {"pass_rate": outcomes.mean(axis=1), "tier": [""] * len(outcomes), "first": first}
    )
    return set(target.policy(table, target.size, np.random.default_rng(target.seed)).tolist())


if __name__ == "__main__":
    main()
