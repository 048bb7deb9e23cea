"""Arms that do not differ: how often is a difference called significant?

First table, one pair of arms in `decile compare`.

Questions differ in difficulty (logits Normal(0, 1.5) around 0). The arms of a pair have the same
distribution: each run (training seed) moves all questions by Normal(0, 0.05) logits and each
question by Normal(0, 0.3). A single run has no such shift: its p is that of these two runs, and two
evaluations of one model are compared. With "own" questions, each arm also moves each question by
Normal(0, 0.3) logits, the same in all of its runs, so that it differs from the other arm on single
questions, but not in the mean over all that might be drawn. The results pass through the same
functions as files: `Arm`, `compare_arms`.

Second table, the family-wise error: the share of sweeps of several equal policies in which any pair
differs after Holm's correction. Pass rates are Beta(.3, .6); on the logit scale, each policy moves
each question by Normal(0, 0.5), each seed all questions (by `scatter` points of accuracy, standard
deviation) and each one by Normal(0, 0.3). Rows with two scatters: those of two policies, and of the
others. Third table, power: the share of sweeps in which the one better policy is found, by a pair's
own test without correction.

Fourth table, related questions: clusters of questions share, in each arm, an effect of
Normal(0, 1) logits; the share of equal pairs whose p is at most .05, with every question by itself,
and with the clusters as groups. Fifth table, missing scores: the share of pairs with a verdict,
where samples miss their score at random, or where they are wrong; of equal arms, and of arms that
differ by 6 points.
"""

import time
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.special import expit, logit

from benchmarks.command_line import benchmark_parser
from orchestrator.report.item_comparison import Arm, ArmRun, Rated, compare_arms
from orchestrator.stats.comparison import Run, compare_policies
from orchestrator.stats.inference import LEVEL, difference_effect, seed_spreads

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


# Accuracy points per logit, of questions with Beta(.3, .6) pass rates: 100 · E[p(1 − p)].
BETA, PER_LOGIT = (0.3, 0.6), 100 * 0.3 * 0.6 / (0.9 * 1.9)
TABLES = ("pairs", "families", "power", "related", "missing")
SEEDS, POLICIES, SCATTERS = (2, 3, 5, 10), (4, 8), (0.0, 2.0, 6.0)
MIXED = ((10.0, 1.0), (6.0, 2.0))
POWER_ROWS = (  # runs of each policy, scatter, points of the first one
    *(([n] * 4, 2.0, 5.0) for n in (4, 5, 6)),
    *(([n] * 4, 2.0, 10.0) for n in (2, 3, 4)),
    ([10, 3], 4.0, 5.0),
    ([3, 3], 4.0, 5.0),
)


def equal_policies(
    scatters: Sequence[float],
    runs: Sequence[int],
    rng: np.random.Generator,
    questions: int = 200,
    samples: int = 2,
    ahead: float = 0.0,
) -> list[np.ndarray]:
    """Shares right [runs, questions] of policies of equal accuracy, the first `ahead` points."""
    rates = np.clip(rng.beta(*BETA, questions), 1e-6, 1 - 1e-6)
    policies = []
    for number, (scatter, count) in enumerate(zip(scatters, runs, strict=True)):
        logits = logit(rates) + rng.normal(0, 0.5, questions)
        logits = logits + rng.normal(0, scatter / PER_LOGIT, (count, 1))
        logits = logits + rng.normal(0, 0.3, (count, questions))
        logits = logits + (ahead / PER_LOGIT if number == 0 else 0)
        policies.append(rng.binomial(samples, expit(logits)) / samples)
    return policies


def p_values(policies: Sequence[np.ndarray]) -> list[float]:
    """Of all pairs, as `compare_policies` has them from two seeds on; the first two's first."""
    means = {str(n): [*map(float, runs.mean(axis=1))] for n, runs in enumerate(policies)}
    spreads = [*seed_spreads(means).values()]
    return [
        difference_effect(policies[a], policies[b], (spreads[a], spreads[b])).p
        for a, b in combinations(range(len(policies)), 2)
    ]


def family_wise_error(seeds: int, scatters: Sequence[float], sweeps: int, seed: int = 0) -> float:
    """The share of sweeps of equal policies of which Holm's correction calls any pair different."""
    rng = np.random.default_rng([seed, seeds, len(scatters), *(int(10 * s) for s in scatters)])
    wrong = 0
    for _ in range(sweeps):
        p = p_values(equal_policies(scatters, [seeds] * len(scatters), rng))
        wrong += min(p) * len(p) <= LEVEL
    return wrong / sweeps


def power(runs: Sequence[int], scatter: float, points: float, sweeps: int, seed: int = 0) -> float:
    """The share of sweeps that find the first policy ahead of the second, at 5 %."""
    rng = np.random.default_rng([seed, *runs, int(10 * scatter), int(10 * points)])
    scatters = [scatter] * len(runs)
    pairs = (p_values(equal_policies(scatters, runs, rng, ahead=points)) for _ in range(sweeps))
    return sum(p[0] <= LEVEL for p in pairs) / sweeps


