"""Shared by all figures: colours, axes, and SVG output. The only module that loads matplotlib."""

import io
import re
from collections.abc import Iterable
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable with colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FREQUENT = ("hard", "easy", "middle", "random", "full")
MARKERS = "os^DvPX"  # in addition to colours, for greyscale print
SMALL = (5.4, 3.3)  # inches: at phone width the text is still about 9 pixels high


def svg(figure: "Figure") -> str:
    """A figure as an SVG element, byte-for-byte reproducible.

    Transparent, with black replaced by the page's text colour, for light and dark mode.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # no URLs
    with rc_context({"svg.hashsalt": "decile"}):
        figure.savefig(buffer, format="svg", metadata=metadata, transparent=True)
    text = buffer.getvalue()
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text[text.index("<svg") :])  # implied in HTML
    return text.replace("#000000", "currentColor").replace("<svg", '<svg fill="currentColor"', 1)


def as_image(element: str, caption: str) -> str:
    """An SVG element as an image with alternative text."""
    return element.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)


def as_file(element: str) -> str:
    """An SVG element as a file of its own: with its namespaces, on a white background."""
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return element.replace("<svg", f'<svg {namespaces} style="background:#fff"', 1)


def style(number: int) -> tuple[str, str]:
    """Colour and marker of the n-th policy; the first 49 combinations are distinct."""
    return COLOURS[number % len(COLOURS)], MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def policy_styles(policies: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Policy -> colour and marker, equal in every view and, as far as possible, in every sweep.

    They follow from the policy's name, so that a grid that grows changes none of the frequent ones.
    """
    slots: dict[str, int] = {}
    policies = list(dict.fromkeys(policies))
    for policy in sorted(policies, key=lambda name: (_preferred(name), name)):
        taken, size = set(slots.values()), len(COLOURS)
        free = [k for k in range(size) if k not in taken]
        after = [k for k in free if k >= _preferred(policy) % size]
        slots[policy] = (after or free or [len(slots)])[0]
    return {policy: style(slots[policy]) for policy in policies}


def _preferred(policy: str) -> int:
    """Slots 0 to 4 are those of frequent policies; the others start their search by their name."""
    if policy in FREQUENT:
        return FREQUENT.index(policy)
    return len(COLOURS) + crc32(policy.encode()) % len(COLOURS)


def new_axes(width: float = 6.4, height: float = 3.6) -> "tuple[Figure, Axes]":
    """A figure of that size in inches with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend_above(axes: "Axes", columns: int) -> None:
    """A legend above the axes, which hides no data; the figure grows by the lines it needs."""
    handles, names = axes.get_legend_handles_labels()
    labels = [wrapped(name) for name in names]
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    columns = max(1, min(columns, int(SMALL[0] / (0.4 + 0.075 * longest))))
    columns = -(-len(labels) // -(-len(labels) // columns)) if labels else 1  # evenly filled
    rows = [labels[start : start + columns] for start in range(0, len(labels), columns)]
    lines = sum(max(label.count("\n") + 1 for label in row) for row in rows)
    figure = axes.get_figure(root=True)
    if figure is not None:
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.19 * max(0, lines - 1))
    axes.legend(
        handles,
        labels,
        frameon=False,
        ncols=columns,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        fontsize=9,
        columnspacing=1.2,
        handlelength=1.2,
        handletextpad=0.5,
    )


def wrapped(name: str, width: int = 26) -> str:
    """A long name in several lines, broken at spaces and hyphens."""
    return fill(name, width)


def new_panels(count: int, same_scale: bool = True) -> "tuple[Figure, list[Axes]]":
    """That many panels, two in a row; `same_scale`: with the same y axis."""
    from matplotlib.figure import Figure

    columns = min(2, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(SMALL[0], 0.9 + 1.7 * lines), layout="constrained")
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
