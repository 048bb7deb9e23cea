"""The interface of a policy: it selects `size` rows of a difficulty table, with a seed.

It also has the parts of policies: columns as arrays, checked options, ranking with random
tie-breaks, and `require` and `exclude`, options of every built-in policy. Arrays have one entry per
row.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.counts import counted
from orchestrator.plugins.difficulty_table import MEANING
from orchestrator.plugins.streams import generator

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]  # row numbers or ranks


def tie_breakers(difficulty_rows: int, rng: np.random.Generator) -> Rows:
    """A random permutation of row numbers: the lower one wins a tie. The generator's first draw.

    It depends only on the seed, the row's number and the number of rows, not on difficulty, so it
    stays the same while a table is being measured.
    """
    return rng.permutation(difficulty_rows)


def choice_rng(seed: int, stream: str = "") -> np.random.Generator:
    """The generator of a policy's choice under a seed.

    Policies that rank prompts share one generator, so that two of them differ only where they rank
    differently. A policy that chooses at random has a `stream` of its own: otherwise it would
    choose the prompts that win the ties of other policies.
    """
    return generator("choice of a subset", stream, seed) if stream else generator("ties", seed)


def lowest(score: np.ndarray, ranks: Rows, open_rows: Bools, size: int) -> Rows:
    """The first `size` open rows by (score, rank), in that order.

    `score`, `ranks` and `open_rows` have one entry per row; nan scores come last. At least
    `size` > 0 rows must be open.
    """
    rows = np.flatnonzero(open_rows)
    if size < len(rows):  # a partition is faster than sorting all rows
        scores = score[rows]
        cutoff = np.partition(scores, size - 1)[size - 1]
        unknown = bool(np.isnan(cutoff))
        certain = rows[~np.isnan(scores) if unknown else scores < cutoff]
        tied = rows[np.isnan(scores) if unknown else scores == cutoff]
        remaining = size - len(certain)
        last = np.partition(ranks[tied], remaining - 1)[remaining - 1]
        rows = np.concatenate([certain, tied[ranks[tied] <= last]])
    # Ranks are distinct, so any sort works for them; the scores then need a stable one.
    rows = rows[np.argsort(ranks[rows])]
    return rows[np.argsort(score[rows], kind="stable")]


# (difficulty table, size, generator) -> row numbers, best first
SelectFunction = Callable[[pa.Table, int, np.random.Generator], np.ndarray]

# What a row's rank depends on: nothing in its samples, the first sample's outcome, its pass rate,
# the pass rates of all rows, or anything else, such as its counts.
Needs = Literal["nothing", "first", "pass_rate", "pass_rates", "all"]

Options = dict[str, Any]  # of a policy or an allocation, JSON values by name

End = Literal["easy", "hard"]  # of the prompts in the order of their pass rates


class PolicyError(ValueError):
    """The policy does not exist, has invalid options or cannot fill the subset."""


class MalformedError(PolicyError):
    """A custom policy returned a malformed result, regardless of the pass rates."""


class Ties(NamedTuple):
    """Prompts whose score equals that of the last selected one: in the pool, and in the subset."""

    pool: int
    chosen: int


def check_size(difficulty: pa.Table, size: int) -> None:
    """Raise PolicyError unless a subset of `size` distinct rows exists."""
    if not 0 < size <= difficulty.num_rows:
        raise PolicyError(
            f"a subset of size {size} exceeds the pool of {difficulty.num_rows}: "
            f"write a budget between 1 and {difficulty.num_rows}"
        )


def checked_rows(chosen: Any, policy: str, size: int, pool: int) -> Rows:
    """The row numbers that a policy returned. PolicyError unless they are a subset of that size."""
    rows = np.asarray(chosen)
    whole = rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer)
    distinct = len(np.unique(rows))
    if not whole or len(rows) != size or distinct != size:
        remedy = "each row once" if distinct < rows.size else f"{size:,} of them"
        raise PolicyError(
            f"policy {policy!r} must return {size} distinct row numbers, and returned "
            f"{counted(rows.size, 'value')} ({distinct} distinct): return "
            + (remedy if whole else "a NumPy array of integers")
        )
    if rows.min() < 0 or rows.max() >= pool:
        raise PolicyError(f"policy {policy!r} returned a row outside 0…{pool - 1}")
    return rows


def kept_advice(column: str) -> str:
    """How to add a column of the user's data to a pool; `keep: all` omits nested columns."""
    return f"write source: {column:.80}, or keep: [{column:.80}, …], in the data set's options"


