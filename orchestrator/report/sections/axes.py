"""Axes that every figure of the report is drawn on."""

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from cluster.terminal import printable_line
from orchestrator.report.content import shown_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable with colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LABEL = 26  # characters of a line of a name
SMALL = (5.4, 3.3)  # inches: at phone width the text is still about 9 pixels high


def label(name: str, width: int = LABEL) -> str:
    """A name in lines of `width` characters, taken literally: $ does not start a formula."""
    return fill(printable_line(name).replace("$", r"\$"), width)


def new_axes(width: float = 6.4, height: float = 3.6) -> "tuple[Figure, Axes]":
    """A figure of that size in inches with one pair of axes."""
    figure = shown_figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def difference_intervals(pairs: Mapping[str, tuple[float, float, float]]) -> "Figure":
    """Differences in points with their intervals, one line per pair: name -> effect, low, high."""
    figure, axes = new_axes(SMALL[0], 0.9 + 0.4 * len(pairs))
    axes.axvline(0, color="#000000", lw=0.8)
    names = [label(name) for name in pairs]
    for name, colour, (effect, low, high) in zip(
        names, (COLOURS[n % len(COLOURS)] for n in range(len(pairs))), pairs.values(), strict=True
    ):
        if np.isfinite([low, high]).all():
            axes.plot([low, high], [name, name], color=colour, lw=1.6)
        axes.plot([effect], [name], "o", color=colour, ms=5)
    axes.invert_yaxis()
    axes.set_xlabel("difference, points")
    return figure
