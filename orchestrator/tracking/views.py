"""A cell and a sweep as MLflow shows them. Imports no mlflow.

A cell: tags, parameters, curves, summary, samples. The sweep, on its parent run: report, tables,
figures, headline numbers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.redaction import names_secret, redact
from orchestrator.config.experiment import GRID_AXES, NO_PARAMETERS, Experiment
from orchestrator.evaluation.drift import drift_of
from orchestrator.evaluation.groups import training_metrics
from orchestrator.evaluation.metrics import (
    answer_counts,
    by_update,
    evaluation_metrics,
    own_test_set,
)
from orchestrator.planning.cells import Cell, axis_names
from orchestrator.planning.result import Result
from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.compare import Family, whole_pool_policy
from orchestrator.report.content import Table
from orchestrator.report.difficulty_sources import SourceMatrix
from orchestrator.report.gain_parts import factor_name, gain_by_part
from orchestrator.report.html_pages import page_html, render
from orchestrator.report.render import verdict_text
from orchestrator.report.rows import Row, before_and_after
from orchestrator.report.sections.difficulty_sources import correlation_text, shared_text
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.report.verdict_blocks import FamilyVerdict
from orchestrator.selection.stored import read_subset
from orchestrator.stats.comparison import Comparison
from orchestrator.stats.factors import DividedGain, divided_gain
from orchestrator.storage.errors import StoreError
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import DISCARDED, REFRESHED, TABLES, CellFolder
from orchestrator.training.record import logged_name, with_label_count
from policies import UNIFORM
from tasks import Prompt
from tasks.marking.marks import FACTORS

VALUE_LIMIT = 6000  # characters of a parameter's value, MLflow 3.17
NAME_LIMIT = 250
SAMPLES = 20
VERSION = 4  # of what is written; runs of version 1 may have been written by two drivers


@dataclass(frozen=True)
class CellView:
    """All that MLflow shows of a finished cell.

    `points`: step -> metric -> value; `started` and `finished`: milliseconds since the epoch.
    """

    points: dict[int, dict[str, float]]
    files: dict[str, bytes]
    digest: str
    started: int
    finished: int


@cache
def clean(name: str) -> str:
    """A valid MLflow metric or parameter name: without `@`, colons, empty and dot segments."""
    plain = re.sub(r"[^/\w.\- ]", "_", name.replace("@", "_at_"))
    return "/".join(s for s in plain.split("/") if s.strip(". "))[:NAME_LIMIT].rstrip("/") or "_"


def flatten(value: Any, name: str = "") -> dict[str, str]:
    """Nested settings as dotted names and short texts; values of secrets are masked."""
    if isinstance(value, Mapping):
        parts = [flatten(v, f"{name}.{k}" if name else str(k)) for k, v in value.items()]
        return {k: v for part in parts for k, v in part.items()}
    text = json.dumps(value) if isinstance(value, list | tuple) else str(value)
    return {clean(name): "***" if names_secret(name) else redact(text)[:VALUE_LIMIT]}


def cell_params(cell: Cell) -> dict[str, str]:
    """Every swept axis and every resolved setting that the cell's id covers, flat.

    Also settings of the probe and of the data that a reader would look for. CPU and GPU shares are
    not part of the id and may change, so they are tags.
    """
    model, dataset = cell.probe.model, cell.probe.dataset
    start = {"start": model.start} if model.start else {}
    others = {
        "model": {"revision": model.revision, **start},
        "task": dataset.options,
        "prompt": dataset.prompt,
        "data": cell.provenance,
        "marking": dataset.marking,
        "probe": cell.probe.settings.model_dump(mode="json"),
        "evaluate": cell.baseline.settings.model_dump(mode="json"),
    }
    ranked_by = {"ranked_by": cell.ranked_by} if cell.difficulty else {}
    settings = flatten(others) | flatten(cell.settings_shown)
    return settings | flatten({**ranked_by, **cell.axes, "task": dataset.task})


def run_name(cell: Cell) -> str:
    """Policy and seed come first because the legends of MLflow's charts truncate names."""
    axes = cell.axes
    probe = f"/p{axes['probe_seed']}" if axes["probe_seed"] else ""
    swept = "".join(f" {text}" for text in axis_names(cell.setting_axes))
    return f"{axes['policy']}/s{axes['seed']}{probe}{swept} {axes['model']}/{axes['dataset']}"


def cell_tags(cell: Cell) -> dict[str, str]:
    """The tags that identify and filter a cell's run."""
    share = cell.resources
    return {
        "decile.cell_id": cell.cell_id,
        "decile.cpus": f"{share.cpus:g}",
        "decile.gpus": f"{share.gpus:g}",
        **flatten(cell.axes),
    }


