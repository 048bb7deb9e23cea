"""Counts of a difficulty table, intervals of their shares, and the weights of a mixture."""

import numpy as np
import pyarrow as pa

Z95 = 1.959963984540054
STEPS = 300  # of the fit; more would fit noise


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

    EM from `start` towards the most likely weights, stopped early and with the weight of one datum
    on `start`, so that `start` is kept as far as the data allow ("smoothing by roughening", Laird
    and Louis 1991).
    """
    weights = start
    for _ in range(STEPS):
        share = likelihood.T @ (times / (likelihood @ weights))
        weights = weights * share + start
        weights = weights / weights.sum()
    return weights


def counts(table: pa.Table, name: str) -> np.ndarray:
    """A column of counts, [prompts]."""
    return np.asarray(table[name].to_numpy(), dtype=np.int64)
