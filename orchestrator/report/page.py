"""One self-contained HTML page of an experiment: no script, no network."""

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from orchestrator.cost.caps import dropped_summary
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.report import sections
from orchestrator.report.families import families
from orchestrator.report.markup import STYLE, figure, pair, paragraph, section, table
from orchestrator.report.pool import pool_figures
from orchestrator.report.rows import Row, read_rows
from orchestrator.report.tables import Table
from orchestrator.report.verdicts import Made, claims_made
from orchestrator.storage.store import Store
from orchestrator.training.early_stopping import stopped_lines

EARLY = (
    "The probe was adaptive: prompts whose fate was certain were sampled less, so the figure shows "
    "what was drawn, and no pass rate of theirs is an estimate."
)


def write_page(plan: Plan, store: Store, file: Path, paper: str | None = None) -> None:
    """Write the page of what the store holds of a plan; whole or not at all.

    `paper`: "A" puts its published numbers beside the measured ones.
    """
    rows = read_rows(store, plan.cells)
    parts = [
        *_results(plan, rows, claims_made(store, plan.name), paper),
        *_datasets(plan, store),
        _reproduce(plan, rows),
    ]
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(plan.name)}</title><style>{STYLE}</style><body>"
        f"<h1>{escape(plan.name)}</h1>{paragraph(plan.experiment.about, 'about')}"
        f"{paragraph(_state(plan, store, rows), 'note')}{_contents(parts)}{''.join(parts)}</html>"
    )
    Store(str(file.resolve().parent)).write_bytes(page.encode(), file.name)


def _state(plan: Plan, store: Store, rows: Sequence[Row]) -> str:
    capped = dropped_summary(store.read_json("sweeps", f"{plan.name}.json") or {})
    said = [f"{len(rows)} of {len(plan.cells)} cells finished", *([capped] if capped else [])]
    return ". ".join([*said, *stopped_lines(store, plan.cells)]) + "."


def _contents(parts: Sequence[str]) -> str:
    """Links to the sections, read from their own headings."""
    heads = re.findall(r'<section id="([^"]*)"><h2>(.*?)</h2>', "".join(parts))
    return "<nav>" + "".join(f'<a href="#{name}">{title}</a>' for name, title in heads) + "</nav>"


def _results(plan: Plan, rows: Sequence[Row], made: Made, paper: str | None) -> list[str]:
    if not rows:
        return [paragraph("No cell has a result yet: run the experiment first.")]
    found = families(rows, plan.experiment.compare_at)
    return [
        sections.verdicts(plan.experiment, found, made),
        sections.gains(found),
        sections.learnable(found),
        sections.test_sets(found),
        sections.where(found),
        sections.paper_a(found) if paper == "A" else "",
        sections.cells(rows),
    ]


def _datasets(plan: Plan, store: Store) -> list[str]:
    return [_difficulty(plan, store, s) for s in plan.probes if s.split == "train"]


def _difficulty(plan: Plan, store: Store, spec: ProbeSpec) -> str:
    try:
        found = pool_figures(plan, store, spec)
    except RuntimeError as error:
        return paragraph(str(error))
    figures = [
        figure(
            found.histogram,
            f"The pool's {found.prompts} prompts by the base model's successes, and how their "
            "samples end",
        ),
        figure(found.outcomes, "How the base model's samples end, in the pool and in each subset"),
    ]
    content = (paragraph(EARLY) if found.early else "") + pair(figures)
    name = f"difficulty-{spec.key}-{spec.dataset.name}"
    return section(name, f"Difficulty: {found.title}", content)


def _reproduce(plan: Plan, rows: Sequence[Row]) -> str:
    """The command, what it resolves to, the versions that ran, and the keys in the store."""
    versions = {tuple(row.result["versions"].items()) for row in rows}
    shown = [", ".join(f"{name} {version}" for name, version in one) for one in sorted(versions)]
    keys = Table(
        "Cells",
        ("cell", "id", "subset", "probe"),
        [(c.name, c.cell_id, c.subset_key, c.probe.key) for c in plan.cells],
        "Names of folders and files in the store. A key hashes everything that can change what it "
        "names: the same keys are the same experiment.",
    )
    settings = plan.experiment.model_dump(mode="json", exclude={"grpo", "lora"}) | {
        "grpo": plan.experiment.full_grpo(),
        "lora": plan.experiment.full_lora(),
    }
    content = (
        f"<p><code>decile run experiments.yaml -e {escape(plan.name)}</code></p>"
        + "".join(paragraph(f"Versions: {one}") for one in shown)
        + "<details><summary>Every setting, defaults written out</summary>"
        f"<pre>{escape(json.dumps(settings, indent=1))}</pre></details>"
        f"{table(keys)}"
    )
    return section("reproduce", "How to reproduce", content)
