"""Others' completions, evaluations and solve rates, as a probe from which policies choose."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator import __version__
from orchestrator.exchange.entries import CompletionRecord, Hints, Notes, SolveRateRecord
from orchestrator.exchange.layouts import layout_of, open_source, read_layout
from orchestrator.exchange.places import write_place
from orchestrator.exchange.pool import Prompts
from orchestrator.exchange.tables import difficulty_table, samples_table, uneven_table
from orchestrator.storage.store import Store
from tasks import Prompt, Task, TaskError

TEXTS = pa.schema({"question": pa.string(), "answer": pa.string(), "tier": pa.string()})


@dataclass(frozen=True)
class Imported:
    """What a source held: `samples`, or `difficulty`, or (a pool without rates) neither.

    `samples` has the schema SAMPLES, under the task's own marker. `difficulty` has those columns
    of DIFFICULTY that the source lets one know; it stands beside samples where prompts have unlike
    numbers of them, and is then what is written. `prompts` are all that either names. `source` is
    the file's name and sha256; `notes` say what was recognised, dropped, and is odd.
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
        """The rows that are written: of difficulty, samples or prompts."""
        if self.difficulty is not None:
            return self.difficulty
        if self.samples is not None:
            return self.samples
        return pa.table({"prompt_id": [prompt.prompt_id for prompt in self.prompts]})

    def summary(self) -> dict[str, Any]:
        """All but the tables, for machines; written beside them as well."""
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
    """Import `source` into the Parquet file `out`; returns the summary. Raises TaskError."""
    write_place(out, (".parquet",))
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
    """Read a file, or a run's folder, of somebody else's.

    Without `layout` the columns tell it. With `pool` (a task's training prompts) questions are
    matched with it, so that ids, answers and tiers are those of the task's own data. Raises
    TaskError where no or several layouts fit, or a row is of another form.
    """
    notes = Notes()
    opened = open_source(source)
    name = layout_of(opened, layout, hints)
    entries = read_layout(opened, name, hints, notes)
    if not entries:
        raise TaskError(f"{opened.file}: no row is left. {'; '.join(notes.lines())}")
    prompts = Prompts(task, pool, notes)
    drawn = [entry for entry in entries if isinstance(entry, CompletionRecord)]
    rated = [entry for entry in entries if isinstance(entry, SolveRateRecord)]
    try:
        samples = samples_table(drawn, task, prompts, notes) if drawn else None
        if samples is not None:
            difficulty = uneven_table(samples, prompts, notes)
        else:
            difficulty = difficulty_table(rated, prompts, notes)
    except TaskError as error:
        raise TaskError(f"{opened.file}: {error}") from error
    prompts.check_answers()
    said = (f"layout {name}", *notes.lines())
    return Imported(
        opened.origin,
        name,
        task.name,
        task.marker_id,
        tuple(prompts.found.values()),
        said,
        samples,
        difficulty,
    )


def write_import(imported: Imported, out: Path) -> None:
    """Write Parquet that `decile select --probe` reads, whole or not at all.

    The columns of samples or difficulty, then question and answer (and tier); the summary stands
    in the metadata under `decile`, as JSON. A pool without rates is a table of prompts only.
    """
    write_place(out, (".parquet",))
    table = imported.table
    of = {prompt.prompt_id: prompt for prompt in imported.prompts}
    rows = [of[name] for name in table["prompt_id"].to_pylist()]
    for field in TEXTS:
        if field.name not in table.column_names:
            texts = [getattr(prompt, field.name) for prompt in rows]
            table = table.append_column(field, pa.array(texts, field.type))
    metadata = {"decile": json.dumps(imported.summary(), sort_keys=True)}
    Store(str(out.parent)).write_table(table.replace_schema_metadata(metadata), out.name)
