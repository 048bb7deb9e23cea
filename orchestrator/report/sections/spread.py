"""How much another probe would change: variance between probes and between training seeds."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from orchestrator.report.compare import Family
from orchestrator.report.content import Table
from orchestrator.stats.inference import Interval, ProbeVariance, variance_components


class Spread(NamedTuple):
    """One policy's results (`measure`, in points) over probes and over training seeds.

    `data`: the model, the dataset and the settings that are axes.
    """

    data: str
    policy: str
    measure: str
    variance: ProbeVariance


def spreads(families: Sequence[Family]) -> list[Spread]:
    """Every policy with at least two probes, and two training seeds of one of them."""
    spreads = []
    for data, group in _by_data(families).items():
        for policy in dict.fromkeys(p for family in group for p in family.by_policy()):
            for measure, results in _results(group, policy).items():
                if len(results) > 1 and max(map(len, results)) > 1:
                    variance = variance_components(results)
                    spreads.append(Spread(data, policy, measure, variance))
    return spreads


def table(families: Sequence[Family]) -> Table:
    """The variance between probes and between training seeds; empty without several probes."""
    body = [
        (
            s.data,
            s.policy,
            s.measure,
            str(s.variance.probes),
            str(s.variance.results),
            _deviation(s.variance.between, s.variance.between_interval),
            _deviation(s.variance.within, s.variance.within_interval),
            f"{s.variance.p:.3f}".lstrip("0"),
        )
        for s in spreads(families)
    ]
    return Table(
        "Variance between probes and between training seeds",
        (
            "model and data",
            "policy",
            "result",
            "probes",
            "cells",
            "sd between probes",
            "sd between training seeds",
            "p",
        ),
        body,
        "Standard deviations in points with their 95 % intervals: between subsets selected by "
        "different probes, and between training seeds of the same probe. p: of no variance between "
        "probes. Two probes give a rough estimate only.",
    )


def missing(families: Sequence[Family]) -> list[str]:
    """What is missing to estimate the variances, where probe_seed was swept."""
    swept = any(len(group) > 1 for group in _by_data(families).values())
    if not swept or spreads(families):
        return []
    return ["the variance between probes needs at least two training seeds: set seed: [0, 1]"]


def _by_data(families: Sequence[Family]) -> dict[str, list[Family]]:
    """Title without the probe's seed -> the families that differ in it only."""
    groups: dict[str, list[Family]] = {}
    for family in families:
        groups.setdefault(replace(family, probe_seed=0).title, []).append(family)
    return groups


def _results(families: Sequence[Family], policy: str) -> dict[str, list[np.ndarray]]:
    """Measure -> one array per probe, its training seeds' results in points."""
    accuracy, learnable = [], []
    for family in families:
        own = [n for n, row in enumerate(family.rows) if row.cell.policy == policy]
        if own:
            accuracy.append(np.array([100 * family.points[n].value for n in own]))
            learnable.append(np.array([family.rows[n].result["learnable_pct"] for n in own]))
    return {"accuracy": accuracy, "learnable %": learnable}


def _deviation(variance: float, interval: Interval) -> str:
    low, high = (f"{sqrt(end):.1f}" for end in interval)
    return f"{sqrt(variance):.1f} [{low}, {high}]"
