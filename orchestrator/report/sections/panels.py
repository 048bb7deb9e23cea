"""Panels of a figure, and curves that are smoothed."""

from typing import TYPE_CHECKING

import numpy as np

from orchestrator.report.content import shown_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from orchestrator.report.sections.axes import SMALL


def new_panels(count: int, same_scale: bool = True) -> "tuple[Figure, list[Axes]]":
    """That many panels, two in a row; `same_scale`: with the same y axis."""
    columns = min(2, count)
    lines = -(-count // columns)
    figure = shown_figure(figsize=(SMALL[0], 0.9 + 1.7 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=same_scale, squeeze=False).ravel()
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, list(panels)


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over `window` updates, fewer at both ends."""
    ones = np.ones(window)
    sums, counts = (np.convolve(v, ones, "same") for v in (values, np.ones(len(values))))
    return np.asarray(sums / counts)
