"""A subset with its texts and where it came from, in the layouts that trainers read."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator import __version__
from orchestrator.exchange.places import write_place
from orchestrator.selection.subsets import reason
from orchestrator.storage.store import Store
from tasks import Prompt, Task, TaskError

NAMED = 3  # missing prompts that a message names
NEEDED = ("rank", "prompt_id", "pass_rate")  # of a subset
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
            {
                "index": pa.int64(),
                "split": pa.string(),
                **_COMMON,
                "question": pa.string(),
            }
        ),
    }
)
Row = dict[str, Any]


class Line(NamedTuple):
    """One chosen prompt, the chat that asks it, and its row of the subset."""

    prompt: Prompt
    messages: list[dict[str, str]]
    rank: int
    pass_rate: float | None
    why: str | None

    def common(self) -> Row:
        """What every layout carries."""
        prompt = self.prompt
        return {
            "prompt_id": prompt.prompt_id,
            "answer": prompt.answer,
            "tier": prompt.tier,
            "pass_rate": self.pass_rate,
            "rank": self.rank,
        }


class Layout(NamedTuple):
    """A trainer's columns, the kinds of file that it reads, and one row of it."""

    schema: pa.Schema
    suffixes: tuple[str, ...]
    row: Callable[[Line, str], Row]


def _jsonl(line: Line, task: str) -> Row:
    own = {"question": line.prompt.question, "messages": line.messages, "why": line.why}
    return {**line.common(), **own}


def _trl(line: Line, task: str) -> Row:
    """TRL's conversational prompt-only form: GRPOTrainer hands the other columns to rewards."""
    return {"prompt": line.messages, **line.common()}


def _verifiers(line: Line, task: str) -> Row:
    """`info` as JSON text, which its documentation prefers and its environments parse."""
    info = {**line.common(), "question": line.prompt.question}
    return {
        "prompt": line.messages,
        "answer": line.prompt.answer,
        "info": json.dumps(info, ensure_ascii=False),
    }


def _verl(line: Line, task: str) -> Row:
    """As verl's examples write it. `data_source` names no reward of verl's own, on purpose: it
    asks for `custom_reward_function`, where answers are read as this task asks for them."""
    extra = {"index": line.rank, "split": "train", **line.common()}
    return {
        "data_source": f"decile/{task}",
        "prompt": line.messages,
        "ability": task,
        "reward_model": {"style": "rule", "ground_truth": line.prompt.answer},
        "extra_info": {**extra, "question": line.prompt.question},
    }


LAYOUTS: Mapping[str, Layout] = {
    "jsonl": Layout(JSONL, (".jsonl",), _jsonl),
    "trl": Layout(TRL, (".jsonl", ".parquet"), _trl),
    "verl": Layout(VERL, (".parquet",), _verl),
    "verifiers": Layout(VERIFIERS, (".jsonl", ".parquet"), _verifiers),
}


