"""Published numbers of paper A and their best-case uncertainty. Pure: plain numbers.

Paper A: Pikus, Tiwari, Ye, "Hard Examples Are All You Need: Maximizing GRPO Post-Training Under
Annotation Budgets", tables 1 to 4. It reports no seeds, no repeats and no error bars, so its
intervals here are the narrowest that its test sets allow: assuming that all changed questions
changed in one direction, and no variance between training runs. The true intervals are wider.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.stats.inference import Interval, RSquared, mean_effect, r_squared
from orchestrator.stats.power import fewest

POLICIES = ("easy", "middle", "hard", "random")
GROUPS = 1000  # behind each learnable %: one per step, so all are multiples of 0.1
STATED_R_SQUARED = 0.66
EARLY = 0.3  # of the updates: the paper states that hard leads by checkpoint 300 of 1,000
Z = 1.959963984540054
Metric = Literal["gain", "learnable"]
Holds = Literal["holds", "contrary", "inconclusive"]


class Published(NamedTuple):
    """One row of the paper's tables: gains in points, their test questions, and learnable %."""

    task: str
    model: str
    questions: int
    gain: Mapping[str, float]
    learnable: Mapping[str, float]

    def difference(self, metric: Metric, a: str, b: str) -> tuple[float, Holds]:
        """Policy a minus policy b in points, and the best-case verdict.

        Gains refer to the same questions, of which `fewest` must differ. Learnable percentages
        refer to groups of different prompts and are compared as independent proportions.
        """
        values = self.gain if metric == "gain" else self.learnable
        points = values[a] - values[b]
        if metric == "gain":
            significant = round(abs(points) / 100 * self.questions) >= fewest()
        else:
            shares = [values[name] / 100 for name in (a, b)]
            significant = abs(points) / 100 > Z * sqrt(sum(s * (1 - s) for s in shares) / GROUPS)
        if not significant:
            return points, "inconclusive"
        return points, "holds" if points > 0 else "contrary"


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


class Ordering(NamedTuple):
    """A claim of the paper: policy `a` is above policy `b`."""

    metric: Metric
    a: str
    b: str

    def __str__(self) -> str:
        verb = "gains more than" if self.metric == "gain" else "is more learnable than"
        return f"{self.a} {verb} {self.b}"


ORDERINGS = (
    *(Ordering("gain", "hard", other) for other in ("random", "middle", "easy")),
    *(Ordering("gain", other, "easy") for other in ("middle", "random")),
    *(Ordering("learnable", "hard", other) for other in ("random", "middle", "easy")),
)


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
    return r_squared(*np.array(cells).T)


def tally(ordering: Ordering) -> str:
    """In how many of the paper's rows an ordering holds, as text."""
    verdicts = [row.difference(ordering.metric, ordering.a, ordering.b)[1] for row in ALL]
    counts = [f"holds in {verdicts.count('holds')} of {len(ALL)}"]
    for kind in ("contrary", "inconclusive"):
        if kind in verdicts:
            counts.append(f"{kind} in {verdicts.count(kind)}")
    return ", ".join(counts)
