"""How often disputed golds are suspected, and rightly: simulated pools with and without wrong ones.

The expected precision rests on how varied wrong answers are where the model also finds the gold
one, so pools differ in that: letters and numbers, one or several kinds of prompts, and answers that
are more alike, or more varied, where the pass rate is near 0. A wrong gold is an answer that no
completion gives.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from benchmarks.command_line import benchmark_parser
from orchestrator.difficulty.answers import votes_of
from orchestrator.difficulty.disputed import disputed_golds
from orchestrator.difficulty.table import difficulty

PROMPTS = 1000
Rates = Callable[[np.random.Generator], np.ndarray]
OFTEN_WRONG: Rates = lambda rng: rng.beta(0.3, 0.6, PROMPTS)  # noqa: E731
MOSTLY_RIGHT: Rates = lambda rng: rng.beta(2, 0.5, PROMPTS)  # noqa: E731
# Pass rates; wrong answers; the sum of their Dirichlet parameters where the pass rate is above .05,
# and below.
POOLS: dict[str, tuple[Rates, int, float, float]] = {
    "Beta(.3, .6), four letters": (OFTEN_WRONG, 4, 4, 4),
    "Beta(.3, .6), four letters, unequal": (OFTEN_WRONG, 4, 2, 2),
    "Beta(.3, .6), numbers": (OFTEN_WRONG, 60, 1, 1),
    "Beta(.3, .6), numbers, more varied": (OFTEN_WRONG, 60, 3, 3),
    "Beta(.3, .6), numbers, most varied": (OFTEN_WRONG, 60, 10, 10),
    "Beta(.3, .6), numbers, alike near 0": (OFTEN_WRONG, 60, 3, 0.2),
    "Beta(.3, .6), numbers, varied near 0": (OFTEN_WRONG, 60, 1, 10),
    "Beta(2, .5), numbers": (MOSTLY_RIGHT, 60, 1, 1),
}


def main() -> None:
    """Print a line for each pool, share of wrong golds and K."""
    parser = benchmark_parser("disputed", __doc__)
    parser.add_argument("--probes", type=int, default=20, help="probes of each pool (20)")
    probes = parser.parse_args().probes
    head = ("disputed %", "precision", "expected", "suspected in %", "recall")
    print(f"{'pool':38}{'wrong':>6}{'K':>4}{''.join(f'{name:>16}' for name in head)}")
    for name, (rates, others, total, near_zero) in POOLS.items():
        for share, samples in ((share, k) for share in (0.0, 0.06) for k in (4, 8, 10)):
            rows = []
            for seed in range(probes):
                rng = np.random.default_rng([seed, samples])
                p = rates(rng)
                each = np.where(p > 0.05, total, near_zero)[:, None] / others
                wrong = rng.gamma(each, size=(PROMPTS, others)) + 1e-12
                wrong = wrong / wrong.sum(axis=1, keepdims=True)
                ends = np.cumsum(np.hstack([p[:, None], (1 - p)[:, None] * wrong]), axis=1)
                ends[:, -1] = 1
                given = (rng.random((PROMPTS, samples, 1)) > ends[:, None]).sum(axis=2)
                bad = rng.random(PROMPTS) < share
                right = (given == 0) & ~bad[:, None]
                drawn = pa.table(
                    {
                        "prompt_id": np.repeat([f"p{i:04}" for i in range(PROMPTS)], samples),
                        "outcome": np.where(right, "correct", "wrong").ravel(),
                        "extracted": np.char.add("x", given.astype(str)).ravel(),
                    }
                )
                table = difficulty(drawn.select(["prompt_id", "outcome"]))
                agreed = disputed_golds(votes_of(drawn, table), table)
                hits = (agreed.disputed & bad).sum()
                recall = (agreed.suspected & bad).sum() / max(1, bad.sum())
                precision = hits / max(1, agreed.on_other)
                counts = 100 * agreed.on_other / PROMPTS, precision, agreed.precision
                rows.append((*counts, 100 * agreed.credible, recall))
            shown = "".join(f"{value:16.2f}" for value in np.nanmean(rows, axis=0))
            print(f"{name:38}{share:6.2f}{samples:4}{shown}")


if __name__ == "__main__":
    main()
