"""Churn: the questions that one side answers correctly and the other does not. Pure.

With one sample per question, those are counted. With several, a question counts by how often a
sample of one side is correct and one of the other is wrong, (1 − p) q, so that gained minus lost
is the difference of the accuracies whatever the number of samples. Two sides that are equal have
p (1 − p) of both: churn by chance, which the samples of one side tell, and beyond which gained and
lost together are the mean of (p − q)².
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from orchestrator.stats.inference import available, group_codes, mcnemar_p, mean_effect

# question -> samples with a score, correct ones
Counts = Mapping[str, tuple[int, float]]


class Flips(NamedTuple):
    """Of each of the `items`, from 0 to 1: how often it is gained, lost, and either by chance.

    by_chance: nan where neither side has a second sample or run.
    """

    items: list[str]
    gained: np.ndarray
    lost: np.ndarray
    by_chance: np.ndarray


class Churn(NamedTuple):
    """Questions gained and lost, of `questions` that have a score on both sides.

    by_chance: as many would be gained, and as many lost, if both sides were alike; None if unknown.
    p: that as many are gained as lost, by McNemar's exact test where they are counted; else that of
    the interval of their difference, `mean_effect`.
    """

    questions: int
    gained: float
    lost: float
    by_chance: float | None
    p: float

    @property
    def net(self) -> float:
        """Questions gained, less those lost."""
        return self.gained - self.lost


def flips(before: Sequence[Counts], after: Sequence[Counts]) -> Flips:
    """From runs of one side to runs of the other: means over all pairs of runs.

    By chance: what two samples of a run differ by or, of a side with several runs, two runs.
    """
    sides = [
        available([{i: c / n for i, (n, c) in run.items() if n} for run in side])
        for side in (before, after)
    ]
    items = sorted(set(sides[0].items) & set(sides[1].items))
    first, second = (side.of(items).mean(axis=0) for side in sides)
    chances = np.array([_by_chance(side, items) for side in (before, after)])
    known = np.isfinite(chances)
    total, number = np.where(known, chances, 0.0).sum(axis=0), known.sum(axis=0)
    by_chance = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    return Flips(items, (1 - first) * second, first * (1 - second), by_chance)


def churn(
    runs: Sequence[Flips],
    groups: Mapping[str, str] = MappingProxyType({}),
    only: Collection[str] | None = None,
) -> Churn | None:
    """The mean over runs, of all questions or `only` some; None without any.

    groups: question -> the group of related questions that it belongs to, for the p value.
    """
    gained, lost, by_chance = (
        available([dict(zip(run.items, getattr(run, name), strict=True)) for run in runs])
        for name in ("gained", "lost", "by_chance")
    )
    items = [i for i in gained.items if only is None or i in only]
    if not items:
        return None
    known = by_chance.of(sorted({*items} & {*by_chance.items}))
    gains, losses, codes = gained.of(items), lost.of(items), group_codes(items, groups)
    if len(runs) == 1 and codes is None and np.isin([*gains, *losses], (0, 1)).all():
        p = mcnemar_p(gains[0], losses[0])
    else:
        p = mean_effect(gains - losses, codes).p
    return Churn(
        len(items),
        float(gains.sum() / len(runs)),
        float(losses.sum() / len(runs)),
        float(len(items) * known.mean()) if known.size else None,
        p,
    )


def _by_chance(side: Sequence[Counts], items: Sequence[str]) -> np.ndarray:
    """[items]: how often, of two samples or runs of one side, only the first is correct."""
    counts = np.array([[run.get(i, (0, 0)) for i in items] for run in side], float)
    n, c = counts.reshape(len(side), -1, 2).transpose(2, 0, 1)  # [runs, items]
    wrong_too = 0.0
    if len(side) > 1:  # a run is one draw, of a rate
        n, rates = (n > 0).astype(float), np.divide(c, n, out=np.zeros_like(c), where=n > 0)
        c, wrong_too = rates, (rates * (1 - rates)).sum(axis=0)
    n, c = n.sum(axis=0), c.sum(axis=0)
    pairs = n * (n - 1)
    unknown = np.full(len(items), np.nan)
    return np.asarray(np.divide(c * (n - c) - wrong_too, pairs, out=unknown, where=n > 1))
