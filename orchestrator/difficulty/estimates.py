"""Estimates of pass rates from a probe, and its agreement with a second one. Pure: NumPy, SciPy.

A prompt's successes are s ~ Binomial(n, p). Its p is one of GRID, with the weights of the pool's
prior: a histogram of pass rates that has every form, also prompts that are never or always solved.
Stopping a prompt early based on its own draws leaves the likelihood unchanged, so n may differ
between prompts. Arrays are [prompts]; n counts scorable samples. How well this predicts, compared
with a Beta prior: `python -m benchmarks.priors`.
"""

from collections.abc import Iterator
from contextlib import suppress
from math import nan
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import gammaln, xlog1py, xlogy

from orchestrator.plugins.streams import generator
from policies import PolicyError, SelectFunction, labelled_rows
from tasks import OUTCOMES

Z95 = 1.959963984540054
MOST_COUNTED = 1_000  # samples of a prompt up to which all possible counts are tabulated
INNER = 400  # pass rates between 0 and 1, closer to each other at the ends
GRID = np.concatenate([[0], (1 - np.cos(np.pi * (np.arange(INNER) + 0.5) / INNER)) / 2, [1]])
# What is assumed before any sample: Jeffreys' prior Beta(1/2, 1/2), and a tenth at 0 and at 1.
START = np.concatenate([[0.1], np.full(INNER, 0.8 / INNER), [0.1]])
STEPS = 300  # of the fit; more follow chance
MOST_FITTED = 2_000  # different counts in a fit; of more, an even share of the prompts is used
BLOCK = 4_096  # different counts whose posteriors are computed at once
TESTED = 10_000  # prompts of a test of fit: in millions, an early end of the fit would show
SIMULATED = 999  # histograms of that test


class Prior(NamedTuple):
    """The weights of a pool's pass rates, [len(GRID)]; `note`: what the data do not determine."""

    weights: np.ndarray
    note: str = ""

    @property
    def mean(self) -> float:
        """The mean pass rate."""
        return float(self.weights @ GRID)

    @property
    def icc(self) -> float:
        """Share of one sample's variance that lies between prompts."""
        return float(self.weights @ (GRID - self.mean) ** 2) / (self.mean * (1 - self.mean))

    @property
    def ends(self) -> tuple[float, float]:
        """The shares of prompts with a pass rate below 1 % and above 99 %."""
        return float(self.weights[GRID < 0.01].sum()), float(self.weights[GRID > 0.99].sum())


