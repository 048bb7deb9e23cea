"""Online policies that draw further groups until an update is full."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from policies.base import Bools, Rows, check_band, check_count
from policies.online import MAX_DRAWS, History, OnlinePolicy, least_drawn
from policies.pass_rate import NEAR


@dataclass(kw_only=True)
class Dynamic(OnlinePolicy):
    """Draws further groups until an update is full of live ones (DAPO, arXiv 2503.14476 §3.2).

    A group is live when its rewards differ. An update draws at most `max_draws` times its prompts;
    it then goes with the live groups that it has. Prompts come in random order, each once before
    any comes again.
    """

    name: ClassVar[str] = "dynamic"
    needs = "nothing"
    cost: ClassVar[str] = "the rollouts of discarded groups"

    max_draws: int = MAX_DRAWS

    def __post_init__(self) -> None:
        check_count(self.name, "max_draws", self.max_draws)

    def next(self, update: int, history: History) -> pa.Array:
        """Random prompts, those drawn least often first."""
        return history.ids(least_drawn(history, history.fresh(update)))

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """Groups whose rewards differ."""
        return (correct > 0) & (correct < marked)


@dataclass(kw_only=True)
class Balanced(Dynamic):
    """Draws groups until an update is full of live ones with a pass rate from `low` to `high`.

    Balanced online filtering (arXiv 2504.03380). Both ends are included; groups whose rewards are
    all equal are discarded whatever the band.
    """

    name: ClassVar[str] = "balanced"

    low: float = 0.2
    high: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_band(self.name, self.low, self.high)

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """Live groups within the band."""
        in_band = (correct >= marked * (self.low - NEAR)) & (correct <= marked * (self.high + NEAR))
        return super().keep(correct, marked) & in_band
