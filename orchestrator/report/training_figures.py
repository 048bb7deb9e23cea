"""Figures of training: reward, learnable %, completion length and KL by update."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orchestrator.report.drawing import moving_mean, new_panels, svg
from orchestrator.report.figures import Styles
from orchestrator.report.rows import Row

# Title -> update -> value, of one cell; a measure that no cell has is not drawn.
MEASURES: Mapping[str, Callable[[Row], Mapping[int, float]]] = {
    "reward": lambda row: row.log.get("reward", {}),
    "learnable %": lambda row: {u: 100 * shares.live for u, shares in row.shares.items()},
    "completion length, tokens": lambda row: row.log.get("completions/mean_length", {}),
    "KL to the base model": lambda row: row.log.get("kl", {}),
}


def training_curves(by_policy: Mapping[str, Sequence[Row]], styles: Styles) -> str:
    """One panel per measure, one line per policy: the mean over its seeds.

    A moving mean over a tenth of the updates, since one update has few groups.
    """
    curves = {
        title: {policy: _mean(list(map(measure, rows))) for policy, rows in by_policy.items()}
        for title, measure in MEASURES.items()
    }
    shown = {title: lines for title, lines in curves.items() if any(map(len, lines.values()))}
    figure, panels = new_panels(max(1, len(shown)), same_scale=False)
    for axes, (title, lines) in zip(panels, shown.items(), strict=False):
        axes.set_title(title, size=10)
        axes.locator_params(axis="x", integer=True, nbins=5)
        for policy, line in lines.items():
            if not line:  # its cells logged nothing of this measure
                continue
            values = moving_mean(np.array([*line.values()]), max(1, len(line) // 10))
            axes.plot([*line], values, color=styles[policy][0], lw=1.4, label=policy)
    handles, labels = panels[0].get_legend_handles_labels()
    columns = min(4, max(1, len(labels)))
    figure.legend(
        handles, labels, frameon=False, ncols=columns, loc="outside upper center", fontsize=9
    )
    figure.supxlabel("update", size=10)
    return svg(figure)


def _mean(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Over the seeds, at the updates that all of them have."""
    updates = sorted(set.intersection(*map(set, curves)))
    return {u: float(np.mean([curve[u] for curve in curves])) for u in updates}