class SubsetPolicy(ABC):
    """Selects from the whole table, or from the rows that are still `free`."""

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        """Row numbers of the subset, best first. PolicyError if it cannot be filled."""
        check_size(difficulty, size)
        return self.pick(difficulty, size, rng)

    @abstractmethod
    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """Row numbers, best first, of rows that are `free` (one boolean per row; None: all)."""


class ByColumns(ABC):
    """A composed policy that reads columns of the user's data, itself or through its parts."""

    @property
    @abstractmethod
    def reads_columns(self) -> list[str]:
        """All columns that it reads."""

    @abstractmethod
    def check_values(self, prompts: pa.Table) -> None:
        """Raise PolicyError for a column, or a value of one, that a pool does not have."""

    def notes(self, difficulty: pa.Table, chosen: Rows, free: Bools | None = None) -> list[str]:
        """Strata that are short of prompts for this subset, by rank, of rows that are `free`."""
        return []


class Restricted(SubsetPolicy, ByColumns):
    """Selects with another policy from parts of the table (`policies.strata`)."""

    @abstractmethod
    def label_count(self, gold_count: int) -> int | None:
        """How many of a pool's `gold_count` gold answers the policy may read; None: all."""

    @abstractmethod
    def check_labels(self, prompts: pa.Table, size: int) -> None:
        """Raise PolicyError if these gold answers do not suffice for a subset of that size."""

    @abstractmethod
    def tied(self, difficulty: pa.Table, chosen: Rows) -> "tuple[Ties | None, Bools]":
        """The ties at all cutoffs, and which of the chosen rows were chosen at random."""


class ScorePolicy(SubsetPolicy):
    """Selects the rows with the lowest scores; ties are broken at random.

    A custom policy implements `score`, and `eligible` if some rows must not be selected. It may
    narrow `needs` if a row's score and eligibility depend only on that row's own first outcome,
    pass rate or tier: probing can then stop early and still select the same subset. With
    "pass_rates", for scores that depend on all pass rates, it also implements `score_bounds`.
    """

    name: str = ""
    """The name in messages; empty: the class's name."""
    needs: Needs = "all"
    """What a row's rank depends on."""
    takes_all: bool = False
    """Selects every eligible row, whatever the size."""
    wider: str = "another policy"
    """What to change if too few rows are eligible, besides a smaller budget."""
    easier: str = ""
    """Which of its options to change for easier prompts; empty: advise a different policy."""
    harder: str = ""
    """The same for harder prompts."""

    @property
    def stream(self) -> str:
        """The name of its own stream, if it chooses prompts at random; see `choice_rng`."""
        return ""

    @abstractmethod
    def score(self, difficulty: pa.Table) -> np.ndarray:
        """One number per row; the lowest are selected. nan (unknown pass rate) comes last."""

    def score_bounds(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Lowest and highest score of each row where each pass rate lies from `low` to `high`.

        nan: a row without a pass rate. Rows without one yet, from 0 to 1, may end without.
        """
        raise NotImplementedError(f"{self.title} has needs 'pass_rates': write score_bounds")

    def eligible(self, difficulty: pa.Table) -> Bools:
        """One boolean per row: whether it may be selected. By default, every row."""
        return np.ones(difficulty.num_rows, dtype=bool)

    def capacity(self, difficulty: pa.Table) -> int:
        """The number of eligible rows: the largest subset that can be filled."""
        return int(np.count_nonzero(self.eligible(difficulty)))

    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """The eligible and free rows with the lowest scores."""
        ranks = tie_breakers(difficulty.num_rows, rng)
        open_rows = self._per_row(self.eligible(difficulty), difficulty, "eligibilities")
        open_rows = open_rows if free is None else open_rows & free
        if (have := int(np.count_nonzero(open_rows))) < size:
            raise PolicyError(self.shortage(difficulty, have, size, free is not None))
        score = self._per_row(self.score(difficulty), difficulty, "scores")
        self._check_scores(score, difficulty)
        return lowest(score, ranks, open_rows, size)

    def ties(self, difficulty: pa.Table, chosen: np.ndarray) -> Ties | None:
        """Eligible rows that tie at the cutoff: in the pool, and among the selected ones."""
        score = self.score(difficulty)
        cutoff = score[chosen[-1]]
        at_cutoff = np.isnan(score) if np.isnan(cutoff) else score == cutoff
        at_cutoff &= self.eligible(difficulty)
        return Ties(int(at_cutoff.sum()), int(at_cutoff[chosen].sum()))

    def holds(self, difficulty: pa.Table) -> str:
        """What makes a row eligible; in messages after "N of M prompts"."""
        return "that it may select"

    def shortage(self, difficulty: pa.Table, have: int, size: int, shared: bool) -> str:
        """The message for a subset that cannot be filled."""
        left = " among the remaining ones" if shared else ""
        return (
            f"{self.title} has {have} of {counted(size, 'prompt')} {self.holds(difficulty)}{left}: "
            f"write a smaller budget or {self.wider}"
        )

    @property
    def title(self) -> str:
        """The name in messages."""
        return self.name or type(self).__name__

    def _check_scores(self, score: np.ndarray, difficulty: pa.Table) -> None:
        """Raise PolicyError unless they are numbers, and not all nan if any pass rate is known."""
        problem = "" if score.dtype.kind in "biuf" else f"scores of type {score.dtype}"
        if not problem and np.isnan(score).all() and "pass_rate" in difficulty.column_names:
            rated = np.isfinite(numbers(difficulty, "pass_rate", self.title)).any()
            problem = "nan for every row" if rated else ""
        if problem:
            raise PolicyError(
                f"{self.title} returned {problem}: return a NumPy array with one number per row"
            )

    def _per_row(self, values: np.ndarray, difficulty: pa.Table, what: str) -> np.ndarray:
        """The values of a policy, checked for their length; it may be a custom policy."""
        if np.shape(values) != (difficulty.num_rows,):
            raise PolicyError(
                f"{self.title} returned {what} of shape {np.shape(values)} for "
                f"{counted(difficulty.num_rows, 'row')}: return a NumPy array with "
                "one value per row"
            )
        return np.asarray(values)


FAILURES = ("wrong", "unparsed", "truncated")  # outcomes of a marked completion, except `correct`


def column(difficulty: pa.Table, name: str, policy: str) -> pa.ChunkedArray:
    """The column of that name. PolicyError if the table does not have it."""
    if name not in difficulty.column_names:
        raise PolicyError(
            f"{policy} needs the column {name} ({MEANING[name]}), which this table does not have: "
            "pass a probe's folder, or add the column to the table"
        )
    return difficulty[name]


def numbers(difficulty: pa.Table, name: str, policy: str) -> Floats:
    """The column as float64, nan where it is null."""
    values = column(difficulty, name, policy)
    kind = values.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise PolicyError(f"{policy} needs numbers in the column {name}, which has type {kind}")
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=float)


def labelled_rows(prompts: pa.Table) -> Bools:
    """One boolean per row: whether it has a gold answer. True for all rows without such a
    column."""
    if "labelled" not in prompts.column_names:
        return np.ones(prompts.num_rows, dtype=bool)
    return np.asarray(prompts["labelled"].to_numpy(zero_copy_only=False), dtype=bool)


def is_one_of(difficulty: pa.Table, name: str, texts: list[str], policy: str) -> Bools:
    """One boolean per row: whether the column's text is one of `texts`; false for null."""
    values = column(difficulty, name, policy)
    try:
        text = values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PolicyError(
            f"{policy} needs text in the column {name}, which has type {values.type}"
        ) from error
    matches = pc.is_in(text, value_set=pa.array(texts, pa.string()))
    return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)


