"""The report's figures: accuracy, gain, tiers, groups and training by update."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.outcomes import outcome_histogram
from orchestrator.plugins.counts import counted
from orchestrator.report.claim_verdicts import policies_text
from orchestrator.report.compare import rows_by_policy
from orchestrator.report.rows import OWN, Row, learnable_gain_means, learnable_gain_points
from orchestrator.report.sections.axes import COLOURS, SMALL, label, new_axes
from orchestrator.report.sections.panels import moving_mean, new_panels
from orchestrator.stats.correlation import SMALLEST_BLOCK, r_squared
from orchestrator.stats.inference import available, group_codes, mean_effect
from policies.registry import BUILTIN
from tasks import OUTCOMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FREQUENT = tuple(islice(BUILTIN, 5))  # the first of `decile ls policies`, in every sweep
MARKERS = "os^DvPX"  # in addition to colours, for greyscale print


def policy_styles(policies: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Policy -> colour and marker; the first 49 combinations are distinct.

    Frequent policies have their own, equal in every view and sweep; the others follow in order.
    """
    policies = list(dict.fromkeys(policies))
    order = [*FREQUENT, *(policy for policy in policies if policy not in FREQUENT)]
    numbers = {policy: order.index(policy) for policy in policies}
    return {
        policy: (COLOURS[n % len(COLOURS)], MARKERS[(n + n // len(COLOURS)) % len(MARKERS)])
        for policy, n in numbers.items()
    }


MAX_BARS = 40
Styles = Mapping[str, tuple[str, str]]  # policy -> colour, marker


def accuracy_curves(rows: Sequence[Row], styles: Styles) -> "Figure":
    """Accuracy on the test set by update, one line per policy: the mean over its seeds.

    The band spans the seeds. Only updates at which all of them were evaluated are shown.
    """
    figure, axes = new_axes(*SMALL)
    for policy in dict.fromkeys(row.cell.policy for row in rows):
        curves = [row.curve for row in rows if row.cell.policy == policy]
        updates = sorted(set.intersection(*(set(c) for c in curves)))
        values = 100 * np.array([[c[u] for u in updates] for c in curves])
        colour, marker = styles[policy]
        axes.plot(updates, values.mean(axis=0), color=colour, marker=marker, ms=4, label=policy)
        if len(curves) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(updates, low, high, color=colour, alpha=0.15, lw=0)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("update")
    axes.set_ylabel("test accuracy, %")
    legend_above(axes, 4)
    return figure


def accuracy_over_labels(groups: Mapping[str, Sequence[Row]], styles: Styles) -> "Figure":
    """Final accuracy over the gold answers used, a mark with a 95 % interval per policy and group.

    `groups`: a title -> the rows of one family, such as those of one budget. Each policy has its
    colour, and each of several groups its marker. The intervals cover questions, and seeds from two
    on. Marks of equal labels stand side by side.
    """
    figure, axes = new_axes(*SMALL)
    used = [row.labels for rows in groups.values() for row in rows]
    wide = 0 < 10 * min(used) < max(used)  # more than a decade
    marks: Counter[float] = Counter()  # by labels
    markers = {policy: marker for policy, (_, marker) in styles.items()}
    if len(groups) > 1:
        markers = dict.fromkeys(styles, "o")
    for number, rows in enumerate(groups.values()):
        for policy, own in rows_by_policy(rows).items():
            final = available([row.scores(row.cell.updates) for row in own])
            if not final.items:
                continue
            codes = group_codes(final.items, own[0].groups.get(OWN, {}))
            level = mean_effect(final.values, codes)
            mean, low, high = (100 * min(1.0, max(0.0, value)) for value in level[:3])
            labels = float(np.mean([row.labels for row in own]))
            apart = 0.015 * marks[labels] * (4 * labels if wide else max(used) - min(used))
            marks[labels] += 1
            axes.errorbar(
                labels + apart,
                mean,
                [[mean - low], [high - mean]],
                color=styles[policy][0],
                fmt=MARKERS[number % len(MARKERS)] if len(groups) > 1 else markers[policy],
                ms=6,
                capsize=3,
            )
    for policy in dict.fromkeys(row.cell.policy for rows in groups.values() for row in rows):
        axes.plot([], [], markers[policy], color=styles[policy][0], label=policy)
    for number, name in enumerate(groups if len(groups) > 1 else []):
        axes.plot([], [], MARKERS[number % len(MARKERS)], color="#000000", mfc="none", label=name)
    if wide:
        axes.set_xscale("log")
    axes.set_xlabel("labels")
    axes.set_ylabel("test accuracy, %")
    legend_above(axes, 4 if len(groups) == 1 else 3)
    return figure


def learnable_against_gain(groups: Mapping[str, Sequence[Row]], styles: Styles) -> "Figure":
    """Learnable % against gain in points, one mark per cell (paper A, figure 3), and R².

    `groups`: model and data -> rows. Each group has its own marker, each policy its colour. The
    line of each block and R² are those of the policies' means over their seeds, for at least eight
    policies.
    """
    figure, axes = new_axes(*SMALL)
    rows = [row for group in groups.values() for row in group]
    policies = list(dict.fromkeys(row.cell.policy for row in rows))
    for number, group in enumerate(groups.values()):
        marker = MARKERS[number % len(MARKERS)]
        for row, point in learnable_gain_points(group):
            axes.plot(*point, marker, color=styles[row.cell.policy][0], ms=6, alpha=0.85)
    for policy in policies:
        axes.plot([], [], "o", color=styles[policy][0], label=policy)
    for number, name in enumerate(groups if len(groups) > 1 else []):
        axes.plot([], [], MARKERS[number % len(MARKERS)], color="#000000", mfc="none", label=name)
    axes.set_xlabel("learnable %")
    blocks = [np.array(points) for points in learnable_gain_means(rows)]
    fit = r_squared(*blocks)
    if not np.isnan(fit.value):
        large = [points.T for points in blocks if len(points) >= SMALLEST_BLOCK]
        for x, y in (each for each in large if np.ptp(each[0]) > 0):
            slope, start = np.polyfit(x, y, 1)
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, start + slope * ends, color="#000000", lw=0.8, ls="--")
        text = f"R² {fit.value:.2f} [{fit.low:.2f}, {fit.high:.2f}], {policies_text(fit)}"
        axes.set_xlabel(f"learnable % ({text})")
    axes.set_ylabel("gain, points")
    legend_above(axes, 4 if len(groups) == 1 else 3)
    return figure


def failure_histogram(table: pa.Table, samples: int) -> "Figure":
    """Prompts of the pool by correct completions out of K, each bar divided by outcome.

    Prompts without a scorable sample have a bar of their own. Above MAX_BARS samples, the bars
    are pass rates in steps of 5 %.
    """
    figure, axes = new_axes(*SMALL)
    bins = samples if samples <= MAX_BARS else 20
    *known, unknown = outcome_histogram(table, bins)
    shown = [*known, unknown] if unknown.any() else known
    positions = [*range(bins + 1), bins + 2][: len(shown)]
    below = np.zeros(len(shown))
    for colour, outcome, part in zip(COLOURS, OUTCOMES, np.transpose(shown), strict=False):
        if outcome == "unlabelled" and not np.any(part):
            continue
        axes.bar(positions, part, 0.9, below, color=colour, label=outcome)
        below += part
    ticks = list(range(0, bins + 1, -(-bins // 11)))  # at most a dozen
    labels = [str(tick if bins == samples else 100 * tick // bins) for tick in ticks]
    if unknown.any():
        ticks, labels = [*ticks, bins + 2], [*labels, "not\nscorable"]
    axes.set_xticks(ticks, labels)
    whole = f"correct completions of {samples}"
    axes.set_xlabel(whole if bins == samples else f"pass rate in %, {counted(samples, 'sample')}")
    axes.set_ylabel("prompts")
    legend_above(axes, len(OUTCOMES))
    return figure


def agreement_histogram(table: pa.Table, samples: int) -> "Figure":
    """Prompts of the pool by their samples, out of K, that give the most frequent answer."""
    figure, axes = new_axes(*SMALL)
    bins = samples if samples <= MAX_BARS else 20
    agreement = table["agreement"].drop_null().to_numpy()
    prompts = np.bincount(np.rint(agreement * bins).astype(int), minlength=bins + 1)
    axes.bar(range(bins + 1), prompts, 0.9, color=COLOURS[0])
    ticks = list(range(0, bins + 1, -(-bins // 11)))
    axes.set_xticks(ticks, [str(t if bins == samples else 100 * t // bins) for t in ticks])
    whole = f"completions of {samples} with the most frequent answer"
    axes.set_xlabel(whole if bins == samples else "agreement in %")
    axes.set_ylabel("prompts")
    return figure


def outcome_bars(outcomes: Mapping[str, Mapping[str, int]]) -> "Figure":
    """Share of each outcome among samples, one bar per group (the pool, each subset).

    `outcomes`: group -> outcome -> number of samples.
    """
    figure, axes = new_axes(SMALL[0], 1.0 + 0.45 * len(outcomes))
    left = np.zeros(len(outcomes))
    for colour, outcome in zip(COLOURS, OUTCOMES, strict=False):
        shares = [100 * o.get(outcome, 0) / max(1, sum(o.values())) for o in outcomes.values()]
        if outcome == "unlabelled" and not any(shares):
            continue
        axes.barh(
            [label(name, 20) for name in outcomes], shares, left=left, color=colour, label=outcome
        )
        left += np.array(shares)
    axes.invert_yaxis()
    axes.set_xlabel("% of samples")
    legend_above(axes, len(OUTCOMES))
    return figure


# Kind -> colour; truncated groups are all wrong too, but drawn separately.
KINDS = {
    "live": "#009E73",
    "all correct": "#56B4E9",
    "all wrong": "#D55E00",
    "all wrong, truncated": "#E69F00",
    "unmarked": "#000000",
}


def group_areas(by_policy: Mapping[str, Sequence[Row]]) -> "Figure":
    """Share of groups by kind over updates, one panel per policy, mean over its seeds.

    A moving mean over a twentieth of the updates, since one update has few groups. The legend lists
    rare kinds only where they occur.
    """
    figure, panels = new_panels(len(by_policy))
    for axes, (policy, rows) in zip(panels, by_policy.items(), strict=False):
        axes.set_title(label(policy), size=10)
        axes.set_ylim(0, 100)
        updates = sorted(set.intersection(*(set(row.shares) for row in rows)))
        if not updates:
            continue
        means = [np.mean(np.array([row.shares[u] for row in rows]), axis=0) for u in updates]
        live, right, wrong, truncated, unmarked = np.array(means).T
        by_kind = (live, right, wrong - truncated, truncated, unmarked)
        smooth = [100 * moving_mean(shares, max(1, len(updates) // 20)) for shares in by_kind]
        axes.stackplot(updates, smooth, colors=KINDS.values(), labels=KINDS, alpha=0.85, lw=0)
        axes.locator_params(axis="x", integer=True, nbins=5)
        axes.margins(x=0)
    shares = [s for rows in by_policy.values() for row in rows for s in row.shares.values()]
    rare = {
        "all wrong, truncated": any(s.truncated for s in shares),
        "unmarked": any(s.unmarked for s in shares),
    }
    drawn = next((p for p in panels if p.get_legend_handles_labels()[1]), panels[0])
    named = zip(*drawn.get_legend_handles_labels(), strict=True)
    if shown := [(handle, kind) for handle, kind in named if rare.get(kind, True)]:
        figure.legend(
            *zip(*shown, strict=True),
            frameon=False,
            ncols=min(3, len(shown)),
            loc="outside upper center",
            fontsize=9,
            handlelength=1.2,
        )
    figure.supxlabel("update", size=10)
    figure.supylabel("% of groups", size=10)
    return figure


# Title -> update -> value, of one cell; a measure that no cell has is not drawn.
MEASURES: Mapping[str, Callable[[Row], Mapping[int, float]]] = {
    "reward": lambda row: row.log.get("reward", {}),
    "learnable %": lambda row: {u: 100 * shares.live for u, shares in row.shares.items()},
    "completion length, tokens": lambda row: row.log.get("completions/mean_length", {}),
    "KL to the base model": lambda row: row.log.get("kl", {}),
}


def training_curves(by_policy: Mapping[str, Sequence[Row]], styles: Styles) -> "Figure":
    """One panel per measure, one line per policy: the mean over its seeds.

    A moving mean over a tenth of the updates, since one update has few groups.
    """
    curves: dict[str, dict[str, dict[int, float]]] = {}
    for title, measure in MEASURES.items():
        for policy, rows in by_policy.items():
            of_seeds = [measure(row) for row in rows]
            updates = sorted(set.intersection(*map(set, of_seeds)))
            line = {u: float(np.mean([curve[u] for curve in of_seeds])) for u in updates}
            curves.setdefault(title, {})[policy] = line
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
    return figure


def legend_above(axes: "Axes", columns: int) -> None:
    """A legend above the axes, which hides no data; the figure grows by the lines it needs."""
    handles, names = axes.get_legend_handles_labels()
    labels = [label(name) for name in names]
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
