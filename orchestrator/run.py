"""One experiment, start to end: probes, subsets, trials, views. The driver of a sweep.

Everything is asked of the store first, so the same call twice does nothing the second time, and a
call after a kill does only what is owed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cluster.session import ray_session
from orchestrator.cells import Cell, ProbeSpec
from orchestrator.difficulty import summarise, summary_lines
from orchestrator.doctor import in_worker, try_dataset
from orchestrator.expected import GPU, expect, kind_of, label_of
from orchestrator.forecast import Forecast
from orchestrator.marker_check import MarkerFails
from orchestrator.plan import Plan
from orchestrator.probes import (
    Owed,
    cells_of,
    difficulty_of,
    needing_all,
    owed_by,
    sample,
)
from orchestrator.progress import Progress, duration
from orchestrator.record import drop_checkpoints
from orchestrator.report.rows import read_rows
from orchestrator.report.table import flat_row
from orchestrator.schedule import Room, in_blocks, room_of
from orchestrator.store import Store
from orchestrator.subsets import made, read_subset, store_subset
from orchestrator.sweep import run_cells
from orchestrator.tracking import Tracker
from orchestrator.trial import is_finished


@dataclass
class Outcome:
    """What a run did: cells that it finished, cells that failed with their reasons."""

    ran: list[str]
    failed: dict[str, str]


def run_experiment(plan: Plan, store: Store, tracking_uri: str, progress: Progress) -> Outcome:
    """Bring every cell of the plan to its result, and MLflow up to date.

    The storage must be writable. Raises ResourceError when no trial fits the cluster.
    """
    owed_cells = [cell for cell in plan.cells if not is_finished(store, cell)]
    declare(plan, store)
    tracker = Tracker.open(tracking_uri, store, plan)
    outcome = Outcome([], {})
    try:
        if owed_cells:
            _run_owed(owed_cells, plan, store, tracker, progress, outcome)
        else:
            progress.say(f"nothing to do: all {len(plan.cells)} cells of {plan.name} have results")
    finally:
        done = [cell for cell in plan.cells if is_finished(store, cell)]
        for cell in done:
            drop_checkpoints(store, cell.cell_id)  # of one killed right after its result
            tracker.sync(cell)
        results = [flat_row(row) for row in read_rows(store, done)]
        tracker.close(ok=len(done) == len(plan.cells), results=results)
    return outcome


def declare(plan: Plan, store: Store) -> None:
    """Write the set of cells that the experiment declares, and when each claim was first made."""
    cells = [{"cell_id": cell.cell_id, **cell.axes} for cell in plan.cells]
    before = store.read_json("sweeps", f"{plan.name}.json") or {}
    results = sum(is_finished(store, cell) for cell in plan.cells)
    made = {"at": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()), "results": results}
    known = before.get("claims", {})
    claims = {text: known.get(text, made) for text in plan.experiment.claims}
    declared = {"experiment": plan.name, "cells": cells, "claims": claims}
    store.write_json(declared, "sweeps", f"{plan.name}.json")


def _run_owed(
    cells: list[Cell],
    plan: Plan,
    store: Store,
    tracker: Tracker,
    progress: Progress,
    outcome: Outcome,
) -> None:
    """Probe, select and train what is owed; `outcome` fills as cells end."""

    def ended(cell: Cell, error: str | None) -> None:
        if error is None and is_finished(store, cell):
            outcome.ran.append(cell.cell_id)
            tracker.sync(cell)
            progress.finished(cell, _summary(store, cell))
        else:
            outcome.failed[cell.cell_id] = error or "ended without a result"
            tracker.fail(cell, outcome.failed[cell.cell_id])
            progress.finished(cell, f"FAILED: {outcome.failed[cell.cell_id]}")

    def updated(cell: Cell, report: Mapping[str, object]) -> None:
        tracker.live(cell, report["update"], report["metrics"])  # type: ignore[arg-type]
        progress.update(cell, dict(report))

    with ray_session() as cluster:
        progress.forecast = forecast_of(plan, store, cells, cluster)
        run_probes(plan, store, cluster, progress)
        progress.forecast = forecast_of(plan, store, cells, cluster)  # now lengths are known
        for cell in cells:
            tracker.start(cell)
        run_cells(list(progress.forecast.cells.values()), store, cluster, updated, ended)


def forecast_of(
    plan: Plan, store: Store, cells: list[Cell], cluster: Mapping[str, float]
) -> Forecast:
    """What these cells and the probes that are owed will take, in the order in which they start.

    Raises ResourceError where no trial fits the cluster.
    """
    room = room_of(cluster, plan.experiment.resources) if cells else Room((1.0,), 1)
    expected = expect(plan, store, cells, cluster, kind_of(cluster) or GPU)
    ordered = [cell for block in in_blocks(cells, expected.seconds) for cell in block]
    return Forecast(ordered, expected.cells, room, expected.probes)


def check_markers(plan: Plan, progress: Progress) -> None:
    """Try every dataset's marker in a Ray worker, before anything rests on it.

    Raises MarkerFails, and nothing was sampled or trained.
    """
    for dataset in {spec.dataset.name: spec.dataset for spec in plan.probes}.values():
        try:
            progress.say(f"marker of {dataset.name}: {in_worker(try_dataset, dataset)}")
        except MarkerFails as error:
            raise MarkerFails(f"dataset {dataset.name}: {error}; nothing was run") from error


def run_probes(plan: Plan, store: Store, cluster: Mapping[str, float], progress: Progress) -> None:
    """Sample what the plan's probes owe, then choose the subsets.

    Raises MarkerFails before anything, and MarkingError where too many answers cannot be judged.
    """
    check_markers(plan, progress)
    tables: dict[str, pa.Table] = {}
    for spec in plan.probes:
        label = label_of(spec)
        began = time.monotonic()
        lacks = owed_by(plan, store, spec)
        progress.say(f"{label}: {_owed_text(plan, spec, lacks)}")
        tell = partial(progress.probe, label)
        samples = sample(plan.pool(spec), store, spec, lacks.work, cluster, tell)
        progress.say(f"{label}: {samples.num_rows} samples ({duration(time.monotonic() - began)})")
        if spec.split == "train":
            tables[probe_id(spec)] = table = difficulty_of(plan, spec, samples)
            for line in probe_lines(plan, spec, table):
                progress.say(f"  {line}")
    for cell in plan.cells:
        store_subset(store, cell, tables[probe_id(cell.probe)])


def _owed_text(plan: Plan, spec: ProbeSpec, lacks: Owed) -> str:
    """What is there and what is owed, before anything is sampled."""
    total = len(plan.pool(spec).prompts(spec.split)) * spec.settings.samples
    there = f"{total - lacks.samples:,} of {total:,} samples in the store"
    if lacks.at_most:
        return f"{there} or not needed; at most {lacks.samples:,} to draw"
    if spec.settings.adaptive and spec.split == "train":
        names = ", ".join(needing_all(plan, spec))
        return f"{there}, {lacks.samples:,} to draw (all: {names} cannot stop early)"
    return f"{there}, {lacks.samples:,} to draw"


def probe_lines(plan: Plan, spec: ProbeSpec, table: pa.Table) -> list[str]:
    """What a probe says of its pool, for people; of one that stopped early, what that saved."""
    samples = spec.settings.samples
    short = int(pc.sum(table["short"]).as_py() or 0)
    if short:
        drawn, total = int(pc.sum(table["n"]).as_py()), table.num_rows * samples
        share = f"{drawn:,} of {total:,} samples drawn ({drawn / total:.0%})"
        return [f"{share}; {short:,} prompts were decided early, so nothing is estimated"]
    cell = cells_of(plan, spec)[0]
    group = int(cell.grpo["num_generations"])
    summary = summarise(table, cell.size, made(cell.rule), cell.seed, samples, group_size=group)
    return [f"(subset of {cell.name})", *summary_lines(summary)]


def missing_probes(plan: Plan, store: Store) -> bool:
    """Whether any sample or subset of the plan is still owed."""
    samples = any(owed_by(plan, store, spec).samples for spec in plan.probes)
    return samples or any(read_subset(store, cell) is None for cell in plan.cells)


def probe_id(spec: ProbeSpec) -> str:
    """A probe within a plan: the samples' key and the dataset they are of."""
    return f"{spec.key}/{spec.dataset.name}"


def _summary(store: Store, cell: Cell) -> str:
    result = store.read_json("cells", cell.cell_id, "result.json")
    return (
        f"accuracy {result['accuracy_base']:.3f} → {result['accuracy_final']:.3f}, "
        f"learnable {result['learnable_pct']:.1f} %, {duration(result['ledger']['seconds'])}"
    )
