"""Shares of an update by a column, and gates that prompts have to pass, for any online policy.

A gate says before each update which prompts may be chosen. All that it may know is in the history,
which a resumed cell rebuilds from its record: a state is built from `history.drawn`, and never
stored.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.registry import Registry
from orchestrator.plugins.shares import Places, rounded_at_random
from orchestrator.plugins.user_code import describe
from policies.base import (
    Bools,
    ByColumns,
    Floats,
    MalformedError,
    Needs,
    PolicyError,
    Rows,
    check_band,
    check_count,
    check_positive,
)
from policies.built import BuiltOnlinePolicy, Versioned
from policies.online import History, OnlinePolicy, some
from policies.strata import check_known, column_shares, column_texts, filled, rows_by_value

SCHEDULES = ("linear", "cosine")
FORM = "write a number, {from: 0.8, to: 0.2, schedule: cosine}, or a list of numbers"
MEASURED = 50  # strata whose shares are logged, at most: a column of ids has as many as prompts


@dataclass(frozen=True)
class Schedule:
    """A number that may depend on the update: constant, linear, cosine, or listed.

    values: of a list, each for an equal part of the training.
    """

    values: tuple[float, ...]
    kind: str = "listed"

    @classmethod
    def of(cls, written: Any, what: str) -> "Schedule":
        """What an option says. Raises PolicyError for another form."""
        if _is_number(written):
            return cls((float(written),))
        if isinstance(written, list | tuple) and written and all(map(_is_number, written)):
            return cls(tuple(map(float, written)))
        if isinstance(written, Mapping) and {"from", "to"} <= written.keys():
            ends, kind = (written["from"], written["to"]), written.get("schedule", "linear")
            known = written.keys() <= {"from", "to", "schedule"} and kind in SCHEDULES
            if known and all(map(_is_number, ends)):
                return cls((float(ends[0]), float(ends[1])), kind)
        raise PolicyError(f"{what} is {written!r:.80}: {FORM}")

    def at(self, update: int, updates: int) -> float:
        """The number for an update, counted from 1."""
        if self.kind == "listed":
            part = (update - 1) * len(self.values) // updates
            return self.values[min(part, len(self.values) - 1)]
        progress = (update - 1) / max(1, updates - 1)
        if self.kind == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        first, last = self.values
        return first + (last - first) * progress


def schedules_of(written: Mapping[str, Any], what: str) -> dict[str, Schedule]:
    """Schedules by value of a column. PolicyError, which begins with `what`, for another form."""
    return {value: Schedule.of(each, f"{what} {value}") for value, each in written.items()}


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)


class Stratum(NamedTuple):
    """Rows of a history, the policy that chooses among them, and their share of an update."""

    name: str
    rows: Rows
    policy: BuiltOnlinePolicy
    weight: "float | Schedule"

    def share(self, update: int, updates: int) -> float:
        """The share in an update; those of all strata need not sum to 1."""
        weight = self.weight
        return weight.at(update, updates) if isinstance(weight, Schedule) else weight


class Gate(ABC):
    """Which prompts may be chosen for an update; all gates of a policy have to agree."""

    needs: ClassVar[Needs] = "nothing"
    """What of the probe it uses."""
    version: ClassVar[int] = 1
    """As of an online policy."""

    @abstractmethod
    def passes(self, update: int, history: History) -> Bools:
        """One boolean per prompt of the history [N]."""

    def metrics(self, update: int, history: History) -> Mapping[str, float]:
        """Numbers to log with an update, by name, besides the share of prompts that pass."""
        return {}


@dataclass(kw_only=True)
class Reopening(Gate):
    """A gate that closes prompts by their last groups, and opens for each of them again.

    Only prompts that pass are seen again: one that a few completions have closed by chance would
    stay closed for ever. So it passes `age` epochs after it was seen last, and if its group closes
    it again, after twice as long each time. An epoch is as many groups as there are prompts.
    `age: null`: it never passes again by time.
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
        """These, and those that were not seen for long enough."""
        opened = self.admits(update, history)
        if self.age is None:
            return opened
        doublings = np.clip(self.times_closed(update, history) - 1, 0, 60)
        return opened | (history.epochs_since(update) >= self.age * np.exp2(doublings))


