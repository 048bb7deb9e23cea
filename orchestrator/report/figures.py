"""The report's figures as inline SVG; matplotlib stays in this room."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orchestrator.difficulty import outcome_histogram
from orchestrator.report.rows import Row
from orchestrator.report.statistics import r_squared
from tasks import OUTCOMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^DvPX"  # beside the colour, for print in grey
KINDS = {"live": "#009E73", "all_right": "#56B4E9", "all_wrong": "#D55E00", "unmarked": "#000000"}
SMALL = (5.4, 3.3)  # inches: at phone width the text is still about 9 pixels high


def _svg(figure: "Figure") -> str:
    """A figure as an SVG element, reproducible byte for byte.

    Without a ground of its own, and black becomes the page's ink: it is read in light and dark.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # nothing that names an address
    with rc_context({"svg.hashsalt": "decile"}):
        figure.savefig(buffer, format="svg", metadata=metadata, transparent=True)
    text = buffer.getvalue()
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text[text.index("<svg") :])  # HTML knows them
    return text.replace("#000000", "currentColor").replace("<svg", '<svg fill="currentColor"', 1)


def _style(number: int) -> tuple[str, str]:
    """Colour and marker of the n-th policy; they repeat apart, so 49 differ."""
    return COLOURS[number % len(COLOURS)], MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def new_axes(width: float = 6.4, height: float = 3.6) -> "tuple[Figure, Axes]":
    """A figure of that size in inches with one plain pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def accuracy_curves(rows: Sequence[Row]) -> str:
    """Accuracy on the test set by update, one line per policy: the mean over its seeds.

    The shade spans its seeds. Only updates at which all of them were evaluated are shown.
    """
    figure, axes = new_axes(*SMALL)
    for number, policy in enumerate(dict.fromkeys(row.cell.policy for row in rows)):
        curves = [row.curve for row in rows if row.cell.policy == policy]
        updates = sorted(set.intersection(*(set(c) for c in curves)))
        values = 100 * np.array([[c[u] for u in updates] for c in curves])
        colour, marker = _style(number)
        axes.plot(updates, values.mean(axis=0), color=colour, marker=marker, ms=4, label=policy)
        if len(curves) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(updates, low, high, color=colour, alpha=0.15, lw=0)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("update")
    axes.set_ylabel("test accuracy, %")
    _legend_above(axes, 4)
    return _svg(figure)


def _legend_above(axes: "Axes", columns: int) -> None:
    axes.legend(
        frameon=False, ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 1.0),
        fontsize=9, columnspacing=1.2, handlelength=1.2, handletextpad=0.5,
    )  # fmt: skip


def learnable_against_gain(groups: Mapping[str, Sequence[Row]]) -> str:
    """Learnable % against gain in points, one mark per cell (paper A, figure 3), and R².

    `groups` are model-and-data -> rows: each has its own marker, each policy its colour. The line
    and R² need three cells or more.
    """
    figure, axes = new_axes(*SMALL)
    rows = [row for group in groups.values() for row in group]
    policies = list(dict.fromkeys(row.cell.policy for row in rows))
    for number, group in enumerate(groups.values()):
        marker = MARKERS[number % len(MARKERS)]
        for row in group:
            colour = COLOURS[policies.index(row.cell.policy) % len(COLOURS)]
            axes.plot(*_learnable_gain(row), marker, color=colour, ms=6, alpha=0.85)
    for number, policy in enumerate(policies):
        axes.plot([], [], "o", color=COLOURS[number % len(COLOURS)], label=policy)
    for number, name in enumerate(groups if len(groups) > 1 else []):
        axes.plot([], [], MARKERS[number % len(MARKERS)], color="#000000", mfc="none", label=name)
    _line(axes, *np.array([_learnable_gain(row) for row in rows]).T)
    axes.set_xlabel("learnable %")
    axes.set_ylabel("gain, points")
    _legend_above(axes, 4 if len(groups) == 1 else 3)
    return _svg(figure)


def _learnable_gain(row: Row) -> tuple[float, float]:
    return row.result["learnable_pct"], 100 * row.result["gain"]


def _line(axes: "Axes", x: np.ndarray, y: np.ndarray) -> None:
    """The least-squares line with its R², where there is one."""
    found = r_squared(x, y)
    if np.isnan(found.value):
        return
    slope, start = np.polyfit(x, y, 1)
    ends = np.array([x.min(), x.max()])
    axes.plot(ends, start + slope * ends, color="#000000", lw=0.8, ls="--")
    text = f"R² {found.value:.2f} [{found.low:.2f}, {found.high:.2f}], {found.cells} cells"
    axes.annotate(text, (0.02, 0.97), xycoords="axes fraction", va="top", size=9)


def group_areas(by_policy: Mapping[str, Sequence[Row]]) -> str:
    """Share of groups by kind over updates, one panel per policy, mean over its seeds.

    A moving mean over a twentieth of the updates, since one update has few groups.
    """
    figure, panels = _panels(len(by_policy))
    for axes, (policy, rows) in zip(panels, by_policy.items(), strict=False):
        updates = sorted(set.intersection(*(set(row.shares) for row in rows)))
        if not updates:
            continue
        parts = [[_mean_share(rows, u, kind) for u in updates] for kind in KINDS]
        smooth = [100 * _moving_mean(np.array(p), max(1, len(updates) // 20)) for p in parts]
        labels = [kind.replace("_", " ") for kind in KINDS]
        axes.stackplot(updates, smooth, colors=KINDS.values(), labels=labels, alpha=0.85, lw=0)
        axes.set_title(policy, size=10)
        axes.set_ylim(0, 100)
        axes.locator_params(axis="x", integer=True, nbins=5)
        axes.margins(x=0)
    handles, labels = panels[0].get_legend_handles_labels()
    shown = len(KINDS) - (not any(s.unmarked for g in by_policy.values() for r in g
                                  for s in r.shares.values()))  # fmt: skip
    figure.legend(
        handles[:shown], labels[:shown], frameon=False, ncols=shown, loc="outside upper center"
    )
    figure.supxlabel("update", size=10)
    figure.supylabel("% of groups", size=10)
    return _svg(figure)


def _panels(count: int) -> "tuple[Figure, list[Axes]]":
    """Two panels side by side, as many rows as it takes."""
    from matplotlib.figure import Figure

    columns = min(2, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(SMALL[0], 0.9 + 1.7 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, list(panels)


def _mean_share(rows: Sequence[Row], update: int, kind: str) -> float:
    return float(np.mean([getattr(row.shares[update], kind) for row in rows]))


def _moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over `window` updates, over fewer at the ends."""
    ones = np.ones(window)
    summed, known = (np.convolve(v, ones, "same") for v in (values, np.ones(len(values))))
    return np.asarray(summed / known)


