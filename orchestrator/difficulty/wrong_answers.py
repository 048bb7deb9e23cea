"""How much the wrong answers of a pool's prompts agree: a mixture fitted to their counts. Pure.

The wrong answers to one prompt are modelled as draws in one of two modes:

scattered: from some options whose chances are a symmetric Dirichlet distribution, from always the
same answer to equal chances;
attracted: each is one attractive answer with a fixed chance, and otherwise one of some options with
equal chances.

The shares of a pool's prompts in these modes and their parameters are estimated, with standard
errors. For the accuracy, see `python -m benchmarks.disputed`.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import (
    betaln,
    gammaln,
    xlog1py,
    xlogy,
)  # scipy.stats takes half a second to import

from orchestrator.difficulty.proportions import fit_weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer]

# Scattered: the number of options, and the sum of their Dirichlet parameters.
OPTIONS, CONCENTRATION = (
    grid.ravel()
    for grid in np.meshgrid([1, 2, 3, 4, 6, 9, 15, 40, 1000], np.geomspace(0.1, 1000, 9))
)
# Attracted: the chance of the attractive answer, and the number of other options.
ATTRACTION, OTHERS = (
    grid.ravel() for grid in np.meshgrid(np.linspace(0.2, 0.95, 16), [2, 4, 15, 1000])
)
# Each mode has half of the prior weight.
START = np.concatenate([np.full(len(each), 0.5 / len(each)) for each in (OPTIONS, ATTRACTION)])
FAR = 20  # most weight of all prompts with other pass rates, in prompts


class Agreement(NamedTuple):
    """The expected number of prompts with wrong answers that agree.

    deviation: its standard deviation, from chance and the error of the fit; share: their expected
    share of the prompts that no completion solved.
    """

    number: float
    deviation: float
    share: float


class WrongAnswers(NamedTuple):
    """The fitted weights of the components, scattered ones first, [C], and their covariance."""

    weights: Floats
    covariance: Floats

    def agreement(self, exposed: Ints) -> Agreement:
        """The agreement of these prompts' wrong answers, if their gold answers are right.

        exposed: [3, prompts], the numbers of correct answers, of wrong answers, and of wrong
        answers that must agree (more than half).
        """
        kinds, times = np.unique(exposed, axis=1, return_counts=True)
        chances = np.array([_agreeing(wrong, needed) for _, wrong, needed in kinds.T])
        chances = chances.reshape(-1, len(START))
        expected = chances @ self.weights
        gradient = times @ chances
        variance = times @ (expected * (1 - expected)) + gradient @ self.covariance @ gradient
        unsolved = times * (kinds[0] == 0)
        share = float(unsolved @ expected) / max(1, int(unsolved.sum()))
        return Agreement(float(times @ expected), sqrt(max(0.0, variance)), share)


def fit_wrong_answers(row: Ints, votes: Ints, near: Ints) -> WrongAnswers:
    """Fit the mixture to wrong answers, [answers] each: the prompt, and the number of completions.

    near: whether the prompt's pass rate is near those of the prompts for `agreement`. The fit is to
    these; all other prompts together count as at most FAR. Answers of one prompt are adjacent.
    """
    _, first, row = np.unique(row, return_index=True, return_inverse=True)
    log = np.concatenate([_scattered(row, votes), _attracted(row, votes)], axis=1)
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    is_near = near[first] > 0
    start, far = START, likelihood[~is_near]
    if len(far):
        start = min(FAR, len(far)) * fit_weights(far, np.ones(len(far)), START)
    likelihood = likelihood[is_near]
    weights = fit_weights(likelihood, np.ones(len(likelihood)), start)
    # A normal approximation around the fitted weights w: what `fit_weights` maximises is the
    # log-likelihood + start @ log(w), whose second derivatives are these, times -1 / (w w').
    share = likelihood * weights / (likelihood @ weights)[:, None]
    covariance = np.outer(weights, weights) * np.linalg.inv(share.T @ share + np.diag(start))
    # Given that the weights sum to 1.
    with_sum = covariance.sum(axis=1)
    covariance -= np.outer(with_sum, with_sum) / with_sum.sum()
    return WrongAnswers(weights, covariance)


def _scattered(row: Ints, votes: Ints) -> Floats:
    """[prompts, components]: the log-likelihood of each prompt's counts, up to a constant."""
    each = CONCENTRATION / OPTIONS
    distinct = np.bincount(row)
    wrong = np.bincount(row, votes)
    log = gammaln(OPTIONS + 1) - gammaln(OPTIONS - distinct[:, None] + 1)  # -inf: too few options
    log = log + gammaln(CONCENTRATION) - gammaln(CONCENTRATION + wrong[:, None])
    for kind, own in enumerate(each):
        log[:, kind] += np.bincount(row, gammaln(votes + own) - gammaln(own))
    return np.asarray(log)


def _attracted(row: Ints, votes: Ints) -> Floats:
    """The same if one answer is attractive: one of the given answers, or none of them."""
    distinct = np.bincount(row)[:, None]
    wrong = np.bincount(row, votes)[:, None]
    # The number of ways to place the other answers among the options, with each attractive, or
    # none.
    one = gammaln(OTHERS + 1) - gammaln(OTHERS - distinct + 2)
    none = gammaln(OTHERS + 1) - gammaln(OTHERS - distinct + 1)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    gain = np.log(ATTRACTION) - np.log1p(-ATTRACTION) + np.log(OTHERS)  # of being attractive
    which = np.empty(one.shape)
    for kind, own in enumerate(gain):
        which[:, kind] = np.logaddexp.reduceat(votes * own, first) if len(first) else 0
    scale = np.log1p(-ATTRACTION) - np.log(OTHERS)
    return np.asarray(wrong * scale + np.logaddexp(none, one + which))


def _agreeing(wrong: int, needed: int) -> Floats:
    """[components]: the chance that at least `needed` of `wrong` wrong answers agree.

    `needed` is more than half, so at most one answer is that frequent.
    """
    each = CONCENTRATION / OPTIONS
    rest = np.maximum(CONCENTRATION - each, 1e-300)
    count = np.arange(needed, wrong + 1)[:, None]
    ways = gammaln(wrong + 1) - gammaln(count + 1) - gammaln(wrong - count + 1)
    # The beta-binomial probability that one option occurs at least `needed` times.
    often = np.exp(ways + betaln(count + each, wrong - count + rest) - betaln(each, rest)).sum(0)
    scattered = np.where(OPTIONS == 1, 1.0, OPTIONS * often)
    attracted = np.zeros(len(ATTRACTION))
    for options, chance in ((1, ATTRACTION), (OTHERS, (1 - ATTRACTION) / OTHERS)):
        terms = ways + xlogy(count, chance) + xlog1py(wrong - count, -chance)
        attracted += options * np.exp(terms).sum(0)
    return np.concatenate([scattered, attracted])
