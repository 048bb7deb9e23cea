"""Accuracy as a product, and each factor's contribution to a gain. Pure.

accuracy = finished × parsed where finished × correct where parsed. Among marked samples, `finished`
ones did not end at the token limit without an answer, and `parsed` ones have a read answer, right
or wrong. Means are over questions, as for accuracy, and a factor is a ratio of two means, so that
the product equals the accuracy exactly. A factor with a denominator of 0 is unknown, and so is the
division of a gain that needs it.

A gain is divided by Shapley values: each factor gets its mean effect over all orders in which the
three could have changed. The parts add up to the gain and do not depend on an order. Intervals are
computed like those of the gain (`mean_effect`, `difference_effect`), from linearized parts for each
question and run (the delta method: Cochran 1977 for ratios).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from orchestrator.stats.comparison import ItemScores
from orchestrator.stats.inference import (
    Effect,
    available,
    difference_effect,
    group_codes,
    mean_effect,
    seed_spread,
)
from tasks.marking.marks import FACTORS, FINISHED, MARKED, PARSED

STEP = 1e-30  # of the complex-step derivative, which is exact


class AnswerCounts(NamedTuple):
    """The number of a question's marked samples in one run, and of finished ones, and so on."""

    marked: int = 0
    finished: int = 0
    parsed: int = 0
    correct: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[str]) -> "AnswerCounts":
        """The counts of these outcomes."""
        counts = [0, 0, 0, 0]
        for outcome in outcomes:
            for place, counted in enumerate((MARKED, FINISHED, PARSED, ("correct",))):
                counts[place] += outcome in counted
        return cls(*counts)


RunAnswers = Mapping[str, AnswerCounts]  # by question


class Factors(NamedTuple):
    """The three factors of an accuracy, from 0 to 1; None if unknown (a denominator of 0)."""

    finished: float | None
    parsed: float | None
    correct: float | None

    @property
    def known(self) -> tuple[float, float, float] | None:
        """All three; None unless each is known."""
        if self.finished is None or self.parsed is None or self.correct is None:
            return None
        return self.finished, self.parsed, self.correct

    @property
    def lacking(self) -> str:
        """Why a factor is unknown; empty if all are known."""
        if self.finished is None:
            return "no completion was marked"
        if self.parsed is None:
            return "no completion finished"
        return "no answer was parsed" if self.correct is None else ""


class DividedGain(NamedTuple):
    """A gain in accuracy (shares) from one side to another, and its parts, in order of FACTORS.

    parts: None if a factor is unknown, for the reason in `unknown`. questions: the number with a
    marked sample on both sides.
    """

    before: Factors
    after: Factors
    gain: Effect
    parts: tuple[Effect, Effect, Effect] | None
    questions: int
    unknown: str = ""


def factors_of(runs: Sequence[RunAnswers], only: Collection[str] | None = None) -> Factors:
    """The factors of all runs together, over questions with a marked sample or `only` some."""
    marked = [_marked(run, only) for run in runs]
    if not any(marked):
        return Factors(None, None, None)
    return _factors(_shares(marked, None)[1].mean(axis=(1, 2)))


def gain_parts(before: Sequence[float], after: Sequence[float]) -> np.ndarray:
    """[3]: the contributions of three factors to the change of their product (Shapley 1953).

    The parts sum to the change. The part of a constant factor is 0, and swapping the sides reverses
    every sign.
    """
    old, new = np.asarray(before), np.asarray(after)
    parts = []
    for changed in range(3):
        one, two = (other for other in range(3) if other != changed)
        equal = old[one] * old[two] + new[one] * new[two]
        crossed = old[one] * new[two] + new[one] * old[two]
        parts.append((new[changed] - old[changed]) * (equal / 3 + crossed / 6))
    return np.array(parts)


