"""Any online policy, with shares of each update by a column and gates that prompts must pass."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.shares import Places, rounded_at_random
from policies.base import Bools, ByColumns, Needs, Rows
from policies.built import Built, BuiltOnlinePolicy
from policies.gates import BuiltGate, gate_of
from policies.online import History, OnlinePolicy, some
from policies.partition import Partition, Stratum, filled, shares_of

MEASURED = 50  # at most so many strata are logged: a column of ids has one per prompt


class Composed(OnlinePolicy, ByColumns):
    """An online policy that chooses within strata, among the prompts that pass all gates.

    Each stratum has its own policy, which sees only the prompts of that stratum. If a stratum is
    short of open prompts, the others make up for it, then random closed prompts. With gates, a
    policy is rebuilt from the history for each update, because it may rely on the prompts staying
    the same. Arrays have one entry per prompt [N], or per stratum [S].

    Options:
        of: the static policy that selects the subset to choose from (default: `full`), such as
            `hard` or `{band: {low: 0.1, high: 0.9}}`.
        within: a column with the share of each value in every update: `source` (in proportion to
            the prompts), `{source: equal}`, or `{source: {gsm8k: 0.7, math: 0.3}}`. A share is a
            number, `{from: 0.8, to: 0.2, schedule: cosine}` over the updates (linear without a
            schedule), or a list of numbers for equal parts of the training. Remainders are carried
            over, so that a source differs from its share by less than one prompt at any time.
        gates: a list of gates. Only prompts that all of them let pass are chosen; if there are too
            few, closed ones are added at random.
    """

    def __init__(
        self,
        build: Callable[[], BuiltOnlinePolicy],
        partition: Partition,
        gates: Sequence[BuiltGate],
        options: dict[str, Any],
    ) -> None:
        self.options = options
        self._build = build
        self._partition = partition
        self._gates = gates
        self._inner = build()
        self._parts: list[Built] = [self._inner, *gates]
        self._strata: list[Stratum] = []
        self._policies: list[BuiltOnlinePolicy] = []  # of the strata
        self._places = Places(0)  # of the strata, in the updates until `_given`
        self._given = 0
        self._last: list[tuple[BuiltOnlinePolicy, int]] = []  # how many groups each has chosen
        # Of the update: shares of open prompts, and counts of the chosen prompts by kind.
        self._open: dict[str, float] = {}
        self._size, self._chosen = 0, Counter[str]()
        self.easier = self._inner.change_towards("easy")
        self.harder = self._inner.change_towards("hard")

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """All of the probe, unless neither the policy nor a gate uses it."""
        free = all(part.needs == "nothing" for part in self._parts)
        return "nothing" if free else "all"

    @property
    def version(self) -> int:  # type: ignore[override]
        """It rises with the versions of the policy, the gates and the shares (2)."""
        raised = self._inner.version - 1 + sum(gate.version - 1 for gate in self._gates)
        return 1 + raised + bool(self._partition.within)

    @property
    def reads_golds(self) -> bool:
        """Whether the policy or a gate does."""
        return any(part.reads_golds for part in self._parts)

    @property
    def reads_columns(self) -> list[str]:
        """The columns of the strata, the policy and the gates."""
        of_parts = {column for part in self._parts for column in part.reads_columns}
        return sorted(of_parts | self._partition.within.keys())

    def check_values(self, prompts: pa.Table) -> None:
        """Raise PolicyError for a column, or a value with a share, that a pool does not have."""
        self._partition.strata_of(prompts, np.arange(prompts.num_rows))

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics by name of the last update chosen for, in one choice or several.

        gate/NAME/open and gates/open: the shares of the prompts that each gate, and all of them,
        let pass before the first choice; stratum/VALUE/share and gates/taken_closed: the shares of
        the chosen prompts that belong to a stratum, and that are closed.
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
            texts = [pa.array(history.columns[column]) for column in self._partition.within]
            everything = np.arange(len(history.prompt_ids))
            self._strata = self._partition.strata(texts[0] if texts else None, everything)
            self._policies = [self._build() for _ in self._strata]
            self._places = Places(len(self._strata))
        counts, missing = self._divided(update, history, free)
        chosen, self._last = [np.empty(0, np.int64)], []
        for number, count in enumerate(counts):
            if count:
                rows = self._strata[number].rows
                policy = self._policies[number]
                closed = rows[:0]
                if self._gates:
                    closed = rows[~free[rows]]
                    rows = rows[free[rows]]
                    policy = self._build()
                place = f"stratum {number}" if self._partition.within else ""
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

        The share due to a stratum follows from the groups drawn for the updates so far. Groups that
        other strata make up for, and missing groups drawn at once, are rounded at random.
        """
        rounded = partial(rounded_at_random, rng=history.rng)
        drawn = history.groups_until(update).tolist()
        for past in range(self._given + 1, update):
            shares = shares_of(self._strata, past, history.updates)
            if shares.any():
                self._places.give(shares, drawn[past])
            self._given = past
        shares = shares_of(self._strata, update, history.updates)
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

    def _openness(
        self, update: int, history: History, passed: Sequence[Bools], opened: Bools
    ) -> dict[str, float]:
        """The shares of prompts that each gate, and all of them, let pass, and the gates' own
        metrics."""
        metrics = {"gates/open": float(opened.mean())} if self._gates else {}
        names = [gate.name for gate in self._gates]
        for number, (gate, own) in enumerate(zip(self._gates, passed, strict=True), 1):
            name = gate.name if names.count(gate.name) == 1 else f"{gate.name}_{number}"
            of_gate = gate.metrics(update, history) | {"open": float(own.mean())}
            metrics |= {f"gate/{name}/{key}": value for key, value in of_gate.items()}
        return metrics

    def _counts(self, rows: Rows, opened: Bools) -> dict[str, int]:
        """How many of the rows are closed, and how many belong to each stratum."""
        counts = {"gates/taken_closed": int((~opened[rows]).sum())} if self._gates else {}
        if self._partition.within and len(self._strata) <= MEASURED:
            chosen = np.zeros_like(opened)
            chosen[rows] = True
            for stratum in self._strata:
                counts[f"stratum/{stratum.name}/share"] = int(chosen[stratum.rows].sum())
        return counts


class ComposedDiscarding(Composed):
    """The same for a policy that discards groups: each stratum's policy judges its own groups."""

    @property
    def max_draws(self) -> int:
        """As of the policy."""
        return self._inner.max_draws

    @property
    def at_once(self) -> int:
        """As of the policy."""
        return self._inner.at_once

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """The groups that the policies keep, of those that they chose; in the order of the
        policies."""
        kept, start = [np.empty(0, dtype=bool)], 0
        others = (self._inner, len(correct))  # groups of no policy, before any cell trains
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

    Raises PolicyError for options of any other form.
    """
    options = dict(settled)
    within = outer.get("within") or None
    partition = Partition.of(within, name, scheduled=True)
    if within:
        options["within"] = dict(partition.within)
    written = outer.get("gates", [])
    listed = written if isinstance(written, list | tuple) else [written]
    gates = [gate_of(name, each) for each in listed]
    if gates:
        options["gates"] = [{gate.name: gate.options} for gate in gates]
    kind = ComposedDiscarding if build().discards else Composed
    return kind(build, partition, gates, options)
