"""Arrow schemas of all stored tables."""

from typing import Literal, get_args

import pyarrow as pa

from orchestrator.plugins.difficulty_table import DIFFICULTY

# The counts of an episode.
TURNS = {
    "turns": pa.int32(),  # of the model
    "tool_calls": pa.int32(),
    "tool_errors": pa.int32(),  # calls that were answered with an error
    "tool_tokens": pa.int32(),  # that the environment wrote
}

# The turns of a completion; null for one answer to one question.
EPISODE = pa.struct(
    {
        "messages": pa.string(),  # the whole chat as JSON, from the prompt on
        **TURNS,
        "reward": pa.float64(),  # what get_reward() returned; null without one
        "failure": pa.string(),  # why the environment failed; empty if it did not
    }
)

# The mark of a completion.
_MARKS = {
    # correct | wrong | unparsed | truncated | error, or unlabelled: read, without a gold answer
    "outcome": pa.string(),
    "extracted": pa.string(),  # the extracted answer, null if there is none
    "rule": pa.string(),  # the marking rule that determined the outcome
    "other_outcome": pa.string(),  # under the marking that rewards do not use
    "other_rule": pa.string(),
    "marker": pa.string(),  # task, marker version and marking
    # From 0 to 1; null for an error and without a gold answer; 1 or 0 unless the marker gives a
    # score.
    "score": pa.float64(),
}

# One row per sampled completion of a probe (training pool or test set).
SAMPLES = pa.schema(
    {
        "prompt_id": pa.string(),
        "sample": pa.int32(),
        "completion": pa.string(),
        "tokens": pa.int32(),
        "finish": pa.string(),  # stop | length | error
        **_MARKS,
        "episode": EPISODE,
    }
)

# New marks of stored completions, stored next to them.
MARKED = pa.schema({"prompt_id": pa.string(), "sample": pa.int32(), **_MARKS})

# One row per selected prompt, by rank. The schema's metadata describes the selection. The user's
# columns that are kept with a prompt follow these columns.
_RATED = ("prompt_id", "tier", "pass_rate", "n", "successes")  # n: null if unknown
SUBSET = pa.schema(
    [
        pa.field("rank", pa.int32()),
        *(DIFFICULTY.field(name) for name in _RATED),
        pa.field("tied", pa.bool_()),  # selected at random among prompts tied at the cutoff
        pa.field("why", pa.string()),
    ]
)

# One row per group of one update; the lists have one entry per completion, in the order of
# generation. If a discarded row has the update and prompt of a trained group, it is the rest of
# this group.
GROUPS = pa.schema(
    {
        "update": pa.int32(),  # counted from 1
        "prompt_id": pa.string(),
        "rewards": pa.list_(pa.float64()),  # of training; null if marking or a reward failed
        "tier": pa.string(),
        "outcomes": pa.list_(pa.string()),
        "other_outcomes": pa.list_(pa.string()),  # under the marking that rewards do not use
        "tokens": pa.list_(pa.int32()),
        "scores": pa.list_(pa.float64()),  # of the marks; null if marking failed
        # Named rewards before weighting, null if one does not apply; empty if the score is the only
        # reward.
        "components": pa.map_(pa.string(), pa.list_(pa.float64())),
        # In multi-turn tasks, one per completion; else null.
        "episodes": pa.list_(
            pa.struct(
                {
                    **TURNS,
                    "seconds": pa.float64(),  # of the environment
                }
            )
        ),
    }
)

# One row per completion of an evaluation of a cell; update 0 is the base model.
# dataset: empty for the cell's own test set. greedy: drawn at temperature 0.
EVALUATIONS = pa.schema(
    [
        pa.field("update", pa.int32()),
        pa.field("dataset", pa.string()),
        pa.field("greedy", pa.bool_()),
        pa.field("tier", pa.string()),
        *SAMPLES,
        pa.field("group", pa.string()),  # of related questions; null for unrelated questions
        pa.field("source", pa.string()),  # null if questions have none
    ]
)

# Numbers logged by the trainer, one per row. Names are TRL's own (loss, entropy, grad_norm, …), or
# begin with gate, gates or stratum for an online policy's choices in the update.
LOG = pa.schema({"update": pa.int32(), "name": pa.string(), "value": pa.float64()})

Split = Literal["train", "test"]
PROBE = b"decile.probe"  # in a part's metadata: the key of its probe
SPLIT = b"decile.split"  # in a part's metadata: train or test

OF_PLACE = ("source", "file", "line")
TEXTS = ("question", "answer", "prompt", "messages", "info", "group")
OF_EVALUATIONS = ("correct", "gold")
# Names of Decile's own columns, which kept columns cannot have in a table.
TAKEN = frozenset(
    (*SAMPLES.names, *DIFFICULTY.names, *SUBSET.names, *OF_PLACE, *TEXTS, *OF_EVALUATIONS)
)

# Columns that are only written if not empty.
OPTIONAL = ("episode", "episodes", "group", "source")


def without_empty(table: pa.Table) -> pa.Table:
    """The table without empty OPTIONAL columns."""
    empty = [n for n in OPTIONAL if n in table.column_names and not len(table[n].drop_null())]
    return table.drop_columns(empty) if empty else table


def has_schema(table: pa.Table, schema: pa.Schema) -> bool:
    """Whether a table has exactly these columns; a subset may have more after them."""
    fields = [*table.schema][: len(schema)] if schema is SUBSET else [*table.schema]
    return bool(pa.schema(fields).equals(schema))


def completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the OPTIONAL columns of `schema` that it lacks.

    If it lacks a different column, it is returned unchanged.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    if not missing or not {*missing} <= {*OPTIONAL}:
        return table
    columns = {name: table[name] for name in table.column_names}
    for name in missing:
        columns[name] = pa.nulls(table.num_rows, schema.field(name).type)
    whole = pa.table({name: columns[name] for name in (*schema.names, *columns)})
    return whole.replace_schema_metadata(table.schema.metadata)


def split_of(schema: pa.Schema) -> Split | None:
    """The split in a part's metadata; None for a table that is not a part."""
    name = (schema.metadata or {}).get(SPLIT, b"").decode()
    return next((known for known in get_args(Split) if known == name), None)


def pool_column_names(table: pa.Table) -> list[str]:
    """The columns of a difficulty table or a subset that are not Decile's own."""
    return [name for name in table.column_names if name in OF_PLACE or name not in TAKEN]
