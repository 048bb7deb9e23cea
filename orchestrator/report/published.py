"""Published numbers, their best-case uncertainty, and which of them a claim is about. Pure.

Paper A: Pikus, Tiwari, Ye, "Hard Examples Are All You Need: Maximizing GRPO Post-Training Under
Annotation Budgets", tables 1 to 4. It reports no seeds, no repeats and no error bars, so its
intervals here are the narrowest that its test sets allow: assuming that all changed questions
changed in one direction, and no variance between training runs. The true intervals are wider.

Paper B: Yadav, Yadav, Goyal, "Limits of Difficulty Scaling: Hard Samples Yield Diminishing Returns
in GRPO-Tuned SLMs".
"""

import re
from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple

import numpy as np

from orchestrator.config.claims import BASE, BASE_SIDE, CORRELATION, Claim
from orchestrator.embedded import is_embedded
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.stats.inference import Interval, RSquared, mean_effect, r_squared
from orchestrator.stats.sentences import in_points

POLICIES = ("easy", "middle", "hard", "random")
GROUPS = 1000  # behind each learnable %: one per step, so all are multiples of 0.1
STATED_R_SQUARED = 0.66
Z = 1.959963984540054


class Published(NamedTuple):
    """One row of the paper's tables: gains in points, their test questions, and learnable %."""

    task: str
    model: str
    questions: int
    gain: Mapping[str, float]
    learnable: Mapping[str, float]


def _row(task: str, model: str, questions: int, gain: str, learnable: str) -> Published:
    """Numbers in the order of POLICIES."""
    sides = (map(float, text.split()) for text in (gain, learnable))
    return Published(task, model, questions, *(dict(zip(POLICIES, s, strict=True)) for s in sides))


PUBLISHED = (
    _row("gsm8k", "Qwen3-4B", 1319, "3.49 26.69 34.19 29.49", "3.7 24.5 34.1 19.0"),
    _row("gsm8k", "Qwen3-14B", 1319, "8.26 24.34 39.42 34.87", "7.8 18.9 29.5 18.4"),
    _row("gsm8k", "Phi-4", 1319, "14.94 28.51 37.30 36.16", "6.6 23.3 40.2 21.5"),
    _row("shuffled_objects", "Qwen3-4B", 125, "0.80 -3.20 13.60 -1.60", "9.0 5.7 14.4 11.5"),
    _row("shuffled_objects", "Qwen3-14B", 125, "3.20 10.12 22.40 12.52", "2.3 7.2 13.5 8.0"),
    _row("shuffled_objects", "Phi-4", 125, "29.60 28.80 32.80 28.80", "14.2 15.3 19.1 19.3"),
)
# Table 3; excluded from the paper's R².
LLAMA = _row(
    "gsm8k", "Llama-3.1-8B-Instruct", 1319, "36.54 39.42 40.33 39.35", "20.9 42.0 55.2 39.3"
)
ALL = (*PUBLISHED, LLAMA)

# Table 4: questions of AIME2025-I's 15 solved by 8 samples, Qwen3-4B trained on GSM8K.
AIME_QUESTIONS = 15
AIME_BASE = 5
AIME_SOLVED = {"easy": 5, "middle": 4, "hard": 6, "random": 5}


def published_interval(points: float, questions: int) -> Interval:
    """The narrowest 95 % interval of a gain: all changed questions changed in one direction."""
    changed = np.zeros((1, questions))
    changed[:, : round(abs(points) / 100 * questions)] = np.sign(points)
    effect = mean_effect(changed)
    half = 100 * (effect.high - effect.low) / 2
    return Interval(points - half, points + half)


def learnable_interval(percent: float) -> Interval:
    """95 % interval of a learnable %: a proportion of GROUPS independent groups."""
    half = 100 * Z * sqrt(percent / 100 * (1 - percent / 100) / GROUPS)
    return Interval(percent - half, percent + half)


def published_r_squared(rows: tuple[Published, ...] = PUBLISHED) -> RSquared:
    """R² of learnable % against gain over the paper's own tables: .670 of 24, .641 with Llama."""
    cells = [(row.learnable[name], row.gain[name]) for row in rows for name in POLICIES]
    return r_squared(np.array(cells))


