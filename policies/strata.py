"""Strata of any static policy, rows to leave out, and how many gold answers it is shown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.counts import counted
from orchestrator.plugins.shares import SLACK, largest_remainder
from orchestrator.plugins.streams import labels_of
from policies.base import (
    EXCLUDED,
    OF_GOLDS,
    Bools,
    Needs,
    PolicyError,
    Restricted,
    Rows,
    Ties,
    kept_advice,
    labelled_rows,
)
from policies.built import BuiltPolicy

HOW = (
    "write a column, such as source, or one with its shares: {source: equal}, or {source: "
    "{gsm8k: 0.7, math: 0.3}}"
)
RATE_BANDS = ("0", "0-0.25", "0.25-0.5", "0.5-0.75", "0.75-1", "1")  # strata of pass rates
UPPER = (0.0, 0.25, 0.5, 0.75, 1 - 1e-9)  # the highest rate of each of them but the last
NO_VALUE = "(none)"  # the stratum of rows without a value
MAX_STRATA = 10_000
SHOWN = 8  # values of a column that a message lists


class Stratum(NamedTuple):
    """Rows with one value of a column: how many are due, may be selected, and are selected."""

    name: str
    rows: Rows
    due: int
    eligible: int
    chosen: int


@dataclass(kw_only=True)
class Stratified(Restricted):
    """A policy that selects within each value of a column, or only some values of columns.

    within: {column: shares}: each value of the column is a stratum, and the policy selects each
    stratum's share of the subset from that stratum alone, as if it were the whole table. Shares are
    `proportional` to the strata's rows, `equal`, or given by value. What a stratum is short of is
    made up for by the others, in proportion to their shares. The column `pass_rate` has the strata
    RATE_BANDS. where, without: {column: values} that a row must, or must not, have.

    labels: a number of prompts, or a share of those with a gold answer. So many are drawn at random
    from the rows that columns of the user's data leave, before any gold answer is read, and the
    policy knows and selects from these alone. The draw has a stream of its own: it is the same for
    all policies with one seed, and leaves their ties as they are without it.
    """

    policy: BuiltPolicy
    within: Mapping[str, str | Mapping[str, float]]
    where: Mapping[str, Sequence[str]]
    without: Mapping[str, Sequence[str]]
    labels: int | float | None
    options: dict[str, Any]  # as settled, those of the policy included

    def __post_init__(self) -> None:
        policy = self.policy
        self._drawn: Bools | None = None  # the rows whose labels the last choice has drawn
        self.name = policy.name
        self.takes_all = policy.takes_all
        self.reads_answers, self.reads_questions = policy.reads_answers, policy.reads_questions
        # Each simulated choice would draw other labels, which the seed decides for all probes.
        self.simulated = policy.simulated and self.labels is None
        self.stream = policy.stream
        self.excludes_suspected, self.ranks_by = policy.excludes_suspected, policy.ranks_by
        self.reads_golds = policy.reads_golds or bool(self._read & OF_GOLDS)
        self.easier, self.harder = policy.change_towards("easy"), policy.change_towards("hard")

    @property
    def reads_columns(self) -> list[str]:
        """Those of the strata and restrictions, and those of the policy."""
        return sorted({*self._read, *self.policy.reads_columns} - {"pass_rate"})

    @property
    def needs(self) -> Needs:
        """All samples, unless neither the policy nor the strata need any."""
        free = self.policy.needs == "nothing" and "pass_rate" not in self._read
        return "nothing" if free else "all"

    @property
    def _read(self) -> set[str]:
        """The columns that strata and restrictions read."""
        return {column for named in self._named for column in named}

    def eligible(self, difficulty: pa.Table) -> Bools:
        """Rows that the restrictions leave, in a stratum with a share, that the policy may take."""
        eligible = np.zeros(difficulty.num_rows, dtype=bool)
        for _, rows, share in self._parts(difficulty, self._left(difficulty)):
            if share:
                eligible[rows] = self.policy.eligible(difficulty.take(pa.array(rows)))
        return eligible

    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """Rows of all strata in turn, so that the first ones have about the same shares."""
        self._drawn = None
        if self.labels is not None:
            rows, count = self._labels_of(difficulty, size)
            drawn = np.zeros(difficulty.num_rows, dtype=bool)
            drawn[labels_of(rng).permutation(rows)[:count]] = True
            self._drawn = drawn
        strata = self.strata(difficulty, size, free)
        if (have := sum(stratum.eligible for stratum in strata)) < size:
            raise PolicyError(
                f"{self.name} has {have} of {counted(size, 'prompt')} that {self._restrictions} "
                "leave: write a smaller budget, or leave one of them out"
            )
        chosen, places = [np.empty(0, np.int64)], [np.empty(0)]
        for stratum in (each for each in strata if each.chosen):
            own = self.policy(difficulty.take(pa.array(stratum.rows)), stratum.chosen, rng)
            chosen.append(stratum.rows[own])
            places.append((np.arange(stratum.chosen) + 0.5) / stratum.chosen)
        return np.concatenate(chosen)[np.argsort(np.concatenate(places), kind="stable")]

    def label_count(self, golds: int) -> int | None:
        """The gold answers that it is shown of a pool with so many; None: without a limit."""
        return int(self.labels * golds + 1e-9) if isinstance(self.labels, float) else self.labels

    def check_labels(self, prompts: pa.Table, size: int) -> None:
        """Raise PolicyError unless a subset of that size fits into the labels, and these do."""
        if self.labels is not None:
            self._labels_of(prompts, size)

    def _labels_of(self, prompts: pa.Table, size: int) -> tuple[Rows, int]:
        """The rows of which labels are drawn, and how many. Raises PolicyError as above."""
        golds = labelled_rows(prompts)
        rows = np.flatnonzero(golds & self._left(prompts, by_rates=False))
        count = self.label_count(int(np.count_nonzero(golds))) or 0
        what = f"{self.name}: labels: {self.labels} shows it {counted(count, 'gold answer')}"
        if count < size:
            raise PolicyError(
                f"{what}, fewer than the {counted(size, 'prompt')} of the subset: write labels: "
                f"{size} or more, or a smaller budget"
            )
        if count > len(rows):
            raise PolicyError(
                f"{what}, and only {counted(len(rows), 'prompt')} that it may select have one: "
                f"write labels: {len(rows)} or less"
            )
        return rows, count

    def strata(self, difficulty: pa.Table, size: int, free: Bools | None = None) -> list[Stratum]:
        """The strata of the table with what a subset of `size` rows takes of each."""
        left = self._left(difficulty)
        parts = self._parts(difficulty, left if free is None else left & free)
        tables = (difficulty.take(pa.array(rows)) for _, rows, _ in parts)
        eligible = [self.policy.capacity(table) if table.num_rows else 0 for table in tables]
        shares = np.array([share for _, _, share in parts])
        if not shares.sum():
            return []
        due = largest_remainder(shares / shares.sum() * size, size)
        counts = filled(shares, eligible, due)
        return [
            Stratum(name, rows, d, e, c)
            for (name, rows, _), d, e, c in zip(parts, due, eligible, counts, strict=True)
        ]

    def check_values(self, prompts: pa.Table) -> None:
        """Raise PolicyError for a column, or a value of one, that a pool does not have."""
        self.policy.check_columns(prompts)
        for option, columns in (("within", self.within), ("where", self.where)):
            if not isinstance(bands := columns.get("pass_rate", ()), str):
                known_bands = [*RATE_BANDS, NO_VALUE]
                check_known(bands, known_bands, "pass_rate", f"{self.name}: {option}")
        known = [{c: v for c, v in named.items() if c != "pass_rate"} for named in self._named]
        within, where, without = known
        named = replace(self, within=within, where=where, without=without)
        named._parts(prompts, named._left(prompts))

    @property
    def _named(self) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
        return self.within, self.where, self.without

    def tied(self, difficulty: pa.Table, chosen: Rows) -> tuple[Ties | None, Bools]:
        """The ties at the cutoffs of all strata, and which of the chosen rows are tied there."""
        tied, pool = np.zeros(len(chosen), dtype=bool), 0
        for _, rows, _ in self._parts(difficulty, self._left(difficulty)):
            at = np.flatnonzero(np.isin(chosen, rows))  # in the order of their ranks
            if not len(at):
                continue
            place = np.searchsorted(rows, chosen[at])
            ties = self.policy.ties(difficulty.take(pa.array(rows)), place)
            if ties is None:
                return None, np.full(len(chosen), self.policy.at_random)
            if ties.pool > ties.chosen:
                tied[at[len(at) - ties.chosen :]] = True
                pool += ties.pool
        return Ties(pool, int(tied.sum())), tied

    def ties(self, difficulty: pa.Table, chosen: Rows) -> Ties | None:
        """The ties at the cutoffs of all strata."""
        return self.tied(difficulty, chosen)[0]

    def notes(self, difficulty: pa.Table, chosen: Rows, free: Bools | None = None) -> list[str]:
        """The strata that are short of prompts for their share of a subset."""
        return [
            f"{column} {stratum.name!r:.80}: {counted(stratum.chosen, 'prompt')} of the "
            f"{stratum.due:,} of its share, because no more may be selected; the others make up "
            "for it"
            for column in self.within
            for stratum in self.strata(difficulty, len(chosen), free)
            if stratum.chosen < stratum.due
        ]

    @property
    def _restrictions(self) -> str:
        """The options as written, for messages."""
        named = zip(("within", "where", "exclude"), self._named, strict=True)
        texts = [f"{option}: {', '.join(columns)}" for option, columns in named if columns]
        return " and ".join([*texts, *([f"labels: {self.labels}"] if self.labels else [])])

    def _left(self, difficulty: pa.Table, *, by_rates: bool = True) -> Bools:
        """One boolean per row: whether labels, `where` and `without` leave it.

        by_rates: also where these are about pass rates, which need gold answers.
        """
        left = np.ones(difficulty.num_rows, dtype=bool) if self._drawn is None else self._drawn
        left = left.copy()
        for option, restrictions in (("where", self.where), ("exclude", self.without)):
            for column, values in restrictions.items():
                if column == "pass_rate" and not by_rates:
                    continue
                text = column_texts(difficulty, column, f"{self.name}: {option}")
                if option == "where":
                    check_known(values, pc.unique(text).to_pylist(), column, f"{self.name}: where")
                matches = pc.is_in(text, value_set=pa.array(values, pa.string())).to_numpy(
                    zero_copy_only=False
                )
                left &= matches if option == "where" else ~matches
        return left

    def _parts(self, difficulty: pa.Table, left: Bools) -> list[tuple[str, Rows, float]]:
        """Name, rows and share of each stratum, in the order of the names."""
        rows = np.flatnonzero(left)
        if not self.within:
            return [("", rows, 1.0)]
        [(column, shares)] = self.within.items()
        what = f"{self.name}: within"
        by_value = rows_by_value(column_texts(difficulty, column, what), rows, column, what)
        if not isinstance(shares, str):
            check_known(shares, [*by_value], column, what)
        parts = []
        for name, own in by_value.items():
            if isinstance(shares, str):
                share = float(len(own)) if shares == "proportional" else float(len(own) > 0)
            else:
                share = shares.get(name, 0.0)
            parts.append((name, own, share))
        return parts


def rows_by_value(texts: pa.Array, rows: Rows, column: str, what: str) -> dict[str, Rows]:
    """Each value of a column, in rising order, and those of the `rows` that have it, ascending.

    Raises PolicyError, which begins with `what`, for more than MAX_STRATA values.
    """
    values = pc.unique(texts).sort().to_pylist()
    if len(values) > MAX_STRATA:
        raise PolicyError(
            f"{what}: the column {column} has {len(values):,} values: write one with at most "
            f"{MAX_STRATA:,}"
        )
    code = pc.index_in(texts, value_set=pa.array(values, pa.string())).to_numpy()[rows]
    ends = np.cumsum(np.bincount(code, minlength=len(values)))
    parts = np.split(rows[np.argsort(code, kind="stable")], ends[:-1])
    return dict(zip(values, parts, strict=True))


def check_known(named: Iterable[str], known: Sequence[str], column: str, what: str) -> None:
    """Raise PolicyError, which begins with `what`, for a value that no row has."""
    if unknown := [value for value in named if value not in known]:
        raise PolicyError(
            f"{what}: no row has the {column} {unknown[0]!r:.80}: write some of {_listed(known)}"
        )


def column_texts(difficulty: pa.Table, column: str, what: str) -> pa.Array:
    """The values of a column as texts, NO_VALUE where there is none; of pass rates, their band.

    Raises PolicyError, which begins with `what`, for a column that the table does not have, or
    whose values are neither texts nor numbers.
    """
    if column not in difficulty.column_names:
        raise PolicyError(
            f"{what}: the table has no column {column!r:.80}, only "
            f"{', '.join(difficulty.column_names)}: write one of these, or {kept_advice(column)}"
        )
    values = difficulty[column].combine_chunks()
    if column == "pass_rate":
        rates = values.to_numpy(zero_copy_only=False).astype(float)
        bands = pa.array(np.searchsorted(UPPER, rates), mask=np.isnan(rates))
        values = pa.array(RATE_BANDS).take(bands)
    try:
        return pc.fill_null(values.cast(pa.string()), NO_VALUE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PolicyError(
            f"{what}: the column {column} has type {values.type}: write one of texts or numbers"
        ) from error


def filled(
    shares: np.ndarray,
    eligible: Sequence[int],
    due: Sequence[int],
    rounded: Callable[[np.ndarray, int], list[int]] = largest_remainder,
) -> list[int]:
    """Rows of each stratum: what is due of it, or all of it where it is short of rows.

    What some are short of is shared among the others in proportion to their shares; `rounded` makes
    whole numbers, with a given sum, of these.
    """
    capacity = np.where(shares > 0, eligible, 0)
    counts = np.minimum(due, capacity)
    while (missing := min(sum(due), int(capacity.sum())) - int(counts.sum())) > 0:
        weights = np.where(counts < capacity, shares, 0.0)
        further = rounded(weights / weights.sum() * missing, missing)
        counts = np.minimum(counts + further, capacity)
    return [int(count) for count in counts]


def split_options(
    options: Mapping[str, Any], own: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the policy itself, and those of this module.

    own: options that the policy takes itself, such as a user's own `within`. Of `exclude`, names
    are the policy's, and values of columns are not.
    """
    inner = dict(options)
    named = ("within", "where", "labels")
    names = [name for name in named if name in options and name not in own]
    outer: dict[str, Any] = {name: inner.pop(name) for name in names}
    excluded = options.get("exclude")
    listed = excluded if isinstance(excluded, list | tuple) else [excluded]
    mappings = [part for part in listed if isinstance(part, Mapping)]
    if mappings and "exclude" not in own:
        outer["exclude"] = mappings
        del inner["exclude"]
        if others := [part for part in listed if not isinstance(part, Mapping)]:
            inner["exclude"] = others
    return inner, outer


