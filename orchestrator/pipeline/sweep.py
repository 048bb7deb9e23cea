"""One experiment, start to end: probes, subsets, trials, views. The driver of a sweep.

Everything is asked of the store first, so the same call twice does nothing the second time, and a
call after a kill does only what is owed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any

from cluster.session import ray_session
from orchestrator.cost.caps import UsageMeter, closed, dropped_sentence, queue_of
from orchestrator.cost.expected import GPU, expect, kind_of
from orchestrator.cost.forecast import duration
from orchestrator.cost.schedule import capacity_of
from orchestrator.pipeline.probes import run_probes
from orchestrator.pipeline.progress import Progress
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store
from orchestrator.tracking import Tracker
from orchestrator.training.cell_state import CellState, cell_state
from orchestrator.training.deferred_eval import evaluate_trained
from orchestrator.training.early_stopping import stopped_lines
from orchestrator.training.record import drop_checkpoints
from orchestrator.training.trial import run_cell
from orchestrator.training.tune_runner import Train, run_cells


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
    owed_cells = [cell for cell in plan.cells if not cell_state(store, cell).settled]
    declared = write_manifest(plan, store)
    tracker = Tracker.open(tracking_uri, store, plan)
    outcome = Outcome()
    try:
        if owed_cells:
            sweep = Sweep(plan, store, tracker, progress, declared, outcome)
            sweep.run(owed_cells, train, grows_to)
        else:
            progress.say(f"nothing to do: all {len(plan.cells)} cells of {plan.name} have results")
        for line in stopped_lines(store, plan.cells):
            progress.say(line)
    finally:
        states = [cell_state(store, cell) for cell in plan.cells]
        for cell, state in zip(plan.cells, states, strict=True):
            if state is CellState.FINISHED:
                drop_checkpoints(store, cell.cell_id)  # of one killed right after its result
                tracker.sync(cell)
        tracker.close(ok=all(state.settled for state in states))
        outcome.page = tracker.page
    return outcome


def save_usage(plan: Plan, store: Store, account: UsageMeter) -> None:
    """Keep what probes alone have taken, so that a later run's caps count it."""
    known = store.read_json("sweeps", f"{plan.name}.json") or write_manifest(plan, store)
    store.write_json(known | {"spent": account.as_json()}, "sweeps", f"{plan.name}.json")


def write_manifest(plan: Plan, store: Store) -> dict[str, Any]:
    """Write the set of cells that the experiment declares, and when each claim was first made.

    What its runs have taken so far stays; what an earlier cap left out is forgotten.
    """
    cells = [{"cell_id": cell.cell_id, **cell.axes} for cell in plan.cells]
    before = store.read_json("sweeps", f"{plan.name}.json") or {}
    results = sum(cell_state(store, cell) is CellState.FINISHED for cell in plan.cells)
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
        self.account = UsageMeter(self.declared.get("spent"))

    def run(self, cells: list[Cell], train: Train, grows_to: Mapping[str, float] | None) -> None:
        """Probe, select and train what is owed, as far as the caps allow."""
        with ray_session(grows_to) as cluster:
            untrained = [cell for cell in cells if cell_state(self.store, cell).needs_training]
            self._expect(untrained, cluster)
            if self.queue.is_open():
                run_probes(self.plan, self.store, cluster, self.progress, self.account)
                self._expect(untrained, cluster)  # how long answers are is known now
            if self.queue.is_open():
                at_once = self.queue.forecast.room.at_once
                run_cells(self, untrained, at_once, self.store, train)
            trained = [c for c in cells if cell_state(self.store, c) is CellState.TRAINED]
            self._evaluate(trained, cluster)
        self._save()
        self.outcome.dropped = dropped_sentence(self.declared)

    def _expect(self, cells: list[Cell], cluster: Mapping[str, float]) -> None:
        """The queue and the forecast of what is owed. Raises ResourceError where no trial fits."""
        room = capacity_of(cluster, self.plan.experiment.resources)
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
        if error is None and cell_state(self.store, cell) is CellState.TRAINED:
            self.progress.trained(cell)
        else:
            self._closed(cell, error)

    def _closed(self, cell: Cell, error: str | None) -> None:
        """Nothing more will be done for a cell in this run."""
        state = cell_state(self.store, cell)
        if error is None and state is CellState.FINISHED:
            self.outcome.ran.append(cell.cell_id)
            self.tracker.sync(cell)
            self.progress.finished(cell, _summary(self.store, cell))
            return
        if error is None and state is CellState.STOPPED:
            [said] = stopped_lines(self.store, [cell])
            self.tracker.stop(cell, said)
            self.progress.finished(
                cell, "stopped early: clearly below the best policy of its block"
            )
            return
        self.outcome.failed[cell.cell_id] = error or "ended without a result"
        self.tracker.fail(cell, self.outcome.failed[cell.cell_id])
        self.progress.finished(cell, f"FAILED: {self.outcome.failed[cell.cell_id]}")

    def _evaluate(self, trained: list[Cell], cluster: Mapping[str, float]) -> None:
        """Results of the cells whose checkpoints an engine answers after training."""
        began = time.monotonic()
        for cell, failure in evaluate_trained(
            self.store, trained, cluster, self.progress.evaluated
        ):
            self._closed(cell, failure or None)
        self.account.probed(time.monotonic() - began, floor(cluster.get("GPU", 0.0)))

    def _save(self) -> None:
        """Keep what the runs have taken, and what a cap left out."""
        self._saved = time.monotonic()
        self.declared["spent"] = self.account.as_json()
        if dropped := closed(self.queue):
            self.declared["dropped"] = dropped
        self.store.write_json(self.declared, "sweeps", f"{self.plan.name}.json")


def _summary(store: Store, cell: Cell) -> str:
    result = store.read_json("cells", cell.cell_id, "result.json")
    return (
        f"accuracy {result['accuracy_base']:.3f} → {result['accuracy_final']:.3f}, "
        f"learnable {result['learnable_pct']:.1f} %, {duration(result['ledger']['seconds'])}"
    )
