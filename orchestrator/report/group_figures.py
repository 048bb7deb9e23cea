"""Figures of live and dead groups: their shares over updates and by tier."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.evaluation.groups import GroupShares
from orchestrator.report.drawing import moving_mean, new_panels, svg, wrapped
from orchestrator.report.ledger_tables import tiers_of
from orchestrator.report.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Kind -> colour; truncated groups are all wrong too, but drawn separately.
KINDS = {
    "live": "#009E73",
    "all correct": "#56B4E9",
    "all wrong": "#D55E00",
    "all wrong, truncated": "#E69F00",
    "unmarked": "#000000",
}


def group_areas(by_policy: Mapping[str, Sequence[Row]]) -> str:
    """Share of groups by kind over updates, one panel per policy, mean over its seeds.

    A moving mean over a twentieth of the updates, since one update has few groups.
    """
    figure, panels = new_panels(len(by_policy))
    for axes, (policy, rows) in zip(panels, by_policy.items(), strict=False):
        axes.set_title(wrapped(policy), size=10)
        axes.set_ylim(0, 100)
        updates = sorted(set.intersection(*(set(row.shares) for row in rows)))
        if not updates:
            continue
        by_kind = np.array([_mean_shares([row.shares[u] for row in rows]) for u in updates]).T
        smooth = [100 * moving_mean(shares, max(1, len(updates) // 20)) for shares in by_kind]
        axes.stackplot(updates, smooth, colors=KINDS.values(), labels=KINDS, alpha=0.85, lw=0)
        axes.locator_params(axis="x", integer=True, nbins=5)
        axes.margins(x=0)
    shares = [s for rows in by_policy.values() for row in rows for s in row.shares.values()]
    return _with_legend(figure, panels, shares, "update")


def group_tiers(by_policy: Mapping[str, Sequence[Row]]) -> str:
    """Share of groups by kind for each tier of the training prompts, one panel per policy."""
    figure, panels = new_panels(len(by_policy))
    tiers = tiers_of([row for rows in by_policy.values() for row in rows])
    for axes, (policy, rows) in zip(panels, by_policy.items(), strict=False):
        axes.set_title(wrapped(policy), size=10)
        axes.set_ylim(0, 100)
        axes.set_xticks(range(len(tiers)), tiers)
        below = np.zeros(len(tiers))
        by_tier = [[r.tier_shares[tier] for r in rows if tier in r.tier_shares] for tier in tiers]
        by_kind = np.array([_mean_shares(shares) for shares in by_tier]).T
        for height, (kind, colour) in zip(100 * by_kind, KINDS.items(), strict=True):
            axes.bar(range(len(tiers)), height, 0.8, below, color=colour, label=kind, alpha=0.85)
            below += height
    shares = [s for rows in by_policy.values() for row in rows for s in row.tier_shares.values()]
    return _with_legend(figure, panels, shares, "tier")


def _mean_shares(shares: Sequence[GroupShares]) -> np.ndarray:
    """[kinds]: mean shares in the order of KINDS; zeros without any."""
    if not shares:
        return np.zeros(len(KINDS))
    live, right, wrong, truncated, unmarked = np.mean(np.array(shares), axis=0)
    return np.array([live, right, wrong - truncated, truncated, unmarked])


def _with_legend(
    figure: "Figure", panels: "Sequence[Axes]", shares: Sequence[GroupShares], x_label: str
) -> str:
    """The figure with axis labels and a legend; rare kinds are listed only where they occur."""
    hidden = {
        kind
        for kind, field in (("all wrong, truncated", "truncated"), ("unmarked", "unmarked"))
        if not any(getattr(s, field) for s in shares)
    }
    drawn = next((p for p in panels if p.get_legend_handles_labels()[1]), panels[0])
    handles, labels = drawn.get_legend_handles_labels()
    shown = [(h, label) for h, label in zip(handles, labels, strict=True) if label not in hidden]
    if shown:
        figure.legend(
            *zip(*shown, strict=True),
            frameon=False,
            ncols=min(3, len(shown)),
            loc="outside upper center",
            fontsize=9,
            handlelength=1.2,
        )
    figure.supxlabel(x_label, size=10)
    figure.supylabel("% of groups", size=10)
    return svg(figure)
