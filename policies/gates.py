"""Gates that prompts have to pass before an online policy may choose them.

Before each update, a gate decides which prompts may be chosen. It may read only the history, which
a resumed cell rebuilds from its record. State is therefore built from `history.drawn` and never
stored.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from orchestrator.plugins.registry import Registry
from orchestrator.plugins.user_code import describe
from policies.base import (
    Bools,
    Floats,
    MalformedError,
    Needs,
    PolicyError,
    Rows,
    check_band,
    check_count,
    check_positive,
)
from policies.built import Versioned
from policies.online import History
from policies.partition import Schedule


class Gate(ABC):
    """Which prompts an online policy may choose for an update; all gates must let a prompt pass.

    The log of a cell has, per update, the share of prompts that each gate lets pass, the share that
    all gates let pass, and the share of the update's prompts that were taken although closed.
    """

    needs: ClassVar[Needs] = "nothing"
    """The part of the probe that it uses."""
    version: ClassVar[int] = 1
    """As for an online policy."""

    @abstractmethod
    def passes(self, update: int, history: History) -> Bools:
        """One boolean per prompt of the history [N]."""

    def metrics(self, update: int, history: History) -> Mapping[str, float]:
        """Numbers to log with an update, by name, besides the share of prompts that pass."""
        return {}


@dataclass(kw_only=True)
class Reopening(Gate):
    """`gaussian`, `rates` and `retire` close prompts by their last groups, and later reopen them.

    Only prompts that pass are seen again, so a prompt that a few completions closed by chance would
    stay closed forever. It therefore passes `age` epochs after it was last seen. If its group
    closes it again, the wait doubles each time. An epoch is as many groups as there are prompts.
    With `age: null`, a closed prompt is never reopened by time.
    """

    version: ClassVar[int] = 2

    age: float | None = 1.0

    def __post_init__(self) -> None:
        if self.age is not None:
            check_positive(type(self).__name__.lower(), "age", self.age)

    @abstractmethod
    def admits(self, update: int, history: History) -> Bools:
        """Prompts that pass by their last groups [N]."""

    @abstractmethod
    def times_closed(self, update: int, history: History) -> Rows:
        """How many of each prompt's last groups in a row have closed it [N]."""

    def passes(self, update: int, history: History) -> Bools:
        """Prompts that pass by their last groups, or were not seen for long enough [N]."""
        opened = self.admits(update, history)
        if self.age is None:
            return opened
        doublings = np.clip(self.times_closed(update, history) - 1, 0, 60)
        return opened | (history.epochs_since(update) >= self.age * np.exp2(doublings))


@dataclass(kw_only=True)
class OfRates(Reopening):
    """A gate that a prompt passes with a probability that depends on its last pass rate.

    A group closes its prompt if that group's pass rate gives a probability below 1/2.
    """

    needs: ClassVar[Needs] = "all"

    @abstractmethod
    def chance(self, rates: npt.NDArray[np.float32], update: int, updates: int) -> Floats:
        """The probability for each of these pass rates; nan for nan."""

    def admits(self, update: int, history: History) -> Bools:
        """Prompts that pass by chance, and those without a pass rate."""
        chance = self.chance(history.pass_rate, update, history.updates)
        luck = history.stream("gate", update).random(len(chance))
        return np.asarray(np.isnan(chance) | (luck < chance))

    def times_closed(self, update: int, history: History) -> Rows:
        """How many of each prompt's last groups in a row would close it now [N]."""
        _, _, correct, marked = history.drawn
        with np.errstate(invalid="ignore"):
            rates = (correct / marked).astype(np.float32)
        return history.last_in_a_row(self.chance(rates, update, history.updates) < 0.5)


@dataclass(kw_only=True)
class Gaussian(OfRates):
    """At random by the last pass rate: most often near `mean`, which may change with the updates.

    A prompt with the pass rate p passes with the probability exp(-(p - mean)²/(2 sd²)), drawn anew
    for each update, as in the curriculum of Nemotron 3 Nano (arXiv 2512.20848, §3.2.2). A prompt
    without a pass rate passes.

    Options:
        mean, sd: numbers (0.5, 0.2), or schedules over the updates, such as {from: 0.8, to: 0.3}.
        age: the epochs after which a closed prompt passes again (1), doubled each time that its
            group closes it again; `null`: never.
    """

    mean: Any = 0.5
    sd: Any = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._mean = Schedule.of(self.mean, "gaussian: mean")
        self._sd = Schedule.of(self.sd, "gaussian: sd")
        if min(self._sd.values) <= 0:
            raise PolicyError(f"gaussian: sd is {self.sd!r:.80}: write numbers above 0")

    def chance(self, rates: npt.NDArray[np.float32], update: int, updates: int) -> Floats:
        mean, sd = (s.at(update, updates) for s in (self._mean, self._sd))
        return np.asarray(np.exp(-((rates - mean) ** 2) / (2 * sd**2)))


