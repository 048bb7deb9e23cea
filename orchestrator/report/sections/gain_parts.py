"""What a gain consists of: completions that finish, answers that are parsed, and right answers."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.report.compare import Family
from orchestrator.report.content import Figure, Table
from orchestrator.report.gain_parts import gain_by_part
from orchestrator.report.rows import OWN, Row
from orchestrator.report.sections.axes import COLOURS, SMALL, label, new_axes
from orchestrator.report.sections.figures import legend_above
from orchestrator.report.sections.tables import change_between, level_text
from orchestrator.report.sentences import PART_HEAD, SHORT, effect_text, part_texts
from orchestrator.stats.factors import DividedGain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

Sides = tuple[Mapping[str, float], Mapping[str, float]]  # question -> score, before and after

TITLE = "What the gain consists of"
CAPTION = (
    "Accuracy is the product of three shares. Finished: completions that did not end at the token "
    "limit without an answer. Parsed: finished completions with a parsed answer. Correct: parsed "
    "answers that are correct. Each is given in % before and after training. The gain, in points, "
    "is divided among the shares by their mean effects over the orders in which the three could "
    "have changed (Shapley values); the parts add up to the gain. In brackets: the 95 % interval "
    "over questions and, with several seeds, seeds. Unknown: a share of nothing, such as correct "
    "answers where none was parsed; the gain is then not divided."
)


def gain_part_tables(families: Sequence[Family]) -> list[Table]:
    """The parts of each policy's gain: of all questions, and of each tier and source."""
    every, parts = [], []
    for family in families:
        for policy, rows in family.by_policy().items():
            for kind, name, gain in gain_by_part(rows):
                if kind:
                    parts.append((family.title, policy, f"{kind} {name}", *part_texts(gain)))
                else:
                    every.append((family.title, policy, *part_texts(gain)))
    head, columns = ("model and data", "policy"), ("gain", *PART_HEAD)
    return [
        Table(TITLE, (*head, *columns), every, CAPTION),
        Table(f"{TITLE}, by tier and source", (*head, "of", *columns), parts, CAPTION, folded=True),
    ]


def gains_by_marking(families: Sequence[Family]) -> Table:
    """How much of a gain under the strict marking the form of answers explains.

    A policy is left out if the strict marking accepts no answer, before or after training.
    """
    body = []
    for family in families:
        for policy, rows in family.by_policy().items():
            readings = [_readings(row) for row in rows]
            known = [each for each in readings if each]
            strictly = (
                score for each in known for side in each["strict"] for score in side.values()
            )
            if len(known) < len(rows) or not any(strictly):
                continue
            groups = rows[0].groups.get(OWN, {})
            changes = [
                change_between([each[name] for each in known], groups)
                for name in ("strict", "lenient", "form")
            ]
            if all(changes):
                strict, lenient, form = map(level_text, changes)
                form = effect_text(changes[-1].effect) if changes[-1] else form
                body.append((family.title, policy, strict, lenient, form))
    return Table(
        "Gain by marking",
        ("model and data", "policy", "strict", "lenient", "form"),
        body,
        "Accuracy after training in %, and in parentheses the gain in points with its 95 % "
        "interval, of the same completions under both markings of the task. The lenient one also "
        "reads answers in other forms. Form: the gain under the strict marking minus that under "
        "the lenient one, which the model gained by writing answers as the strict marking "
        "expects them. Left out: policies without any answer that the strict marking accepts.",
    )


def _readings(row: Row) -> Mapping[str, Sides] | None:
    """Marking -> scores before and after training; `form`: what only `lenient` gives, negative."""
    if row.other_reading is None:
        return None
    rewarded: Sides = (row.scores(0), row.scores(row.cell.updates))
    strict, lenient = rewarded, row.other_reading
    if row.cell.probe.dataset.marking == "lenient":
        strict, lenient = row.other_reading, rewarded
    differences = [
        {i: one[i] - two[i] for i in one.keys() & two.keys()}
        for one, two in zip(strict, lenient, strict=True)
    ]
    return {"strict": strict, "lenient": lenient, "form": (differences[0], differences[1])}


def gain_part_figures(families: Sequence[Family]) -> list[Figure]:
    """A figure for each family with a policy whose gain can be divided."""
    figures = []
    for family in families:
        gains = {policy: gain_by_part(rows)[:1] for policy, rows in family.by_policy().items()}
        known = {policy: own[0].gain for policy, own in gains.items() if own and own[0].gain.parts}
        if known:
            caption = (
                f"{TITLE}, {family.title}: points of accuracy by more completions that finish, by "
                "more answers that are parsed, and by more right answers among these; the mark is "
                "the gain with its 95 % interval"
            )
            figures.append(Figure(caption, partial(gain_part_bars, known)))
    return figures


def gain_part_bars(gains: Mapping[str, DividedGain]) -> "MplFigure":
    """Stacked bars of the parts of each gain, losses to the left of zero."""
    figure, axes = new_axes(SMALL[0], 1.2 + 0.5 * len(gains))
    axes.axvline(0, color="#000000", lw=0.8)
    names = [label(name, 20) for name in gains]
    parts = np.array([[100 * e.mean for e in gain.parts or ()] for gain in gains.values()])
    for sign in (1, -1):
        left = np.zeros(len(gains))
        for place, name in enumerate(SHORT):
            width = np.where(sign * parts[:, place] > 0, parts[:, place], 0.0)
            shown = name if sign > 0 else None
            axes.barh(names, width, 0.6, left, color=COLOURS[place], label=shown)
            left += width
    for name, gain in zip(names, gains.values(), strict=True):
        mean, low, high = (100 * value for value in gain.gain[:3])
        if np.isfinite([low, high]).all():
            axes.plot([low, high], [name, name], color="#000000", lw=1.2)
        axes.plot([mean], [name], "D", color="#000000", mfc="none", ms=6)
    axes.plot([], [], "D", color="#000000", mfc="none", label="gain")
    axes.invert_yaxis()
    axes.set_xlabel("points of accuracy")
    legend_above(axes, len(SHORT) + 1)
    return figure
