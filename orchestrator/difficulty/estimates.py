"""Estimates of pass rates from a probe, and its agreement with a second one. Pure: NumPy, SciPy.

A prompt's successes are s ~ Binomial(n, p), its p ~ Beta(alpha, beta) over the pool, hence
p | s, n ~ Beta(alpha + s, beta + n - s). Stopping a prompt early based on its own draws leaves the
likelihood unchanged, so n may differ between prompts. Arrays are [prompts]; n counts scorable
samples.
"""

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.optimize import minimize
from scipy.special import betaln, psi

from policies import Policy, PolicyError
from tasks import OUTCOMES

Z95 = 1.959963984540054
CONCENTRATION = (0.01, 10_000.0)  # the range of alpha + beta that a fit may return
MOST_COUNTED = 1_000  # samples of a prompt up to which all possible counts are tabulated
LOGIT = 20.0  # a fitted mean stays 2e-9 away from 0 and 1


class Prior(NamedTuple):
    """Beta(alpha, beta) of a pool's pass rates; `note` says where the data do not determine it."""

    alpha: float
    beta: float
    note: str = ""

    @property
    def icc(self) -> float:
        """Share of one sample's variance that lies between prompts: 1 / (alpha + beta + 1)."""
        return 1 / (self.alpha + self.beta + 1)


