"""Arms that do not differ, with unequal samples, costs or budgets of their cells.

200 questions have pass rates Beta(.3, .6) before training. On the logit scale, each training seed
moves all questions by 2 points of accuracy (standard deviation) and each one by Normal(0, .3).
Errors are the shares of pairs of arms with p <= .05; biases are mean differences in points.

pass@k: k; samples of each arm; the share of samples without a score, at random. A question with
fewer than k scored samples is left out of its run.

per cost: gains of 20 points, with a standard deviation of 2 points between seeds; whether the costs
of both arms, or only of the first one, vary around the same mean; their coefficient of variation; 1
if a cell's gain is proportional to its cost, 0 if unrelated. First the mean of the cells' own
ratios, then mean gain by mean cost (`per_cost`). Covered: how often the interval of the first arm
contains its true mean gain by its mean cost.

budgets: the cost of an update of the second arm, relative to the first one's; updates between
evaluations; τ; questions; points between seeds. Accuracy grows with cost alone, by rise (1 −
exp(−cost/τ)) logits, 20 points with a cost of 100, the total cost of the first arm's 100 updates.
Both are read at the same cost: first at the last evaluation within it, then as for cells
(`at_budget`).
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from benchmarks.command_line import benchmark_parser
from benchmarks.compare_null import BETA, PER_LOGIT, p_values
from orchestrator.evaluation.metrics import pass_at_k
from orchestrator.report.fairness import at_budget, per_cost
from orchestrator.stats.inference import ALPHA, available, mean_effect

UPDATES, GAIN = 100, 0.2
TABLES = ("pass@k", "per cost", "budgets")
PASS_AT = (  # k, samples of each arm, share without a score
    (4, (4, 4), 0.0),
    (4, (4, 16), 0.0),
    (4, (4, 64), 0.0),
    (1, (4, 16), 0.0),
    (4, (8, 16), 0.1),
    (4, (5, 16), 0.2),
)
COSTS = (  # whether both arms vary, cv, power
    *((True, cv, power) for cv in (0.1, 0.5) for power in (0, 1)),
    *((False, cv, power) for cv in (0.1, 0.3, 0.6) for power in (0, 1)),
)
BUDGETS = (  # cost of an update, evaluated every, τ, questions, scatter
    *((1.0, 20, 300, 200, 2.0), (1.3, 5, 300, 200, 2.0), (1.3, 10, 300, 200, 2.0)),
    *((dearer, 20, tau, 200, 2.0) for dearer in (1.3, 2.2) for tau in (30, 300)),
    *((dearer, 20, tau, 1000, 1.0) for dearer in (1.05, 1.3, 2.2) for tau in (30, 300)),
)

Curve = Mapping[int, np.ndarray]


def rates_of(questions: int, rng: np.random.Generator) -> np.ndarray:
    """Pass rates before training."""
    return np.clip(rng.beta(*BETA, questions), 1e-6, 1 - 1e-6)


def moved(base: np.ndarray, scatter: float, rng: np.random.Generator) -> np.ndarray:
    """The logits of a run."""
    return base + rng.normal(0, scatter / PER_LOGIT) + rng.normal(0, 0.3, len(base))


def pass_errors(
    k: int, samples: Sequence[int], missing: float, seeds: int, count: int, rng: np.random.Generator
) -> tuple[float, float]:
    """The error, and the bias in points."""
    errors, differences = 0, []
    for _ in range(count):
        base = logit(rates_of(200, rng))
        arms = []
        for n in samples:
            runs = []
            for _ in range(seeds):
                scored = rng.binomial(n, 1 - missing, len(base))
                right = rng.binomial(scored, expit(moved(base, 2.0, rng)))
                known = enumerate(zip(scored.tolist(), right.tolist(), strict=True))
                runs.append({str(i): pass_at_k(s, c, k) for i, (s, c) in known if s >= k})
            arms.append(available(runs))
        items = sorted({*arms[0].items} & {*arms[1].items})
        a, b = (arm.of(items) for arm in arms)
        errors += p_values([a, b])[0] <= ALPHA
        differences.append(a.mean() - b.mean())
    return errors / count, 100 * float(np.mean(differences))


def cost_errors(
    both: bool, cv: float, power: int, seeds: int, count: int, rng: np.random.Generator
) -> list[float]:
    """Errors of the mean of ratios and of the ratio of means, and how often each one covers."""
    counts = np.zeros(4)
    for _ in range(count):
        base = rates_of(200, rng)
        arms: list[list[np.ndarray]] = [[], []]
        for varies in (True, both):
            sigma = np.sqrt(np.log(1 + (cv * varies) ** 2))
            costs = np.exp(rng.normal(-(sigma**2) / 2, sigma, seeds))  # mean 1
            gains = []
            for cost in costs:
                gain = GAIN * (cost if power else 1.0) + rng.normal(0, 0.02)
                after = np.clip(base + gain * (1 - base) / (1 - base).mean(), 0, 1)
                gains.append(rng.binomial(2, after) / 2 - rng.binomial(2, base) / 2)
            values = np.array(gains)
            arms[0].append(values / costs[:, None])
            arms[1].append(per_cost(values, costs))
        for n, arm in enumerate(arms):
            counts[n] += p_values(arm)[0] <= ALPHA
            effect = mean_effect(arm[0])
            counts[2 + n] += effect.low <= GAIN <= effect.high
    return (counts / count).tolist()


def rise_of(tau: float) -> float:
    """The logits of an endless training that gains GAIN at a cost of 100."""
    rates = rates_of(20_000, np.random.default_rng(1))

    def gain(logits: float) -> float:
        return float((expit(logit(rates) + logits) - rates).mean())

    return float(brentq(lambda x: gain(x) - GAIN, 0, 10)) / (1 - np.exp(-100 / tau))


def last(curve: Curve, cost: np.ndarray, budget: float) -> np.ndarray:
    """The values of the last evaluation within a budget."""
    return curve[max(u for u in curve if cost[u] <= budget + 1e-9)]


def between(curve: Curve, cost: np.ndarray, budget: float) -> np.ndarray:
    """The values at a budget, as for cells."""
    point = at_budget(dict.fromkeys(curve, 0.0), cost, budget)
    return np.asarray((1 - point.share) * curve[point.update] + point.share * curve[point.later])


READINGS: Sequence[Callable[[Curve, np.ndarray, float], np.ndarray]] = (last, between)


def budget_errors(
    setting: tuple[float, int, float, int, float], seeds: int, count: int, rng: np.random.Generator
) -> list[float]:
    """Errors of both readings, and their biases in points."""
    dearer, every, tau, questions, scatter = setting
    rise, errors, biases = rise_of(tau), np.zeros(2), np.zeros(2)
    for _ in range(count):
        base = logit(rates_of(questions, rng))
        arms: list[list[tuple[Curve, np.ndarray]]] = []
        for price in (1.0, dearer):
            arms.append([])
            for _ in range(seeds):
                steps = price * rng.uniform(0.9, 1.1, UPDATES)
                cost = np.concatenate([[0.0], np.cumsum(steps)])
                own, curve = moved(base, scatter, rng), {}
                for update in range(0, UPDATES + 1, every):
                    learnt = rise * (1 - np.exp(-cost[update] / tau))
                    curve[update] = rng.binomial(2, expit(own + learnt if update else base)) / 2
                arms[-1].append((curve, cost))
        budget = min(float(cost[-1]) for arm in arms for _, cost in arm)
        for n, read in enumerate(READINGS):
            a, b = (np.array([read(*cell, budget) for cell in arm]) for arm in arms)
            errors[n] += p_values([a, b])[0] <= ALPHA
            biases[n] += 100 * (a.mean() - b.mean()) / count
    return [*(errors / count).tolist(), *biases.tolist()]


def main() -> None:
    """Print the three tables."""
    parser = benchmark_parser("unequal_arms", __doc__)
    parser.add_argument("--count", type=int, default=1000, help="pairs per row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, nargs="*", default=(3, 10), help="training seeds")
    parser.add_argument("--table", choices=TABLES, nargs="*", default=TABLES)
    arguments = parser.parse_args()
    start, count = time.perf_counter(), arguments.count
    for number, table in enumerate(TABLES):
        settings: Sequence[tuple] = (PASS_AT, COSTS, BUDGETS)[number]  # type: ignore[type-arg]
        for row, setting in enumerate(settings if table in arguments.table else ()):
            for seeds in arguments.seeds:
                rng = np.random.default_rng([arguments.seed, number, row, seeds])
                match table:
                    case "pass@k":
                        error, bias = pass_errors(*setting, seeds, count, rng)
                        text = f"error {error:.1%}  bias {bias:+.2f}"
                    case "per cost":
                        shares = cost_errors(*setting, seeds, count, rng)
                        text = "errors {:.1%} {:.1%}  covered {:.1%} {:.1%}".format(*shares)
                    case _:
                        numbers = budget_errors(setting, seeds, count, rng)
                        text = "errors {:.1%} {:.1%}  biases {:+.2f} {:+.2f}".format(*numbers)
                print(f"{table}  {setting}  {seeds} seeds: {text}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
