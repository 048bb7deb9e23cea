"""Exports a subset with its texts and its provenance, in the layouts of trainers."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from statistics import median, stdev
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator import __version__
from orchestrator.optional.exchange.row_order import RowOrder
from orchestrator.planning.pool_columns import distinct_names, pool_columns
from orchestrator.plugins.counts import counted
from orchestrator.selection.subsets import reason
from orchestrator.storage.local_files import check_output
from orchestrator.storage.proof import Unsound, read_parquet
from orchestrator.storage.schema import pool_column_names
from orchestrator.storage.store import Store
from tasks import Prompt, Task, TaskError
from tasks.prompt_table import PromptTable
from tasks.sources.files import Row
from tasks.sources.user_files import reading_parquet, sha256_of

POLICY_ORDER = RowOrder()
IDS_SHOWN = 3  # ids of missing prompts that a message lists
REQUIRED = ("rank", "prompt_id", "pass_rate")  # of a subset
_MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
_COMMON = {
    "prompt_id": pa.string(),
    "answer": pa.string(),
    "tier": pa.string(),
    "pass_rate": pa.float64(),
    "rank": pa.int32(),
}
JSONL = pa.schema({**_COMMON, "question": pa.string(), "messages": _MESSAGES, "why": pa.string()})
TRL = pa.schema({"prompt": _MESSAGES, **_COMMON})
VERIFIERS = pa.schema({"prompt": _MESSAGES, "answer": pa.string(), "info": pa.string()})
VERL = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": _MESSAGES,
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct(
            {"index": pa.int64(), "split": pa.string(), **_COMMON, "question": pa.string()}
        ),
    }
)
OPENRLHF = pa.schema(
    {"datasource": pa.string(), "input": _MESSAGES, "label": pa.string(), **_COMMON}
)
PRIME_RL = pa.schema(
    {"example_id": pa.int64(), "task": pa.string(), **{f.name: f.type for f in VERIFIERS}}
)
# create_difficulty_map.py of open-instruct (at dd99f97) reads these; its training reads messages.
OPEN_INSTRUCT = pa.schema(
    {
        "messages": _MESSAGES,
        "ground_truth": pa.string(),
        "dataset": pa.string(),
        "pass_count": pa.int64(),
        "num_samples": pa.int64(),
        "extra_info": pa.struct({"index": pa.string()}),
        **_COMMON,
    }
)
# A reward profile of NeMo-Gym (reward_profile.py at 07d6b0d).
_STATISTICS = ("mean/reward", "max/reward", "min/reward", "median/reward", "std/reward")
_COUNTS = ("num_rollouts", "expected_num_rollouts", "missing_num_rollouts")
_ROLLOUT = pa.struct(
    {
        "rollout_id": pa.string(),
        "_ng_task_index": pa.int64(),
        "_ng_rollout_index": pa.int64(),
        "reward": pa.float64(),
    }
)
NEMO_GYM = pa.schema(
    {
        "_ng_task_index": pa.int64(),
        **dict.fromkeys(_STATISTICS, pa.float64()),
        "sample": pa.struct(
            {
                "responses_create_params": pa.struct({"input": _MESSAGES}),
                "expected_answer": pa.string(),
                **_COMMON,
            }
        ),
        **dict.fromkeys(_COUNTS, pa.int64()),
        "reward_profile_completion_pct": pa.float64(),
        "rollout_infos": pa.list_(_ROLLOUT),
    }
)


# Columns to which TRL's GRPOTrainer gives a meaning, or for which it passes its own to rewards.
_OF_TRL = "image images prompts completions completion_ids environments"
_OF_TRL += " trainer_state log_extra log_metric"


class Layout(NamedTuple):
    """A trainer's columns, the file types that it reads, and names that columns may not have.

    `order_kept`: the trainer's setting that keeps the order of the file, by its source of August
    2026. `own`: the object that contains the columns of the user's data. `counted`: whether the
    layout consists of counts of samples.
    """

    schema: pa.Schema
    suffixes: tuple[str, ...]
    order_kept: str
    reserved: tuple[str, ...] = ()
    own: str | None = None
    counted: bool = False

    @property
    def names(self) -> set[str]:
        """Names of its fields, including nested ones, and the reserved names."""
        objects = (field.type for field in self.schema if pa.types.is_struct(field.type))
        inside = (field.name for fields in objects for field in fields)
        return {*self.schema.names, *inside, *self.reserved}


_PRIME_RL = "prime-rl goes through the tasks of an environment in this order"
_SHUFFLES = "shuffles prompts in every epoch, and has no setting to disable it"
LAYOUTS: Mapping[str, Layout] = {
    "jsonl": Layout(
        JSONL,
        (".jsonl",),
        "axolotl keeps this order with curriculum_sampling: true, NeMo-RL with data.shuffle: false",
    ),
    "trl": Layout(
        TRL,
        (".jsonl", ".parquet"),
        "TRL keeps this order with GRPOConfig(shuffle_dataset=False)",
        tuple(_OF_TRL.split()),
    ),
    "verl": Layout(
        VERL, (".parquet",), "verl keeps this order with data.shuffle=False", own="extra_info"
    ),
    "verifiers": Layout(VERIFIERS, (".jsonl", ".parquet"), _PRIME_RL),
    "openrlhf": Layout(OPENRLHF, (".jsonl", ".parquet"), f"OpenRLHF {_SHUFFLES}"),
    "prime-rl": Layout(PRIME_RL, (".jsonl", ".parquet"), _PRIME_RL),
    "open-instruct": Layout(
        OPEN_INSTRUCT, (".jsonl", ".parquet"), f"open-instruct {_SHUFFLES}", counted=True
    ),
    "nemo-gym": Layout(
        NEMO_GYM,
        (".jsonl",),
        "NeMo-RL keeps this order with data.shuffle: false",
        own="sample",
        counted=True,
    ),
}


def _row(layout: str, prompt: Prompt, chosen: Row, task: Task, further: Row) -> Row:
    """A prompt in a layout; `chosen` is its row of the subset, `further` are its pool columns."""
    question, answer = prompt.question, prompt.answer
    messages = task.messages_of(question, prompt.info)
    rank, name = chosen["rank"], f"decile/{task.name}"
    common = {
        "prompt_id": prompt.prompt_id,
        "answer": answer,
        "tier": prompt.tier,
        "pass_rate": chosen["pass_rate"],
        "rank": rank,
        **further,
    }
    if layout == "jsonl":
        return {**common, "question": question, "messages": messages, "why": chosen.get("why")}
    if layout == "trl":
        # Its conversational prompt-only format: GRPOTrainer passes other columns to rewards.
        return {"prompt": messages, **common}
    if layout == "verl":
        # As in verl's examples. `data_source` deliberately does not name a built-in reward of verl:
        # set `custom_reward_function`, so that answers are read in the form that this task
        # requests.
        return {
            "data_source": name,
            "prompt": messages,
            "ability": task.name,
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"index": rank, "split": "train", **common, "question": question},
        }
    if layout == "openrlhf":
        # For the options --input_key input --label_key label --apply_chat_template, which takes
        # chat messages. `datasource` reaches the reward function; no built-in reward has that name.
        return {"datasource": name, "label": answer, "input": messages, **common}
    if layout == "open-instruct":
        # `dataset` is the verifier of the training, deliberately not a built-in one.
        successes, n = sample_counts(chosen)
        return {
            **common,
            "messages": messages,
            "ground_truth": answer,
            "dataset": name,
            "pass_count": successes,
            "num_samples": n,
            "pass_rate": successes / n,
            "extra_info": {"index": prompt.prompt_id},
        }
    if layout == "nemo-gym":
        params = {"responses_create_params": {"input": messages}, "expected_answer": answer}
        return {**_reward_profile(chosen), "sample": {**params, **common}}
    # `info` as JSON text, which the verifiers documentation prefers and its environments parse.
    info = json.dumps({**common, "question": question}, ensure_ascii=False)
    row = {"prompt": messages, "answer": answer, "info": info}
    # prime-rl reads the rows of a verifiers environment, with ids of its own.
    return row if layout == "verifiers" else {"example_id": rank, "task": name, **row}


def sample_counts(chosen: Row) -> tuple[int, int]:
    """A prompt's successes and scored samples; the latter is 0 if unknown.

    A subset's n also counts samples whose marking failed, but its rate does not. For a prompt
    without successes, their number is unknown, and all samples count.
    """
    n, successes, rate = (chosen.get(name) for name in ("n", "successes", "pass_rate"))
    if not n or successes is None or rate is None:
        return 0, 0
    return successes, min(n, round(successes / rate)) if successes and rate else n


def _reward_profile(chosen: Row) -> dict[str, Any]:
    """The counts as NeMo-Gym's statistics of rewards of 0 and 1; rollouts are unordered."""
    task, (successes, n) = chosen["rank"], sample_counts(chosen)
    rewards = [1.0] * successes + [0.0] * (n - successes)
    deviation = stdev(rewards) if n > 1 else 0.0
    values = (successes / n, max(rewards), min(rewards), median(rewards), deviation)
    return {
        "_ng_task_index": task,
        **dict(zip(_STATISTICS, values, strict=True)),
        **dict(zip(_COUNTS, (n, chosen["n"], chosen["n"] - n), strict=True)),
        "reward_profile_completion_pct": 100 * n / chosen["n"],
        "rollout_infos": [
            dict(zip(_ROLLOUT.names, (f"{task}:{i}", task, i, reward), strict=True))
            for i, reward in enumerate(rewards)
        ],
    }


