"""Estimates of pass rates from a probe, and its agreement with a second one. Pure: NumPy, SciPy.

A prompt's successes are s ~ Binomial(n, p). Its p is one of GRID, with the weights of the pool's
prior: a histogram of pass rates of any shape, including prompts that are never or always solved.
Stopping a prompt early based on its own draws leaves the likelihood unchanged, so n may differ
between prompts. Arrays are [prompts]; n counts scorable samples. For a comparison with a Beta
prior, see `python -m benchmarks.priors`.
"""

from collections.abc import Iterator
from math import nan
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import gammaln, xlog1py, xlogy

from orchestrator.difficulty.proportions import fit_weights, wilson
from orchestrator.plugins.streams import generator

MOST_COUNTED = 1_000  # most samples of a prompt with tabulated counts
INNER = 400  # pass rates between 0 and 1, closer to each other at the ends
GRID = np.concatenate([[0], (1 - np.cos(np.pi * (np.arange(INNER) + 0.5) / INNER)) / 2, [1]])
# Assumed before any sample: Jeffreys' prior Beta(1/2, 1/2), and a tenth each at 0 and 1.
START = np.concatenate([[0.1], np.full(INNER, 0.8 / INNER), [0.1]])
MOST_FITTED = 2_000  # distinct counts in a fit; above it, an even share of the prompts is used
BLOCK = 4_096  # distinct counts with posteriors computed at once
TESTED = 10_000  # prompts in a test of fit; with millions, it would detect the early end of the fit
SIMULATED = 999  # histograms of that test


class Prior(NamedTuple):
    """The weights of a pool's pass rates, [len(GRID)]. note: what the data cannot determine."""

    weights: np.ndarray
    note: str = ""

    @property
    def mean(self) -> float:
        """The mean pass rate."""
        return float(self.weights @ GRID)

    @property
    def ends(self) -> tuple[float, float]:
        """The shares of prompts with a pass rate below 1 % and above 99 %."""
        return float(self.weights[GRID < 0.01].sum()), float(self.weights[GRID > 0.99].sum())


