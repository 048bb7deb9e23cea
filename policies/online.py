"""The interface of an online policy: it chooses the prompts of every update during training.

Its choice depends only on the seed, the prompts to choose from, the probe, and the groups drawn so
far. A cell records these groups, so a resumed cell chooses as an uninterrupted one does.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.plugins.counts import counted
from orchestrator.plugins.streams import generator
from policies.base import Bools, Floats, MalformedError, Needs, Options, PolicyError, Rows

Counts = npt.NDArray[np.int32]


class History:
    """The prompts that an online policy chooses from, and what is known about each of them.

    Arrays have an entry per prompt [N], in the order of `prompt_ids`, or per group drawn [E], by
    update and row, or per prompt probed again [R]. A group belongs to `update` and to the prompt at
    `row`; `correct` of its `marked` completions are correct. While a policy chooses, the arrays are
    read-only: changes in place would be lost after a resume.
    """

    def __init__(
        self,
        prompt_ids: pa.Array,
        samples: npt.ArrayLike,
        successes: npt.ArrayLike,
        *,
        seed: int,
        updates: int,
        group_size: int,
        columns: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self.prompt_ids = prompt_ids
        self.columns = columns or {}
        """The columns of the user's data that the policy reads, as text [N]."""
        self.samples: Counts = np.array(samples, np.int32)
        """Scorable samples of the probe [N]; 0 where there are none."""
        self.successes: Counts = np.array(successes, np.int32)
        """Correct samples among them [N]."""
        self.samples.flags.writeable = self.successes.flags.writeable = False
        self.seed = seed
        self.updates = updates
        self.group_size = group_size
        self.size = 0
        """The number of prompts to choose now."""
        self.missing = 0
        """The number of groups that the update lacks: `size`, or less (see `Discards.at_once`)."""
        self._place = ""
        self.rng = self.stream("before the first update")
        """A generator that depends only on the seed, the update, and what it has already drawn."""
        with np.errstate(invalid="ignore"):
            self.pass_rate = (self.successes / self.samples).astype(np.float32)
        """The latest known pass rate [N], from the last group or refresh, or else from the probe.

        nan if unknown.
        """
        count = len(self.pass_rate)
        self.groups: Counts = np.zeros(count, np.int32)
        """Groups drawn of each prompt [N]."""
        self.last_update: Counts = np.zeros(count, np.int32)
        """The update of the last group of each prompt [N]; 0 if there is none."""
        self.solved: Counts = np.zeros(count, np.int32)
        """How many of a prompt's last groups in a row were entirely correct [N]."""
        self._drawn = tuple(array("q") for _ in range(4))
        self._refreshed: list[tuple[Rows, Rows, Rows, Rows]] = []
        self._closed_groups = 0

    def _set_writeable(self, writeable: bool) -> None:
        for values in (self.pass_rate, self.groups, self.last_update, self.solved):
            values.flags.writeable = writeable

    def add(self, update: int, row: int, correct: int, marked: int) -> None:
        """Record one group; updates never decrease."""
        self._set_writeable(True)
        for values, value in zip(self._drawn, (update, row, correct, marked), strict=True):
            values.append(value)
        self.groups[row] += 1
        self.last_update[row] = update
        if marked:
            self.pass_rate[row] = correct / marked
            self.solved[row] = self.solved[row] + 1 if correct == marked else 0

    def add_refresh(
        self, update: int, rows: npt.ArrayLike, correct: npt.ArrayLike, marked: npt.ArrayLike
    ) -> None:
        """Record the prompts that were probed again before an update, each [n].

        Call it before the groups of that update are added.
        """
        order = np.argsort(rows, kind="stable")
        row, right, total = (np.asarray(v, np.int64)[order] for v in (rows, correct, marked))
        self._refreshed.append((np.full(len(row), update), row, right, total))
        self._set_writeable(True)
        known = total > 0
        self.pass_rate[row[known]] = right[known] / total[known]

    @property
    def refreshed(self) -> tuple[Rows, Rows, Rows, Rows]:
        """update, row, correct and marked of every prompt probed again, each [R].

        It was probed before `update`, with the weights that drew the groups of that update.
        """
        if len(self._refreshed) != 1:
            none = np.empty(0, np.int64)
            parts = zip(*(self._refreshed or [(none, none, none, none)]), strict=True)
            update, row, correct, marked = map(np.concatenate, parts)
            self._refreshed = [(update, row, correct, marked)]
        for values in self._refreshed[0]:
            values.flags.writeable = False
        return self._refreshed[0]

    @property
    def drawn(self) -> tuple[Rows, Rows, Rows, Rows]:
        """update, row, correct and marked of every group, each [E].

        Sorted, because a resumed cell adds the groups of an update in another order.
        """
        update, row, correct, marked = (np.array(values) for values in self._drawn)
        order = np.lexsort((row, update))
        return update[order], row[order], correct[order], marked[order]

    def start(self, update: int, size: int, missing: int | None = None) -> None:
        """Prepare the choice of `size` prompts for an update, or of additional ones for it.

        `missing`: the number of groups that it lacks, if not `size`.
        """
        self.missing = size if missing is None else missing
        self._set_writeable(False)
        drawn = int(np.count_nonzero(self.last_update == update))
        self.size = size
        if self._place:
            self.rng = self.stream("update", update, drawn)
        else:
            self.rng = generator("update", self.seed, update, drawn)

    def stream(self, use: str, *keys: int) -> np.random.Generator:
        """A separate generator for a purpose, such as an order of the prompts, and numbers.

        It depends only on these, the seed, and the stratum or gate that uses it.
        """
        return generator("choice", use, self.seed, self._place, *keys)

    def of(self, place: str) -> "History":
        """The history for a gate; `place` gives it streams of its own."""
        other = copy(self)
        other._place = place
        return other

    def part(self, rows: Rows, stratum: str, closed: Rows) -> "History":
        """The history of some prompts alone, in their order; `stratum` gives it streams of its own.

        `closed`: rows that belong to the stratum and may not be chosen now.
        """
        part = History(
            self.ids(rows),
            self.samples[rows],
            self.successes[rows],
            seed=self.seed,
            updates=self.updates,
            group_size=self.group_size,
            columns={name: values[rows] for name, values in self.columns.items()},
        )
        part._place = stratum
        for name in ("pass_rate", "groups", "last_update", "solved"):
            setattr(part, name, getattr(self, name)[rows])
        place = np.full(len(self.prompt_ids), -1)
        place[rows] = np.arange(len(rows))
        update, row, correct, marked = self.drawn
        own = place[row] >= 0
        for values, of_all in zip(part._drawn, (update, place[row], correct, marked), strict=True):
            values.extend(of_all[own].tolist())
        update, row, correct, marked = self.refreshed
        own = place[row] >= 0
        part._closed_groups = int(self.groups[closed].sum())
        part._refreshed = [(update[own], place[row][own], correct[own], marked[own])]
        return part

    @property
    def groups_drawn(self) -> int:
        """The groups drawn so far, including those of prompts that may not be chosen now."""
        return len(self._drawn[0]) + self._closed_groups

    def groups_until(self, update: int) -> Rows:
        """The number of groups of all prompts for each update from 0 to this one [update + 1]."""
        return np.bincount(np.array(self._drawn[0]), minlength=update + 1)[: update + 1]

    def epochs_since(self, update: int) -> Floats:
        """The epochs since each prompt was last seen before an update [N].

        An epoch is as many groups as there are prompts. A prompt was last seen in its last group or
        refresh, or else in the probe.
        """
        until = np.cumsum(self.groups_until(update - 1))
        last = until[np.minimum(self.last_update, update - 1)]
        at, row, _, _ = self.refreshed
        np.maximum.at(last, row, until[at - 1])
        return np.asarray((until[-1] - last) / max(1, len(last)))

    def last_in_a_row(self, groups: Bools) -> Rows:
        """How many of each prompt's last groups are among these, in a row [N].

        `groups`: one boolean for each group of `drawn` [E].
        """
        _, row, _, _ = self.drawn
        order = np.argsort(row, kind="stable")  # of a prompt, by update
        row, counted = row[order], groups[order]
        place = np.arange(len(row))
        first = np.searchsorted(row, row)
        broken = np.maximum.accumulate(np.where(counted, first - 1, place))
        streak = np.zeros(len(self.prompt_ids), np.int64)
        streak[row] = place - np.maximum(broken, first - 1)  # the last group of a prompt wins
        return streak

    def fresh(self, update: int) -> Bools:
        """Which prompts were not drawn for this update yet [N]."""
        return np.asarray(self.last_update != update)

    def ids(self, rows: Rows) -> pa.Array:
        """The prompt_ids of these rows."""
        return self.prompt_ids.take(pa.array(rows))


