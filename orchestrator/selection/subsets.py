"""A difficulty table and a policy -> a subset: which prompts, and why they were chosen. Pure."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.difficulty.outcomes import complete_pass_rates, outcome_counts
from orchestrator.difficulty.remedies import form_note, unread_answers, unsolved_note
from orchestrator.difficulty.suspects import no_suspects
from orchestrator.plugins.counts import counted
from orchestrator.storage.schema import SUBSET, pool_column_names
from policies import Policy, PolicyError, choice_rng, get_policy


class SubsetRequest(NamedTuple):
    """The subset to select from a difficulty table.

    samples: K; prompts that were decided early may have fewer. match: policies whose smallest
    capacity limits the subset, except those that take the whole pool. difficulty: title of the
    table's rates, if they are not pass rates of the prompts' model. stream: see `choice_rng`; None
    means the policy's.
    """

    rule: PolicyEntry
    size: int
    seed: int = 0
    match: Sequence[PolicyEntry] = ()
    samples: int | None = None
    count_truncated: str = "wrong"
    difficulty: str = ""
    stream: str | None = None

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the choice."""
        stream = self.rule.build().stream if self.stream is None else self.stream
        return choice_rng(self.seed, stream)


def policy_entry(name: str, options: dict[str, Any]) -> PolicyEntry:
    """The entry of a policy named on a command line. Raises PolicyError if it is invalid."""
    get_policy(name, **options)
    return PolicyEntry(policy=name, options=options)


def select(
    difficulty: pa.Table, request: SubsetRequest, own_table: pa.Table | None = None
) -> tuple[pa.Table, dict[str, Any]]:
    """The chosen rows by rank (schema SUBSET), and the reason: policy, size, seed, ties.

    If the policy ranks by another difficulty, counts and pass rates of the subset are from
    `own_table`, the table of the prompts' own model.

    `ties` is {"pool": prompts with the last chosen one's score, "chosen": those of them that were
    chosen}; None for a policy without scores. `notes`, if any, state why the subset may teach
    nothing, or which option has no effect. Raises PolicyError if the policy cannot fill the subset.
    """
    if request.samples is not None:
        difficulty = complete_pass_rates(difficulty, request.samples, request.count_truncated)
    policy = request.rule.build()
    size = request.size
    if policy.takes_all:
        size = policy.capacity(difficulty)
    elif bound := narrowest(difficulty, request.match):
        size = min(size, bound[0])
        if not size:
            raise PolicyError(f"{bound[1]}, so match_sizes leaves no prompt: change this policy")
    chosen = policy(difficulty, size, request.rng)
    ties, tied = policy.tied(difficulty, chosen)
    why = {
        **request.rule.model_dump(),
        "size": size,  # number of prompts
        "seed": request.seed,  # that breaks ties
        "asked": request.size,  # the size that the budget asks for
        # prompts with the score of the last chosen one: in the pool, and chosen; or null
        "ties": ties._asdict() if ties else None,
    }
    if by := request.difficulty:
        why["ranked_by"] = by  # what it ranked by, if not by pass rates of the cell's model
    notes = policy.notes(difficulty, chosen)
    notes += unranked(policy, difficulty, chosen, by)
    notes += [no_suspects(difficulty)] if policy.excludes_suspected else []
    rows = difficulty.take(pa.array(chosen))
    own = rows if own_table is None else same_prompts(own_table, rows)
    if unread := unread_answers(outcome_counts(own)):
        notes.append(f"of the chosen prompts, {unread}")
    if by_form := form_note(own):
        why["form_note"] = by_form  # how many of the chosen prompts fail by form
        notes.append(by_form)
    notes.append(unsolved_note(own, difficulty if own_table is None else own_table))
    if notes := [*filter(None, notes)]:
        why["notes"] = notes
    column = policy.ranks_by or "pass_rate"
    texts = _rate_texts(rows, by, column) if by else _count_texts(rows)
    return _subset_table(own, tied, texts), why


def unranked(policy: Policy, table: pa.Table, chosen: np.ndarray, difficulty: str) -> list[str]:
    """A note on chosen rows without a value to rank them by, if any.

    difficulty: the title of what the policy ranks by, if not pass rates of the prompts' model.
    """
    if not (count := int(np.count_nonzero(policy.unranked(table)[chosen]))):
        return []
    by = f" ({difficulty})" if difficulty else ""
    return [
        f"{count:,} of the {counted(len(chosen), 'chosen prompt')} have no value to rank them by"
        f"{by}: they come last, in random order"
    ]


def same_prompts(table: pa.Table, rows: pa.Table) -> pa.Table:
    """The rows of a table with the same prompts as `rows`, in the same order."""
    ids = table["prompt_id"].combine_chunks()
    return table.take(pc.index_in(rows["prompt_id"].combine_chunks(), value_set=ids))


def narrowest(difficulty: pa.Table, match: Sequence[PolicyEntry]) -> tuple[int, str] | None:
    """The smallest capacity of policies that do not take the whole pool, as a number and in words.

    Raises PolicyError if a user's own policy fails.
    """
    capacities = []
    for rule in match:
        policy = rule.build()
        if not policy.takes_all:
            capacities.append((policy.capacity(difficulty), policy.capacity_text(difficulty)))
    return min(capacities, default=None)


def _subset_table(rows: pa.Table, tied: np.ndarray, texts: list[str]) -> pa.Table:
    """The chosen prompts with the reason for each; `tied`: which were chosen at random."""
    columns = {f.name: pa.nulls(rows.num_rows, f.type) for f in SUBSET}
    columns |= {name: rows[name] for name in SUBSET.names if name in rows.column_names}
    columns |= {
        "rank": pa.array(range(rows.num_rows), pa.int32()),
        "tied": pa.array(tied, pa.bool_()),
        "why": pa.array(
            [
                f"chosen {'at random among ties' if chance else 'by its score'}{text}"
                for chance, text in zip(tied.tolist(), texts, strict=True)
            ],
            pa.string(),
        ),
    }
    table = pa.table({name: columns[name] for name in SUBSET.names}).cast(SUBSET)
    for name in pool_column_names(rows):
        table = table.append_column(name, rows[name])
    return table


def _count_texts(rows: pa.Table) -> list[str]:
    """The sample counts of each row as the end of a sentence; empty if unknown."""
    columns = []
    for name in ("n", "successes", "short"):
        known = name in rows.column_names
        columns.append(rows[name].to_pylist() if known else [None] * rows.num_rows)
    texts = []
    for n, successes, short in zip(*columns, strict=True):
        text = ""
        if n is not None and successes is not None:
            text = f"; {successes} of {counted(n, 'sample')} correct"
            if short:
                text += ", decided before all samples were drawn"
        texts.append(text)
    return texts


def _rate_texts(rows: pa.Table, difficulty: str, column: str) -> list[str]:
    """The value of each row in the difficulty of this name, as the end of a sentence."""
    values = [None] * rows.num_rows
    if column in rows.column_names:
        values = rows[column].to_pylist()
    shown = ("unknown" if value is None else f"{value:.3g}" for value in values)
    return [f"; {difficulty} {text}" for text in shown]


def with_reason(table: pa.Table, why: dict[str, Any]) -> pa.Table:
    """The table with the reason for the subset in its metadata (key `decile`, JSON)."""
    return table.replace_schema_metadata({"decile": json.dumps(why, sort_keys=True)})


def reason(table: pa.Table) -> dict[str, Any]:
    """The reason that `with_reason` wrote."""
    return dict(json.loads((table.schema.metadata or {}).get(b"decile", b"{}")))