@dataclass(kw_only=True)
class Rates(OfRates):
    """Prompts whose last pass rate is between `low` and `high`, or not known.

    Options:
        low, high: the ends of the band, both included.
        age: the epochs after which a closed prompt passes again (1), doubled each time that its
            group closes it again; `null`: never.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_band("rates", self.low, self.high)

    def chance(self, rates: npt.NDArray[np.float32], update: int, updates: int) -> Floats:
        """1 within the band, 0 outside."""
        outside = (rates < np.float32(self.low)) | (rates > np.float32(self.high))
        return np.where(np.isnan(rates), np.nan, ~outside)


@dataclass(kw_only=True)
class Rest(Gate):
    """Prompts that none of the last `updates` updates has trained on.

    Options:
        updates: the number of updates for which a prompt rests.
    """

    updates: int

    def __post_init__(self) -> None:
        check_count("rest", "updates", self.updates)

    def passes(self, update: int, history: History) -> Bools:
        """Prompts that were not drawn, or long enough ago."""
        rested = history.last_update < update - self.updates
        return np.asarray(rested | (history.last_update == 0))


@dataclass(kw_only=True)
class Retire(Reopening):
    """Prompts whose last `solved` groups in a row were not all entirely correct.

    Options:
        solved: the number of entirely correct groups in a row after which a prompt is closed.
        age: the epochs after which a closed prompt passes again (1), doubled each time that its
            group closes it again; `null`: never.
    """

    solved: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("retire", "solved", self.solved)

    def admits(self, update: int, history: History) -> Bools:
        """Prompts that are not solved."""
        return np.asarray(history.solved < self.solved)

    def times_closed(self, update: int, history: History) -> Rows:
        """Entirely correct groups since the group that closed the prompt, inclusive."""
        return np.asarray(history.solved - self.solved + 1)


@dataclass(frozen=True)
class BuiltGate(Versioned):
    """A gate with its options; a custom gate is a class with a method `passes`."""

    options: dict[str, Any]
    kind: ClassVar[str] = "gate"

    @property
    def needs(self) -> Needs:
        """The part of the probe that it uses; nothing if it does not declare it."""
        return "all" if self.declared("needs", "nothing") != "nothing" else "nothing"

    def passes(self, update: int, history: History) -> Bools:
        """One boolean per prompt. Raises PolicyError if the gate fails."""
        with self.errors():
            opened = np.asarray(self.rule.passes(update, history))
        if opened.shape != (len(history.prompt_ids),) or opened.dtype != np.bool_:
            raise MalformedError(
                f"gate {self.name!r} returned {opened.dtype} of shape {opened.shape}: return one "
                "boolean per prompt of history.prompt_ids"
            )
        return opened

    def metrics(self, update: int, history: History) -> dict[str, float]:
        """The metrics that it logs with an update. Raises PolicyError if the gate fails."""
        own = self.declared("metrics", None)
        with self.errors():
            return {str(k): float(v) for k, v in own(update, history).items()} if own else {}


GATES = Registry(
    "gate",
    "decile.gates",
    {
        "gaussian": "policies.gates:Gaussian",
        "rates": "policies.gates:Rates",
        "rest": "policies.gates:Rest",
        "retire": "policies.gates:Retire",
    },
    "package.module:Class",
    PolicyError,
)


def gate_of(policy: str, written: Any) -> BuiltGate:
    """A gate of a policy, written as its name or as {name: options}. Raises PolicyError."""
    named = {written: {}} if isinstance(written, str) else written
    if not isinstance(named, Mapping) or len(named) != 1:
        raise PolicyError(
            f"{policy}: a gate is {written!r:.80}: write its name with its options, such as "
            "{rest: {updates: 3}}"
        )
    [(name, options)] = named.items()
    gate = GATES.find(str(name))
    try:
        built = gate(**options)
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(
            f"{policy}: gate {name!r} cannot be built: {describe(error)}: correct its options"
        ) from error
    if not callable(getattr(built, "passes", None)):
        raise PolicyError(f"{policy}: gate {name!r} has no method passes(update, history): add one")
    return BuiltGate(str(name), built, dict(options))
