"""One self-contained HTML page of an experiment: no script, no network."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.cells import ProbeSpec
from orchestrator.plan import Plan
from orchestrator.probes import difficulty_of, targets_of
from orchestrator.report.figures import accuracy_curves, failure_histogram, outcome_bars
from orchestrator.report.rows import Row, read_rows
from orchestrator.report.table import HEAD, table_cells
from orchestrator.sample_store import read_samples
from orchestrator.store import Store
from orchestrator.subsets import read_subset

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --rule: #d5d9de; --dim: #59636e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --paper: #15181c; --rule: #3a4048; --dim: #9aa4af; }
  figure { background: #f4f5f6; border-radius: 6px; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; }
p.about, figcaption, footer { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--rule); }
figure { margin: 1rem 0; padding: .5rem; } figure svg { width: 100%; height: auto; }
figcaption { font-size: .9rem; } figure figcaption { color: #59636e; }
code { font-size: .85rem; overflow-wrap: anywhere; }
"""


EARLY = (
    "The probe was adaptive: prompts whose fate was certain were sampled less, so the figure shows "
    "what was drawn, and no pass rate of theirs is an estimate."
)


def write_page(plan: Plan, store: Store, file: Path) -> None:
    """Write the page of what the store holds of a plan; whole or not at all."""
    rows = read_rows(store, plan.cells)
    sections = [_results(rows), *_datasets(plan, store), _reproduce(plan, rows)]
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(plan.name)}</title><style>{STYLE}</style>"
        f'<h1>{escape(plan.name)}</h1><p class="about">{escape(plan.experiment.about)}</p>'
        f"{''.join(sections)}</html>"
    )
    Store(str(file.resolve().parent)).write_bytes(page.encode(), file.name)


def _results(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>No cell has a result yet: run the experiment first.</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in HEAD)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in table_cells(row)) + "</tr>"
        for row in rows
    )
    table = f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
    note = (
        "<p>Gain: final minus base accuracy on the same test questions, with a 95 % bootstrap "
        "interval over questions. It says nothing of other seeds.</p>"
    )
    curves = "".join(
        _figure(accuracy_curves(group), f"Test accuracy by update: {name}")
        for name, group in _by_dataset(rows).items()
    )
    return f"<h2>Results</h2>{table}{note}{curves}"


def _by_dataset(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row.cell.probe.model.name} on {row.cell.probe.dataset.name}"
        groups.setdefault(name, []).append(row)
    return groups


def _datasets(plan: Plan, store: Store) -> list[str]:
    return [_difficulty(plan, store, s) for s in plan.probes if s.split == "train"]


def _difficulty(plan: Plan, store: Store, spec: ProbeSpec) -> str:
    pool = plan.pool(spec)
    try:
        early = targets_of(plan, spec) is not None
        samples = read_samples(store, spec, pool.task, pool.train, partial=early)
    except RuntimeError as error:
        return f"<p>{escape(str(error))}</p>"
    table = difficulty_of(plan, spec, samples)
    title = f"{spec.model.name} on {spec.dataset.name}"
    histogram = failure_histogram(table, spec.settings.samples)
    bars = outcome_bars(_outcomes(plan, store, spec, samples))
    return (
        f"<h2>Difficulty: {escape(title)}</h2>"
        + (f"<p>{escape(EARLY)}</p>" if early else "")
        + _figure(
            histogram,
            f"The pool's {table.num_rows} prompts by the base model's successes, and how their "
            "samples end",
        )
        + _figure(bars, "How the base model's samples end, in the pool and in each subset")
    )


def _outcomes(plan: Plan, store: Store, spec: ProbeSpec, samples: pa.Table) -> dict[str, list[str]]:
    """Outcomes of the probe's samples in the pool, and in each policy's subset (first seed)."""
    found = {"pool": samples["outcome"].to_pylist()}
    for cell in plan.cells:
        subset = read_subset(store, cell) if cell.probe == spec else None
        if subset is not None and cell.policy not in found:
            chosen = pc.is_in(samples["prompt_id"], value_set=subset["prompt_id"].combine_chunks())
            found[cell.policy] = samples.filter(chosen)["outcome"].to_pylist()
    return found


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _reproduce(plan: Plan, rows: Sequence[Row]) -> str:
    versions = rows[0].result["versions"] if rows else {}
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    cells = "<br>".join(f"{cell.cell_id} {escape(cell.name)}" for cell in plan.cells)
    return (
        f"<h2>How to reproduce</h2><p><code>decile run experiments.yaml -e {escape(plan.name)}"
        f"</code></p><p>Versions: {escape(shown)}</p><p>Cells:<br><code>{cells}</code></p>"
    )