def check_count(policy: str, option: str, value: Any, least: int = 1) -> None:
    """PolicyError unless the option is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(
            f"{policy}: {option} is {value!r}: write a whole number of at least {least}"
        )


def check_share(policy: str, option: str, value: Any, meaning: str) -> None:
    """PolicyError unless the option is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise PolicyError(f"{policy}: {option} is {value!r}: write {meaning} from 0 to 1")


def check_positive(policy: str, option: str, value: Any) -> None:
    """PolicyError unless the option is a finite number above 0."""
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not 0 < value < float("inf"):
        raise PolicyError(f"{policy}: {option} is {value!r}: write a number above 0")


def check_band(policy: str, low: Any, high: Any, meaning: str = "a pass rate") -> None:
    """PolicyError unless both are shares and `low` is at most `high`."""
    check_share(policy, "low", low, meaning)
    check_share(policy, "high", high, meaning)
    if low > high:
        raise PolicyError(f"{policy}: low {low} is above high {high}: swap them")


def read_and_unread(difficulty: pa.Table, policy: str) -> tuple[Floats, Floats]:
    """Per row, the samples with an answer that is not correct, and those without an answer.

    An answer that no gold answer marks may be wrong, and was read. Null counts as 0.
    """
    failures = {n: np.nan_to_num(numbers(difficulty, n, policy)) for n in FAILURES}
    read = failures["wrong"]
    if "unlabelled" in difficulty.column_names:
        read = read + np.nan_to_num(numbers(difficulty, "unlabelled", policy))
    return read, failures["unparsed"] + failures["truncated"]