CLUSTERS = {
    "5 each": [5] * 40,
    "5 each, 1,000": [5] * 200,
    "half alone": [5] * 20 + [1] * 100,
    "40 each": [40] * 5,
    "50, 50, alone": [50, 50] + [1] * 100,
    "60, 30, 20, …": [max(1, 60 // (n + 1)) for n in range(60)],
}


def related_pairs(
    sizes: Sequence[int], seeds: int, count: int, seed: int = 0
) -> tuple[float, float]:
    """The shares of equal pairs with p ≤ .05: by question, and by cluster."""
    rng = np.random.default_rng([seed, seeds, *sizes])
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    significant = np.zeros(2)
    for _ in range(count):
        base = logit(np.clip(rng.beta(*BETA, len(cluster)), 1e-6, 1 - 1e-6))
        arms = []
        for _ in range(2):
            logits = base + rng.normal(0, 1, len(sizes))[cluster]
            logits = logits + rng.normal(0, 0.3, (seeds, len(cluster)))
            arms.append(rng.binomial(2, expit(logits)) / 2)
        means = {str(n): [*map(float, arm.mean(axis=1))] for n, arm in enumerate(arms)}
        spreads = seed_spreads(means)
        for number, groups in enumerate((None, cluster)):
            effect = difference_effect(*arms, (spreads["0"], spreads["1"]), groups)
            significant[number] += effect.p <= LEVEL
    by_question, by_cluster = (significant / count).tolist()
    return by_question, by_cluster


MISSING = {  # the share of each arm's samples without a score: of all, and of those that are wrong
    "none": ((0.0, 0.0), (0.0, 0.0)),
    "5 % at random": ((0.05, 0.0), (0.05, 0.0)),
    "30 % at random": ((0.3, 0.0), (0.3, 0.0)),
    "10 % at random of one": ((0.1, 0.0), (0.0, 0.0)),
    "10 % of the wrong ones": ((0.0, 0.1), (0.0, 0.1)),
    "10 % of the wrong ones of one": ((0.0, 0.1), (0.0, 0.0)),
    "5 % and 2 % of the wrong ones": ((0.0, 0.05), (0.0, 0.02)),
}


def missing_verdicts(kind: str, seeds: int, points: float, count: int, seed: int = 0) -> float:
    """The share of pairs of 200 questions, of scatter 2, that get a verdict."""
    rng = np.random.default_rng([seed, seeds, int(points), [*MISSING].index(kind)])
    ids, verdicts = [f"q{i}" for i in range(200)], 0
    for _ in range(count):
        arms: dict[str, dict[int, Run]] = {}
        pair = equal_policies((2.0, 2.0), (seeds, seeds), rng, 200, 1, points)
        for name, scores, (of_all, of_wrong) in zip("ab", pair, MISSING[kind], strict=True):
            lost = rng.random(scores.shape) < of_all + of_wrong * (scores == 0)
            known = np.where(lost, np.nan, scores)
            arms[name] = {number: Run(ids, run) for number, run in enumerate(known)}
        [comparison] = compare_policies(arms)
        verdicts += comparison.verdict != "inconclusive"
    return verdicts / count


def main() -> None:
    """Print the five tables."""
    parser = benchmark_parser("compare_null", __doc__)
    parser.add_argument("--comparisons", type=int, default=2000, help="pairs, or sweeps, per row")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS, help="of the second table")
    parser.add_argument("--policies", type=int, nargs="*", default=POLICIES, help="of the same")
    parser.add_argument("--table", choices=TABLES, nargs="*", default=TABLES)
    arguments = parser.parse_args()
    tables, count = arguments.table, arguments.comparisons
    start = time.perf_counter()
    if "pairs" in tables:
        print("seeds  questions  samples  own    significant  test")
        for seeds, questions, samples, own in GRID:
            share, test = significant_share(count, seeds, questions, samples, own)
            row = f"{seeds:>5}  {questions:>9}  {samples:>7}  {own!s:<5}"
            print(f"{row}  {100 * share:>10.2f}%  {test}", flush=True)
    if "families" in tables:
        print("seeds  policies  scatter  family-wise error")
        for seeds in arguments.seeds:
            for policies in arguments.policies:
                alike = [[s] * policies for s in SCATTERS]
                mixed = [[wide] * 2 + [rest] * (policies - 2) for wide, rest in MIXED]
                for scatters in alike + mixed:
                    share = family_wise_error(seeds, scatters, count)
                    scatter = " / ".join(f"{s:g}" for s in dict.fromkeys(scatters))
                    print(f"{seeds:>5}  {policies:>8}  {scatter:>7}  {share:.1%}", flush=True)
    if "power" in tables:
        print("runs  scatter  points  power")
        for runs, scatter, points in POWER_ROWS:
            share = power(runs, scatter, points, count)
            print(f"{' '.join(map(str, runs))}  {scatter:g}  {points:g}  {share:.0%}", flush=True)
    if "related" in tables:
        print("clusters  seeds  by question  by group")
        for name, sizes in CLUSTERS.items():
            for seeds in (2, 5, 10):
                shares = related_pairs(sizes, seeds, count)
                print(f"{name}  {seeds}  {shares[0]:.1%}  {shares[1]:.1%}", flush=True)
    if "missing" in tables:
        print("missing  seeds  equal arms  6 points apart")
        for kind in MISSING:
            for seeds in (2, 5, 10):
                equal, apart = (missing_verdicts(kind, seeds, p, count) for p in (0.0, 6.0))
                print(f"{kind}  {seeds}  {equal:.1%}  {apart:.1%}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