def stratified(
    policy: BuiltPolicy, settled: Mapping[str, Any], outer: Mapping[str, Any]
) -> Stratified:
    """The policy with these restrictions; `settled` are its own options in canonical form.

    Raises PolicyError for restrictions of another form.
    """
    within = _within(policy.name, outer.get("within"))
    where = _values(policy.name, "where", outer.get("where", {}))
    without: dict[str, list[str]] = {}
    for part in outer.get("exclude", []):
        for column, values in _values(policy.name, "exclude", part).items():
            if column in EXCLUDED:
                raise PolicyError(f"{policy.name}: exclude: {part!r:.80}: write {column} alone")
            without[column] = sorted({*without.get(column, []), *values})
    labels = outer.get("labels")
    _check_label_option(policy, labels)
    options = dict(settled)
    if without:
        options["exclude"] = [*(settled.get("exclude") or []), without]
    options |= {k: v for k, v in (("within", within), ("where", where), ("labels", labels)) if v}
    return Stratified(
        policy=policy, within=within, where=where, without=without, labels=labels, options=options
    )


def _check_label_option(policy: BuiltPolicy, labels: Any) -> None:
    """Raise PolicyError unless the option is a count or a share, and the policy has a size."""
    if labels is None:
        return
    number = not isinstance(labels, bool) and isinstance(labels, int | float)
    if not number or not 0 < labels <= (1 if isinstance(labels, float) else float("inf")):
        raise PolicyError(
            f"{policy.name}: labels is {labels!r:.80}: write a number of prompts, such as 160, or "
            "a share of those with a gold answer, such as 0.2"
        )
    if policy.takes_all:
        raise PolicyError(f"{policy.name} takes every prompt: leave labels out")