def some(rows: Rows, size: int, rng: np.random.Generator) -> Rows:
    """`size` of the rows at random, or all of them if there are fewer."""
    if size >= len(rows):
        return rows
    return rows[rng.choice(len(rows), size, replace=False)]


def least_drawn(history: History, allowed: Bools) -> Rows:
    """`size` of the allowed rows, those with the fewest groups first; ties are broken at random.

    Every prompt is thus drawn once before any is drawn again, as in epochs in random order.
    """
    chosen: list[Rows] = []
    allowed, missing = allowed.copy(), history.size
    while missing and allowed.any():
        fewest = history.groups[allowed].min()
        part = some(np.flatnonzero(allowed & (history.groups == fewest)), missing, history.rng)
        allowed[part] = False
        chosen.append(part)
        missing -= len(part)
    return np.concatenate([np.empty(0, np.int64), *chosen])


def rates_of(history: History) -> Floats:
    """The probe's pass rates [N]; nan if unknown."""
    with np.errstate(invalid="ignore"):
        return np.asarray(history.successes / history.samples)


WHOLE_POOL = "full"  # what an online policy chooses from without `of`
MAX_DRAWS = 4  # bounds the cost of discarding, unless a policy declares its own


class OnlinePolicy(ABC):
    """Chooses the prompts of each update, from a pool or from the subset of another policy.

    A policy that replaces some groups also has `keep(correct, marked)`. Given the correct and the
    marked completions of each group [groups], it returns which groups to train on. Two attributes
    are optional. `max_draws`: at most this multiple of an update's prompts is drawn. `at_once`:
    this multiple of the prompts that it lacks is drawn before `keep` is called.
    """

    needs: ClassVar[Needs] = "all"
    """The part of the probe that it uses."""
    version: ClassVar[int] = 1
    """Raised if a built-in policy's choices change for a given seed; cells then get new ids."""
    cost: ClassVar[str] = "no further rollouts"
    easier: str = "choose from an easier subset"
    """What to change for easier prompts."""
    harder: str = "choose from a harder subset"
    """The same for harder prompts."""

    @abstractmethod
    def next(self, update: int, history: History) -> pa.Array:
        """`history.size` distinct prompt_ids for an update (counted from 1)."""


