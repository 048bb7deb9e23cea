"""Policies and allocations with their options, as the rest of Decile uses them.

A custom policy is a function or an object of any class. Attributes that it does not declare have
their defaults here. Its exceptions become a PolicyError with the place in its code, and its results
are checked.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.counts import counted
from orchestrator.plugins.difficulty_table import OF_GOLDS
from orchestrator.plugins.registry import suggest
from orchestrator.plugins.user_code import is_own, user_errors
from policies.allocation import Groups, checked_kept, checked_more
from policies.base import (
    Bools,
    ByColumns,
    End,
    Floats,
    Needs,
    PolicyError,
    Restricted,
    Rows,
    ScorePolicy,
    Ties,
    checked_rows,
    kept_advice,
    numbers,
)
from policies.online import (
    MAX_DRAWS,
    History,
    OnlinePolicy,
    checked_ids,
    checked_keep,
    unknown_id,
)


@dataclass(frozen=True)
class Built:
    """A policy, allocation or gate, with its name for messages."""

    name: str
    rule: Any
    kind: ClassVar[str] = "policy"

    def declared(self, attribute: str, default: Any) -> Any:
        """An attribute of the rule; a custom rule may compute it, or lack it."""
        with self.errors():
            return getattr(self.rule, attribute, default)

    @property
    def needs(self) -> Needs:
        """The part of the probe that it uses; `all` if it does not declare it."""
        return cast(Needs, self.declared("needs", "all"))

    @property
    def reads_golds(self) -> bool:
        """Whether its choice depends on gold answers, for instance through pass rates."""
        return bool(self.declared("reads_golds", self.needs != "nothing"))

    @property
    def simulated(self) -> bool:
        """Whether simulating a second probe changes what it reads."""
        return bool(self.declared("simulated", True))

    @property
    def reads_columns(self) -> list[str]:
        """The columns of the user's data that it reads."""
        return [*self.declared("reads_columns", [])]

    def check_columns(self, prompts: pa.Table) -> None:
        """Raise PolicyError for a column of the user's data that a pool lacks.

        Also for a value that the rule names and that none of the prompts has.
        """
        if isinstance(self.rule, ByColumns):
            self.rule.check_values(prompts)
        for column in self.reads_columns:
            if column not in prompts.column_names:
                raise PolicyError(
                    f"{self.kind} {self.name!r} reads the column {column!r:.80}, which the pool "
                    f"does not have: write one of {', '.join(prompts.column_names)}, or "
                    f"{kept_advice(column)}{suggest(column, prompts.column_names)}"
                )

    def errors(self) -> AbstractContextManager[None]:
        """Turn exceptions of a user's code into a PolicyError with the place.

        A bug of a built-in policy keeps its traceback.
        """
        return user_errors(f"{self.kind} {self.name!r}", PolicyError, self.rule)

    def change_towards(self, end: End) -> str:
        """What to change in its options for prompts nearer to this end; empty: its name."""
        return str(self.declared("easier" if end == "easy" else "harder", ""))


