"""The report's figures as inline SVG; matplotlib stays in this room."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orchestrator.difficulty import outcome_histogram
from orchestrator.report.rows import Row
from tasks import OUTCOMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def _svg(figure: "Figure") -> str:
    """A figure as an SVG element, reproducible byte for byte."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "decile"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def new_axes(width: float = 6.4, height: float = 3.6) -> "tuple[Figure, Axes]":
    """A figure of that size in inches with one plain pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def accuracy_curves(rows: Sequence[Row]) -> str:
    """Accuracy on the test set by update, one line per policy, the mean over its seeds."""
    figure, axes = new_axes()
    policies = list(dict.fromkeys(row.cell.policy for row in rows))
    for colour, policy in zip(COLOURS, policies, strict=False):
        curves = [row.curve for row in rows if row.cell.policy == policy]
        updates = sorted(set.intersection(*(set(c) for c in curves)))
        means = [100 * float(np.mean([c[u] for c in curves])) for u in updates]
        axes.plot(updates, means, "o-", color=colour, label=policy)
    axes.set_xlabel("update")
    axes.set_ylabel("test accuracy, %")
    axes.legend(frameon=False)
    return _svg(figure)


def failure_histogram(table: pa.Table, samples: int) -> str:
    """Prompts of the pool by correct completions out of K, each bar divided as its samples ended.

    Prompts without a scorable sample stand apart, where there are any.
    """
    figure, axes = new_axes()
    *known, unknown = outcome_histogram(table, samples)
    shown = [*known, unknown] if unknown.any() else known
    places = [*range(samples + 1), samples + 2][: len(shown)]
    below = np.zeros(len(shown))
    for colour, outcome, part in zip(COLOURS, OUTCOMES, np.transpose(shown), strict=False):
        axes.bar(places, part, 0.9, below, color=colour, label=outcome, ec="white", lw=0.3)
        below += part
    _whole_ticks(axes, samples, unknown=bool(unknown.any()))
    axes.set_xlabel(f"correct completions of {samples}")
    axes.set_ylabel("prompts")
    axes.legend(frameon=False, ncols=len(OUTCOMES), loc="lower center", bbox_to_anchor=(0.5, 1.0))
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
    figure, axes = new_axes(height=0.8 + 0.5 * len(tables))
    left = np.zeros(len(tables))
    for colour, outcome in zip(COLOURS, OUTCOMES, strict=False):
        shares = [100 * list(o).count(outcome) / max(1, len(o)) for o in tables.values()]
        axes.barh(list(tables), shares, left=left, color=colour, label=outcome)
        left += np.array(shares)
    axes.invert_yaxis()
    axes.set_xlabel("% of samples")
    axes.legend(frameon=False, ncols=len(OUTCOMES), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return _svg(figure)
