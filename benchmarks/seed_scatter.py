"""Arms with unequal scatter between training seeds: which interval, and what finds a collapse?

Arm b varies by 1 point of accuracy between seeds (standard deviation, normal). Arm a varies

- equal: as arm b; 10 times: by 10 points; heavy: by 1 point times Student's t with 2.5 degrees of
  freedom; collapse 1/3, 2/3: as arm b, less 30 points in each seed with that probability.

Questions differ in difficulty; each arm moves each of them by its own Normal(0, 0.5) logits, and
each seed by Normal(0, 0.3). The methods, each at a level of 5 %:

- report: the report's interval (`difference_effect`): the seeds of both arms pooled unless one
  varies more than the other, and the questions, with Banerjee's width.
- paired t: seeds paired, and the questions, with Banerjee's width.
- Welch: the seeds of each arm by themselves, and the questions, with Satterthwaite's degrees.
- signs, labels: exact permutations of seed means, by flipping pairs, and by exchanging seeds
  between the arms (2,000 random exchanges of ten seeds). They treat the questions as fixed.
- bootstrap: percentiles, seeds and questions drawn with replacement.

First table: the share of sweeps with equal means that report a difference (of arm a against arm b,
and of two arms like a); if arm a collapses, the share of intervals that contain the true drop of
its mean (for a permutation: of tests that do not reject it), and the share of sweeps that find it.
Second table: two arms, one of which collapses in a third of its seeds. Each cell is tested against
its base model (accuracy .33), as the report does, with Bonferroni's correction: the share of sweeps
that name a collapsed cell, by its accuracy, and the share that name any if no cell differs from the
base model.
"""

import time
from collections.abc import Callable
from functools import cache
from itertools import combinations
from math import sqrt

import numpy as np
from scipy.special import expit, stdtrit

from benchmarks.command_line import benchmark_parser
from benchmarks.interval_coverage import BY_SEED, NODES, OWN, SPREAD, WEIGHTS, effect
from orchestrator.stats.inference import ALPHA, mean_effect, mean_squares

SEEDS, MEAN, BASE, DROP, SD = (3, 5, 10), 0.5, 0.33, 0.3, 0.01
COLLAPSES = {"collapse 1/3": 1 / 3, "collapse 2/3": 2 / 3}
ARMS = ("equal", "10 times", "heavy", *COLLAPSES)
COLLAPSED_TO = (0.05, 0.15, 0.20, 0.25)
LOGITS = np.linspace(-14, 14, 2001)
ACCURACY = expit(LOGITS[:, None] + sqrt(SPREAD**2 + OWN**2 + BY_SEED**2) * NODES) @ (
    WEIGHTS / WEIGHTS.sum()
)
RESAMPLES = 1000
Test = Callable[[np.ndarray, np.ndarray], bool]


def answers(
    accuracies: np.ndarray, difficulty: np.ndarray, samples: int, rng: np.random.Generator
) -> np.ndarray:
    """Shares right [seeds, items] of an arm whose seeds have these expected accuracies."""
    logits = np.interp(np.clip(accuracies, 0.005, 0.995), ACCURACY, LOGITS)[:, None]
    logits = logits + difficulty + rng.normal(0, OWN, difficulty.shape)
    logits = logits + rng.normal(0, BY_SEED, logits.shape)
    return np.asarray(rng.binomial(samples, expit(logits)) / samples)


def seed_accuracies(arm: str, seeds: int, rng: np.random.Generator) -> np.ndarray:
    """Expected accuracy of each seed: around MEAN, minus the drop of collapsed seeds."""
    if arm == "heavy":
        return np.asarray(MEAN + SD * rng.standard_t(2.5, seeds))
    normal = MEAN + rng.normal(0, SD * (10 if arm == "10 times" else 1), seeds)
    return np.asarray(normal - DROP * (rng.random(seeds) < COLLAPSES.get(arm, 0.0)))