def export_file(
    subset: Path,
    prompts: Iterable[Prompt],
    task: Task,
    layout: str,
    out: Path,
    provenance: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`export_subset` of a subset's file, whose name and sha256 the provenance keeps."""
    digest = hashlib.sha256(subset.read_bytes()).hexdigest() if subset.is_file() else ""
    about = {"file": f"{subset.name} sha256:{digest}", **(provenance or {})}
    return export_subset(read_subset_file(subset), prompts, task, layout, out, about)


def export_subset(
    subset: pa.Table,
    prompts: Iterable[Prompt],
    task: Task,
    layout: str,
    out: Path,
    provenance: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the subset (schema SUBSET) in a trainer's layout; returns its provenance.

    `prompts` has the texts: a task's pool, or `prompts_of` an import. Rows stand by rank. Beside
    `out` comes `out`.provenance.json: why these prompts (the subset's own reason: policy, size,
    seed, ties, probe), task, marker, wording, what the caller adds, and the sha256 of `out`. The
    texts are `task.messages`, so that a trainer asks as the probe asked. Raises TaskError.
    """
    if layout not in LAYOUTS:
        raise TaskError(f"layout {layout!r} is unknown: write {', '.join(LAYOUTS)}")
    shape = LAYOUTS[layout]
    write_place(out, shape.suffixes)
    lines = _lines(subset, prompts, task)
    why = _provenance(subset, task, layout, provenance or {})
    table = pa.Table.from_pylist([shape.row(line, task.name) for line in lines], shape.schema)
    data = _bytes(table, why, out)
    why["sha256"] = hashlib.sha256(data).hexdigest()
    store = Store(str(out.parent))
    # The provenance first: a file of prompts without one would say nothing of its origin.
    store.write_json(why, f"{out.name}.provenance.json")
    store.write_bytes(data, out.name)
    return why


def read_subset_file(file: Path) -> pa.Table:
    """A subset as `decile select` or a sweep wrote it. Raises TaskError where it is none."""
    table = _parquet(file)
    missing = [name for name in NEEDED if name not in table.column_names]
    if missing:
        raise TaskError(
            f"{file} is no subset (no column {', '.join(missing)}): write a file of "
            "decile select, or of a storage's subsets/"
        )
    return table


def prompts_of(file: Path) -> list[Prompt]:
    """The prompts whose texts an import (`write_import`) holds, each once."""
    table = _parquet(file)
    names = ("prompt_id", "question", "answer", "tier")
    if missing := [name for name in names if name not in table.column_names]:
        raise TaskError(
            f"{file} holds no texts (no column {', '.join(missing)}): write a file of decile import"
        )
    rows = table.select(names).group_by(list(names), use_threads=False).aggregate([]).to_pylist()
    return [Prompt(**row) for row in rows if row["question"]]


def summary_of(file: Path) -> dict[str, Any]:
    """What an import says of itself, for the provenance of what is chosen from it."""
    return reason(_parquet(file))


def _parquet(file: Path) -> pa.Table:
    if not file.is_file():
        raise TaskError(f"{file} is not there: write the path of a .parquet file")
    try:
        return pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise TaskError(f"{file} cannot be read as Parquet: {error}") from error


def _lines(subset: pa.Table, prompts: Iterable[Prompt], task: Task) -> list[Line]:
    of = {prompt.prompt_id: prompt for prompt in prompts}
    rows = sorted(subset.to_pylist(), key=lambda row: row["rank"])
    _refuse_missing([row["prompt_id"] for row in rows if row["prompt_id"] not in of], rows, task)
    return [
        Line(prompt, task.messages(prompt.question), row["rank"], row["pass_rate"], row.get("why"))
        for row in rows
        for prompt in [of[row["prompt_id"]]]
    ]


def _refuse_missing(missing: Sequence[str], rows: Sequence[Row], task: Task) -> None:
    if missing:
        more = ", …" if len(missing) > NAMED else ""
        raise TaskError(
            f"{len(missing):,} of {len(rows):,} prompts of the subset are not in the data of task "
            f"{task.name} ({', '.join(missing[:NAMED])}{more}): give the task the options it was "
            "probed with, or the import that holds the texts"
        )


def _provenance(
    subset: pa.Table, task: Task, layout: str, added: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "layout": layout,
        "rows": subset.num_rows,
        "subset": reason(subset),
        "task": {
            "name": task.name,
            "version": task.version,
            "marker": task.marker_id,
            "prompt": task.asking.preset,
        },
        "decile": __version__,
        **added,
    }


def _bytes(table: pa.Table, why: Mapping[str, Any], out: Path) -> bytes:
    if out.name.endswith(".jsonl"):
        lines = (json.dumps(row, ensure_ascii=False) for row in table.to_pylist())
        return "".join(f"{line}\n" for line in lines).encode()
    sink = pa.BufferOutputStream()
    noted = table.replace_schema_metadata({"decile": json.dumps(why, sort_keys=True)})
    pq.write_table(noted, sink, compression="zstd")
    return bytes(sink.getvalue())
