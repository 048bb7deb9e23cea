"""Questions gained and lost by an unchanged model, against those expected by chance.

1,319 questions have pass rates Beta(.6, .5). Both sides are the same model. With "common" random
numbers, sample i of a question is drawn with the same numbers in every run of both sides, as in
Decile's evaluations; with "own", each sample has its own. A run with a different training seed
moves each question's logit by Normal(0, .5). "all pairs": over all pairs of samples. "other
numbers": over pairs of samples with different numbers. "by chance": the number expected for an
unchanged model.
"""

import time
from collections.abc import Sequence

import numpy as np
from scipy.special import expit, logit

from benchmarks.command_line import benchmark_parser
from orchestrator.stats.churn import Marks, churn, flips

QUESTIONS, RATES, BETWEEN_SEEDS = 1319, (0.6, 0.5), 0.5
SETTINGS = [  # samples of each side, runs of each side, common random numbers
    *(((n, n), 1, common) for n in (1, 2, 4, 8) for common in (False, True)),
    *(((4, 8), 1, common) for common in (False, True)),
    *(((n, n), 3, common) for n in (1, 2, 4) for common in (False, True)),
]


def runs_of(
    rates: np.ndarray, samples: int, runs: int, shared: np.ndarray | None, rng: np.random.Generator
) -> list[dict[str, Marks]]:
    """Runs of a side; shared: the random numbers of all runs, [samples, questions]."""
    side = []
    for _ in range(runs):
        logits = logit(rates) + (runs > 1) * rng.normal(0, BETWEEN_SEEDS, len(rates))
        numbers = rng.random((samples, len(rates))) if shared is None else shared[:samples]
        words = (numbers < expit(logits)).T @ (1 << np.arange(samples))
        side.append({str(i): Marks(2**samples - 1, int(word)) for i, word in enumerate(words)})
    return side


def all_pairs(before: Sequence[dict[str, Marks]], after: Sequence[dict[str, Marks]]) -> float:
    """Questions gained over all pairs of runs and of samples."""
    p, q = (
        np.mean([[each.rate for each in run.values()] for run in side], axis=0)
        for side in (before, after)
    )
    return float(((1 - p) * q).sum())


def means(
    samples: tuple[int, int], runs: int, common: bool, count: int, seed: int
) -> tuple[float, ...]:
    """Means of `count` comparisons: gained over all pairs, gained, lost, by chance or nan."""
    rng = np.random.default_rng([seed, *samples, runs, common])
    rows = []
    for _ in range(count):
        rates = np.clip(rng.beta(*RATES, QUESTIONS), 1e-6, 1 - 1e-6)
        shared = rng.random((max(samples), QUESTIONS)) if common else None
        sides = [runs_of(rates, n, runs, shared, rng) for n in samples]
        own = churn([flips(*sides)])
        assert own
        chance = np.nan if own.by_chance is None else own.by_chance
        rows.append((all_pairs(*sides), own.gained, own.lost, chance))
    return tuple(np.mean(rows, axis=0).tolist())


def main() -> None:
    """Print a line per setting."""
    parser = benchmark_parser("churn", __doc__)
    parser.add_argument("--count", type=int, default=100, help="comparisons per setting")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    print("samples  runs  numbers  all pairs  gained   lost  by chance")
    for samples, runs, common in SETTINGS:
        values = means(samples, runs, common, arguments.count, arguments.seed)
        name = "/".join(map(str, dict.fromkeys(samples)))
        numbers = "  ".join(f"{value:>7.1f}" for value in values)
        print(f"{name:>7}  {runs:>4}  {'common' if common else 'own':<7}  {numbers}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
