"""Strata of any static policy, rows to leave out, and how many gold answers it may read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.counts import counted
from orchestrator.plugins.difficulty_table import OF_GOLDS
from orchestrator.plugins.shares import largest_remainder
from orchestrator.plugins.streams import labels_of
from policies.base import (
    EXCLUDED,
    Bools,
    Needs,
    PolicyError,
    Restricted,
    Rows,
    Ties,
    labelled_rows,
)
from policies.built import Policy
from policies.partition import (
    NO_VALUE,
    RATE_BANDS,
    Partition,
    Stratum,
    as_text,
    check_known,
    column_texts,
    filled,
    shares_of,
)

Values = Mapping[str, Sequence[str]]  # of columns


class Quota(NamedTuple):
    """How many rows of a stratum are due, selectable and selected."""

    stratum: Stratum
    due: int
    eligible: int
    chosen: int


@dataclass(kw_only=True)
class Stratified(Restricted):
    """A policy that selects within each value of a column, or only some values of columns.

    partition: the policy selects each stratum's share of the subset from that stratum alone, as if
    it were the whole table. If a stratum is short of rows, the others make up for it, in proportion
    to their shares. where, without: {column: values} that a row must, or must not, have.

    labels: a number of prompts, or a share of those with a gold answer. This many are drawn at
    random from the rows that `where` and `without` leave, before any gold answer is read. The
    policy sees and selects from these alone. The draw has a stream of its own: it is the same for
    all policies with one seed, and does not change their ties.

    Options:
        within: a column whose values are strata: `source`, `tier`, one that `keep` names, or
            `pass_rate` (in bands). Each stratum is selected from as if it were the whole pool. Its
            share of the budget is its share of the pool, or `{source: equal}`, or given as
            `{source: {gsm8k: 0.7, math: 0.3}}`. If a stratum has too few eligible prompts, the
            others make up for it. Rows without a value are the stratum `(none)`.
        where: only rows with one of these values of a column, such as `{source: math}`.
        labels: a number of prompts, or a share of those with a gold answer: the policy sees the
            gold answers of this many random prompts, and selects among these.
    """

    policy: Policy
    partition: Partition
    where: Values
    without: Values
    labels: int | float | None
    options: dict[str, Any]  # in canonical form, including the policy's own

    def __post_init__(self) -> None:
        policy = self.policy
        self._drawn: Bools | None = None  # the rows whose labels the last choice drew
        self._read = {*self.partition.within, *self.where, *self.without}  # columns
        self.name = policy.name
        self.takes_all = policy.takes_all
        self.reads_answers = policy.reads_answers
        self.reads_questions = policy.reads_questions
        # Each simulated choice would draw different labels, but the seed decides them for all
        # probes.
        self.simulated = policy.simulated and self.labels is None
        self.stream = policy.stream
        self.excludes_suspected = policy.excludes_suspected
        self.ranks_by = policy.ranks_by
        self.reads_golds = policy.reads_golds or bool(self._read & OF_GOLDS)
        self.easier = policy.change_towards("easy")
        self.harder = policy.change_towards("hard")

    @property
    def reads_columns(self) -> list[str]:
        """The columns of the strata, the restrictions and the policy."""
        return sorted((self._read | {*self.policy.reads_columns}) - {"pass_rate"})

    @property
    def needs(self) -> Needs:
        """All samples, unless neither the policy nor the strata need samples."""
        free = self.policy.needs == "nothing" and "pass_rate" not in self._read
        return "nothing" if free else "all"

    def eligible(self, difficulty: pa.Table) -> Bools:
        """Rows that the restrictions and the policy allow, in strata with a share."""
        eligible = np.zeros(difficulty.num_rows, dtype=bool)
        strata = self._strata(difficulty)
        for stratum, share in zip(strata, shares_of(strata), strict=True):
            if share:
                own = difficulty.take(pa.array(stratum.rows))
                eligible[stratum.rows] = self.policy.eligible(own)
        return eligible

    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """Rows of all strata in turn, so that the first rows have about the same shares."""
        self._drawn = None
        if self.labels is not None:
            rows, count = self._labels_of(difficulty, size)
            self._drawn = np.zeros(difficulty.num_rows, dtype=bool)
            self._drawn[labels_of(rng).permutation(rows)[:count]] = True
        quotas = self.quotas(difficulty, size, free)
        if (have := sum(quota.eligible for quota in quotas)) < size:
            raise PolicyError(
                f"{self.name} has {have} of {counted(size, 'prompt')} that {self._restrictions()} "
                "leave: write a smaller budget, or leave one of them out"
            )
        chosen, places = [np.empty(0, np.int64)], [np.empty(0)]
        for (_, rows, _), _, _, count in quotas:
            if count:
                own = self.policy(difficulty.take(pa.array(rows)), count, rng)
                chosen.append(rows[own])
                places.append((np.arange(count) + 0.5) / count)
        return np.concatenate(chosen)[np.argsort(np.concatenate(places), kind="stable")]

    def label_count(self, gold_count: int) -> int | None:
        """How many of a pool's `gold_count` gold answers the policy may read; None: all."""
        if isinstance(self.labels, float):
            return int(self.labels * gold_count + 1e-9)  # 0.1 of 30 is 3, not 2.999…
        return self.labels

    def check_labels(self, prompts: pa.Table, size: int) -> None:
        """Raise PolicyError if the labels are too few for the subset, or too many for the pool."""
        if self.labels is not None:
            self._labels_of(prompts, size)

    def _labels_of(self, prompts: pa.Table, size: int) -> tuple[Rows, int]:
        """The rows whose labels may be drawn, and how many to draw. Raises PolicyError as above."""
        labelled = labelled_rows(prompts)
        rows = np.flatnonzero(labelled & self._allowed(prompts, by_rates=False))
        count = self.label_count(int(np.count_nonzero(labelled))) or 0
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

    def quotas(self, difficulty: pa.Table, size: int, free: Bools | None = None) -> list[Quota]:
        """The rows that a subset of `size` takes of each stratum; [] if no stratum has a share."""
        strata = self._strata(difficulty, free)
        shares = shares_of(strata)
        if not shares.sum():
            return []
        eligible = [
            self.policy.capacity(difficulty.take(pa.array(rows))) if len(rows) else 0
            for _, rows, _ in strata
        ]
        due = largest_remainder(shares / shares.sum() * size, size)
        return list(map(Quota, strata, due, eligible, filled(shares, eligible, due)))

    def check_values(self, prompts: pa.Table) -> None:
        """Raise PolicyError for a column, or a value of one, that a pool does not have.

        Its pass rates are not known yet.
        """
        self.policy.check_columns(prompts)
        for option, columns in (("within", self.partition.within), ("where", self.where)):
            bands = columns.get("pass_rate", ())
            if not isinstance(bands, str):
                known = [*RATE_BANDS, NO_VALUE]
                check_known(bands, known, "pass_rate", f"{self.name}: {option}")
        allowed = self._allowed(prompts, by_rates=False)
        if self.partition.column != "pass_rate":
            self.partition.strata_of(prompts, np.flatnonzero(allowed))

    def tied(self, difficulty: pa.Table, chosen: Rows) -> tuple[Ties | None, Bools]:
        """The ties at the cutoffs of all strata, and which of the chosen rows are tied."""
        tied, pool = np.zeros(len(chosen), dtype=bool), 0
        for _, rows, _ in self._strata(difficulty):
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
        if self.partition.column is None:
            return []
        return [
            f"{self.partition.column} {stratum.name!r:.80}: {counted(count, 'prompt')} of the "
            f"{due:,} of its share, because no more may be selected; other strata make up for it"
            for stratum, due, _, count in self.quotas(difficulty, len(chosen), free)
            if count < due
        ]

    def _restrictions(self) -> str:
        """The options as written, for messages."""
        named = {"within": self.partition.within, "where": self.where, "exclude": self.without}
        texts = [f"{option}: {', '.join(columns)}" for option, columns in named.items() if columns]
        if self.labels:
            texts.append(f"labels: {self.labels}")
        return " and ".join(texts)

    def _strata(self, difficulty: pa.Table, free: Bools | None = None) -> list[Stratum]:
        """The strata of the `free` rows that labels, `where` and `without` leave."""
        left = self._allowed(difficulty)
        for rows in (self._drawn, free):
            if rows is not None:
                left &= rows
        return self.partition.strata_of(difficulty, np.flatnonzero(left))

    def _allowed(self, table: pa.Table, *, by_rates: bool = True) -> Bools:
        """One boolean per row: whether `where` and `without` leave it.

        by_rates: whether to apply restrictions by pass rate, which need gold answers.
        """
        allowed = np.ones(table.num_rows, dtype=bool)
        for option, restrictions in (("where", self.where), ("exclude", self.without)):
            for column, values in restrictions.items():
                if column == "pass_rate" and not by_rates:
                    continue
                texts = column_texts(table, column, f"{self.name}: {option}")
                if option == "where":
                    check_known(values, pc.unique(texts).to_pylist(), column, f"{self.name}: where")
                matches = pc.is_in(texts, value_set=pa.array(values, pa.string()))
                has_value = matches.to_numpy(zero_copy_only=False)
                allowed &= has_value if option == "where" else ~has_value
        return allowed


