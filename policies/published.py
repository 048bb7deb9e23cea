"""Online policies of published papers that choose by difficulty, without discarding groups.

Rewards are 0 or 1. Each class says what its paper or the authors' code leaves open or does
otherwise.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from policies.base import Floats, Rows, check_positive, check_share, lowest, tie_breakers
from policies.online import History, OnlinePolicy, rates_of


@dataclass(kw_only=True)
class Adarft(OnlinePolicy):
    """Prompts closest to a target difficulty that follows the mean reward (arXiv 2504.05520).

    A prompt's difficulty is 100·(1 − its pass rate in the probe). The target starts at 0; after an
    update with the mean reward R it is target + `eta`·tanh(`alpha`·(R − `beta`)), at least 0 and
    at most 100. An update takes the prompts with the smallest distance to it; those without a
    probed pass rate come last. Defaults are those of the paper.

    Of prompts at the same distance, those with the fewest groups come first, and then the seed
    decides. The authors' code takes them in the order of the file, so that the same prompts return
    while the target stands still.
    """

    name: ClassVar[str] = "adarft"

    eta: float = 50
    alpha: float = 2
    beta: float = 0.5

    def __post_init__(self) -> None:
        check_positive(self.name, "eta", self.eta)
        check_positive(self.name, "alpha", self.alpha)
        check_share(self.name, "beta", self.beta, "a mean reward")
        self._pool: tuple[Rows, Floats, Rows] | None = None

    def next(self, update: int, history: History) -> pa.Array:
        """The prompts closest to the target of this update."""
        count = len(history.prompt_ids)
        if self._pool is None:
            levels, level = np.unique(100 * (1 - rates_of(history)), return_inverse=True)
            ranks = tie_breakers(count, np.random.default_rng(history.seed))
            self._pool = (level, levels, ranks)
        level, levels, ranks = self._pool
        # Distances to either side of the target may differ by rounding alone.
        distance = np.abs(levels - self.target(history)).round(9)
        ranks = history.groups.astype(np.int64) * count + ranks
        every = np.ones(count, dtype=bool)
        return history.ids(lowest(distance[level], ranks, every, history.size))

    def target(self, history: History) -> float:
        """The target after the updates of the history, 0 to 100."""
        at, _, correct, marked = history.drawn
        target = 0.0
        for right, total in zip(np.bincount(at, correct), np.bincount(at, marked), strict=True):
            if total:
                step = self.eta * math.tanh(self.alpha * (right / total - self.beta))
                target = min(100.0, max(0.0, target + step))
        return target