def column_shares(policy: str, written: Any) -> tuple[str, Any]:
    """The column and the shares of an option `within`: a word, or a share by value as written."""
    given = {written: "proportional"} if isinstance(written, str) else written
    if not isinstance(given, Mapping) or len(given) != 1:
        raise PolicyError(f"{policy}: within is {written!r:.80}: {HOW}")
    [(column, shares)] = given.items()
    if shares in ("proportional", "equal"):
        return str(column), shares
    if not isinstance(shares, Mapping) or not shares:
        raise PolicyError(f"{policy}: within {column} is {shares!r:.80}: {HOW}")
    return str(column), {as_text(name): share for name, share in shares.items()}


def _within(policy: str, written: Any) -> dict[str, Any]:
    """{column: shares} in canonical form."""
    if written is None:
        return {}
    column, shares = column_shares(policy, written)
    if isinstance(shares, str):
        return {column: shares}
    for name, share in shares.items():
        number = not isinstance(share, bool) and isinstance(share, int | float)
        if not number or not 0 < share <= 1:
            raise PolicyError(
                f"{policy}: within {column}: the share of {name} is {share!r:.80}: write a number "
                "above 0, at most 1"
            )
    if abs(sum(shares.values()) - 1) > SLACK:
        raise PolicyError(
            f"{policy}: within {column}: the shares sum to {sum(shares.values()):g}, not 1: {HOW}"
        )
    return {column: {name: float(share) for name, share in shares.items()}}


def _values(policy: str, option: str, written: Any) -> dict[str, list[str]]:
    """{column: values} in canonical form."""
    form = f"write columns with values, such as {option}: {{source: [gsm8k, math]}}"
    if not isinstance(written, Mapping):
        raise PolicyError(f"{policy}: {option} is {written!r:.80}: {form}")
    columns = {}
    for column, value in written.items():
        values = value if isinstance(value, list | tuple) else [value]
        if not values or not all(isinstance(v, str | int | float) for v in values):
            raise PolicyError(f"{policy}: {option} {column} is {value!r:.80}: {form}")
        columns[str(column)] = sorted({as_text(v) for v in values})
    return columns


def as_text(value: Any) -> str:
    """A value as the text to which a column of its type is cast."""
    return str(pa.scalar(value).cast(pa.string()).as_py())


def _listed(values: Sequence[str]) -> str:
    """The distinct values, at most the first few."""
    shown = ", ".join(f"{value!r:.40}" for value in sorted(set(values))[:SHOWN])
    return shown + (f" and {len(set(values)) - SHOWN:,} more" if len(set(values)) > SHOWN else "")
