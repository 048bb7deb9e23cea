"""Policies that use only the base model's pass rate (paper A, on selection), and `learnable`."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from orchestrator.plugins.counts import counted
from policies.base import Bools, BuiltIn, Floats, Needs, PolicyError, check_band, numbers
from policies.uniform import Uniform

# Rates are ratios of counts; rates that differ by less are equal up to rounding.
NEAR = 1e-9
OUTSIDE = 2.0  # added to a distance between rates, which is at most 1


RATES = {"pass_rate": "pass rate", "score": "mean score"}


def measured(difficulty: pa.Table, name: str, policy: str) -> Floats:
    """The column as float64, nan without scorable samples.

    PolicyError if a row with a pass rate lacks the value: it would silently rank last.
    """
    values = numbers(difficulty, name, policy)
    if name == "pass_rate" or "pass_rate" not in difficulty.column_names:
        return values
    rated = ~np.isnan(numbers(difficulty, "pass_rate", policy))
    if lacking := int(np.count_nonzero(rated & np.isnan(values))):
        raise PolicyError(
            f"{policy} needs the column {name}, which is null for {lacking:,} of "
            f"{counted(int(rated.sum()), 'prompt')} with a pass rate: import them with their "
            "number of samples, or leave them out"
        )
    return values


@dataclass(kw_only=True)
class ByRate(BuiltIn):
    """Ranks prompts by their pass rates, or by their mean scores.

    Options:
        by: of policies that rank by pass rates: `score` ranks prompts by their mean score instead.
    """

    by: str | None = None

    def __post_init__(self) -> None:
        if self.by not in (None, *RATES):
            raise PolicyError(f"{self.title}: by is {self.by!r}: write pass_rate or score")
        self.by = "score" if self.by == "score" else None  # the canonical form has one hash
        super().__post_init__()
        if self.by:  # adaptive and simulated probes only count correct samples
            self.needs, self.simulated = "all", False

    def rates(self, difficulty: pa.Table) -> Floats:
        """The pass rate or the mean score of each row, nan without scorable samples."""
        return measured(difficulty, self.by or "pass_rate", self.title)

    @property
    def rate(self) -> str:
        """The name of `rates` in messages."""
        return RATES[self.by or "pass_rate"]


class Hard(ByRate):
    """Lowest pass rate first: what the base model fails most often."""

    name = "hard"
    needs: Needs = "pass_rate"

    def score(self, difficulty: pa.Table) -> Floats:
        return self.rates(difficulty)


class Easy(ByRate):
    """Highest pass rate first: what the base model already solves."""

    name = "easy"
    needs: Needs = "pass_rate"

    def score(self, difficulty: pa.Table) -> Floats:
        """The pass rate, or mean score, negated."""
        return -self.rates(difficulty)


class HardestNonzero(Hard):
    """Lowest nonzero pass rate first: hard, but the base model solved it at least once."""

    name = "hardest_nonzero"
    wider = "more samples per prompt"

    def allowed(self, difficulty: pa.Table) -> Bools:
        """Rows with a known pass rate above zero."""
        return self.score(difficulty) > 0

    def holds(self, difficulty: pa.Table) -> str:
        return f"with a {self.rate} above 0"


class Middle(ByRate):
    """Closest to the pool's median pass rate, prompts within the interquartile range first.

    The paper selects prompts closest to the median "in the interquartile range around the median".
    If that range (ends included) has too few prompts, the closest ones outside follow. Median and
    quartiles are computed over the eligible rows with a known pass rate.
    """

    name = "middle"
    needs: Needs = "pass_rates"

    def score(self, difficulty: pa.Table) -> Floats:
        """Distance from the median; rows outside the interquartile range come after all inside.

        Rounded, so that equal distances on both sides tie.
        """
        rates = self.rates(difficulty).round(12)
        known = rates[~np.isnan(rates) & self.eligible(difficulty)]
        if not len(known):
            return rates
        first, median, third = np.percentile(known, [25, 50, 75]).round(12)
        outside = (rates < first) | (rates > third)
        scores: Floats = np.abs(rates - median).round(12) + OUTSIDE * outside
        return scores

    def score_bounds(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """From the bounds of the quartiles: they rise with every rate.

        A row that may end without a pass rate lowers the quartiles no more than a rate of 0, and
        raises them no more than a rate of 1.
        """
        known = ~np.isnan(low)
        if not known.any():
            return low, high
        (first, least, third), (last_first, most, last_third) = (
            np.percentile(rates[known].round(12), [25, 50, 75]).round(12) for rates in (low, high)
        )
        low, high = low.round(12), high.round(12)
        nearest = np.maximum(0.0, np.maximum(low - most, least - high)).round(12)
        farthest = np.maximum(high - least, most - low).round(12)
        surely_outside = (high < first) | (low > last_third)
        maybe_outside = (low < last_first) | (high > third)
        return nearest + OUTSIDE * surely_outside, farthest + OUTSIDE * maybe_outside


@dataclass(kw_only=True)
class Between(Uniform):
    """Uniform among prompts with a share, such as a pass rate, from `low` to `high`."""

    wider = "a wider band"

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_band(self.title, self.low, self.high, self.meaning)

    @property
    @abstractmethod
    def meaning(self) -> str:
        """The name of the share in messages."""

    @abstractmethod
    def shares(self, difficulty: pa.Table) -> Floats:
        """The share of each row, nan if unknown."""

    def allowed(self, difficulty: pa.Table) -> Bools:
        """Rows with a known share within the band."""
        shares = self.shares(difficulty)
        return (shares >= self.low - NEAR) & (shares <= self.high + NEAR)

    def holds(self, difficulty: pa.Table) -> str:
        return f"with {self.meaning} from {self.low} to {self.high}"


@dataclass(kw_only=True)
class Band(Between, ByRate):
    """Uniform among prompts with a pass rate from `low` to `high`, both included.

    Options:
        low, high: the ends of the band, from 0 to 1.
    """

    name = "band"
    needs = "pass_rate"
    easier = "choose a band of higher pass rates"
    harder = "choose a band of lower pass rates"
    example: ClassVar[str] = "low: 0.2, high: 0.8"

    @property
    def meaning(self) -> str:
        return f"a {self.rate}"

    def shares(self, difficulty: pa.Table) -> Floats:
        return self.rates(difficulty)


class Learnable(BuiltIn):
    """Highest learnability first: groups most likely to contain correct and wrong answers.

    Learnability is the posterior mean of 1 - (1-p)^G - p^G for groups of G completions, a column of
    the difficulty table. The prior is fitted to the whole pool, so every sample is needed.
    """

    name = "learnable"

    def score(self, difficulty: pa.Table) -> Floats:
        """The learnability, negated; rounded, so that symmetric pass rates tie."""
        return -measured(difficulty, "learnability", self.title).round(12)
