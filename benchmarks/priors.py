"""Errors of a probe's forecasts by the form of the pool: a Beta prior and Decile's.

Simulates pools with known pass rates and a probe of each. The forecasts are the share of live
groups of eight in the hardest and the easiest tenth, the pass rates of these tenths, and the
reliability, which Decile estimates by moments; errors are root mean squares over probes, in points.
The Beta prior is the most likely one (`scipy.optimize`).
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import betainc, betaln

from benchmarks.command_line import benchmark_parser
from orchestrator.difficulty.estimates import (
    GRID,
    Prior,
    fit_prior,
    live_chance,
    posterior_mean,
    reliability,
)

GROUP = 8
POOLS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "Beta(.3, .6)": lambda rng, size: rng.beta(0.3, 0.6, size),
    "Beta(.24, .21)": lambda rng, size: rng.beta(0.24, 0.21, size),
    "45 % at 0, 15 % at 1, else uniform": lambda rng, size: np.select(
        [(u := rng.random(size)) < 0.45, u < 0.6], [0.0, 1.0], rng.random(size)
    ),
    "25 % at 0, else Beta(3, 3)": lambda rng, size: np.where(
        rng.random(size) < 0.25, 0, rng.beta(3, 3, size)
    ),
    "half at .1, half at .7": lambda rng, size: rng.choice([0.1, 0.7], size),
    "half Beta(2, 18), half Beta(18, 2)": lambda rng, size: np.where(
        rng.random(size) < 0.5, rng.beta(2, 18, size), rng.beta(18, 2, size)
    ),
    "Beta(.5, 10)": lambda rng, size: rng.beta(0.5, 10, size),
    "95 % at 0, else .3": lambda rng, size: np.where(rng.random(size) < 0.95, 0, 0.3),
    "all at .02": lambda rng, size: np.full(size, 0.02),
}


def beta_prior(successes: np.ndarray, n: np.ndarray) -> Prior:
    """The most likely Beta distribution, on the grid of Decile's prior."""

    def loss(x: np.ndarray) -> float:
        a, b = np.exp(x)
        return -float((betaln(a + successes, b + n - successes) - betaln(a, b)).sum())

    a, b = np.exp(minimize(loss, [0.0, 0.0], method="Nelder-Mead", bounds=[(-6, 8)] * 2).x)
    edges = np.concatenate([[0], (GRID[1:] + GRID[:-1]) / 2, [1]])
    return Prior(np.diff(betainc(a, b, edges)))


def correlation(p: np.ndarray, weights: np.ndarray, samples: int) -> float:
    """The reliability of K samples of pass rates p with these weights."""
    between = weights @ (p - weights @ p) ** 2
    return float(between / (between + weights @ (p * (1 - p)) / samples))


def main() -> None:
    """Print a line for each pool, size and K."""
    parser = benchmark_parser("priors", __doc__)
    parser.add_argument("--probes", type=int, default=20, help="probes of each pool (20)")
    probes = parser.parse_args().probes
    fits = {"Beta": beta_prior, "Decile": fit_prior}
    print(
        "errors in points: live groups of hard and easy, pass rates of hard and easy, reliability"
    )
    for (name, rates), size, samples in (
        (pool, size, samples)
        for pool in POOLS.items()
        for size in (125, 1000)
        for samples in (4, 8, 10, 16)
    ):
        errors: dict[str, list[list[float]]] = {fit: [] for fit in (*fits, "moments")}
        for seed in range(probes):
            rng = np.random.default_rng([seed, size, samples])
            p, n = rates(rng, size), np.full(size, samples)
            s = rng.binomial(n, p)
            order = np.lexsort((rng.random(size), s))
            tenths = order[: size // 10], order[-(size // 10) :]
            if not s.any():
                continue
            reliable = correlation(p, np.full(size, 1 / size), samples)
            errors["moments"].append([reliability(s, n, samples) - reliable])
            for fit, function in fits.items():
                prior = function(s, n)
                of_group = 1 - p**GROUP - (1 - p) ** GROUP
                live = posterior_mean(live_chance(GROUP), s, n, prior) - of_group
                rate = posterior_mean(GRID, s, n, prior) - p
                of_tenths = [float(e[rows].mean()) for e in (live, rate) for rows in tenths]
                of_fit = correlation(GRID, prior.weights, samples) - reliable
                errors[fit].append([*of_tenths, of_fit])
        squares = {fit: 100 * np.sqrt(np.mean(np.square(e), axis=0)) for fit, e in errors.items()}
        shown = "; ".join(f"{fit} {' '.join(f'{x:.1f}' for x in e)}" for fit, e in squares.items())
        print(f"{name}, {size:,} prompts, K = {samples}: {shown}")


if __name__ == "__main__":
    main()