def split_options(
    options: Mapping[str, Any], own: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the policy itself, and those of this module.

    own: options that the policy takes itself, such as `within` of a custom policy. In `exclude`,
    names belong to the policy, and values of columns do not.
    """
    inner, outer = dict(options), dict[str, Any]()
    for name in ("within", "where", "labels"):
        if name in options and name not in own:
            outer[name] = inner.pop(name)
    excluded = options.get("exclude")
    listed = excluded if isinstance(excluded, list | tuple) else [excluded]
    by_columns = [part for part in listed if isinstance(part, Mapping)]
    if by_columns and "exclude" not in own:
        outer["exclude"] = by_columns
        inner["exclude"] = [part for part in listed if not isinstance(part, Mapping)]
        if not inner["exclude"]:
            del inner["exclude"]
    return inner, outer


def stratified(policy: Policy, settled: Mapping[str, Any], outer: Mapping[str, Any]) -> Stratified:
    """The policy with these restrictions; `settled` are its own options in canonical form.

    Raises PolicyError for restrictions of any other form.
    """
    partition = Partition.of(outer.get("within"), policy.name)
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
    named = {"within": partition.within, "where": where, "labels": labels}
    options |= {option: value for option, value in named.items() if value}
    return Stratified(
        policy=policy,
        partition=partition,
        where=where,
        without=without,
        labels=labels,
        options=options,
    )


def _check_label_option(policy: Policy, labels: Any) -> None:
    """Raise PolicyError unless the option is a count or a share, and the policy has a size."""
    if labels is None:
        return
    number = not isinstance(labels, bool) and isinstance(labels, int | float)
    most = 1 if isinstance(labels, float) else float("inf")
    if not number or not 0 < labels <= most:
        raise PolicyError(
            f"{policy.name}: labels is {labels!r:.80}: write a number of prompts, such as 160, or "
            "a share of those with a gold answer, such as 0.2"
        )
    if policy.takes_all:
        raise PolicyError(f"{policy.name} takes every prompt: leave labels out")


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
