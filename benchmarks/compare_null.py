"""Arms that do not differ: how often does `decile compare` call a difference significant?

Questions differ in difficulty (logits Normal(0, 1.5) around 0). The arms of a pair have the same
distribution: each run (training seed) moves all questions by Normal(0, 0.05) logits and each
question by Normal(0, 0.3). A single run has no such shift: its p is that of these two runs, and two
evaluations of one model are compared. With "own" questions, each arm also moves each question by
Normal(0, 0.3) logits, the same in all of its runs, so that it differs from the other arm on single
questions, but not in the mean over all that might be drawn. The results pass through the same
functions as files: `Arm`, `compare_arms`.
"""

import time
from collections import Counter

import numpy as np
from scipy.special import expit

from benchmarks.command_line import benchmark_parser
from orchestrator.report.item_comparison import Arm, ArmRun, Rated, compare_arms

DIFFICULTY, OWN, SHIFT, BY_SEED = 1.5, 0.3, 0.05, 0.3
GRID = (  # seeds, questions, samples per question, whether arms have own questions
    (1, 100, 1, False),
    (1, 500, 1, False),
    (1, 100, 4, False),
    (3, 100, 1, False),
    (3, 500, 4, False),
    (3, 500, 4, True),
    (5, 200, 1, False),
    (5, 200, 4, True),
)


def null_arm(
    name: str,
    difficulty: np.ndarray,
    seeds: int,
    samples: int,
    own: bool,
    rng: np.random.Generator,
) -> Arm:
    """An arm whose runs answer questions of these difficulties (logits)."""
    logits = difficulty + own * rng.normal(0, OWN, difficulty.shape)
    runs = []
    for seed in range(seeds):
        moved = logits
        if seeds > 1:
            moved = logits + rng.normal(0, SHIFT) + rng.normal(0, BY_SEED, logits.shape)
        right = rng.binomial(samples, expit(moved))
        items = {f"q{i}": Rated(samples, float(n), 0) for i, n in enumerate(right)}
        runs.append(ArmRun(seed, items, ()))
    return Arm(name, "correct", tuple(runs))


def significant_share(
    comparisons: int, seeds: int, questions: int, samples: int, own: bool, seed: int = 0
) -> tuple[float, str]:
    """The share of pairs without a difference that are significant, and the most frequent test."""
    rng = np.random.default_rng([seed, seeds, questions, samples, own])
    significant, tests = 0, Counter[str]()
    for _ in range(comparisons):
        difficulty = rng.normal(0, DIFFICULTY, questions)
        pair = [null_arm(name, difficulty, seeds, samples, own, rng) for name in "ab"]
        [comparison] = compare_arms(pair, {}).comparisons
        significant += comparison.significant
        tests[comparison.test] += 1
    return significant / comparisons, tests.most_common(1)[0][0]


def main() -> None:
    """Print the share for every entry of the grid."""
    parser = benchmark_parser("compare_null", __doc__)
    parser.add_argument("--comparisons", type=int, default=2000)
    arguments = parser.parse_args()
    print("seeds  questions  samples  own    significant  test")
    for seeds, questions, samples, own in GRID:
        start = time.perf_counter()
        share, test = significant_share(arguments.comparisons, seeds, questions, samples, own)
        seconds = time.perf_counter() - start
        print(
            f"{seeds:>5}  {questions:>9}  {samples:>7}  {own!s:<5}  {100 * share:>10.2f}%  {test} "
            f"({seconds:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
