"""What another probe would change: results over probe seeds beside those over training seeds."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from orchestrator.report.families import Family
from orchestrator.report.tables import Table
from orchestrator.stats.inference import Interval, ProbeVariance, variance_components


class Spread(NamedTuple):
    """One policy's results (`measure`, in points) over probes and over training seeds."""

    model: str
    dataset: str
    policy: str
    measure: str
    found: ProbeVariance

    @property
    def between(self) -> str:
        """Standard deviation between probes in points, with its interval."""
        return _deviation(self.found.between, self.found.between_interval)

    @property
    def within(self) -> str:
        """The same between training seeds of one probe."""
        return _deviation(self.found.within, self.found.within_interval)


def spreads(families: Sequence[Family]) -> list[Spread]:
    """Every policy with two probes, and two training seeds of one; none elsewhere."""
    found = []
    for (model, dataset), group in _by_data(families).items():
        for policy in dict.fromkeys(p for family in group for p in family.by_policy()):
            for measure, results in _results(group, policy).items():
                if len(results) > 1 and max(map(len, results)) > 1:
                    parts = variance_components(results)
                    found.append(Spread(model, dataset, policy, measure, parts))
    return found


def table(families: Sequence[Family]) -> Table:
    """The variance over probes beside that over training seeds; empty without several probes."""
    body = [
        (
            f"{s.model} on {s.dataset}",
            s.policy,
            s.measure,
            str(s.found.probes),
            str(s.found.results),
            s.between,
            s.within,
            f"{s.found.p:.3f}".lstrip("0"),
        )
        for s in spreads(families)
    ]
    return Table(
        "Probes beside training seeds",
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
        "Standard deviations in points with their 95 % intervals: what choosing by another probe "
        "would change, beside what another training seed of the same probe does. p: of no "
        "variance between probes. Two probes say little of the first.",
    )


def missing(families: Sequence[Family]) -> list[str]:
    """What a reader who swept probe_seed must do to see the variances."""
    swept = any(len(group) > 1 for group in _by_data(families).values())
    if not swept or spreads(families):
        return []
    return ["the variance between probes needs two training seeds or more: write seed: [0, 1]"]


def _by_data(families: Sequence[Family]) -> dict[tuple[str, str], list[Family]]:
    found: dict[tuple[str, str], list[Family]] = {}
    for family in families:
        found.setdefault((family.model, family.dataset), []).append(family)
    return found


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
