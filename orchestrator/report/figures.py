"""The report's figures as inline SVG; matplotlib stays in this room."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orchestrator.difficulty import pass_rate_histogram
from orchestrator.report.rows import Row
from tasks import OUTCOMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def _svg(figure: "Figure") -> str:
    """A figure as an SVG element, reproducible byte for byte."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def new_axes(width: float = 6.4, height: float = 3.6) -> "tuple[Figure, Axes]":
    """A figure of that size in inches with one plain pair of axes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "decile"}):
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


def difficulty_histogram(table: pa.Table, samples: int) -> str:
    """Prompts of the pool by the number of correct completions out of K."""
    figure, axes = new_axes()
    counts = pass_rate_histogram(table, samples)
    axes.bar(range(samples + 1), counts, color=COLOURS[0])
    axes.set_xlabel(f"correct completions of {samples}")
    axes.set_ylabel("prompts")
    return _svg(figure)


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