@dataclass(kw_only=True)
class OfRates(Reopening):
    """A gate that a prompt passes with a probability that depends on its last pass rate.

    A group closes its prompt if the probability by that group's rate is below 1/2.
    """

    needs: ClassVar[Needs] = "all"

    @abstractmethod
    def chance(self, rates: npt.NDArray[np.float32], update: int, updates: int) -> Floats:
        """The probability for each of these pass rates; nan of nan."""

    def admits(self, update: int, history: History) -> Bools:
        """Prompts that pass by chance, and those without a pass rate."""
        chance = self.chance(history.pass_rate, update, history.updates)
        luck = history.stream("gate", update).random(len(chance))
        return np.asarray(np.isnan(chance) | (luck < chance))

    def times_closed(self, update: int, history: History) -> Rows:
        """By the pass rate of each group, as if it were drawn now."""
        _, _, correct, marked = history.drawn
        with np.errstate(invalid="ignore"):
            rates = (correct / marked).astype(np.float32)
        return history.last_in_a_row(self.chance(rates, update, history.updates) < 0.5)


@dataclass(kw_only=True)
class Gaussian(OfRates):
    """At random by the last pass rate: most often near `mean`, which may move with the updates.

    A prompt with the pass rate p passes with the probability exp(-(p - mean)²/(2 sd²)), drawn anew
    for each update, as in the curriculum of Nemotron 3 Nano (arXiv 2512.20848, §3.2.2). A prompt
    without a pass rate passes.
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
    """Prompts whose last pass rate lies from `low` to `high`, or is not known."""

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
    """Prompts that none of the last `updates` updates has trained on."""

    updates: int

    def __post_init__(self) -> None:
        check_count("rest", "updates", self.updates)

    def passes(self, update: int, history: History) -> Bools:
        """Prompts that were not drawn, or long enough ago."""
        rested = history.last_update < update - self.updates
        return np.asarray(rested | (history.last_update == 0))


@dataclass(kw_only=True)
class Retire(Reopening):
    """Prompts whose last `solved` groups in a row were not all entirely correct."""

    solved: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("retire", "solved", self.solved)

    def admits(self, update: int, history: History) -> Bools:
        """Prompts that are not solved."""
        return np.asarray(history.solved < self.solved)

    def times_closed(self, update: int, history: History) -> Rows:
        """Entirely correct groups from the one on that has closed it."""
        return np.asarray(history.solved - self.solved + 1)


@dataclass(frozen=True)
class BuiltGate(Versioned):
    """A gate with its options; one of the user's own is a class with a method `passes`."""

    options: dict[str, Any]
    kind: ClassVar[str] = "gate"

    @property
    def needs(self) -> Needs:
        """What of the probe it uses; nothing if it does not declare it."""
        return "all" if self.declared("needs", "nothing") != "nothing" else "nothing"

    def passes(self, update: int, history: History) -> Bools:
        """One boolean per prompt. Raises PolicyError where the gate fails."""
        with self.errors():
            opened = np.asarray(self.rule.passes(update, history))
        if opened.shape != (len(history.prompt_ids),) or opened.dtype != np.bool_:
            raise MalformedError(
                f"gate {self.name!r} returned {opened.dtype} of shape {opened.shape}: return one "
                "boolean per prompt of history.prompt_ids"
            )
        return opened

    def metrics(self, update: int, history: History) -> dict[str, float]:
        """What it logs with an update. Raises PolicyError where the gate fails."""
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


