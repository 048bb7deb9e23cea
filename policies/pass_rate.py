"""Policies that look at the base model's pass rate alone (paper A, section on selection)."""

import numpy as np
import pyarrow as pa

from policies.base import ScorePolicy, pass_rates


class Hard(ScorePolicy):
    """Lowest pass rate first: what the base model fails most often."""

    def score(self, difficulty: pa.Table) -> np.ndarray:
        """The pass rate."""
        return pass_rates(difficulty)


class Easy(ScorePolicy):
    """Highest pass rate first: what the base model already does."""

    def score(self, difficulty: pa.Table) -> np.ndarray:
        """The pass rate, negated."""
        return -pass_rates(difficulty)


class Middle(ScorePolicy):
    """Nearest to the pool's median pass rate first."""

    def score(self, difficulty: pa.Table) -> np.ndarray:
        """Distance from the median; rounded, so that equal distances on both sides do tie."""
        rates = pass_rates(difficulty)
        if np.isnan(rates).all():
            return rates
        return np.asarray(np.round(np.abs(rates - np.nanmedian(rates)), 12))