def divided_gain(
    before: Sequence[RunAnswers],
    after: Sequence[RunAnswers],
    groups: Mapping[str, str] = MappingProxyType({}),
    only: Collection[str] | None = None,
    *,
    paired: bool,
) -> DividedGain | None:
    """The gain from the runs of one side to those of another; None without a shared question.

    paired: the runs of both sides belong together, such as a base model and the models trained from
    it with each seed; a question counts if both have a marked sample. Otherwise all runs of both
    sides count, as in `compare_policies`. groups: question -> the group of related questions that
    it belongs to. only: the questions to use.
    """
    sides = [[_marked(run, only) for run in side] for side in (before, after)]
    if paired:
        shared = [first.keys() & last.keys() for first, last in zip(*sides, strict=True)]
        sides = [
            [{i: run[i] for i in items} for run, items in zip(side, shared, strict=True)]
            for side in sides
        ]
    if not all(map(any, sides)):
        return None
    names = [{*_shares(side, None)[0]} for side in sides]
    items = sorted(names[0] & names[1])
    if not items:
        return None
    first, last = (_shares(side, items)[1] for side in sides)
    means = np.concatenate([first.mean(axis=(1, 2)), last.mean(axis=(1, 2))])
    old, new = _factors(means[:3]), _factors(means[3:])
    codes = group_codes(items, groups)

    def effect(slopes: np.ndarray, mean: float) -> Effect:
        """The effect of a value's linearization, with these derivatives by `means`."""
        of_first, of_last = (
            np.tensordot(own, side - side.mean(axis=(1, 2), keepdims=True), 1)
            for own, side in ((slopes[:3], first), (slopes[3:], last))
        )
        if paired:
            return mean_effect(of_first + of_last + mean, codes)._replace(mean=mean)
        spreads = [seed_spread([*map(float, side.mean(axis=1))]) for side in (of_last, of_first)]
        whole = difference_effect(of_last + mean, -of_first, (spreads[0], spreads[1]), codes)
        return whole._replace(mean=mean)

    gain = effect(np.array([0, 0, -1, 0, 0, 1.0]), float(means[5] - means[2]))
    lacking = [(name, side.lacking) for name, side in (("before", old), ("after", new))]
    if unknown := "; ".join(f"{name}: {why}" for name, why in lacking if why):
        return DividedGain(old, new, gain, None, len(items), unknown)
    values, slopes = _linearized(means)
    one, two, three = (
        effect(slope, float(value)) for value, slope in zip(values, slopes, strict=True)
    )
    return DividedGain(old, new, gain, (one, two, three), len(items))


def factor_scores(run: RunAnswers, factor: str, samples: int) -> ItemScores | None:
    """A factor of one run as scores to compare; their mean over questions is the factor.

    Scores are linearized at the run's means, so they may lie outside [0, 1]. None if the factor is
    unknown. samples: of each question, marked or not. For the bounds, missing samples count only in
    the factor's denominator, or also in its numerator.
    """
    place = FACTORS.index(factor)
    marked = _marked(run, None)
    value = _factors(_shares([marked], None)[1].mean(axis=(1, 2)))[place] if marked else None
    if value is None:
        return None
    counts = np.array([*run.values()], float)  # [items, 4]
    n, below, above = counts[:, 0], counts[:, place], counts[:, place + 1]
    scored = n > 0
    base = float(np.mean(below[scored] / n[scored]))
    every = np.maximum(n, samples)
    absent = every - n
    with np.errstate(invalid="ignore"):
        scores = value + (above / n - value * below / n) / base
    low = value + (above / every - value * (below + absent) / every) / base
    return ItemScores([*run], np.where(scored, scores, np.nan), low, absent / every / base)


def _marked(run: RunAnswers, only: Collection[str] | None) -> dict[str, AnswerCounts]:
    return {i: each for i, each in run.items() if each.marked and (only is None or i in only)}


def _shares(
    runs: Sequence[Mapping[str, AnswerCounts]], items: Sequence[str] | None
) -> tuple[list[str], np.ndarray]:
    """Questions, and [3, runs, items]: the shares of their samples finished, parsed and correct.

    items: None means the `available` ones of these runs.
    """
    known = [
        available([{i: each[place] / each.marked for i, each in run.items()} for run in runs])
        for place in (1, 2, 3)
    ]
    shared = known[0].items if items is None else [*items]
    return shared, np.array([each.of(shared) for each in known])


def _factors(means: np.ndarray) -> Factors:
    """The factors of mean shares of finished, parsed and correct samples."""
    ratios: list[float | None] = []
    below = 1.0
    for mean in map(float, means):
        ratios.append(mean / below if below > 0 else None)
        below = mean
    return Factors(*ratios)


def _linearized(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[3] and [3, 6]: the parts of a gain, and their derivatives by the mean shares of both sides.

    means: [6], of finished, parsed and correct samples before and after.
    """

    def parts(shares: np.ndarray) -> np.ndarray:
        finished, parsed, correct, *others = shares
        old = [finished, parsed / finished, correct / parsed]
        new = [others[0], others[1] / others[0], others[2] / others[1]]
        return gain_parts(old, new)

    steps = (parts(means + 1j * STEP * unit).imag / STEP for unit in np.eye(6))
    return parts(means), np.array([*steps]).T