def wilson(successes: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson 95 % score interval of a proportion (Wilson 1927); n = 0 gives nan."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = successes / n
        scale = 1 + Z95**2 / n
        centre = (rate + Z95**2 / (2 * n)) / scale
        half = Z95 / scale * np.sqrt(rate * (1 - rate) / n + Z95**2 / (4 * n**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def fit_prior(successes: np.ndarray, n: np.ndarray) -> Prior:
    """Maximum-likelihood beta-binomial over the pool; prompts with n = 0 are ignored.

    Never raises and is always finite. If the likelihood has no finite maximum, `note` says so:
    - no scorable sample: Beta(1, 1), the flat prior;
    - all samples wrong, all correct, or at most one per prompt: the variance between prompts is not
      identified, so alpha + beta = 1 (the weight of one sample) around
      (successes + 1/2) / (samples + 1);
    - no more variance between prompts than expected by chance, or every prompt all correct or all
      wrong: alpha + beta at the upper or lower end of CONCENTRATION.
    """
    s, total, back = _distinct(successes, n)
    weight = np.bincount(back, minlength=len(s))
    s, total, weight = s[total > 0], total[total > 0], weight[total > 0]
    right, drawn = float(s @ weight), float(total @ weight)
    if drawn == 0:
        return Prior(1.0, 1.0, "no scorable sample: flat prior")
    mean = (right + 0.5) / (drawn + 1)
    if right in (0.0, drawn) or total.max() == 1:
        uniform = f"all {'correct' if right else 'wrong'}"
        reason = "one sample per prompt" if total.max() == 1 else uniform
        return Prior(mean, 1 - mean, f"{reason}: the variance between prompts is assumed")
    # The maximum over logit(mean) and log(alpha + beta), which are nearly independent.
    bounds = [(-LOGIT, LOGIT), tuple(np.log(CONCENTRATION))]
    start = [np.log(mean / (1 - mean)), 0.0]
    share = weight / weight.sum()
    # TNC does not call BLAS, whose threads mostly wait on busy cores
    limits = {"ftol": 1e-15, "gtol": 1e-9, "xtol": 1e-10, "maxfun": 1000}
    fit = minimize(_loss, start, (s, total, share), "TNC", True, bounds=bounds, options=limits)
    alpha, beta = _shape(fit.x)
    if alpha + beta > 0.99 * CONCENTRATION[1]:
        return Prior(alpha, beta, "no more variance between prompts than expected by chance")
    if alpha + beta < 1.01 * CONCENTRATION[0]:
        return Prior(alpha, beta, "every prompt is all correct or all wrong")
    return Prior(alpha, beta)


def _shape(x: np.ndarray) -> tuple[float, float]:
    """alpha and beta at logit(mean), log(alpha + beta)."""
    mean, concentration = 1 / (1 + np.exp(-x[0])), np.exp(x[1])
    return float(mean * concentration), float((1 - mean) * concentration)


def _loss(
    x: np.ndarray, s: np.ndarray, n: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray]:
    """Negative log-likelihood per prompt, and its gradient, at logit(mean), log(alpha + beta)."""
    alpha, beta = _shape(x)
    total = alpha + beta
    both = psi(total) - psi(total + n)
    to_alpha = share @ (psi(alpha + s) - psi(alpha) + both)
    to_beta = share @ (psi(beta + n - s) - psi(beta) + both)
    value = share @ (betaln(alpha + s, beta + n - s) - betaln(alpha, beta))
    slope = alpha * beta / total * (to_alpha - to_beta), alpha * to_alpha + beta * to_beta
    return -float(value), -np.array(slope)


def posterior_mean(successes: np.ndarray, n: np.ndarray, prior: Prior) -> np.ndarray:
    """E[p | s, n], between the prior mean (n = 0) and s / n."""
    return np.asarray((prior.alpha + successes) / (prior.alpha + prior.beta + n))


def expected_learnability(
    successes: np.ndarray, n: np.ndarray, prior: Prior, group_size: int
) -> np.ndarray:
    """E[1 − p^G − (1−p)^G | s, n]: the chance that a group of G completions is live, in [0, 1].

    The event inside the paper's learnable %, before any training. With the posterior Beta(a, b),
    E[p^G] is the product of (a+i)/(a+b+i) over i < G; the larger of the two powers goes through
    expm1, so that small chances keep their digits.
    """
    a, b = prior.alpha + successes, prior.beta + n - successes
    all_right, all_wrong = np.zeros(np.shape(a)), np.zeros(np.shape(a))
    with np.errstate(divide="ignore"):
        for i in range(group_size):
            all_right += np.log1p(-b / (a + b + i))
            all_wrong += np.log1p(-a / (a + b + i))
    larger, smaller = np.maximum(all_right, all_wrong), np.minimum(all_right, all_wrong)
    return np.asarray(np.clip(-np.expm1(larger) - np.exp(smaller), 0, 1))


def reliability(prior: Prior, samples: int) -> float:
    """Correlation of the pass rates of two probes of K samples (Spearman-Brown on the ICC).

    It describes the whole pool: the tail that a policy selects may be far less reliable.
    """
    return samples * prior.icc / (1 + (samples - 1) * prior.icc)


def rates(
    successes: np.ndarray, n: np.ndarray, prior: Prior, group_size: int
) -> dict[str, pa.Array]:
    """Columns pass_rate, low, high, posterior, learnability; null where n = 0."""
    s, total, back = _distinct(successes, n)
    low, high = wilson(s, total)
    with np.errstate(invalid="ignore"):
        columns = {"pass_rate": s / total, "low": low, "high": high}
    columns["posterior"] = posterior_mean(s, total, prior)
    columns["learnability"] = expected_learnability(s, total, prior, group_size)
    return {name: pa.array(column[back], mask=n == 0) for name, column in columns.items()}


def _distinct(successes: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct pairs (successes, n), and for each prompt the pair that it has."""
    n = np.asarray(n, np.int64)
    base = int(n.max(initial=0)) + 1
    pair_of = n * base + successes
    if base <= MOST_COUNTED:  # without sorting the pool
        occurs = np.zeros(base * base, dtype=bool)
        occurs[pair_of] = True
        pairs, back = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[pair_of]
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
        self.table, self.samples, self.group_size = table, samples, group_size
        names = ("n", "scorable", "successes", "unparsed", "truncated", "error")
        n, scorable, right, unparsed, truncated, error = (counts(table, name) for name in names)
        self.prior = fit_prior(right, scorable)
        self.shape = self.prior.alpha + right, self.prior.beta + scorable - right
        unscored = np.rint(samples * (n - scorable) / np.maximum(n, 1)).astype(int)
        self.scorable = np.maximum(samples - unscored, np.minimum(scorable, 1))
        self.error = np.rint(samples * error / np.maximum(n, 1)).astype(int)
        self.error = np.minimum(self.error, samples - self.scorable)
        failures, out = scorable - right, n - scorable - error  # out: truncated and not scored
        self.unparsed = _smoothed(unparsed, failures)
        self.truncated = _smoothed(truncated - out, failures - unparsed)

    def draw(self, rng: np.random.Generator) -> pa.Table:
        """One further probe's difficulty table, rows in the same order."""
        right = rng.binomial(self.scorable, rng.beta(*self.shape))
        unparsed = rng.binomial(self.scorable - right, self.unparsed)
        truncated = rng.binomial(self.scorable - right - unparsed, self.truncated)
        wrong = self.scorable - right - unparsed - truncated
        truncated += self.samples - self.scorable - self.error
        by_outcome = dict(
            zip(OUTCOMES, (right, wrong, unparsed, truncated, self.error), strict=True)
        )
        ends = np.cumsum(list(by_outcome.values()), axis=0)
        first = (rng.integers(0, self.samples, len(right)) >= ends).sum(axis=0)
        drawn: dict[str, Any] = {
            **by_outcome,
            **rates(right, self.scorable, self.prior, self.group_size),
            "n": np.full(len(right), self.samples),
            "scorable": self.scorable,
            "successes": right,
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
    policy: Policy,
    seed: int,
    samples: int,
    *,
    repeats: int = 200,
    same_ties: bool = False,
    group_size: int = 8,
) -> np.ndarray:
    """[prompts]: the share of `repeats` further probes of `samples` each that choose the prompt.

    `table` has the schema DIFFICULTY. Ties are broken anew in every probe, or, with `same_ties`,
    always by `seed`. A probe from which the policy cannot fill the subset (PolicyError) chooses
    nothing.
    """
    probes = _Reprobes(table, samples, group_size)
    times = np.zeros(table.num_rows)
    for repeat in range(repeats):
        again = probes.draw(np.random.default_rng([seed, repeat, 0]))
        ties = np.random.default_rng(seed if same_ties else [seed, repeat, 1])
        with suppress(PolicyError):
            times[policy(again, size, ties)] += 1
    return times / repeats


def expected_overlap(probability: np.ndarray, chosen: np.ndarray) -> float:
    """Expected share of the rows `chosen` that a further probe chooses again."""
    return float(probability[chosen].mean())