def fails_by_form(difficulty: pa.Table, policy: str) -> Bools:
    """One boolean per row: whether its pass rate reflects the form of completions more than skill.

    That is the case if at least half of its failures are of form, and at least as many as are
    correct. It is also the case if more samples hold the gold answer in a different form than are
    correct.
    """
    read, unread = read_and_unread(difficulty, policy)
    failures = read + unread
    by_form, other_form, successes = (
        np.nan_to_num(numbers(difficulty, name, policy))
        for name in ("form_failures", "other_form", "successes")
    )
    mostly = (failures > 0) & (2 * by_form >= failures) & (by_form >= successes)
    return np.asarray(mostly | (other_form > successes), dtype=bool)


EXCLUDED = ("suspected", "unsolved", "form")


@dataclass(kw_only=True)
class Requiring:
    """Policies with the options `require` and `exclude`.

    Options:
        require: `parsed` keeps a prompt if at least half of its failures are parsed answers, that
            is, `wrong` rather than `unparsed` or `truncated`. Prompts without failures are kept.
            Without it, "hard" may mean "did not finish within the token limit".
        exclude: one of these words, or a list of them. `suspected`: prompts whose gold answer is
            probably wrong (the column `suspected`). `unsolved`: those without a correct sample.
            `form`: those that fail by form: in at least half of their failures, no answer was read,
            or the gold answer has a form that the marker does not read; or more samples are of the
            latter kind than correct. A list may also have columns with values to leave out, such as
            {source: drills}.
    """

    require: str | None = None
    exclude: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.require not in (None, "parsed"):
            raise PolicyError(f"unknown require: {self.require!r}: write parsed, or leave it out")
        names = [self.exclude] if isinstance(self.exclude, str) else self.exclude or []
        if not isinstance(names, list | tuple) or any(n not in EXCLUDED for n in names):
            raise PolicyError(
                f"unknown exclude: {self.exclude!r}: write {', '.join(EXCLUDED)}, or a list of them"
            )
        self.exclude = sorted(set(names)) or None  # the canonical form has one hash

    @property
    def excludes_suspected(self) -> bool:
        """Whether it leaves out suspected prompts."""
        return "suspected" in (self.exclude or [])

    @property
    def reads_answers(self) -> bool:
        """Whether it uses the samples' answers, as the columns suspected and form_failures do."""
        return self.excludes_suspected or "form" in (self.exclude or [])

    @property
    def restrictions(self) -> str:
        """The options as written, for messages; empty if there are none."""
        excluded = f"exclude: {', '.join(self.exclude)}" if self.exclude else ""
        required = f"require: {self.require}" if self.require else ""
        return " and ".join(filter(None, [required, excluded]))

    def required(self, difficulty: pa.Table, policy: str) -> Bools:
        """One boolean per row: whether it meets the requirement and is not excluded."""
        rows = np.ones(difficulty.num_rows, dtype=bool)
        if self.require:
            read, unread = read_and_unread(difficulty, policy)
            rows &= read >= unread
        if "unsolved" in (self.exclude or []):
            rows &= numbers(difficulty, "pass_rate", policy) > 0
        if "form" in (self.exclude or []):
            if column(difficulty, "form_failures", policy).null_count:
                raise PolicyError(
                    f"{policy}: exclude: form needs both readings of the samples, which this "
                    f"table lacks: pass a probe's folder"
                )
            rows &= ~fails_by_form(difficulty, policy)
        if self.excludes_suspected:
            suspected = column(difficulty, "suspected", policy)
            if not pa.types.is_boolean(suspected.type):
                raise PolicyError(
                    f"{policy} needs booleans in the column suspected, which has {suspected.type}"
                )
            if suspected.null_count:
                raise PolicyError(
                    f"{policy}: exclude: suspected needs the samples' answers, which this table "
                    f"lacks: pass a probe's folder"
                )
            rows &= ~suspected.to_numpy()
        return rows


@dataclass(kw_only=True)
class BuiltIn(Requiring, ScorePolicy):
    """A built-in policy: scores, and the options `require` and `exclude`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restrictions:
            self.needs = "all"
            self.wider = f"{self.wider}, or leave out {self.restrictions}"

    def eligible(self, difficulty: pa.Table) -> Bools:
        """Rows that meet the requirement, are not excluded, and meet the policy's own condition."""
        return self.required(difficulty, self.title) & self.allowed(difficulty)

    def allowed(self, difficulty: pa.Table) -> Bools:
        """One boolean per row: the policy's own condition."""
        return np.ones(difficulty.num_rows, dtype=bool)
