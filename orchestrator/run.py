"""One experiment, start to end: probes, subsets, trials, views. The driver of a sweep.

Everything is asked of the store first, so the same call twice does nothing the second time, and a
call after a kill does only what is owed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import floor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster.session import ray_session
from orchestrator.caps import Account, closed, dropped_sentence, queue_of
from orchestrator.cells import Cell, ProbeSpec
from orchestrator.difficulty import summarise, summary_lines
from orchestrator.doctor import in_worker, try_dataset
from orchestrator.expected import GPU, expect, kind_of, label_of
from orchestrator.forecast import Forecast
from orchestrator.hopeless import censored_lines
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
from orchestrator.schedule import Room, room_of
from orchestrator.store import Store
from orchestrator.subsets import made, read_subset, store_subset
from orchestrator.sweep import Train, run_cells
from orchestrator.tracking import Tracker
from orchestrator.trial import is_finished, is_settled, run_cell


@dataclass
class Outcome:
    """What a run did: cells that it finished, cells that failed with their reasons.

    `dropped` says which cells a cap left out, or nothing. `page` is where MLflow's UI compares the
    cells; empty without MLflow.
    """

    ran: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    dropped: str = ""
    page: str = ""


def run_experiment(
    plan: Plan,
    store: Store,
    tracking_uri: str,
    progress: Progress,
    train: Train = run_cell,
    grows_to: Mapping[str, float] | None = None,
) -> Outcome:
    """Bring every cell of the plan to its result by `train`, and MLflow up to date.

    `grows_to` are resources that the cluster may come to have, beyond those it has now.
    The storage must be writable. Raises ResourceError when no trial fits the cluster.
    """
    owed_cells = [cell for cell in plan.cells if not is_settled(store, cell)]
    declared = declare(plan, store)
    tracker = Tracker.open(tracking_uri, store, plan)
    outcome = Outcome()
    try:
        if owed_cells:
            sweep = Sweep(plan, store, tracker, progress, declared, outcome)
            sweep.run(owed_cells, train, grows_to)
        else:
            progress.say(f"nothing to do: all {len(plan.cells)} cells of {plan.name} have results")
        for line in censored_lines(store, plan.cells):
            progress.say(line)
    finally:
        done = [cell for cell in plan.cells if is_finished(store, cell)]
        for cell in done:
            drop_checkpoints(store, cell.cell_id)  # of one killed right after its result
            tracker.sync(cell)
        settled = sum(is_settled(store, cell) for cell in plan.cells)
        tracker.close(ok=settled == len(plan.cells))
        outcome.page = tracker.page
    return outcome


def account_of(plan: Plan, store: Store) -> Account:
    """What earlier runs of the experiment have taken."""
    return Account((store.read_json("sweeps", f"{plan.name}.json") or {}).get("spent"))


def declare(plan: Plan, store: Store) -> dict[str, Any]:
    """Write the set of cells that the experiment declares, and when each claim was first made.

    What its runs have taken so far stays; what an earlier cap left out is forgotten.
    """
    cells = [{"cell_id": cell.cell_id, **cell.axes} for cell in plan.cells]
    before = store.read_json("sweeps", f"{plan.name}.json") or {}
    results = sum(is_finished(store, cell) for cell in plan.cells)
    made = {"at": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()), "results": results}
    known = before.get("claims", {})
    claims = {text: known.get(text, made) for text in plan.experiment.claims}
    spent = {"spent": before["spent"]} if "spent" in before else {}
    declared = {"experiment": plan.name, "cells": cells, "claims": claims, **spent}
    store.write_json(declared, "sweeps", f"{plan.name}.json")
    return declared


SAVED_EVERY = 60.0  # seconds between two writes of what a run has taken


@dataclass
class Sweep:
    """What owed cells need on their way; `outcome` fills as they end."""

    plan: Plan
    store: Store
    tracker: Tracker
    progress: Progress
    declared: dict[str, Any]
    outcome: Outcome

    def __post_init__(self) -> None:
        self.account = Account(self.declared.get("spent"))

    def run(self, cells: list[Cell], train: Train, grows_to: Mapping[str, float] | None) -> None:
        """Probe, select and train what is owed, as far as the caps allow."""
        with ray_session(grows_to) as cluster:
            self._expect(cells, cluster)
            if self.queue.is_open():
                run_probes(self.plan, self.store, cluster, self.progress, self.account)
                self._expect(cells, cluster)  # how long answers are is known now
            if self.queue.is_open():
                at_once = self.queue.forecast.room.at_once
                run_cells(self, cells, at_once, self.store, train)
        self._save()
        self.outcome.dropped = dropped_sentence(self.declared)

    def _expect(self, cells: list[Cell], cluster: Mapping[str, float]) -> None:
        """The queue and the forecast of what is owed. Raises ResourceError where no trial fits."""
        room = room_of(cluster, self.plan.experiment.resources)
        found = expect(self.plan, self.store, cells, cluster, kind_of(cluster) or GPU)
        experiment = self.plan.experiment
        self.queue = queue_of(experiment, cells, found.cells, found.probes, room, self.account)
        self.progress.forecast = self.queue.forecast

    def next(self) -> Cell | None:
        """The next cell to start; what was begun outlives a kill."""
        cell = self.queue.next()
        self._save()
        if cell is not None:
            self.tracker.start(cell)
        return cell

    def updated(self, cell: Cell, report: Mapping[str, object]) -> None:
        """A cell reached another update."""
        self.tracker.live(cell, report["update"], report["metrics"])  # type: ignore[arg-type]
        self.progress.update(cell, dict(report))
        if time.monotonic() - self._saved > SAVED_EVERY:
            self._save()

    def ended(self, cell: Cell, error: str | None) -> None:
        """A trial ended, with the reason where it failed."""
        self.queue.ended(cell)
        self._save()
        if error is None and is_finished(self.store, cell):
            self.outcome.ran.append(cell.cell_id)
            self.tracker.sync(cell)
            self.progress.finished(cell, _summary(self.store, cell))
            return
        if error is None and is_settled(self.store, cell):
            [said] = censored_lines(self.store, [cell])
            self.tracker.stop(cell, said)
            self.progress.finished(cell, "stopped as hopeless")
            return
        self.outcome.failed[cell.cell_id] = error or "ended without a result"
        self.tracker.fail(cell, self.outcome.failed[cell.cell_id])
        self.progress.finished(cell, f"FAILED: {self.outcome.failed[cell.cell_id]}")

    def _save(self) -> None:
        """Keep what the runs have taken, and what a cap left out."""
        self._saved = time.monotonic()
        self.declared["spent"] = self.account.as_json()
        if dropped := closed(self.queue):
            self.declared["dropped"] = dropped
        self.store.write_json(self.declared, "sweeps", f"{self.plan.name}.json")


def probes_forecast(plan: Plan, store: Store, cluster: Mapping[str, float]) -> Forecast:
    """What the probes that are owed will take."""
    found = expect(plan, store, [], cluster, kind_of(cluster) or GPU)
    return Forecast([], {}, Room((1.0,), 1), found.probes)


def check_markers(plan: Plan, progress: Progress) -> None:
    """Try every dataset's marker in a Ray worker, before anything rests on it.

    Raises MarkerFails, and nothing was sampled or trained.
    """
    for dataset in {spec.dataset.name: spec.dataset for spec in plan.probes}.values():
        try:
            progress.say(f"marker of {dataset.name}: {in_worker(try_dataset, dataset)}")
        except MarkerFails as error:
            raise MarkerFails(f"dataset {dataset.name}: {error}; nothing was run") from error


def run_probes(
    plan: Plan,
    store: Store,
    cluster: Mapping[str, float],
    progress: Progress,
    account: Account | None = None,
) -> None:
    """Sample what the plan's probes owe, then choose the subsets; tells what that took.

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
        took = time.monotonic() - began
        if account and lacks.samples:
            account.probed(took, floor(cluster.get("GPU", 0.0)))
        progress.say(f"{label}: {samples.num_rows} samples ({duration(took)})")
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