class Composed(OnlinePolicy, ByColumns):
    """An online policy that chooses within strata, among the prompts that pass all gates.

    within: {column: shares}; each stratum has a policy of its own, which knows the prompts of that
    stratum alone. A stratum that is short of open prompts is made up for by the others, then by
    closed ones at random. With gates, a policy is built anew for each update, from the history:
    it may rely on the prompts staying the same.
    """

    def __init__(
        self,
        build: Callable[[], BuiltOnlinePolicy],
        within: Mapping[str, str | Mapping[str, Schedule]],
        gates: Sequence[BuiltGate],
        options: dict[str, Any],
    ) -> None:
        self.options = options
        self._build, self._within, self._gates = build, within, gates
        self._inner = build()
        self._strata: list[Stratum] = []
        self._places = Places(0)  # those of the strata in the updates until `_given`
        self._given = 0
        self._last: list[tuple[BuiltOnlinePolicy, int]] = []  # how many groups each has chosen
        # Of the update: shares of open prompts, and how many of the prompts chosen are what.
        self._open: dict[str, float] = {}
        self._size, self._chosen = 0, Counter[str]()
        self.easier = self._inner.change_towards("easy")
        self.harder = self._inner.change_towards("hard")

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """All of the probe, unless neither the policy nor a gate uses it."""
        needs = {self._inner.needs, *(gate.needs for gate in self._gates)}
        return "nothing" if needs == {"nothing"} else "all"

    @property
    def version(self) -> int:  # type: ignore[override]
        """It rises with those of the policy and the gates, and with that of shares, which is 2."""
        versions = (self._inner.version, *(gate.version for gate in self._gates))
        return 1 + sum(version - 1 for version in versions) + bool(self._within)

    @property
    def reads_golds(self) -> bool:
        """Whether the policy or a gate does."""
        return any(part.reads_golds for part in (self._inner, *self._gates))

    @property
    def reads_columns(self) -> list[str]:
        """Those of the strata, of the policy and of the gates."""
        parts = [self._inner, *self._gates]
        return sorted({*self._within, *(c for part in parts for c in part.reads_columns)})

    def check_values(self, prompts: pa.Table) -> None:
        """Raise PolicyError for a column, or a value with a share, that a pool does not have."""
        for column, shares in self._within.items():
            what = f"{self._inner.name}: within"
            texts = column_texts(prompts, column, what)
            by_value = rows_by_value(texts, np.arange(len(texts)), column, what)
            if not isinstance(shares, str):
                check_known(shares, [*by_value], column, what)

    @property
    def metrics(self) -> dict[str, float]:
        """Of the update that was chosen for last, in one choice or in several, by name.

        gate/NAME/open and gates/open: the shares of the prompts that each gate, and all of them,
        let pass before the first choice; stratum/VALUE/share and gates/taken_closed: the shares of
        the prompts chosen that are of a stratum, and closed.
        """
        return self._open | {name: n / self._size for name, n in self._chosen.items()}

    def next(self, update: int, history: History) -> pa.Array:
        """Prompts of each stratum by its policy, in the order of the strata."""
        fresh = history.fresh(update)
        passed = [
            gate.passes(update, history.of(f"gate {number}"))
            for number, gate in enumerate(self._gates)
        ]
        opened = np.logical_and.reduce([np.ones_like(fresh), *passed])
        free = fresh & opened
        if not self._strata:
            self._strata = self._strata_of(history)
            self._places = Places(len(self._strata))
        counts, missing = self._divided(update, history, free)
        chosen, self._last = [np.empty(0, np.int64)], []
        for number, (stratum, count) in enumerate(zip(self._strata, counts, strict=True)):
            if count:
                rows, policy, closed = stratum.rows, stratum.policy, stratum.rows[:0]
                if self._gates:
                    rows, closed = rows[free[rows]], rows[~free[rows]]
                    policy = self._build()
                place = f"stratum {number}" if self._within else ""
                part = history.part(rows, place, closed)
                ids = policy.next_ids(part, update, count, missing[number])
                chosen.append(rows[pc.index_in(ids, value_set=part.prompt_ids).to_numpy()])
                self._last.append((policy, count))
        taken = np.concatenate(chosen)
        closed = np.setdiff1d(np.flatnonzero(fresh), taken, assume_unique=True)
        others = some(closed, history.size - len(taken), history.rng)
        self._last.append((self._inner, len(others)))
        rows = np.concatenate([taken, others])
        if fresh.all():  # the first choice for this update
            self._open = self._openness(update, history, passed, opened)
            self._size, self._chosen = 0, Counter()
        self._size += len(rows)
        self._chosen.update(self._counts(rows, opened))
        return history.ids(rows)

    def _divided(self, update: int, history: History, free: Bools) -> tuple[list[int], list[int]]:
        """How many prompts each stratum is to choose, and how many groups it lacks.

        What is due of a stratum follows from the numbers of groups drawn for the updates so far.
        What others make up for, and what is lacked of groups drawn at once, is rounded at random.
        """
        rounded = partial(rounded_at_random, rng=history.rng)
        drawn = history.groups_until(update).tolist()
        for past in range(self._given + 1, update):
            if (shares := self._shares(past, history)).any():
                self._places.give(shares, drawn[past])
            self._given = past
        shares = self._shares(update, history)
        if not shares.any():
            return [0] * len(shares), [0] * len(shares)
        due = self._places.next(shares, drawn[update] + history.size)
        if drawn[update]:
            before = self._places.next(shares, drawn[update])
            due = [now - then for now, then in zip(due, before, strict=True)]
        eligible = [int(free[stratum.rows].sum()) for stratum in self._strata]
        counts = filled(shares, eligible, due, rounded)
        if not any(counts):
            return counts, counts
        exact = np.array(counts) / sum(counts) * history.missing
        return counts, rounded(exact, history.missing)

    def _shares(self, update: int, history: History) -> Floats:
        """The shares of an update; they need not sum to 1."""
        return np.array([stratum.share(update, history.updates) for stratum in self._strata])

    def _openness(
        self, update: int, history: History, passed: Sequence[Bools], opened: Bools
    ) -> dict[str, float]:
        """The shares of prompts that each gate, and all of them, let pass; what gates log."""
        metrics = {"gates/open": float(opened.mean())} if self._gates else {}
        names = [gate.name for gate in self._gates]
        for number, (gate, own) in enumerate(zip(self._gates, passed, strict=True), 1):
            name = gate.name if names.count(gate.name) == 1 else f"{gate.name}_{number}"
            of_gate = gate.metrics(update, history) | {"open": float(own.mean())}
            metrics |= {f"gate/{name}/{key}": value for key, value in of_gate.items()}
        return metrics

    def _counts(self, rows: Rows, opened: Bools) -> dict[str, int]:
        """How many of the rows are closed, and of each stratum."""
        counts = {"gates/taken_closed": int((~opened[rows]).sum())} if self._gates else {}
        if self._within and len(self._strata) <= MEASURED:
            chosen = np.zeros_like(opened)
            chosen[rows] = True
            for stratum in self._strata:
                counts[f"stratum/{stratum.name}/share"] = int(chosen[stratum.rows].sum())
        return counts

    def _strata_of(self, history: History) -> list[Stratum]:
        everything = np.arange(len(history.prompt_ids))
        if not self._within:
            return [Stratum("", everything, self._build(), 1.0)]
        [(column, shares)] = self._within.items()
        texts, what = pa.array(history.columns[column]), f"{self._inner.name}: within"
        strata = []
        for name, rows in rows_by_value(texts, everything, column, what).items():
            weight: float | Schedule = 1.0 if shares == "equal" else float(len(rows))
            if not isinstance(shares, str):
                weight = shares.get(name, 0.0)
            strata.append(Stratum(name, rows, self._build(), weight))
        return strata


