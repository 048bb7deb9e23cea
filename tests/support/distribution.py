"""vLLM draws from the same distribution as our transformers sampler, prompt by prompt.

Seeds are fixed and both engines are deterministic, so the tests give the same result every time. If
a change draws other numbers, each of them fails by chance once in 1 / ALPHA changes.
"""

import numpy as np
from scipy.stats import chi2

from orchestrator.sampling import Completion

ALPHA = 1e-4
Drawn = list[list[Completion]]


def cochran_mantel_haenszel(first: np.ndarray, second: np.ndarray) -> float:
    """p of equal success rates in both columns of every stratum; successes [P, n] as booleans."""
    n = first.shape[1]
    successes = first.sum(1) + second.sum(1)
    deviation = np.sum(first.sum(1) - successes / 2)
    variance = np.sum(successes * (2 * n - successes) / (4 * (2 * n - 1)))
    return float(chi2.sf(deviation**2 / variance, df=1))
