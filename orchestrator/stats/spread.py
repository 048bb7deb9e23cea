"""Variances between training seeds and between probes. Pure."""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from scipy import stats

from orchestrator.stats.inference import LEVEL, Interval, SeedSpread


class ProbeVariance(NamedTuple):
    """Variance between probes, and between training seeds of one probe; p: of no former."""

    between: float
    between_interval: Interval
    within: float
    within_interval: Interval
    p: float
    probes: int
    results: int


def pooled_spread(results: Sequence[Sequence[float]]) -> SeedSpread | None:
    """The variance between training seeds, pooled over policies (the seeds of each: one list).

    None where it cannot be estimated: fewer than two degrees of freedom, or no difference at all.
    """
    groups = [np.array(values) for values in results if len(values) > 1]
    cells = sum(map(len, groups))
    df = cells - len(groups)
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in groups)
    return SeedSpread(squares / df, df, cells) if df >= 2 and squares > 0 else None


def variance_components(results: Sequence[np.ndarray]) -> ProbeVariance:
    """Variances from one array per probe: the results (e.g. in points) of its training seeds.

    One-way random effects: `between` is the variance that selecting by another probe adds, `within`
    that of another training seed (and of the evaluation's samples). Probes may have unequal numbers
    of seeds. Intervals: chi-squared for `within`, Williams (1962) for `between`. Raises ValueError
    with fewer than two probes, or where no probe has two seeds.
    """
    sizes = np.array([len(group) for group in results])
    probes, total = len(sizes), int(sizes.sum())
    if probes < 2 or total <= probes:
        raise ValueError(
            "needs at least two probes, and at least two training seeds of one of them"
        )
    means = np.array([group.mean() for group in results])
    grand, df = float(sizes @ means) / total, (probes - 1, total - probes)
    among = float(sizes @ (means - grand) ** 2)
    inside = float(sum(((group - group.mean()) ** 2).sum() for group in results))
    each = (total - float((sizes**2).sum()) / total) / df[0]  # effective seeds per probe
    within = inside / df[1]
    ratio = among / df[0] / within if within else (inf if among else 0.0)
    between = max(0.0, (among / df[0] - within) / each)
    low, high = (_williams(among / each, ratio, df, q) for q in (1 - LEVEL / 2, LEVEL / 2))
    ends = (inside / float(stats.chi2.isf(q, df[1])) for q in (LEVEL / 2, 1 - LEVEL / 2))
    p = float(stats.f.sf(ratio, *df))
    return ProbeVariance(between, Interval(low, high), within, Interval(*ends), p, probes, total)


def _williams(among: float, ratio: float, df: tuple[int, int], q: float) -> float:
    """One bound of Williams' interval of the variance between groups."""
    cut = 1 - float(stats.f.ppf(q, *df)) / ratio if ratio > 0 else 0.0
    return max(0.0, among * cut / float(stats.chi2.ppf(q, df[0])))
