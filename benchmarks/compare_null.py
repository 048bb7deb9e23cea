"""Arms that do not differ: how often is a difference called significant?

First table, one pair of arms in `decile compare`.

Questions differ in difficulty (logits Normal(0, 1.5) around 0). The arms of a pair have the same
distribution: each run (training seed) moves all questions by Normal(0, 0.05) logits and each
question by Normal(0, 0.3). A single run has no such shift: its p is for these two runs, so two
evaluations of one model are compared. With "own" questions, each arm also moves each question by
Normal(0, 0.3) logits, the same in all of its runs. It then differs from the other arm on single
questions, but not in the mean over all possible questions. The results pass through the same
functions as files: `Arm`, `compare_arms`.

Second table, sweeps of several equal policies: the share of pairs with p ≤ .05, the same for the
pair that errs most often, and the family-wise error, that is, the share of sweeps in which any pair
differs after Holm's correction. Pass rates are Beta(.3, .6); on the logit scale, each policy moves
each question by Normal(0, 0.5), each seed all questions (by `scatter` points of accuracy, standard
deviation, a number for each policy) and each one by Normal(0, 0.3). Third table, power: the share
of sweeps in which the better policy is found, by a pair's own test without correction. The table
"unequal" has pairs of equal policies with different numbers of runs and scatters; the table "looks"
has the share of sweeps with a verdict in one of the looks at 2 to 10 seeds.

Fourth table, related questions: clusters of questions share, in each arm, an effect of Normal(0, 1)
logits; the share of equal pairs whose p is at most .05, with every question by itself, and with the
clusters as groups. Fifth table, missing scores: the share of pairs with a verdict, if samples lack
their score at random or if they are wrong; for equal arms, and for arms that differ by 6 points.
The table "unfinished" has a policy with some runs that end at 0 unfinished, and the shares of
sweeps in which it wins.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np
from scipy.special import expit, logit

from benchmarks.command_line import benchmark_parser
from orchestrator.report.item_comparison import Arm, ArmRun, Rated, compare_arms
from orchestrator.report.looks import EXTRA_LEVEL
from orchestrator.stats.comparison import ItemScores, compare_policies
from orchestrator.stats.inference import ALPHA, difference_effect, seed_spread

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


# Accuracy points per logit, for questions with Beta(.3, .6) pass rates: 100 · E[p(1 − p)].
BETA, PER_LOGIT = (0.3, 0.6), 100 * 0.3 * 0.6 / (0.9 * 1.9)
SEEDS, POLICIES, SCATTERS = (2, 3, 5, 10), (2, 4, 8), (0.0, 2.0, 6.0, 10.0)
UNEQUAL = (  # runs and scatters of two policies
    *((runs, scatters) for runs in ((1, 5), (1, 10)) for scatters in ((6.0, 1.0), (6.0, 6.0))),
    *(
        (runs, scatters)
        for runs in ((2, 3), (2, 5), (2, 10), (3, 5), (3, 10), (5, 10))
        for scatters in ((10.0, 1.0), (8.0, 1.5), (4.0, 4.0), (1.5, 8.0))
    ),
)
LOOKED_AT = ((2.0, 2.0), (6.0, 6.0), (10.0, 1.0), (2.0,) * 4)
POWER_ROWS = (  # runs of each policy, scatter, points of the first one
    *(([n] * 4, 2.0, 5.0) for n in (2, 3, 4, 5, 6, 10)),
    *(([n] * 4, 2.0, 10.0) for n in (2, 3, 4, 5)),
    *(([n] * 4, 6.0, 10.0) for n in (3, 5, 10)),
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
    """Shares right [runs, questions] of equal policies, except that the first is `ahead`."""
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
    """The p-values of all pairs as in verdicts, the first two policies first; 1 for one run."""
    spreads = [seed_spread(runs.mean(axis=1)) for runs in policies]
    return [
        difference_effect(policies[a], policies[b], (spreads[a], spreads[b])).p
        if spreads[a] and spreads[b]
        else 1.0
        for a, b in combinations(range(len(policies)), 2)
    ]


def scatters_of(policies: int) -> list[list[float]]:
    """Standard deviations between seeds, of each policy."""
    rows = [
        *([scatter] * policies for scatter in SCATTERS),
        [10.0] + [1.0] * (policies - 1),
        [10.0] * (policies // 2) + [1.0] * (policies - policies // 2),
        ([2.0, 1.5, 7.0] * policies)[:policies],
    ]
    return [row for number, row in enumerate(rows) if row not in rows[:number]]


def errors(seeds: int, scatters: Sequence[float], sweeps: int, seed: int = 0) -> list[float]:
    """For equal policies: the shares of pairs, of the worst pair, and of families that differ."""
    rng = np.random.default_rng([seed, seeds, len(scatters), *(int(10 * s) for s in scatters)])
    p = np.array(
        [p_values(equal_policies(scatters, [seeds] * len(scatters), rng)) for _ in range(sweeps)]
    )
    by_pair = (p <= ALPHA).mean(axis=0)
    of_families = (p.min(axis=1) * p.shape[1] <= ALPHA).mean()
    return [float(by_pair.mean()), float(by_pair.max()), float(of_families)]


def unequal_error(
    runs: Sequence[int], scatters: Sequence[float], sweeps: int, seed: int = 0
) -> float:
    """The share of pairs of equal policies with p ≤ .05."""
    rng = np.random.default_rng([seed, *runs, *(int(10 * s) for s in scatters)])
    pairs = (p_values(equal_policies(scatters, runs, rng)) for _ in range(sweeps))
    return sum(p[0] <= ALPHA for p in pairs) / sweeps


def looking_again(
    scatters: Sequence[float],
    first: int,
    sweeps: int,
    planned: int,
    extra_level: float = EXTRA_LEVEL,
    seed: int = 0,
    last: int = 10,
) -> float:
    """The share of sweeps of equal policies that have a verdict in one of several looks.

    A look is taken at `first` seeds and after each further seed, up to `last`. The look at
    `planned` seeds decides at 5 %, after Holm's correction; the others at `extra_level`.
    """
    rng = np.random.default_rng([seed, first, planned, last, *(int(10 * s) for s in scatters)])
    with_verdict = 0
    for _ in range(sweeps):
        policies = equal_policies(scatters, [last] * len(scatters), rng)
        for seeds in range(first, last + 1):
            p = p_values([runs[:seeds] for runs in policies])
            if min(p) * len(p) <= (ALPHA if seeds == planned else extra_level):
                with_verdict += 1
                break
    return with_verdict / sweeps


def power(runs: Sequence[int], scatter: float, points: float, sweeps: int, seed: int = 0) -> float:
    """The share of sweeps that find the first policy ahead of the second, at 5 %."""
    rng = np.random.default_rng([seed, *runs, int(10 * scatter), int(10 * points)])
    scatters = [scatter] * len(runs)
    pairs = (p_values(equal_policies(scatters, runs, rng, ahead=points)) for _ in range(sweeps))
    return sum(p[0] <= ALPHA for p in pairs) / sweeps


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
        spreads = seed_spread(arms[0].mean(axis=1)), seed_spread(arms[1].mean(axis=1))
        for number, groups in enumerate((None, cluster)):
            effect = difference_effect(*arms, spreads, groups)
            significant[number] += effect.p <= ALPHA
    by_question, by_cluster = (significant / count).tolist()
    return by_question, by_cluster


MISSING = {  # the shares of each arm's samples without a score: of all samples, and of wrong ones
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
        arms: dict[str, dict[int, ItemScores]] = {}
        pair = equal_policies((2.0, 2.0), (seeds, seeds), rng, 200, 1, points)
        for name, scores, (of_all, of_wrong) in zip("ab", pair, MISSING[kind], strict=True):
            lost = rng.random(scores.shape) < of_all + of_wrong * (scores == 0)
            known = np.where(lost, np.nan, scores)
            arms[name] = {number: ItemScores(ids, run) for number, run in enumerate(known)}
        [comparison] = compare_policies(arms)
        verdicts += comparison.verdict != "inconclusive"
    return verdicts / count


def unfinished_verdicts(
    seeds: int, share: float, points: float, count: int, seed: int = 0
) -> tuple[float, float]:
    """The shares of sweeps in which a policy wins although `share` of its runs end at 0.

    Its other runs are `points` ahead of the other policy; runs at 0 are unfinished. First: these
    are left out; second: they count as missing runs.
    """
    rng = np.random.default_rng([seed, seeds, int(100 * share), int(points)])
    ids, wins = [f"q{i}" for i in range(200)], np.zeros(2)
    for _ in range(count):
        first, second = equal_policies((2.0, 2.0), (seeds, seeds), rng, ahead=points)
        finished = rng.random(seeds) >= share
        if not finished.any():
            continue
        a, b = ({n: ItemScores(ids, run) for n, run in enumerate(runs)} for runs in (first, second))
        a = {n: run for n, run in a.items() if finished[n]}
        for number, missing in enumerate((0, seeds - len(a))):
            [pair] = compare_policies({"a": a, "b": b}, missing_runs={"a": missing})
            wins[number] += pair.verdict == "a"
    left_out, counted = (wins / count).tolist()
    return left_out, counted


def pairs_table(count: int) -> Iterator[str]:
    """Lines of the first table."""
    yield "seeds  questions  samples  own    significant  test"
    for seeds, questions, samples, own in GRID:
        share, test = significant_share(count, seeds, questions, samples, own)
        row = f"{seeds:>5}  {questions:>9}  {samples:>7}  {own!s:<5}"
        yield f"{row}  {100 * share:>10.2f}%  {test}"


def families_table(
    count: int, seeds: Sequence[int] = SEEDS, policies: Sequence[int] = POLICIES
) -> Iterator[str]:
    """Lines of the second table."""
    yield "policies  seeds  scatters  pairs  worst pair  families"
    for number, runs in product(policies, seeds):
        for scatters in scatters_of(number):
            yield f"{number}  {runs}  {_texts(scatters)}  {_shares(errors(runs, scatters, count))}"


def unequal_table(count: int) -> Iterator[str]:
    """Lines of pairs with different numbers of runs."""
    yield "runs  scatters  significant"
    for runs, scatters in UNEQUAL:
        share = unequal_error(runs, scatters, count)
        yield f"{_texts(runs)}   {_texts(scatters)}   {share:.1%}"


def looks_table(count: int) -> Iterator[str]:
    """Lines of sweeps that are looked at repeatedly."""
    yield "scatters  planned seeds  one look  every look at 5 %  others at .1 %"
    for scatters, planned in product(LOOKED_AT, (2, 5, 10)):
        shares = (
            looking_again(scatters, planned, count, planned, last=planned),
            looking_again(scatters, 2, count, planned, ALPHA),
            looking_again(scatters, 2, count, planned),
        )
        yield f"{_texts(scatters)}  {planned}  {_shares(shares)}"


def power_table(count: int) -> Iterator[str]:
    """Lines of the third table."""
    yield "runs  scatter  points  power"
    for runs, scatter, points in POWER_ROWS:
        share = power(runs, scatter, points, count)
        yield f"{_texts(runs)}  {scatter:g}  {points:g}  {share:.0%}"


def related_table(count: int) -> Iterator[str]:
    """Lines of the fourth table."""
    yield "clusters  seeds  by question  by group"
    for (name, sizes), seeds in product(CLUSTERS.items(), (2, 5, 10)):
        yield f"{name}  {seeds}  {_shares(related_pairs(sizes, seeds, count))}"


def missing_table(count: int) -> Iterator[str]:
    """Lines of the fifth table."""
    yield "missing  seeds  equal arms  6 points apart"
    for kind, seeds in product(MISSING, (2, 5, 10)):
        shares = [missing_verdicts(kind, seeds, points, count) for points in (0.0, 6.0)]
        yield f"{kind}  {seeds}  {_shares(shares)}"


def unfinished_table(count: int) -> Iterator[str]:
    """Lines of sweeps with failed runs."""
    yield "seeds  share of failed runs  points  wins if left out  wins if they count"
    for seeds, (share, points) in product((3, 5, 10), ((0.0, 15.0), (0.4, 15.0), (0.1, 40.0))):
        wins = unfinished_verdicts(seeds, share, points, count)
        yield f"{seeds}  {share:.0%}  {points:g}  {_shares(wins)}"


def _texts(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:g}" for number in numbers)


def _shares(shares: Sequence[float]) -> str:
    return "  ".join(f"{share:.1%}" for share in shares)


TABLES = {
    "pairs": pairs_table,
    "families": families_table,
    "unequal": unequal_table,
    "looks": looks_table,
    "power": power_table,
    "related": related_table,
    "missing": missing_table,
    "unfinished": unfinished_table,
}


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser("compare_null", __doc__)
    parser.add_argument("--comparisons", type=int, default=2000, help="pairs, or sweeps, per row")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS, help="of the second table")
    parser.add_argument("--policies", type=int, nargs="*", default=POLICIES, help="of the same")
    parser.add_argument("--table", choices=TABLES, nargs="*", default=TABLES)
    arguments = parser.parse_args()
    start = time.perf_counter()
    grid = {"seeds": arguments.seeds, "policies": arguments.policies}
    for name in arguments.table:
        for line in TABLES[name](arguments.comparisons, **(grid if name == "families" else {})):
            print(line, flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