def wilson(successes: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson 95 % score interval of a proportion (Wilson 1927); n = 0 gives nan."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = successes / n
        scale = 1 + Z95**2 / n
        centre = (rate + Z95**2 / (2 * n)) / scale
        half = Z95 / scale * np.sqrt(rate * (1 - rate) / n + Z95**2 / (4 * n**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def fit_weights(likelihood: np.ndarray, times: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The weights of a mixture, [components], from likelihoods [data, components] seen `times`.

    EM from `start` towards the most likely weights, ended early, and with the weight of one datum
    on `start`: it is kept as far as the data allow ("smoothing by roughening", Laird and Louis
    1991).
    """
    weights = start
    for _ in range(STEPS):
        share = likelihood.T @ (times / (likelihood @ weights))
        weights = weights * share + start
        weights = weights / weights.sum()
    return weights


def fit_prior(successes: np.ndarray, n: np.ndarray) -> Prior:
    """The distribution of pass rates over the pool; prompts with n = 0 are ignored.

    `note` says where the variance between prompts is assumed: without a scorable sample, with at
    most one per prompt, or where all are correct or all wrong.
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
    """The distinct pairs (successes, n > 0), and how many prompts have each."""
    s, total, back = _distinct(successes, n)
    weight = np.bincount(back, minlength=len(s))
    return s[total > 0], total[total > 0], weight[total > 0]


def _likelihood(successes: np.ndarray, n: np.ndarray) -> np.ndarray:
    """[prompts, GRID]: the likelihood of each pass rate, relative to that of the most likely."""
    s = successes[:, None]
    failures = (n - successes)[:, None]
    log = xlogy(s, GRID) + xlog1py(failures, -GRID)
    return np.asarray(np.exp(log - log.max(axis=1, keepdims=True)))


def _posteriors(successes: np.ndarray, n: np.ndarray, prior: Prior) -> Iterator[np.ndarray]:
    """The posterior weights of prompts, [up to BLOCK, GRID] at a time."""
    for start in range(0, len(n), BLOCK):
        block = slice(start, start + BLOCK)
        weights = _likelihood(successes[block], n[block]) * prior.weights
        yield weights / weights.sum(axis=1, keepdims=True)


def posterior_mean(
    values: np.ndarray, successes: np.ndarray, n: np.ndarray, prior: Prior
) -> np.ndarray:
    """E[values(p) | s, n]; values: [GRID] or [GRID, several].

    Of GRID itself: the prior's mean for n = 0, close to s / n for a large n. Of `live_chance`: the
    event inside the paper's learnable %, before any training.
    """
    s, total, back = _distinct(successes, n)
    means = [weights @ values for weights in _posteriors(s, total, prior)]
    return np.asarray(np.concatenate([np.empty((0, *values.shape[1:])), *means])[back])


def live_chance(group_size: int) -> np.ndarray:
    """[GRID]: the chance 1 − p^G − (1−p)^G that a group of G completions is live."""
    both = -np.expm1(xlog1py(group_size, -GRID)) - GRID**group_size
    return np.asarray(np.clip(both, 0, 1))


def fit_p(successes: np.ndarray, n: np.ndarray) -> float:
    """p of the histogram of successes, if each prompt's samples are independent of each other.

    Of the prompts with the most frequent n > 1, against their own fitted prior, by simulated
    histograms (likelihood ratio). A small p means that no pass rates explain the histogram: a
    prompt's samples depend on each other, for example because they are repeated. nan where no n is
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
    # Half the likelihood ratio of a histogram to the expected one; observed, then simulated.
    ratios = [xlogy(h, h / (len(of_prompt) * chance)).sum(axis=-1) for h in (seen, drawn)]
    return float((np.count_nonzero(ratios[1] >= ratios[0] - 1e-9) + 1) / (SIMULATED + 1))


def reliability(prior: Prior, samples: int) -> float:
    """Correlation of the pass rates of two probes of K samples (Spearman-Brown on the ICC).

    It describes the whole pool: the tail that a policy selects may be far less reliable.
    """
    return samples * prior.icc / (1 + (samples - 1) * prior.icc)


def rates(
    successes: np.ndarray, n: np.ndarray, prior: Prior, group_size: int
) -> dict[str, pa.Array]:
    """Columns pass_rate, low, high, posterior and learnability, null where n = 0; and the counts.

    n: scorable samples, of which `successes` are correct.
    """
    s, total, back = _distinct(successes, n)  # few pairs: each is computed once
    low, high = wilson(s, total)
    with np.errstate(invalid="ignore"):
        columns = {"pass_rate": s / total, "low": low, "high": high}
    of_grid = np.stack([GRID, live_chance(group_size)], axis=1)
    columns["posterior"], columns["learnability"] = posterior_mean(of_grid, s, total, prior).T
    of_counts = {name: pa.array(column[back], mask=n == 0) for name, column in columns.items()}
    return of_counts | {"successes": pa.array(successes), "scorable": pa.array(n)}


def _distinct(successes: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


class _Reprobes:
    """Draws further probes of a difficulty table's prompts, K samples each.

    A prompt's pass rate is drawn from its posterior, the kinds of its failures from its own shares
    (smoothed by one average failure of the pool). The share of unscorable samples and the prior are
    kept: a pool's distribution hardly changes.
    """

    def __init__(self, table: pa.Table, samples: int, group_size: int) -> None:
        self.table = table
        self.samples = samples
        self.group_size = group_size
        n = counts(table, "n")
        scorable = counts(table, "scorable")
        right = counts(table, "successes")
        unparsed = counts(table, "unparsed")
        truncated = counts(table, "truncated")
        error = counts(table, "error")
        self.prior = fit_prior(right, scorable)
        s, total, self.pair = _distinct(right, scorable)
        weights = np.concatenate([*_posteriors(s, total, self.prior)])
        ends = np.cumsum(weights, axis=1)
        # One sorted array for all pairs: the weights of pair i end between i and i + 1.
        self.ends = (np.arange(len(s))[:, None] + ends / ends[:, -1:]).ravel()
        unscored = np.rint(samples * (n - scorable) / np.maximum(n, 1)).astype(int)
        self.scorable = np.maximum(samples - unscored, np.minimum(scorable, 1))
        self.error = np.rint(samples * error / np.maximum(n, 1)).astype(int)
        self.error = np.minimum(self.error, samples - self.scorable)
        labelled = labelled_rows(table)
        # Errors, and all others of a prompt without a gold answer.
        self.unmarked = [self.error, np.where(labelled, 0, samples - self.error)]
        unparsed = unparsed * labelled
        truncated = truncated * labelled
        failures = scorable - right
        out = (n - scorable - error) * labelled  # truncated and not scored
        self.unparsed = _smoothed(unparsed, failures)
        self.truncated = _smoothed(truncated - out, failures - unparsed)

    def draw(self, rng: np.random.Generator) -> pa.Table:
        """One further probe's difficulty table, rows in the same order."""
        # A pass rate from the posterior of the prompt's pair, by inverse transform sampling.
        end = np.searchsorted(self.ends, self.pair + rng.random(len(self.pair)), side="right")
        right = rng.binomial(self.scorable, GRID[end - self.pair * len(GRID)])
        unparsed = rng.binomial(self.scorable - right, self.unparsed)
        truncated = rng.binomial(self.scorable - right - unparsed, self.truncated)
        wrong = self.scorable - right - unparsed - truncated
        truncated += self.samples - self.scorable - np.sum(self.unmarked, axis=0)
        by_outcome = dict(
            zip(OUTCOMES, (right, wrong, unparsed, truncated, *self.unmarked), strict=True)
        )
        # Sample 0 is any of the K: its outcome is drawn in proportion to the counts.
        ends = np.cumsum(list(by_outcome.values()), axis=0)
        first = (rng.integers(0, self.samples, len(right)) >= ends).sum(axis=0)
        drawn: dict[str, np.ndarray | pa.Array] = {
            **by_outcome,
            **rates(right, self.scorable, self.prior, self.group_size),
            "n": np.full(len(right), self.samples),
            "first": pa.array(OUTCOMES).take(pa.array(first)),
            "short": np.zeros(len(right), bool),
        }
        schema = self.table.schema
        typed = {f.name: pa.array(drawn[f.name]).cast(f.type) for f in schema if f.name in drawn}
        return pa.table({name: typed.get(name, self.table[name]) for name in schema.names})


def _smoothed(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Shares part/whole, smoothed towards the share of all with the weight of one failure."""
    return np.asarray((part + part.sum() / max(whole.sum(), 1)) / (whole + 1))


def counts(table: pa.Table, name: str) -> np.ndarray:
    """A column of counts, [prompts]."""
    return np.asarray(table[name].to_numpy(), dtype=np.int64)


def in_subset_probability(
    table: pa.Table,
    size: int,
    policy: SelectFunction,
    seed: int,
    samples: int,
    *,
    repeats: int = 200,
    group_size: int = 8,
) -> np.ndarray:
    """[prompts]: the share of `repeats` further probes of `samples` each that choose the prompt.

    `table` has the schema DIFFICULTY. Ties are broken anew in every probe. A probe from which the
    policy cannot fill the subset (PolicyError) chooses nothing.
    """
    probes = _Reprobes(table, samples, group_size)
    times = np.zeros(table.num_rows)
    for repeat in range(repeats):
        again = probes.draw(generator("second probe", seed, repeat))
        ties = generator("ties of a second probe", seed, repeat)
        with suppress(PolicyError):
            times[policy(again, size, ties)] += 1
    return times / repeats


def expected_overlap(probability: np.ndarray, chosen: np.ndarray) -> float:
    """Expected share of the rows `chosen` that a further probe chooses again."""
    return float(probability[chosen].mean())