def paired_t(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the interval over paired seeds excludes zero."""
    interval = mean_effect(a - b)
    return not interval.low <= 0 <= interval.high


def welch(a: np.ndarray, b: np.ndarray) -> bool:
    """Welch's t over the seed means of both arms, with the questions as a third component."""
    seeds, items = a.shape
    parts = [(float(side.mean(axis=1).var(ddof=1)) / seeds, seeds - 1) for side in (a, b)]
    squares = mean_squares(a - b)
    parts.append((max(0.0, squares.item - squares.rest) / a.size, items - 1))
    total = sum(variance for variance, _ in parts)
    df = total**2 / sum(variance**2 / df for variance, df in parts)
    return bool(abs(a.mean() - b.mean()) > -stdtrit(df, ALPHA / 2) * sqrt(total))


def signs(a: np.ndarray, b: np.ndarray) -> bool:
    """Exact test that flips the signs of the seeds' differences."""
    each = (a - b).mean(axis=1)
    flips = 2 * (np.arange(2 ** len(each))[:, None] >> np.arange(len(each)) & 1) - 1
    return bool(np.mean(np.abs(flips @ each) >= abs(each.sum()) - 1e-12) <= ALPHA)


def labels(a: np.ndarray, b: np.ndarray) -> bool:
    """Exact test that exchanges seeds between the arms."""
    each = np.concatenate([a.mean(axis=1), b.mean(axis=1)])
    each -= each.mean()
    sums = each[_exchanges(len(a))].sum(axis=1)
    return bool(np.mean(np.abs(sums) >= abs(sums[0]) - 1e-12) <= ALPHA)


@cache
def _exchanges(seeds: int) -> np.ndarray:
    """[exchanges, seeds]: the cells that count as arm a; the observed ones come first."""
    if seeds <= 5:
        return np.array(list(combinations(range(2 * seeds), seeds)))
    order = np.tile(np.arange(2 * seeds), (2000, 1))
    order[1:] = np.random.default_rng(0).permuted(order[1:], axis=1)
    return order[:, :seeds]


def bootstrap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the percentile bootstrap over seeds and questions excludes zero."""
    weights, drawn = _resamples(*a.shape)
    means = np.take_along_axis(weights @ (a - b).T, drawn, axis=1).mean(axis=1)
    low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2])
    return not low <= 0 <= high


@cache
def _resamples(seeds: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the items and numbers of the seeds, drawn once for all sweeps."""
    rng = np.random.default_rng(0)
    weights = rng.multinomial(items, np.full(items, 1 / items), RESAMPLES) / items
    return weights, rng.integers(0, seeds, (RESAMPLES, seeds))


def report(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the report's interval excludes zero."""
    interval = effect(a, b)
    return not interval.low <= 0 <= interval.high


METHODS: dict[str, Test] = {
    "report": report,
    "paired t": paired_t,
    "Welch": welch,
    "signs": signs,
    "labels": labels,
    "bootstrap": bootstrap,
}


def rejections(
    arm: str, seeds: int, count: int, items: int, samples: int
) -> dict[str, dict[str, float]]:
    """Counted event -> method -> its share of the sweeps."""
    rng = np.random.default_rng([ARMS.index(arm), seeds])
    drop = DROP * COLLAPSES.get(arm, 0.0)
    kinds = ["different", "both"] if arm != "equal" else ["different"]
    kinds += ["covered", "found"] if drop else []
    counts = {kind: dict.fromkeys(METHODS, 0) for kind in kinds}
    for _ in range(count):
        difficulty = rng.normal(0, SPREAD, items)
        a = answers(seed_accuracies(arm, seeds, rng), difficulty, samples, rng)
        b_at = seed_accuracies("equal", seeds, rng)
        sides = {"different": (a, answers(b_at - drop, difficulty, samples, rng))}
        if arm != "equal":
            b = answers(seed_accuracies(arm, seeds, rng), difficulty, samples, rng)
            sides["both"] = (a, b)
        if drop:
            b = answers(b_at, difficulty, samples, rng)
            sides |= {"covered": (a + drop, b), "found": (a, b)}
        for kind, side in sides.items():
            for name, method in METHODS.items():
                counts[kind][name] += method(*side) != (kind == "covered")
    return {kind: {name: n / count for name, n in each.items()} for kind, each in counts.items()}


def named(
    collapsed_to: float | None, seeds: int, count: int, items: int, samples: int
) -> tuple[float, float]:
    """The shares of sweeps with a named collapsed cell, and of named cells among collapsed ones.

    Two arms; None: every cell has the accuracy of the base model, and counts as collapsed.
    """
    rng = np.random.default_rng([round(100 * (collapsed_to or 0)), seeds])
    sweeps = cells = collapsed = 0
    for _ in range(count):
        difficulty = rng.normal(0, SPREAD, items)
        base = answers(np.array([BASE]), difficulty, samples, rng)
        bad = np.arange(2 * seeds) < (2 * seeds if collapsed_to is None else seeds)
        ends = np.full(2 * seeds, BASE)
        if collapsed_to is not None:
            bad &= rng.random(2 * seeds) < 1 / 3
            ends = np.where(bad, collapsed_to, MEAN) + rng.normal(0, SD, 2 * seeds)
        arms = [answers(side, difficulty, samples, rng) for side in np.split(ends, 2)]
        gains = [mean_effect(cell - base) for arm in arms for cell in arm[:, None]]
        low = [gain.mean < 0 and gain.p < ALPHA / len(gains) for gain in gains] & bad
        sweeps, cells, collapsed = sweeps + low.any(), cells + low.sum(), collapsed + bad.sum()
    return sweeps / count, cells / collapsed


def main() -> None:
    """Simulate and print both tables."""
    parser = benchmark_parser("seed_scatter", __doc__)
    parser.add_argument("--sweeps", type=int, default=2000, help="per row (default 2000)")
    parser.add_argument("--items", type=int, default=200, help="test questions (default 200)")
    parser.add_argument("--samples", type=int, default=4, help="samples per question (default 4)")
    arguments = parser.parse_args()
    size = (arguments.sweeps, arguments.items, arguments.samples)
    start = time.perf_counter()
    words = {
        "different": "equal means, b stable: different",
        "both": "two arms like a: different",
        "covered": "true drop is covered",
        "found": "drop is found",
    }
    print(f"{arguments.items} questions, {arguments.samples} samples each\n")
    print(f"| arm a | seeds | share of sweeps | {' | '.join(METHODS)} |")
    print("|---" * (3 + len(METHODS)) + "|")
    for arm in ARMS:
        for seeds in SEEDS:
            for kind, shares in rejections(arm, seeds, *size).items():
                row = " | ".join(f"{share:.1%}" for share in shares.values())
                print(f"| {arm} | {seeds} | {words[kind]} | {row} |", flush=True)
    to = " | ".join(f"collapse to {accuracy:.2f}" for accuracy in COLLAPSED_TO)
    print(f"\n| seeds | {to} | a seed collapses | false alarm |")
    print("|---" * (3 + len(COLLAPSED_TO)) + "|")
    for seeds in SEEDS:
        row = []
        for accuracy in COLLAPSED_TO:
            sweeps, cells = named(accuracy, seeds, *size)
            row.append(f"{sweeps:.1%} ({cells:.1%} of cells)")
        row += [f"{1 - (2 / 3) ** seeds:.1%}", f"{named(None, seeds, *size)[0]:.1%}"]
        print(f"| {seeds} | {' | '.join(row)} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
