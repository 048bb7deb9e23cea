"""Churn: the questions that one side answers correctly and the other does not. Pure.

With one sample per question, these questions are counted. With several, a question counts by the
probability (1 − p) q that a sample of one side is wrong and one of the other side is correct.
Gained minus lost is then the difference of the accuracies, for any number of samples. Two equal
sides gain and lose p (1 − p) each. This churn by chance is estimated from the samples of one side.
Gained and lost together exceed it by the mean of (p − q)².

Only samples with different numbers are compared. Decile draws sample i of a question with the same
random numbers in every evaluation, so that samples i of two sides agree more often than by chance;
for an unchanged model they always agree.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from orchestrator.stats.inference import available, group_codes, mcnemar_p, mean_effect


class Marks(NamedTuple):
    """A question's samples in one run as bits at their numbers: scored ones, correct ones."""

    scored: int = 0
    correct: int = 0

    @property
    def rate(self) -> float:
        """The share of scored samples that are correct."""
        return self.correct.bit_count() / self.scored.bit_count()


RunMarks = Mapping[str, Marks]  # by question


class Flips(NamedTuple):
    """For each of the `items`, the probability that it is gained, lost, and either by chance.

    by_chance: nan if neither side has a second sample or run.
    """

    items: list[str]
    gained: np.ndarray
    lost: np.ndarray
    by_chance: np.ndarray


class Churn(NamedTuple):
    """Questions gained and lost, out of `questions` with a score on both sides.

    by_chance: the number that would be gained, and also lost, if both sides were equal; None if
    unknown. p: for equal numbers of gained and lost questions, from McNemar's exact test if they
    are counted, else from the interval of their difference, `mean_effect`.
    """

    questions: int
    gained: float
    lost: float
    by_chance: float | None
    p: float

    @property
    def net(self) -> float:
        """Questions gained minus questions lost."""
        return self.gained - self.lost


def flips(before: Sequence[RunMarks], after: Sequence[RunMarks]) -> Flips:
    """From runs of one side to runs of the other: means over all pairs of runs.

    Two runs are compared by pairs of samples with different numbers, or by all pairs of a question
    without such a pair. Chance is estimated from two samples of a run or, for a side with several
    runs, from samples of two runs.
    """
    rates = [
        available([{i: m.rate for i, m in run.items() if m.scored} for run in side])
        for side in (before, after)
    ]
    items = sorted(set(rates[0].items) & set(rates[1].items))
    first, second = (side.of(items).mean(axis=0) for side in rates)
    words = [m.scored for side in (before, after) for run in side for m in run.values()]
    octets = max(words, default=0).bit_length() // 8 + 1
    samples = [_Samples.of(side, items, octets) for side in (before, after)]
    both, differ = _both_correct(*samples)
    # The excess of pairs with equal numbers that are both correct: 0 if independent.
    known = np.isfinite(both)
    excess = _mean(both - samples[0].rates[:, None] * samples[1].rates, known)
    numbered = np.asarray(differ.any(axis=(0, 1)))
    chances = np.array([_by_chance(side, numbered) for side in samples])
    by_chance = _mean(chances[None], np.isfinite(chances)[None])
    return Flips(items, (1 - first) * second - excess, first * (1 - second) - excess, by_chance)


def churn(
    runs: Sequence[Flips],
    groups: Mapping[str, str] = MappingProxyType({}),
    only: Collection[str] | None = None,
) -> Churn | None:
    """The mean over runs, for all questions or `only` some; None without any.

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


class _Samples(NamedTuple):
    """The samples of a side, [runs, items, numbers]: whether scored, and correct (0 or 1)."""

    scored: np.ndarray
    correct: np.ndarray

    @classmethod
    def of(cls, side: Sequence[RunMarks], items: Sequence[str], octets: int) -> "_Samples":
        """octets: of the largest word."""
        marks = [run.get(i, Marks()) for run in side for i in items]
        bits = (
            np.frombuffer(b"".join(word.to_bytes(octets, "little") for word in words), np.uint8)
            for words in ([m.scored for m in marks], [m.correct for m in marks])
        )
        shape = (len(side), len(items), octets)
        return cls(
            *(
                np.unpackbits(b.reshape(shape), axis=2, bitorder="little").astype(float)
                for b in bits
            )
        )

    @property
    def rates(self) -> np.ndarray:
        """[runs, items]: the share of scored samples that are correct; nan without any."""
        return _ratio(self.correct.sum(axis=2), self.scored.sum(axis=2))


def _both_correct(first: _Samples, second: _Samples) -> tuple[np.ndarray, np.ndarray]:
    """[runs, runs, items]: how often samples of both are correct; whether their numbers differ.

    Over pairs of samples with different numbers or, without any, over all; nan without a pair.
    """
    pairs, correct = (
        a.sum(axis=2)[:, None] * b.sum(axis=2) for a, b in zip(first, second, strict=True)
    )
    equal, equal_correct = (
        np.einsum("ain,bin->abi", a, b) for a, b in zip(first, second, strict=True)
    )
    differ = pairs > equal
    return (
        _ratio(correct - differ * equal_correct, pairs - differ * equal),
        differ,
    )


def _by_chance(side: _Samples, numbered: np.ndarray) -> np.ndarray:
    """[items]: how often only the first of two samples or runs of one side is correct.

    numbered: the items that are compared by samples with different numbers.
    """
    both, differ = _both_correct(side, side)
    own = np.eye(len(both), dtype=bool)[:, :, None]
    # A single run is compared with itself, which requires two samples.
    known = differ & own if len(both) == 1 else (differ | ~numbered) & ~own
    return _mean(side.rates[:, None] - both, known & np.isfinite(both))


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0))


def _mean(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[items] from [n, n, items]: the mean of known values; nan without any."""
    return _ratio(np.where(known, values, 0.0).sum(axis=(0, 1)), known.sum(axis=(0, 1)))