class ComposedDiscarding(Composed):
    """The same of a policy that discards groups: each stratum's policy judges its own."""

    @property
    def max_draws(self) -> int:
        """As of the policy."""
        return self._inner.max_draws

    @property
    def at_once(self) -> int:
        """As of the policy."""
        return self._inner.at_once

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """What the policies keep of the groups that they chose, which come in their order."""
        kept, start = [np.empty(0, dtype=bool)], 0
        others = (self._inner, len(correct))  # of groups that nobody chose, before any cell trains
        for policy, count in (*self._last, others):
            own = slice(start, start + count)
            if len(correct[own]):
                kept.append(policy.keep(correct[own], marked[own]))
            start += count
        return np.concatenate(kept)


def composed(
    name: str,
    build: Callable[[], BuiltOnlinePolicy],
    settled: Mapping[str, Any],
    outer: Mapping[str, Any],
) -> Composed:
    """The policy with its strata and gates; `settled` are its own options in canonical form.

    Raises PolicyError for options of another form.
    """
    options = dict(settled)
    shares: dict[str, str | Mapping[str, Schedule]] = {}
    if within := outer.get("within"):
        column, written = column_shares(name, within)
        options["within"] = {column: written}
        shares[column] = written
        if not isinstance(written, str):
            schedules = schedules_of(written, f"{name}: within {column}: the share of")
            if min(v for schedule in schedules.values() for v in schedule.values) < 0:
                raise PolicyError(f"{name}: within {column}: a share is below 0: {FORM}")
            shares[column] = schedules
    written = outer.get("gates", [])
    listed = written if isinstance(written, list | tuple) else [written]
    gates = [_gate(name, each) for each in listed]
    if gates:
        options["gates"] = [{gate.name: gate.options} for gate in gates]
    kind = ComposedDiscarding if build().discards else Composed
    return kind(build, shares, gates, options)


def _gate(policy: str, written: Any) -> BuiltGate:
    """A gate by its name, or as {name: options}."""
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