def is_online(policy: Any) -> bool:
    """Whether a policy, or its class, chooses prompts during training."""
    return callable(getattr(policy, "next", None))


class Parts(NamedTuple):
    """A policy in two parts: the static part (name, options) and the part that chooses in training.

    `online` is None for a static policy.
    """

    static: tuple[str, Options]
    online: tuple[str, Options] | None


def static_part(name: str, of: Any) -> tuple[str, Options]:
    """The static policy named by an online policy's option `of`. PolicyError for any other form."""
    if isinstance(of, Mapping) and len(of) == 1:
        [(static, own)] = of.items()
    else:
        static, own = of, {}
    if not isinstance(static, str) or not isinstance(own, Mapping):
        raise PolicyError(
            f"policy {name!r}: of is {of!r:.80}: write a static policy such as hard, or one with "
            "its options, such as {band: {low: 0.2, high: 0.8}}"
        )
    return static, dict(own)


def checked_ids(chosen: Any, policy: str, size: int) -> pa.Array:
    """The prompt_ids that a policy returned. PolicyError unless they are `size` distinct texts."""
    how = f"return {size} distinct prompt_ids, such as history.ids(rows)"
    if isinstance(chosen, set | frozenset):
        raise MalformedError(
            f"policy {policy!r} returned a set, whose order differs between processes: {how}"
        )
    try:
        values = chosen if isinstance(chosen, pa.Array | pa.ChunkedArray) else pa.array([*chosen])
        ids = pa.array(values.cast(pa.string()).to_pylist(), pa.string())
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise MalformedError(
            f"policy {policy!r} returned {type(chosen).__name__} instead of prompt_ids: {how}"
        ) from error
    distinct = len(ids.unique())
    if len(ids) != size or distinct != size or ids.null_count:
        raise PolicyError(
            f"policy {policy!r} returned {len(ids)} prompt_ids ({distinct} distinct): {how}"
        )
    return ids


def unknown_id(policy: str, prompt_id: str, candidates: int) -> str:
    """The message for a prompt_id that is not among the candidates."""
    return (
        f"policy {policy!r} returned the prompt_id {prompt_id!r:.80}, which is not among the "
        f"{candidates:,} that it may choose from: return some of history.prompt_ids"
    )


def checked_keep(kept: Any, policy: str, groups: int) -> Bools:
    """The result of `keep`. PolicyError unless it is one boolean per group."""
    values = np.asarray(kept)
    if values.shape != (groups,) or values.dtype != np.bool_:
        raise MalformedError(
            f"policy {policy!r}: keep returned {values.dtype} of shape {values.shape} for "
            f"{counted(groups, 'group')}: return a NumPy array with one boolean per group"
        )
    return values
