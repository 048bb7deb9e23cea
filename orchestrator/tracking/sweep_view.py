"""A sweep as MLflow shows it on its parent run: the report, its pieces, headline numbers.

Imports no mlflow.
"""

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from orchestrator.planning.plan import Plan
from orchestrator.report.families import Family, families
from orchestrator.report.matching import whole
from orchestrator.report.page import write_page
from orchestrator.report.rows import Row
from orchestrator.report.text import flat_row
from orchestrator.report.verdicts import (
    alone,
    caveats,
    claims_made,
    read_at,
    sentences,
    text_verdicts,
)
from orchestrator.stats.comparison import Comparison
from orchestrator.storage.hashing import canonical_hash
from orchestrator.storage.store import Store
from orchestrator.tracking.pieces import pieces
from orchestrator.tracking.rows import as_csv, clean

FORM = 1  # another number has the pages of old sweeps drawn again
BASELINE = "random"
MEANS = {"accuracy": "accuracy_final", "gain": "gain", "learnable_pct": "learnable_pct"}
NOTE_HEAD = "**Verdicts**"
NOTE_LIMIT = 6000  # characters; MLflow cuts tags at 8000


class Lead(NamedTuple):
    """A policy's accuracy minus that of `random`, in points, with a 95 % interval.

    `verdict`: "beats random", "behind random" or "inconclusive".
    """

    policy: str
    points: float
    low: float
    high: float
    p_holm: float
    verdict: str


@dataclass(frozen=True)
class SweepView:
    """All that MLflow shows of a sweep as a whole.

    `files`: path -> content; `note`: Markdown, the parent run's description; `digest`: of all that
    the view was made from.
    """

    files: dict[str, bytes]
    metrics: dict[str, float]
    tags: dict[str, str]
    note: str
    digest: str


def sweep_digest(store: Store, plan: Plan, rows: Sequence[Row]) -> str:
    """Digest of what a view is made from, which is quicker to know than the view."""
    declared = store.read_json("sweeps", f"{plan.name}.json") or {}
    return canonical_hash(
        {
            "form": FORM,
            "experiment": plan.experiment.model_dump(mode="json"),
            "cells": [[cell.cell_id, cell.name, cell.probe.marker] for cell in plan.cells],
            "results": [row.result for row in rows],
            "claims": declared.get("claims"),
            "dropped": declared.get("dropped"),
        }
    )


def read_sweep(store: Store, plan: Plan, rows: Sequence[Row], digest: str) -> SweepView:
    """The view of the finished cells, of which there is one at least."""
    found = families(rows, plan.experiment.compare_at)
    metrics: dict[str, float] = {}
    tags: dict[str, str] = {}
    for family in found:
        metrics |= means(family)
        if (best := best_lead(family)) is not None:
            metrics |= _lead_metrics(family, best)
            tags[clean(f"decile.best/{_place(family)}")] = f"{best.policy}: {best.verdict}"
    return SweepView(_files(store, plan, rows), metrics, tags, note(found), digest)


def means(family: Family) -> dict[str, float]:
    """final/accuracy, final/gain, final/learnable_pct of each policy: means over its seeds.

    Shares, and % for learnable_pct, as in the runs of the cells; model, dataset and policy follow
    the name.
    """
    return {
        clean(f"final/{name}/{_place(family)}/{policy}"): float(
            np.mean([row.result[key] for row in rows])
        )
        for policy, rows in family.by_policy().items()
        for name, key in MEANS.items()
    }


def best_lead(family: Family) -> Lead | None:
    """The subset that leads `random` by most; None where there is none to compare.

    The whole pool is no subset.
    """
    pool = whole(family.by_policy())
    leads = [_lead(c) for c in family.accuracy if BASELINE in (c.a, c.b)]
    subsets = (lead for lead in leads if lead.policy != pool)
    return max(subsets, key=lambda lead: lead.points, default=None)


def _lead(c: Comparison) -> Lead:
    told = c.verdict != "inconclusive"
    if c.b == BASELINE:
        policy, points, low, high = c.a, c.effect, c.low, c.high
    else:
        policy, points, low, high = c.b, -c.effect, -c.high, -c.low
    side = "beats" if points > 0 else "behind"
    verdict = f"{side} {BASELINE}" if told else "inconclusive"
    return Lead(policy, points, low, high, c.p_holm, verdict)


def _lead_metrics(family: Family, best: Lead) -> dict[str, float]:
    numbers = {
        "points_over_random": best.points,
        "points_over_random_low": best.low,
        "points_over_random_high": best.high,
        "p_holm": best.p_holm,
    }
    return {clean(f"best/{name}/{_place(family)}"): value for name, value in numbers.items()}


def _place(family: Family) -> str:
    """Model and dataset, and the probe's seed where it is not 0, as in the names of cells."""
    place = f"{family.model}/{family.dataset}"
    return f"{place}/p{family.probe_seed}" if family.probe_seed else place


def note(found: Sequence[Family]) -> str:
    """The verdicts in Markdown."""
    text = "\n\n".join([NOTE_HEAD, *(_card(family) for family in found)])
    if len(text) <= NOTE_LIMIT:
        return text
    return f"{text[:NOTE_LIMIT].rsplit(chr(10), 1)[0]}\n\n… the rest is in report.html"


def _card(family: Family) -> str:
    said = [text for _, text in sentences(family)] or [alone(family)]
    lines = [*said, *map(str, family.matches), *(f"Note: {text}" for text in caveats(family))]
    listed = "\n".join(f"- {_plain(line)}" for line in lines)
    return f"{_plain(family.title)} ({read_at(family)})\n\n{listed}"


def _plain(text: str) -> str:
    """Text in which Markdown finds no markup: names have underlines."""
    return re.sub(r"([\\`*_<\[\]])", r"\\\1", text)


def _files(store: Store, plan: Plan, rows: Sequence[Row]) -> dict[str, bytes]:
    page = _page(store, plan)
    results = [flat_row(row) for row in rows]
    texts = {
        "report.html": page,
        "verdicts.txt": text_verdicts(plan, rows, claims_made(store, plan.name)) + "\n",
        "results.json": json.dumps(results, indent=2, default=str),
        "results.csv": as_csv(results),
    }
    return {name: text.encode() for name, text in texts.items()} | pieces(page)


def _page(store: Store, plan: Plan) -> str:
    with tempfile.TemporaryDirectory(prefix="decile-report-") as folder:
        file = Path(folder, "report.html")
        write_page(plan, store, file)
        return file.read_text()