class Policy(Built):
    """A policy that selects a subset before training."""

    @property
    def scored(self) -> ScorePolicy | None:
        """The rule if it ranks rows by scores."""
        return self.rule if isinstance(self.rule, ScorePolicy) else None

    @property
    def takes_all(self) -> bool:
        """Whether it selects every eligible row, whatever the size."""
        # Custom policies may use its earlier name.
        return bool(self.declared("takes_all", False) or self.declared("whole", False))

    @property
    def stream(self) -> str:
        """The stream that it draws from; empty: the stream of ties. See `choice_rng`."""
        return str(self.declared("stream", ""))

    @property
    def at_random(self) -> bool:
        """Whether only chance decides among eligible rows."""
        return self.needs == "nothing" and not self.takes_all

    @property
    def ranks_by(self) -> str:
        """The column that it ranks by regardless of `difficulty`; empty: `difficulty` decides."""
        without = not self.reads_golds and self.needs != "nothing"
        return str(self.declared("ranks_by", "agreement" if without else ""))

    @property
    def reads_answers(self) -> bool:
        """Whether it uses columns for which the samples' answers are read, such as `suspected`."""
        return bool(self.declared("reads_answers", False))

    @property
    def excludes_suspected(self) -> bool:
        """Whether it leaves out suspected prompts; by default, if it reads answers and golds."""
        return bool(self.declared("excludes_suspected", self.reads_answers and self.reads_golds))

    @property
    def reads_questions(self) -> bool:
        """Whether it uses the column `question`, the prompts' texts."""
        return bool(self.declared("reads_questions", False))

    def shown(self, difficulty: pa.Table) -> pa.Table:
        """The table that the rule gets: without gold answers if it does not read them."""
        if self.reads_golds:
            return difficulty
        table = difficulty.drop_columns([n for n in difficulty.column_names if n in OF_GOLDS])
        return table.replace_schema_metadata(None)

    def label_count(self, gold_count: int) -> int | None:
        """How many of a pool's gold answers its option `labels` lets it read; None: all."""
        return self.rule.label_count(gold_count) if isinstance(self.rule, Restricted) else None

    def check_labels(self, prompts: pa.Table, size: int) -> None:
        """Raise PolicyError if its option `labels` does not suffice for a subset of a pool."""
        if isinstance(self.rule, Restricted):
            self.rule.check_labels(prompts, size)

    def __call__(self, difficulty: pa.Table, size: int, rng: np.random.Generator) -> Rows:
        """Row numbers of the subset, best first; of all eligible rows if it `takes_all`."""
        table = self.shown(difficulty)
        with self.errors():
            rows = self.rule(table, size, rng)
            if self.takes_all:
                size = np.size(rows)
            return checked_rows(rows, self.name, size, difficulty.num_rows)

    def eligible(self, difficulty: pa.Table) -> Bools:
        """One boolean per row: whether it may be selected. By default, every row."""
        eligible = self.declared("eligible", None)
        if eligible is None:
            return np.ones(difficulty.num_rows, dtype=bool)
        table = self.shown(difficulty)
        with self.errors():
            return np.asarray(eligible(table))

    def capacity(self, difficulty: pa.Table) -> int:
        """The number of eligible rows."""
        return int(np.count_nonzero(self.eligible(difficulty)))

    def unranked(self, difficulty: pa.Table) -> Bools:
        """One boolean per row: whether it has no score, or, without scores, no pass rate."""
        table = self.shown(difficulty)
        score = np.zeros(difficulty.num_rows)
        if self.scored is not None:
            with self.errors():
                score = np.asarray(self.scored.score(table), dtype=float)
        elif self.needs != "nothing" and "pass_rate" in table.column_names:
            score = numbers(table, "pass_rate", self.name)
        return np.isnan(score)

    def capacity_text(self, difficulty: pa.Table) -> str:
        """The number in words: `band has 3 of 40 prompts with a pass rate from …`."""
        holds = self.scored.holds(self.shown(difficulty)) if self.scored else "that it may select"
        return (
            f"{self.name} has {self.capacity(difficulty)} of "
            f"{counted(difficulty.num_rows, 'prompt')} {holds}"
        )

    def notes(self, difficulty: pa.Table, chosen: Rows, free: Bools | None = None) -> list[str]:
        """Strata that are short of prompts for this subset, by rank, of rows that are `free`."""
        rule, table = self.rule, self.shown(difficulty)
        return rule.notes(table, chosen, free) if isinstance(rule, ByColumns) else []

    def tied(self, difficulty: pa.Table, chosen: Rows) -> tuple[Ties | None, Bools]:
        """The ties at the cutoff, and which of the chosen rows were chosen at random."""
        if isinstance(self.rule, Restricted):
            return self.rule.tied(self.shown(difficulty), chosen)
        ties = self.ties(difficulty, chosen)
        if ties is None:
            return None, np.full(len(chosen), self.at_random)
        first = len(chosen) - ties.chosen if ties.pool > ties.chosen else len(chosen)
        return ties, np.arange(len(chosen)) >= first

    def ties(self, difficulty: pa.Table, chosen: Rows) -> Ties | None:
        """The ties at the cutoff; None for policies without scores and for `random`."""
        ties = self.declared("ties", None)
        if ties is None:
            return None
        table = self.shown(difficulty)
        with self.errors():
            return cast(Ties | None, ties(table, chosen))


