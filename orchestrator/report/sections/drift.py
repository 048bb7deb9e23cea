"""How difficulty drifts while a model learns, as tables for every view."""

from collections.abc import Sequence

import numpy as np

from orchestrator.evaluation.drift import AGES, age_text
from orchestrator.report.compare import Family
from orchestrator.report.content import NONE, Section, Table


def drift_section(families: Sequence[Family]) -> Section:
    """Both tables; empty if no cell chooses prompts during training, and none is refreshed."""
    return Section.of("drift", "Drift of difficulty", refreshes(families), ages(families))


def refreshes(families: Sequence[Family]) -> Table:
    """How far the refreshes of each policy's cells agree with earlier rates; empty without any."""
    body = []
    for family in families:
        for policy, rows in family.by_policy().items():
            for update in sorted({u for row in rows for u in row.drift.refreshes}):
                own = [row.drift.refreshes[update] for row in rows if update in row.drift.refreshes]
                pairs = [(each.of_probe, each.of_latest) for each in own]  # of each seed
                ranks, overlaps = np.array(pairs, float).transpose(2, 1, 0)  # [probe, latest]
                body.append(
                    (
                        *(family.title, policy, str(update - 1)),
                        f"{sum(each.prompts for each in own):,}",
                        f"{_mean([e.rate_probe for e in own])} → {_mean([e.rate for e in own])}",
                        *map(_mean, (*ranks, *overlaps)),
                    )
                )
    return Table(
        "Drift by update",
        (
            *("model and data", "policy", "after update", "prompts", "pass rate"),
            *("rank correlation: probe", "latest", "hardest tenth: probe", "latest"),
        ),
        body,
        "Prompts: those that were probed again during training, over all seeds; the other "
        "columns are means over seeds. Pass rate: of the samples of the probe → now. If these "
        "samples chose the prompts, they exaggerate. Rank correlation (Spearman) and shared "
        "hardest tenth (0.1 by chance, ties at random): of the pass rates now with those of the "
        "probe, and with the latest estimate: a prompt's last group or refresh, or else the "
        "probe. Few samples per prompt lower both.",
    )


def ages(families: Sequence[Family]) -> Table:
    """Live groups by the age of the estimate, where prompts are chosen or refreshed in training."""
    shown = [f for f in families if any(r.cell.online or r.cell.refresh for r in f.rows)]
    present = {bound for f in shown for row in f.rows for bound in row.drift.ages}
    bounds = [bound for bound in (*AGES, -1) if bound in present]
    body = []
    for family in shown:
        for policy, rows in family.by_policy().items():
            entries = []
            for bound in bounds:
                counts = [row.drift.ages.get(bound, (0, 0)) for row in rows]
                groups, live = (sum(part) for part in zip(*counts, strict=True))
                entries.append(f"{100 * live / groups:.1f} ({groups:,})" if groups else NONE)
            body.append((family.title, policy, *entries))
    return Table(
        "Live groups by age of the estimate",
        ("model and data", "policy", *map(age_text, bounds)),
        body,
        "% of the groups drawn, and their number, over all seeds. Age: the updates between a "
        "group and its prompt's last group or refresh, or else the probe.",
    )


def _mean(values: Sequence[float] | np.ndarray) -> str:
    known = [value for value in values if np.isfinite(value)]
    return f"{np.mean(known):.2f}" if known else NONE