def sweep_params(experiment: Experiment) -> dict[str, str]:
    """The settings that all cells of a sweep share.

    Without the grid, which may grow, and without settings that cannot change a result.
    """
    settings = experiment.shared_settings()
    for name in NO_PARAMETERS:
        del settings[name]
    for block in ("probe", "evaluate"):
        settings[block].pop("engine_python", None)
    if settings.get("rollouts") == "decile":  # not part of a cell's id either
        del settings["rollouts"]
    if not settings.get("label_noise", True):  # added later
        del settings["label_noise"], settings["label_noise_seed"]
    for name in ("false_positive_rate", "false_negative_rate"):  # also added later
        if not settings.get(name, True):
            del settings[name]
    for name, default in {"reward": "score", "allocation": UNIFORM, "difficulty": "gold"}.items():
        if settings.get(name) == default:
            del settings[name]
    if settings.get("start", True) is None:  # also added later
        del settings["start"]
    if not settings["refresh"].get("every", True):
        del settings["refresh"]
    return flatten(settings | {"workers": experiment.resources.workers})


def sweep_tags(name: str, experiment: Experiment) -> dict[str, str]:
    """The tags that identify a sweep's parent run; `decile.settings` hashes its settings."""
    grid = {
        f"decile.grid.{axis}": ", ".join(map(str, values))
        for axis, values in experiment.grid.model_dump(mode="json").items()
    }
    settings = canonical_hash(sweep_params(experiment))
    about = {"decile.about": experiment.about} if experiment.about else {}
    return {"decile.sweep": name, "decile.settings": settings, **grid, **about}


def curves(
    groups: pa.Table,
    evaluations: pa.Table,
    log: pa.Table,
    pass_at: Sequence[int],
    discarded: pa.Table | None = None,
) -> dict[int, dict[str, float]]:
    """Update -> metric -> value: train/*, eval/*, tier/*, and the trainer's own under trl/*."""
    points: dict[int, dict[str, float]] = {}
    for update, metrics in training_metrics(groups, discarded).items():
        points.setdefault(update, {}).update(metrics)
    steps = by_update(evaluations)
    for update, evaluation in steps.items():
        metrics = evaluation_metrics(evaluation, steps.get(0), pass_at)
        points.setdefault(update, {}).update(metrics)
    for row in log.to_pylist():
        points.setdefault(row["update"], {})[logged_name(row)] = row["value"]
    return points


def summary(result: Result) -> dict[str, float]:
    """The numbers of MLflow's compare view: final/* and ledger/*."""
    headline = {
        "final/accuracy": result.accuracy_final,  # accuracy of the final model
        "final/accuracy_base": result.accuracy_base,  # accuracy of the base model
        # the difference of both, from −1 to 1
        "final/gain": result.accuracy_final - result.accuracy_base,
        "final/learnable_pct": result.learnable_pct,  # % of all groups that were live
    }
    if result.learnable_drawn_pct is not None:
        # with discarded groups: of all groups drawn
        headline["final/learnable_drawn_pct"] = result.learnable_drawn_pct
    numbers = result.ledger.as_json()
    return headline | {f"ledger/{name}": float(value) for name, value in numbers.items()}


def divided_gain_metrics(evaluations: pa.Table, result: Result) -> dict[str, float]:
    """final/gain_from_finished and so on: the parts of the gain; empty if one is unknown."""
    steps = by_update(evaluations)
    before, after = (answer_counts(own_test_set(steps[u])) for u in (0, result.updates))
    return part_metrics(divided_gain([before], [after], paired=True))


def part_metrics(gain: DividedGain | None) -> dict[str, float]:
    """The parts of a gain (shares) by metric; empty if one is unknown."""
    parts = gain.parts if gain and gain.parts else ()
    named = zip(map(factor_name, FACTORS), parts, strict=False)
    return {f"final/gain_from_{name}": part.mean for name, part in named}


def view_digest(result: Result) -> str:
    """Identifies what MLflow shows of a result; another version is compared point by point."""
    return canonical_hash([VERSION, result.as_json()])