def export_layout(name: str, out: str | Path) -> Layout:
    """The layout. Raises TaskError if it is unknown, and UserError if `out` cannot be written."""
    if name not in LAYOUTS:
        raise TaskError(f"layout {name!r} is unknown: write {', '.join(LAYOUTS)}")
    check_output(out, LAYOUTS[name].suffixes)
    return LAYOUTS[name]


def export_subset(
    subset: pa.Table | str | Path,
    prompts: Iterable[Prompt],
    task: Task,
    layout: str,
    out: str | Path,
    provenance: Mapping[str, Any] | None = None,
    card: Callable[[Mapping[str, Any], pa.Table], str] | None = None,
    order: RowOrder = POLICY_ORDER,
) -> dict[str, Any]:
    """Write the subset (schema SUBSET, or its file) in a trainer's layout; returns its provenance.

    `prompts` has the texts: a task's pool, or `prompts_of` an import. Rows are ordered by rank, or
    by `order`, which then defines their ranks. The provenance, with what `provenance` adds, is also
    written, to `out`.provenance.json. `card`, called with it and the subset, returns the text of
    `out`.card.md. The texts are `task.messages`, so that training uses the prompts of the probe.
    Raises TaskError, and UserError if `out` cannot be written.
    """
    out = Path(out)
    export_layout(layout, out)
    file: dict[str, Any] = {}
    if not isinstance(subset, pa.Table):
        path, subset = Path(subset), read_subset_file(subset)
        # of a subset's file: its name and SHA-256
        file["file"] = f"{path.name} sha256:{sha256_of(path)}"
    if order != POLICY_ORDER:
        # of the rows, and whether the trainer keeps it
        file["order"] = {**order._asdict(), "kept": LAYOUTS[layout].order_kept}
    table = exported_table(subset, prompts, task, layout, order)
    origin = {
        "layout": layout,  # of the file
        "rows": subset.num_rows,  # number of prompts
        "subset": reason(subset),  # the record of the selection, as of select
        "task": {  # its name, version, marker and prompt preset
            "name": task.name,
            "version": task.version,
            "marker": task.marker_id,
            "prompt": task.prompt_settings.preset,
        },
        "decile": __version__,  # the version of Decile, as in the provenance
        **file,
        **(provenance or {}),
    }
    if out.name.endswith(".jsonl"):
        lines = (json.dumps(row, ensure_ascii=False) for row in table.to_pylist())
        data = "".join(f"{line}\n" for line in lines).encode()
    else:
        sink = pa.BufferOutputStream()
        table = table.replace_schema_metadata({"decile": json.dumps(origin, sort_keys=True)})
        pq.write_table(table, sink, compression="zstd")
        data = bytes(sink.getvalue())
    origin["sha256"] = hashlib.sha256(data).hexdigest()  # of the written file
    store = Store(str(out.parent))
    # The provenance first, so that every exported file has one.
    text = json.dumps(origin, indent=2, sort_keys=True)
    store.write_bytes(text.encode(), f"{out.name}.provenance.json")
    if card:
        store.write_bytes(card(origin, subset).encode(), f"{out.name}.card.md")
    store.write_bytes(data, out.name)
    return origin