def fit_prior(successes: np.ndarray, n: np.ndarray) -> Prior:
    """The distribution of pass rates over the pool; prompts with n = 0 are ignored.

    `note` states that the variance between prompts is assumed: without scorable samples, with at
    most one per prompt, or if all are correct or all wrong.
    """
    s, total, weight = _counted(successes, n)
    if len(s) > MOST_FITTED:
        step = -(-len(s) // MOST_FITTED)
        s, total, weight = _counted(successes[::step], n[::step])
    if not len(s):
        return Prior(START, "no scorable sample: flat prior")
    weights = fit_weights(_likelihood(s, total), weight, START)
    right = s @ weight
    if total.max() > 1 and 0 < right < total @ weight:
        return Prior(weights)
    uniform = f"all {'correct' if right else 'wrong'}"
    reason = "one sample per prompt" if total.max() == 1 else uniform
    return Prior(weights, f"{reason}: the variance between prompts is assumed")


def _counted(successes: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct pairs (successes, n > 0), and the number of prompts with each."""
    s, total, back = distinct_pairs(successes, n)
    weight = np.bincount(back, minlength=len(s))
    return s[total > 0], total[total > 0], weight[total > 0]


def _likelihood(successes: np.ndarray, n: np.ndarray) -> np.ndarray:
    """[prompts, GRID]: the likelihood of each pass rate, relative to the most likely one's."""
    s = successes[:, None]
    failures = (n - successes)[:, None]
    log = xlogy(s, GRID) + xlog1py(failures, -GRID)
    return np.asarray(np.exp(log - log.max(axis=1, keepdims=True)))


def posteriors(successes: np.ndarray, n: np.ndarray, prior: Prior) -> Iterator[np.ndarray]:
    """The posterior weights of prompts, [up to BLOCK, GRID] at a time."""
    for start in range(0, len(n), BLOCK):
        block = slice(start, start + BLOCK)
        weights = _likelihood(successes[block], n[block]) * prior.weights
        yield weights / weights.sum(axis=1, keepdims=True)


def posterior_mean(
    values: np.ndarray, successes: np.ndarray, n: np.ndarray, prior: Prior
) -> np.ndarray:
    """E[values(p) | s, n]; values: [GRID] or [GRID, several].

    For GRID itself: the prior's mean for n = 0, close to s / n for a large n. For `live_chance`:
    the event in the paper's learnable %, before any training.
    """
    s, total, back = distinct_pairs(successes, n)
    means = [weights @ values for weights in posteriors(s, total, prior)]
    return np.asarray(np.concatenate([np.empty((0, *values.shape[1:])), *means])[back])


def live_chance(group_size: int) -> np.ndarray:
    """[GRID]: the chance 1 − p^G − (1−p)^G that a group of G completions is live."""
    both = -np.expm1(xlog1py(group_size, -GRID)) - GRID**group_size
    return np.asarray(np.clip(both, 0, 1))


def fit_p(successes: np.ndarray, n: np.ndarray) -> float:
    """p of the histogram of successes if each prompt's samples are independent of each other.

    It tests the prompts with the most frequent n > 1 against their own fitted prior, by simulated
    histograms (likelihood ratio). A small p means that no pass rates explain the histogram: a
    prompt's samples depend on each other, for example because they are repeated. nan if no n is
    from 2 to MOST_COUNTED.
    """
    of_n = np.bincount(n[n <= MOST_COUNTED], minlength=3)
    samples = int(of_n[2:].argmax()) + 2
    if not of_n[samples]:
        return nan
    of_prompt = successes[n == samples][:TESTED]
    s = np.arange(samples + 1)
    # Binomial chances of s successes at each pass rate of the grid: [samples + 1, grid].
    log = gammaln(samples + 1) - gammaln(s + 1) - gammaln(samples - s + 1)
    log = log[:, None] + xlogy(s[:, None], GRID) + xlog1py((samples - s)[:, None], -GRID)
    # Under the prior, [samples + 1].
    chance = np.exp(log) @ fit_prior(of_prompt, np.full(len(of_prompt), samples)).weights
    chance = chance / chance.sum()
    seen = np.bincount(of_prompt, minlength=samples + 1)
    drawn = generator("simulated histograms").multinomial(len(of_prompt), chance, SIMULATED)
    # Half the likelihood ratio of a histogram to the expected one: observed, then simulated.
    ratios = [xlogy(h, h / (len(of_prompt) * chance)).sum(axis=-1) for h in (seen, drawn)]
    return float((np.count_nonzero(ratios[1] >= ratios[0] - 1e-9) + 1) / (SIMULATED + 1))


def reliability(successes: np.ndarray, n: np.ndarray, samples: int) -> float:
    """Correlation of the pass rates of two complete probes of K samples; nan if it is unknown.

    By moments: the variance between prompts is that of their rates, less what samples of one prompt
    vary. A fitted prior would overestimate it where few prompts are ever solved
    (docs/notes/probe-estimates.md). It describes the whole pool: the tail that a policy selects may
    be far less reliable.
    """
    s, total = successes[n > 1].astype(float), n[n > 1].astype(float)
    if len(s) < 2:
        return nan
    of_sample = s * (total - s) / (total * (total - 1))  # unbiased for p (1 − p)
    between = max(0.0, float(np.var(s / total, ddof=1) - np.mean(of_sample / total)))
    whole = between + float(np.mean(of_sample)) / samples
    return between / whole if whole else nan


def rates(
    successes: np.ndarray, n: np.ndarray, prior: Prior, group_size: int
) -> dict[str, pa.Array]:
    """Columns pass_rate, low, high, posterior and learnability, null for n = 0; and the counts.

    n: scorable samples, of which `successes` are correct.
    """
    s, total, back = distinct_pairs(successes, n)  # few pairs: each is computed once
    low, high = wilson(s, total)
    with np.errstate(invalid="ignore"):
        columns = {"pass_rate": s / total, "low": low, "high": high}
    of_grid = np.stack([GRID, live_chance(group_size)], axis=1)
    columns["posterior"], columns["learnability"] = posterior_mean(of_grid, s, total, prior).T
    of_counts = {name: pa.array(column[back], mask=n == 0) for name, column in columns.items()}
    return of_counts | {"successes": pa.array(successes), "scorable": pa.array(n)}


def distinct_pairs(
    successes: np.ndarray, n: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct pairs (successes, n), and for each prompt the pair that it has."""
    n = np.asarray(n, np.int64)
    base = int(n.max(initial=0)) + 1
    pair_of = n * base + successes
    if base <= MOST_COUNTED:  # without sorting the pool
        occurs = np.zeros(base * base, dtype=bool)
        occurs[pair_of] = True
        pairs = np.flatnonzero(occurs)
        back = (np.cumsum(occurs) - 1)[pair_of]
    else:
        pairs, back = np.unique(pair_of, return_inverse=True)
    return pairs % base, pairs // base, back