def read_view(store: Store, cell: Cell, test: Sequence[Prompt]) -> CellView:
    """A finished cell's view. Raises StoreError if a file is missing or corrupt."""
    folder = CellFolder(store, cell.cell_id)
    finished = folder.finished()
    if finished is None:
        place = store.path(folder.place)
        raise StoreError(f"a file of {place} is missing or fails verification: rerun to repair it")
    stored, tables = finished
    result = with_label_count(cell, stored, tables)
    groups, evaluations, log = (tables[name] for name in TABLES)
    points = curves(groups, evaluations, log, cell.pass_at, tables.get(DISCARDED))
    again, known = tables.get(REFRESHED), read_subset(store, cell)
    if again is not None and known is not None:
        drawn = pa.concat_tables([groups, *([tables[DISCARDED]] if DISCARDED in tables else [])])
        for update, metrics in drift_of(known, drawn, again).metrics.items():
            points.setdefault(update, {}).update(metrics)
    # With one step, MLflow draws bars.
    points.setdefault(0, {}).update(summary(result) | divided_gain_metrics(evaluations, result))
    end = round(1000 * result.finished_at.timestamp())
    started = end - round(1000 * result.ledger.seconds)
    questions = {p.prompt_id: p for p in test}
    samples = [
        {
            "prompt_id": i,
            "tier": questions[i].tier,
            "question": questions[i].question,
            "answer": questions[i].answer,
            **{f"base_{k}": getattr(base, k) for k in ("outcome", "completion")},
            **{f"final_{k}": getattr(final, k) for k in ("outcome", "completion")},
        }
        for i, (base, final) in before_and_after(evaluations, SAMPLES, questions).items()
    ]
    files = {
        "result.json": json.dumps(result.as_json(), indent=2, sort_keys=True).encode(),
        "samples.json": json.dumps(samples, indent=2, ensure_ascii=False).encode(),
        "samples.html": render("samples.html", title=cell.name, rows=samples).encode(),
    }
    subset = ("subsets", f"{cell.subset_key}.parquet")
    if store.exists(*subset):
        files["subset.parquet"] = store.read_bytes(*subset)
    return CellView(points, files, view_digest(stored), started, end)


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV, columns in order of first appearance."""
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    return Table("", names, [tuple(row.get(name, "") for name in names) for row in rows]).csv


BASELINE = "random"
MEANS = {"accuracy": "accuracy_final", "gain": "gain", "learnable_pct": "learnable_pct"}
DESCRIPTION_HEAD = "**Verdicts**"
DESCRIPTION_LIMIT = 6000  # characters; MLflow truncates tags at 8000


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
            policy, c = best
            points, low, high = c.oriented(policy)
            verdict = f"{'beats' if points > 0 else 'behind'} {BASELINE}"
            if c.verdict == "inconclusive":
                verdict = c.verdict if c.covers_seeds else f"{c.verdict} (one seed)"
            numbers = {
                "points_over_random": points,
                "points_over_random_low": low,
                "points_over_random_high": high,
                "p_holm": c.p_holm,
            }
            name = _name(family)
            metrics |= {clean(f"best/{key}/{name}"): value for key, value in numbers.items()}
            tags[clean(f"decile.best/{name}")] = f"{policy}: {verdict}"
    tags |= source_tags(analysis.sources)
    markdown = description([*map(family_verdict, analysis.families)])
    results = [flat_row(row) for row in analysis.rows]
    page = sweep_page(analysis)
    texts = {
        "report.html": page_html(page),
        "verdicts.txt": verdict_text(analysis) + "\n",
        "results.json": json.dumps(results, indent=2, default=str),
        "results.csv": as_csv(results),
        **{f"figures/{name}.svg": figure.file for name, figure in page.figures.items()},
        **{f"tables/{name}.csv": table.csv for name, table in page.tables.items()},
    }
    files = {name: text.encode() for name, text in texts.items()}
    return SweepView(files, metrics, tags, markdown, analysis.digest)


def source_tags(matrices: Sequence[SourceMatrix]) -> dict[str, str]:
    """Each pair of sources of difficulty: rank correlation, and shared share of hardest tenths."""
    return {
        clean(f"decile.difficulty/{matrix.title}/{matrix.sources[i]} and {matrix.sources[j]}"): (
            f"rank correlation {correlation_text(pair.correlation, pair.correlation_interval)}, "
            f"hardest tenth shared {shared_text(pair.shared, pair.shared_interval)}"
        )
        for matrix in matrices
        for (i, j), pair in matrix.pairs.items()
    }


def means(family: Family) -> dict[str, float]:
    """final/accuracy, final/gain, final/learnable_pct of each policy: means over its seeds.

    And the parts of the gain (final/gain_from_finished, …), as the report has them.

    Shares, and % for learnable_pct, as in the runs of the cells; the names end in model, dataset
    and policy.
    """
    return {
        clean(f"final/{name}/{_name(family)}/{policy}"): float(
            np.mean([getattr(row.result, key) for row in rows])
        )
        for policy, rows in family.by_policy().items()
        for name, key in MEANS.items()
    } | {
        clean(f"{metric}/{_name(family)}/{policy}"): value
        for policy, rows in family.by_policy().items()
        for part in gain_by_part(rows)[:1]
        for metric, value in part_metrics(part.gain).items()
    }


def best_over_baseline(family: Family) -> tuple[str, Comparison] | None:
    """The subset that gains most over `random`, without the whole pool; None without any."""
    pairs = {
        c.a if c.b == BASELINE else c.b: c
        for c in family.accuracy
        if BASELINE in (c.a, c.b) and c.items
    }
    pairs.pop(whole_pool_policy(family.by_policy()) or "", None)
    return max(pairs.items(), key=lambda pair: pair[1].oriented(pair[0])[0], default=None)


def _name(family: Family) -> str:
    """Model and dataset, the probe's seed where it is not 0, and other axes, as cells' names."""
    probe = [f"p{family.probe_seed}"] if family.probe_seed else []
    return "/".join([family.model, family.dataset, *probe, *axis_names(family.setting_axes)])


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


def flat_row(row: Row) -> dict[str, Any]:
    """One row as plain values, for other programs; accuracies are shares."""
    result, keys = row.result, (*GRID_AXES, "cell_id", "size", "updates")
    numbers = ("accuracy_base", "accuracy_final", "gain", "learnable_pct")
    return {
        **{key: getattr(result, key) for key in (*keys, *numbers)},
        **row.cell.setting_axes,
        "gain_low": row.gain.low,
        "gain_high": row.gain.high,
        **{f"ledger.{name}": value for name, value in result.ledger.as_json().items()},
    }
