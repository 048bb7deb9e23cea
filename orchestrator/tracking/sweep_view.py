"""A sweep as MLflow shows it on its parent run: report, tables, figures, headline numbers.

Imports no mlflow.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from orchestrator.planning.cells import axis_names
from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.families import Family
from orchestrator.report.matching import whole_pool_policy
from orchestrator.report.page import page_html
from orchestrator.report.rows import Row
from orchestrator.report.text import verdict_text
from orchestrator.report.verdicts import FamilyVerdict
from orchestrator.tracking.cell_view import as_csv, clean

BASELINE = "random"
MEANS = {"accuracy": "accuracy_final", "gain": "gain", "learnable_pct": "learnable_pct"}
DESCRIPTION_HEAD = "**Verdicts**"
DESCRIPTION_LIMIT = 6000  # characters; MLflow truncates tags at 8000


class GainOverBaseline(NamedTuple):
    """A policy's accuracy minus that of `random`, in points, with a 95 % interval.

    `verdict`: "beats random", "behind random", "inconclusive" or "inconclusive (one seed)".
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

    `files`: path -> content; `description`: Markdown; `digest`: of the analysis's inputs.
    """

    files: dict[str, bytes]
    metrics: dict[str, float]
    tags: dict[str, str]
    description: str
    digest: str


def sweep_view(analysis: SweepAnalysis) -> SweepView:
    """The view of an analysis with at least one finished cell."""
    metrics: dict[str, float] = {}
    tags: dict[str, str] = {}
    for family in analysis.families:
        metrics |= means(family)
        if (best := best_over_baseline(family)) is not None:
            name = _name(family)
            numbers = {
                "points_over_random": best.points,
                "points_over_random_low": best.low,
                "points_over_random_high": best.high,
                "p_holm": best.p_holm,
            }
            metrics |= {clean(f"best/{key}/{name}"): value for key, value in numbers.items()}
            tags[clean(f"decile.best/{name}")] = f"{best.policy}: {best.verdict}"
    markdown = description(analysis.verdicts)
    return SweepView(_files(analysis), metrics, tags, markdown, analysis.digest)


def means(family: Family) -> dict[str, float]:
    """final/accuracy, final/gain, final/learnable_pct of each policy: means over its seeds.

    Shares, and % for learnable_pct, as in the runs of the cells; the names end in model, dataset
    and policy.
    """
    return {
        clean(f"final/{name}/{_name(family)}/{policy}"): float(
            np.mean([row.result[key] for row in rows])
        )
        for policy, rows in family.by_policy().items()
        for name, key in MEANS.items()
    }


def best_over_baseline(family: Family) -> GainOverBaseline | None:
    """The subset that gains most over `random`, without the whole pool; None without any."""
    whole_pool = whole_pool_policy(family.by_policy())
    gains = []
    for c in family.accuracy:
        if BASELINE in (c.a, c.b) and c.items:
            policy = c.a if c.b == BASELINE else c.b
            points, low, high = c.oriented(policy)
            verdict = f"{'beats' if points > 0 else 'behind'} {BASELINE}"
            if c.verdict == "inconclusive":
                verdict = c.verdict if c.covers_seeds else f"{c.verdict} (one seed)"
            if policy != whole_pool:
                gains.append(GainOverBaseline(policy, points, low, high, c.p_holm, verdict))
    return max(gains, key=lambda gain: gain.points, default=None)


def _name(family: Family) -> str:
    """Model and dataset, the probe's seed where it is not 0, and other axes, as cells' names."""
    probe = [f"p{family.probe_seed}"] if family.probe_seed else []
    return "/".join([family.model, family.dataset, *probe, *axis_names(family.swept)])


def description(verdicts: Sequence[FamilyVerdict]) -> str:
    """The verdicts in Markdown."""
    blocks = [DESCRIPTION_HEAD]
    for verdict in verdicts:
        lines = [*verdict.lines, *(f"Caveat: {text}" for text in verdict.caveats)]
        listed = "\n".join(f"- {_escaped(line)}" for line in lines)
        blocks.append(f"{_escaped(verdict.title)} ({verdict.read_at})\n\n{listed}")
    text = "\n\n".join(blocks)
    if len(text) <= DESCRIPTION_LIMIT:
        return text
    return f"{text[:DESCRIPTION_LIMIT].rsplit(chr(10), 1)[0]}\n\n… see report.html for the rest"


def _escaped(text: str) -> str:
    """Text without Markdown markup: names contain underscores."""
    return re.sub(r"([\\`*_<\[\]])", r"\\\1", text)


def _files(analysis: SweepAnalysis) -> dict[str, bytes]:
    results = [flat_row(row) for row in analysis.rows]
    texts = {
        "report.html": page_html(analysis),
        "verdicts.txt": verdict_text(analysis) + "\n",
        "results.json": json.dumps(results, indent=2, default=str),
        "results.csv": as_csv(results),
        **{f"figures/{name}.svg": figure.file for name, figure in analysis.figures.items()},
        **{f"tables/{name}.csv": table.csv for name, table in analysis.tables.items()},
    }
    return {name: text.encode() for name, text in texts.items()}


def flat_row(row: Row) -> dict[str, Any]:
    """One row as plain values, for other programs; accuracies are shares."""
    result, keys = row.result, ("model", "dataset", "policy", "seed", "cell_id", "size", "updates")
    numbers = ("accuracy_base", "accuracy_final", "gain", "learnable_pct")
    return {
        **{key: result[key] for key in (*keys, *numbers)},
        **row.cell.swept,
        "gain_low": row.gain.low,
        "gain_high": row.gain.high,
        **{f"ledger.{name}": value for name, value in result["ledger"].items()},
    }