def exported_table(
    subset: pa.Table,
    prompts: Iterable[Prompt],
    task: Task,
    layout: str,
    order: RowOrder = POLICY_ORDER,
) -> pa.Table:
    """The rows of `export_subset` in a layout. Raises TaskError, and UserError for the order."""
    pool = PromptTable.of(prompts)
    by_id = pool.with_ids(subset["prompt_id"].to_pylist())
    rows = subset.to_pylist()
    total = counted(len(rows), "prompt")
    if missing := [row["prompt_id"] for row in rows if row["prompt_id"] not in by_id]:
        more = ", …" if len(missing) > IDS_SHOWN else ""
        raise TaskError(
            f"the data of task {task.name} lacks {len(missing):,} of {total} of the "
            f"subset ({', '.join(missing[:IDS_SHOWN])}{more}): use the task's options of the "
            f"probe, or the import with the texts"
        )
    if LAYOUTS[layout].counted and (unknown := sum(not sample_counts(row)[1] for row in rows)):
        raise TaskError(
            f"the layout {layout} needs counts of samples, which {unknown:,} of {total} of the "
            f"subset lack: choose a different layout, or import the rates with --samples"
        )
    subset = order.apply(subset, pool)
    rows = subset.to_pylist()
    chosen = [by_id[row["prompt_id"]] for row in rows]
    further, schema = _pool_columns(subset, pool), LAYOUTS[layout].schema
    further = further.rename_columns(distinct_names(further.column_names, LAYOUTS[layout].names))
    columns = further.to_pylist() if further.num_columns else [{}] * len(rows)
    exported = [
        _row(layout, prompt, row, task, own)
        for prompt, row, own in zip(chosen, rows, columns, strict=True)
    ]
    if own := LAYOUTS[layout].own:
        at = schema.get_field_index(own)
        extra = pa.struct([*schema.field(at).type, *further.schema])
        schema = schema.set(at, schema.field(at).with_type(extra))
    elif "info" not in schema.names:
        schema = pa.schema([*schema, *further.schema])
    return pa.Table.from_pylist(exported, schema)


