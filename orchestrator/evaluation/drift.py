"""How difficulty drifts while a model learns: refreshes compared with earlier estimates. Pure.

A group of update u, and a refresh before it, use the weights after u − 1 updates; the probe uses
those of the base model.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.evaluation.liveness import correctness, is_live
from orchestrator.stats.rankings import hardest_overlap, rank_correlation

# Updates between an estimate and a group: 0 (the same weights), 1 or 2, 3 to 5, and so on.
AGES = (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Agreement(NamedTuple):
    """How well earlier pass rates agree with those of a refresh.

    rank: Spearman's rank correlation, nan where all rates of a side are equal. overlap: the share
    of the hardest tenth that is in both, as expected with ties broken at random; 0.1 by chance.
    """

    rank: float
    overlap: float


class RefreshDrift(NamedTuple):
    """A refresh compared with earlier estimates, over the prompts that all three rate.

    prompts: their number; rate_probe, rate: their mean pass rates in the probe and now; of_probe,
    of_latest: its agreement with the probe, and with the latest group or refresh, or else the
    probe.
    """

    prompts: int
    rate_probe: float
    rate: float
    of_probe: Agreement
    of_latest: Agreement


@dataclass(frozen=True)
class Drift:
    """The drift that a cell's groups and refreshes show.

    refreshes: by the update that they precede; ages: the updates since a prompt's last group,
    refresh or probe, as the upper end of a class of AGES (-1: above the last) -> groups drawn at
    that age, and the live ones among them.
    """

    refreshes: Mapping[int, RefreshDrift] = field(default_factory=dict)
    ages: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[int, dict[str, float]]:
        """Update -> metrics under their MLflow names; without those that are not defined."""
        metrics = {}
        for update, each in self.refreshes.items():
            named = {
                # after a refresh: mean pass rate of the refreshed prompts
                "drift/pass_rate": each.rate,
                # after a refresh: rank correlation with the probe's pass rates
                "drift/rank_correlation": each.of_probe.rank,
                # the same with the latest estimates
                "drift/rank_correlation_latest": each.of_latest.rank,
                # after a refresh: shared share of the probe's hardest tenth
                "drift/hardest_tenth_overlap": each.of_probe.overlap,
                # the same by the latest estimates
                "drift/hardest_tenth_overlap_latest": each.of_latest.overlap,
            }
            metrics[update] = {name: value for name, value in named.items() if np.isfinite(value)}
        return metrics


def age_text(age: int) -> str:
    """A class of ages in words: `3–5`."""
    if age < 0:
        return f">{AGES[-1]}"
    low = AGES[AGES.index(age) - 1] + 1 if age else 0
    return f"{low}–{age}" if low < age else str(age)


def drift_of(subset: pa.Table, drawn: pa.Table, refreshed: pa.Table | None = None) -> Drift:
    """The drift of a cell from its subset, all groups drawn, and its refreshes (schema GROUPS)."""
    again = [] if refreshed is None else refreshed.to_pylist()
    events = [
        (row["update"], kind, row)
        for kind, rows in enumerate((again, drawn.to_pylist()))
        for row in rows
    ]
    events.sort(key=lambda event: event[:2])  # a refresh comes before the groups of its update
    ids = pa.array({row["prompt_id"] for _, _, row in events}, pa.string())
    known = subset.filter(pc.is_in(subset["prompt_id"], ids))
    pairs = zip(known["prompt_id"].to_pylist(), known["pass_rate"].to_pylist(), strict=True)
    probe = {prompt_id: rate for prompt_id, rate in pairs if rate is not None}
    latest, seen, refreshes = dict(probe), dict[str, int](), dict[int, RefreshDrift]()
    groups, live = Counter[int](), Counter[int]()
    for (update, kind), part in groupby(events, key=lambda event: event[:2]):
        rows = [row for _, _, row in part]
        rates: dict[str, float] = {}
        for row in rows:
            if marked := [score for score in correctness(row["outcomes"]) if score is not None]:
                rates[row["prompt_id"]] = sum(marked) / len(marked)
        for row in rows if kind == 1 else ():
            age = update - seen.get(row["prompt_id"], 1)
            bound = next((limit for limit in AGES if age <= limit), -1)
            groups[bound] += 1
            live[bound] += is_live(correctness(row["outcomes"]))
        if kind == 0 and (rated := [i for i in rates if i in probe]):
            first, before, now = (
                np.array([each[i] for i in rated]) for each in (probe, latest, rates)
            )
            refreshes[update] = RefreshDrift(
                prompts=len(rated),
                rate_probe=float(first.mean()),
                rate=float(now.mean()),
                of_probe=Agreement(rank_correlation(first, now), hardest_overlap(first, now)),
                of_latest=Agreement(rank_correlation(before, now), hardest_overlap(before, now)),
            )
        latest |= rates
        seen |= dict.fromkeys(rates, update)
    order = sorted(groups, key=lambda bound: (bound < 0, bound))
    return Drift(refreshes, {bound: (groups[bound], live[bound]) for bound in order})