# Paper B, abstract: points by which training on GSM8K beats training on MATH, on numeric MATH.
CROSS_DATASET = {"1.5b": 5.0, "3b": 3.0}
AIME_K = 8  # of pass@k in table 4
# Paper A's authors, in their blog: one sample per prompt, average over models.
ONE_SAMPLE = {
    ("base_wrong", "full"): "+3.0 (85 against 82 %)",
    ("base_wrong", "base_right"): "+14.3 % relative",
}


def published_text(claim: Claim, a: Cell | None, b: Cell | None) -> str:
    """The published difference that corresponds to a claim; empty where there is none.

    a, b: a cell of each side; the base model has one of the other side. Of a correlation, any cell
    that it is about is enough. Where the model is not one of the paper's, the range over its
    models; nothing is comparable with an embedded model, which is a toy.
    """
    if any(cell and is_embedded(cell.probe.model.location) for cell in (a, b)):
        return ""
    if claim.metric == CORRELATION:
        fit = published_r_squared()
        return f"{STATED_R_SQUARED} (its tables: {fit.value:.2f})"
    if a is None or b is None or a.online or b.online:
        return ""
    if claim.at or claim.over or claim.part or claim.per:
        return ""
    if claim.axes == {"dataset"}:
        tasks = (a.probe.dataset.task, b.probe.dataset.task)
        size = re.search(r"[\d.]+b\b", _hub_name(a).casefold())
        points = CROSS_DATASET.get(size[0]) if size else None
        if {*tasks} != {"gsm8k", "math"} or _tested_on(claim, a) != "math" or points is None:
            return ""
        return f"about {in_points(points if tasks[0] == 'gsm8k' else -points)}"
    if not claim.axes <= {"policy", "model"}:
        return ""
    pair = tuple(
        BASE if side == BASE_SIDE else cell.rule.policy
        for side, cell in ((claim.a, a), (claim.b, b))
    )
    tested, task = _tested_on(claim, a), a.probe.dataset.task
    if pair in ONE_SAMPLE and tested == "gsm8k":
        return ONE_SAMPLE[pair]
    if tested == "aime2025" and task == "gsm8k" and claim.pass_at == AIME_K:
        solved = [{BASE: AIME_BASE, **AIME_SOLVED}.get(name) for name in pair]
        if None in solved:
            return ""
        points = 100 * (solved[0] - solved[1]) / AIME_QUESTIONS  # type: ignore[operator]
        return f"{in_points(points)} ({solved[0]} against {solved[1]} of {AIME_QUESTIONS})"
    return "" if claim.pass_at or tested != task else _from_tables(claim, pair, a, b)


def _from_tables(claim: Claim, pair: tuple[str, ...], a: Cell, b: Cell) -> str:
    """The difference in tables 1 to 3."""
    if "model" in claim.axes and claim.metric == "accuracy":
        return ""  # it does not give the accuracy of the base models
    by_model = {row.model.casefold(): row for row in ALL if row.task == a.probe.dataset.task}
    own = [by_model.get(_hub_name(cell).casefold()) for cell in (a, b)]
    rows = [tuple(own)]
    if None in own:
        rows = [] if "model" in claim.axes else [(row, row) for row in by_model.values()]
    points = []
    for sides in rows:
        values = [
            {BASE: 0.0, **row.gain}.get(name)
            if claim.metric != "learnable"
            else row.learnable.get(name)
            for row, name in zip(sides, pair, strict=True)
            if row
        ]
        if None in values:
            return ""
        points.append(values[0] - values[1])  # type: ignore[operator]
    if len(points) > 1:
        return (
            f"{in_points(min(points))} to {in_points(max(points))} "
            f"({counted(len(points), 'model')})"
        )
    return in_points(points[0]) if points else ""


def _tested_on(claim: Claim, cell: Cell) -> str:
    """The task of the test set."""
    if claim.test_set in (None, cell.probe.dataset.name):
        return cell.probe.dataset.task
    sets = {extra.dataset: extra.probe.dataset.task for extra in cell.extra_evals}
    return sets.get(str(claim.test_set), "")


def _hub_name(cell: Cell) -> str:
    """The last part of a model's Hub id."""
    return cell.probe.model.location.rpartition("/")[2]