def _pool_columns(subset: pa.Table, pool: PromptTable) -> pa.Table:
    """The columns of the user's data for each row of the subset, from the pool or else the subset.

    Types and names are those of the whole pool, as in its tables.
    """
    columns = pool_columns(pool).take(pool.rows_of(subset["prompt_id"]))
    for name in pool_column_names(subset):
        if name not in columns.column_names:
            columns = columns.append_column(name, subset[name])
    return columns


def read_subset_file(file: str | Path) -> pa.Table:
    """A subset that `decile select` or a sweep wrote. Raises TaskError for any other file."""
    table = _parquet(file)
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise TaskError(
            f"{file} is not a subset (no column {', '.join(missing)}): write a file of "
            "decile select, or of a storage's subsets/"
        )
    ids = table["prompt_id"]
    if not len(ids) or ids.null_count or len(ids.unique()) < len(ids):
        raise TaskError(
            f"{file} is not a subset (its prompt_ids are missing or repeated): write a file of "
            "decile select, or of a storage's subsets/"
        )
    return table


def prompts_of(file: str | Path) -> list[Prompt]:
    """The prompts of an import (`write_import`) that have texts, each once."""
    table = _parquet(file)
    names = [field.name for field in fields(Prompt) if field.default is MISSING]
    if missing := [name for name in names if name not in table.column_names]:
        raise TaskError(
            f"{file} has no texts (no column {', '.join(missing)}): write a file of decile import"
        )
    rows = table.select(names).group_by(names, use_threads=False).aggregate([]).to_pylist()
    return [Prompt(**row) for row in rows if row["question"]]


def summary_of(file: str | Path) -> dict[str, Any]:
    """The summary stored in an import, for the provenance of a subset selected from it."""
    return reason(_parquet(file))


def _parquet(file: str | Path) -> pa.Table:
    if not os.path.exists(file):  # also if the name is too long
        raise TaskError(f"{file} does not exist: write the path of a .parquet file")
    try:
        with reading_parquet(file, "write a file of decile select or import"):
            return read_parquet(Path(file))
    except Unsound as error:
        raise TaskError(f"{file} {error}: write an intact file") from error