def tier_bars(accuracies: Mapping[str, Mapping[str, float]]) -> str:
    """Accuracy in % by tier, one group of bars per tier, one bar per name (base, each policy).

    `accuracies` is name -> tier -> %.
    """
    figure, axes = new_axes(*SMALL)
    tiers = list(dict.fromkeys(tier for by_tier in accuracies.values() for tier in by_tier))
    width = 0.8 / max(1, len(accuracies))
    colours = ("#9aa0a6", *COLOURS)
    for number, (name, by_tier) in enumerate(accuracies.items()):
        places = np.arange(len(tiers)) - 0.4 + width * (number + 0.5)
        heights = [by_tier.get(tier, 0.0) for tier in tiers]
        axes.bar(places, heights, width, color=colours[number % len(colours)], label=name)
    axes.set_xticks(range(len(tiers)), tiers)
    axes.set_xlabel("tier")
    axes.set_ylabel("test accuracy, %")
    _legend_above(axes, 5)
    return _svg(figure)


def failure_histogram(table: pa.Table, samples: int) -> str:
    """Prompts of the pool by correct completions out of K, each bar divided as its samples ended.

    Prompts without a scorable sample stand apart, where there are any.
    """
    figure, axes = new_axes(*SMALL)
    *known, unknown = outcome_histogram(table, samples)
    shown = [*known, unknown] if unknown.any() else known
    places = [*range(samples + 1), samples + 2][: len(shown)]
    below = np.zeros(len(shown))
    for colour, outcome, part in zip(COLOURS, OUTCOMES, np.transpose(shown), strict=False):
        axes.bar(places, part, 0.9, below, color=colour, label=outcome)
        below += part
    _whole_ticks(axes, samples, unknown=bool(unknown.any()))
    axes.set_xlabel(f"correct completions of {samples}")
    axes.set_ylabel("prompts")
    _legend_above(axes, len(OUTCOMES))
    return _svg(figure)


def _whole_ticks(axes: "Axes", samples: int, unknown: bool) -> None:
    """At most a dozen whole numbers from 0 to K, and a name for the bar behind them."""
    ticks = list(range(0, samples + 1, -(-samples // 11)))
    axes.set_xticks(
        [*ticks, samples + 2] if unknown else ticks,
        [*map(str, ticks), "not\nscorable"] if unknown else None,
    )


def outcome_bars(tables: Mapping[str, Sequence[str]]) -> str:
    """Share of each outcome among samples, one bar per named group of outcomes."""
    figure, axes = new_axes(SMALL[0], 1.0 + 0.45 * len(tables))
    left = np.zeros(len(tables))
    for colour, outcome in zip(COLOURS, OUTCOMES, strict=False):
        shares = [100 * list(o).count(outcome) / max(1, len(o)) for o in tables.values()]
        axes.barh(list(tables), shares, left=left, color=colour, label=outcome)
        left += np.array(shares)
    axes.invert_yaxis()
    axes.set_xlabel("% of samples")
    _legend_above(axes, len(OUTCOMES))
    return _svg(figure)
