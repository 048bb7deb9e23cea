"""A value with its interval from resampled ones. Pure."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.stats.inference import ALPHA

Floats = npt.NDArray[np.float64]


class Estimate(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, resampled: Floats) -> "Estimate":
        """An estimate with the percentiles of resampled values; nan values are ignored."""
        known = resampled[np.isfinite(resampled)]
        if not len(known):
            return cls(float(value), float("nan"), float("nan"))
        low, high = np.quantile(known, [ALPHA / 2, 1 - ALPHA / 2])
        return cls(float(value), float(low), float(high))
