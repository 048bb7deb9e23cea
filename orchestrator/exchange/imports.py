"""Imports external completions, evaluations and solve rates as a probe."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator import __version__
from orchestrator.exchange.columns import LAYOUTS
from orchestrator.exchange.layouts import detect_layout, located, read_layout, read_source
from orchestrator.exchange.pool import PromptMatcher
from orchestrator.exchange.records import CompletionRecord, Hints, Notes, Records, SolveRateRecord
from orchestrator.exchange.tables import difficulty_table, samples_table, uneven_difficulty
from orchestrator.storage.output import check_output
from orchestrator.storage.store import Store
from tasks import Prompt, Task, TaskError

MAX_SAMPLES = 1_000_000  # per prompt
TEXTS = pa.schema({"question": pa.string(), "answer": pa.string(), "tier": pa.string()})


@dataclass(frozen=True)
class Imported:
    """The content of a source: `samples`, or `difficulty`, or (a pool without rates) neither.

    `samples` has the schema SAMPLES, marked by the task's own marker. `difficulty` has those
    columns of DIFFICULTY that are known; where prompts have different numbers of samples, it is
    set besides `samples` and is what is written. `prompts` are all prompts of either. `source` is
    the file's name and sha256; `notes` list what was detected, dropped, and is unusual.
    """

    source: str
    layout: str
    task: str
    marker: str
    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...]
    samples: pa.Table | None = None
    difficulty: pa.Table | None = None

    @property
    def kind(self) -> str:
        """samples, difficulty or prompts."""
        if self.difficulty is not None:
            return "difficulty"
        return "prompts" if self.samples is None else "samples"

    @property
    def table(self) -> pa.Table:
        """The rows to write: of difficulty, samples or prompts."""
        if self.difficulty is not None:
            return self.difficulty
        if self.samples is not None:
            return self.samples
        return pa.table({"prompt_id": [prompt.prompt_id for prompt in self.prompts]})

    def summary(self) -> dict[str, Any]:
        """Everything but the tables, as JSON values; also stored in the written file."""
        return {
            "kind": self.kind,
            "source": self.source,
            "layout": self.layout,
            "task": self.task,
            "marker": self.marker,
            "prompts": len(self.prompts),
            "rows": self.table.num_rows,
            "notes": list(self.notes),
            "decile": __version__,
        }


def import_file(
    source: Path,
    task: Task,
    out: Path,
    *,
    layout: str | None = None,
    pool: Iterable[Prompt] | None = None,
    hints: Hints = Hints(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """Import `source` into the Parquet file `out`; returns the summary.

    Raises TaskError as `import_probe` does, and UserError where `out` cannot be written.
    """
    check_output(out, (".parquet",))
    imported = import_probe(source, layout, task, pool=pool, hints=hints)
    write_import(imported, out)
    return imported.summary()


def import_probe(
    source: Path,
    layout: str | None,
    task: Task,
    *,
    pool: Iterable[Prompt] | None = None,
    hints: Hints = Hints(),  # noqa: B008 (frozen)
) -> Imported:
    """Read a file, or a run's folder, written by another tool.

    Without `layout` it is detected from the columns. With `pool` (a task's training prompts)
    questions are matched with it, so that ids, answers and tiers are those of the task's own data;
    rows of other questions are dropped.
    Raises TaskError where no or several layouts fit, or a row has another form.
    """
    if hints.samples is not None and not 1 <= hints.samples <= MAX_SAMPLES:
        raise TaskError(f"--samples {hints.samples}: expected an integer from 1 to {MAX_SAMPLES:,}")
    notes = Notes()
    opened = read_source(source)
    name = detect_layout(opened, layout, hints)
    records = read_layout(opened, name, hints, notes)
    matcher = PromptMatcher(task, pool, notes)
    completions, rated = _usable(records, matcher, notes)
    if not completions and not rated:
        columns = "; name the columns with --question and --answer" if name in LAYOUTS else ""
        reasons = "; ".join(notes.lines())
        raise TaskError(f"{opened.file}: every row was dropped. {reasons}{columns}")
    samples: pa.Table | None = None
    try:
        if completions:
            samples = samples_table(completions, task, matcher, notes)
            difficulty = uneven_difficulty(samples, matcher, notes)
        else:
            difficulty = difficulty_table(rated, matcher, notes)
    except TaskError as error:
        raise located(opened.file, error) from error
    matcher.check_answers()
    if completions:
        matcher.check_golds()
    return Imported(
        source=opened.origin,
        layout=name,
        task=task.name,
        marker=task.marker_id,
        prompts=tuple(matcher.prompts.values()),
        notes=(f"layout {name}", *notes.lines()),
        samples=samples,
        difficulty=difficulty,
    )


def _usable(
    records: Records, matcher: PromptMatcher, notes: Notes
) -> tuple[list[CompletionRecord], list[SolveRateRecord]]:
    """The completions, and the solve rates, of prompts with what they need; others are noted."""
    completions, rated = [], []
    some_rated = any(isinstance(r, SolveRateRecord) and r.rate is not None for r in records)
    for record in records:
        if some_rated and isinstance(record, SolveRateRecord) and record.rate is None:
            notes.count("rows dropped: no solve rate", record.source.place)
            continue
        prompt = matcher.match(record.source)
        if prompt is None:
            continue
        if isinstance(record, SolveRateRecord):
            rated.append(record)
            if not prompt.question:
                label = "prompts have no text, so subsets cannot be exported"
                notes.count(label, record.source.place)
        elif prompt.question:
            completions.append(record)
        else:
            matcher.prompts.pop(prompt.prompt_id, None)
            notes.count("rows dropped: no question", record.source.place)
    return completions, rated


def write_import(imported: Imported, out: Path) -> None:
    """Write a Parquet file that `decile select --probe` reads, atomically.

    It has the columns of samples or difficulty, then question and answer (and tier); the summary is
    in the metadata under `decile`, as JSON. A pool without rates is a table of prompts only.
    """
    check_output(out, (".parquet",))
    table = imported.table
    by_id = {prompt.prompt_id: prompt for prompt in imported.prompts}
    rows = [by_id[name] for name in table["prompt_id"].to_pylist()]
    for field in TEXTS:
        if field.name not in table.column_names:
            texts = [getattr(prompt, field.name) for prompt in rows]
            table = table.append_column(field, pa.array(texts, field.type))
    metadata = {"decile": json.dumps(imported.summary(), sort_keys=True)}
    Store(str(out.parent)).write_table(table.replace_schema_metadata(metadata), out.name)