class Versioned(Built):
    """A rule that decides during training, where no choice can be repeated."""

    @property
    def version(self) -> int:
        """The version of its choices; a built-in rule raises it if they change for a given seed.

        Finished cells of an earlier version stay finished; see `open_plan`.
        """
        return int(self.declared("version", 1)) if is_own(self.rule) else 1


class BuiltOnlinePolicy(Versioned):
    """A policy that chooses the prompts of every update during training."""

    @property
    def discards(self) -> bool:
        """Whether it may discard groups that were drawn."""
        return callable(self.declared("keep", None))

    @property
    def max_draws(self) -> int:
        """The most prompts drawn for an update, as a multiple of its size."""
        return int(self.declared("max_draws", MAX_DRAWS)) if self.discards else 1

    @property
    def at_once(self) -> int:
        """The prompts drawn at once, as a multiple of those that an update lacks."""
        return int(self.declared("at_once", 1)) if self.discards else 1

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of its gates and strata for the last update that it chose for; empty without
        any."""
        return self.declared("metrics", {}) if isinstance(self.rule, ByColumns) else {}

    def next_ids(
        self, history: History, update: int, size: int, missing: int | None = None
    ) -> pa.Array:
        """The distinct prompt_ids that it chooses for an update, or additional ones for it.

        `missing`: the number of groups that the update lacks, if that is not `size`.
        """
        history.start(update, size, missing)
        with self.errors():
            chosen = self.rule.next(update, history)
        return checked_ids(chosen, self.name, size)

    def check(self, history: History, size: int) -> None:
        """Let it choose the first `size` prompts, and judge a group of each pass rate.

        Raises PolicyError if it cannot.
        """
        ids = self.next_ids(history, update=1, size=size)
        unknown = ids.filter(pc.invert(pc.is_in(ids, value_set=history.prompt_ids)))
        if len(unknown):
            raise PolicyError(unknown_id(self.name, str(unknown[0]), len(history.prompt_ids)))
        if self.discards:
            correct = np.arange(history.group_size + 1)
            self.keep(correct, np.full(len(correct), history.group_size))

    def fill(self, size: int, fresh: Callable[[], int], draw: Callable[[int, int], int]) -> None:
        """Draw groups for an update of `size` prompts until it is full of those that are kept.

        fresh: how many prompts were not drawn for the update yet. draw(count, missing): draws
        `count` groups for an update that lacks `missing`, and returns how many of them are kept.
        """
        kept, left = 0, size * self.max_draws
        while missing := size - kept:
            count = min(missing * self.at_once, left, fresh())
            if not count:
                break
            kept += draw(count, missing)
            left -= count

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """Which groups it keeps, by their correct and marked completions, each [groups]."""
        with self.errors():
            kept = self.rule.keep(correct, marked)
        return checked_keep(kept, self.name, len(correct))

    def change_towards(self, end: End) -> str:
        """As above; the default is to choose from a subset nearer to this end."""
        attribute = "easier" if end == "easy" else "harder"
        return str(self.declared(attribute, getattr(OnlinePolicy, attribute)))


class BuiltAllocation(Built):
    """A rule that divides the completions of an update among its prompts."""

    kind: ClassVar[str] = "allocation"

    @property
    def discards(self) -> bool:
        """Whether some of the completions drawn may not be trained on."""
        return callable(self.declared("keep", None))

    @property
    def times(self) -> int:
        """The completions drawn for an update, as a multiple of those that it trains on."""
        return int(self.rule.times) if self.discards else 1

    def more(self, groups: Groups) -> Rows:
        """The additional completions of each prompt [P] that it hands out.

        Raises PolicyError if it hands out none, or more than are left, or if a prompt ends with
        fewer than two.
        """
        with self.errors():
            values = np.asarray(self.rule(groups))
        return checked_more(values, self.name, groups)

    def keep(self, rewards: Floats, size: int) -> Bools:
        """Which of a prompt's completions to train on: `size` of them if it discards any."""
        if not self.discards:
            return np.ones(len(rewards), dtype=bool)
        with self.errors():
            return checked_kept(self.rule.keep(rewards, size), self.name, len(rewards), size)
