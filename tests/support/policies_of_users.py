"""Gates as users write them."""

from typing import Any

import numpy as np

from policies.online import History


class Fading:
    """Closes prompts that are easier than a fading mean of all groups, in their order, by 0.1."""

    def __init__(self, weight: float = 0.1) -> None:
        self.weight, self.mean, self.groups = weight, 0.5, 0

    def passes(self, update: int, known: History) -> Any:
        updates, _, correct, marked = known.drawn
        new = slice(self.groups, np.searchsorted(updates, update))  # of earlier updates
        for rate in correct[new] / np.maximum(1, marked[new]):
            self.mean += self.weight * (float(rate) - self.mean)
        self.groups = new.stop
        return ~(known.pass_rate > self.mean + 0.1)

    def metrics(self, update: int, known: History) -> dict[str, float]:
        return {"mean": self.mean, "open": 7}
