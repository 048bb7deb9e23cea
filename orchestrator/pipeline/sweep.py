"""One experiment from start to end: probes, subsets, trials, views. The driver of a sweep.

The store decides what is left to do. A second call on a finished sweep does nothing, and a call
after a kill does only what is not finished.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Any

from cluster.ending import at_end
from cluster.redaction import redact
from cluster.session import ray_session
from orchestrator.cost.caps import CellQueue, UsageMeter, dropped_summary, make_queue
from orchestrator.cost.forecast import Forecast
from orchestrator.cost.schedule import Capacity, cluster_capacity
from orchestrator.cost.work import Speed, Work
from orchestrator.pipeline.audit import repair_plan
from orchestrator.pipeline.estimate import estimate
from orchestrator.pipeline.manifest import (
    pool_changes,
    read_manifest,
    record_pools,
    save_manifest,
    usage_meter,
    write_manifest,
)
from orchestrator.pipeline.probes import OtherSubsets, difficulty_lines, is_probed, run_probes
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.plugins.durations import duration
from orchestrator.report.analysis import SweepAnalysis, analyse
from orchestrator.sampling import ENGINES
from orchestrator.selection.stored import same_training
from orchestrator.storage.faults import remote_fault
from orchestrator.storage.lease import driver_lease
from orchestrator.storage.store import Store
from orchestrator.tracking import Tracker
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state
from orchestrator.training.deferred_eval import check_servers, evaluate_trained
from orchestrator.training.record import copy_result_from, tidy_finished
from orchestrator.training.settings_check import check_once, settings_of
from orchestrator.training.trial import run_cell
from orchestrator.training.tune_runner import Train, run_cells

SAVE_SECONDS = 60.0  # between two writes of a running sweep's usage, which name all its cells


@dataclass
class SweepOutcome:
    """What a run did: the cell_ids that it finished, and the errors of cells that failed.

    `dropped` names the cells that a cap left out; empty if none. `page` is the comparison page in
    MLflow's UI; empty without MLflow. `analysis` covers all finished cells of the experiment.
    """

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    dropped: str = ""
    page: str = ""
    analysis: SweepAnalysis | None = None


def run_experiment(
    run: Run,
    tracking_uri: str,
    train: Train = run_cell,
    max_resources: Mapping[str, float] | None = None,
    *,
    wait: bool = False,
) -> SweepOutcome:
    """Bring every cell of the plan to its result with `train`, and MLflow up to date.

    `max_resources` are what the cluster may grow to. The store must be writable. Raises
    ResourceError if no trial fits the cluster, and LeaseHeld if another driver runs the experiment
    in this store; with `wait`, waits for its end.
    """
    plan, store = run.plan, run.store
    outcome = SweepOutcome()
    with driver_lease(store, plan.name, run.progress.say, wait=wait):
        unfinished = settle(run)
        tracker = Tracker(tracking_uri, store, plan)
        with at_end(tracker.interrupt):
            try:
                execute(run, unfinished, tracker, outcome, train, max_resources)
            finally:
                publish(plan, store, unfinished, tracker, outcome)
    return outcome


def settle(run: Run) -> list[Cell]:
    """Repair the storage, check that what is left to do can be done, and declare the cells.

    Returns the cells without a result. Raises UserError if a model or a package is missing.
    """
    plan, store, progress = run.plan, run.store, run.progress
    folders = [run.folder(spec) for spec in plan.probes]
    for line in repair_plan(plan, store, folders=folders):
        progress.say(line)
    states = [cell_state(store, cell) for cell in plan.cells]
    progress.count(plan, states)
    pairs = zip(plan.cells, states, strict=True)
    unfinished = [cell for cell, state in pairs if state is not CellState.FINISHED]
    if unfinished:
        models = [cell.probe.model for cell in unfinished]
        models += [
            spec.model for spec in plan.probes if run.pending_after_earlier_probes(spec).samples
        ]
        plan.check_models(models)
        plan.source.check_packages(plan.name)
        for line in plan.source.warnings(plan.name):
            progress.say(line)
    for change in pool_changes(plan, store):
        progress.say(f"warning: {change}")
    write_manifest(plan, store)
    return unfinished


def execute(
    run: Run,
    unfinished: Sequence[Cell],
    tracker: Tracker,
    outcome: SweepOutcome,
    train: Train,
    max_resources: Mapping[str, float] | None,
) -> None:
    """Probe, select, train and evaluate, as far as the caps allow; fills `outcome`.

    If all cells have results, only the missing samples of the probes are drawn.
    """
    if not unfinished and is_probed(run, kept_only=True):
        count = f"all {counted(len(run.plan.cells), 'cell')} of {run.plan.name}"
        run.progress.say(f"nothing to do: {count} are finished")
        return
    with ray_session(max_resources) as cluster:
        run = replace(run, cluster=cluster)
        if not unfinished:
            run_probes(run)
            return
        sweep = Sweep(run, unfinished, tracker, outcome)
        if sweep.queue.is_open():
            if train is run_cell and sweep.untrained:  # another trainer has settings of its own
                sweep.check_settings()
            sweep.probe()
        if sweep.queue.is_open():
            at_once = sweep.queue.forecast.capacity.at_once
            run_cells(sweep, sweep.untrained, at_once, run.store, train)
        sweep.evaluate_trained()
    sweep.copy_results()
    sweep.save()
    dropped = sweep.manifest.get("dropped")
    outcome.dropped = dropped_summary(dropped, sweep.manifest["cells"])


def publish(
    plan: Plan, store: Store, unfinished: Sequence[Cell], tracker: Tracker, outcome: SweepOutcome
) -> None:
    """Analyse what the storage holds after a run, and show it in MLflow.

    unfinished: the cells that had no result before the run.
    """
    states = {cell.cell_id: cell_state(store, cell) for cell in unfinished}
    finished = [
        cell
        for cell in plan.cells
        if states.get(cell.cell_id, CellState.FINISHED) is CellState.FINISHED
    ]
    for cell in finished:
        tidy_finished(store, cell)  # a kill right after the result leaves checkpoints
        tracker.sync(cell)
    outcome.analysis = analyse(plan, store, outcome.failed)
    shown = {row.cell.cell_id for row in outcome.analysis.rows}
    for cell in finished:
        if cell.cell_id not in shown:
            outcome.failed[cell.cell_id] = "its results cannot be read: rerun to repair them"
    tracker.show(outcome.analysis)
    tracker.close(ok=len(finished) == len(plan.cells))
    outcome.page = tracker.page


def probe_experiment(
    run: Run, max_resources: Mapping[str, float] | None = None, *, wait: bool = False
) -> None:
    """Bring the probes and subsets of a plan to completion, without training.

    Raises PolicyError if a subset cannot be filled, once all samples are drawn. Raises LeaseHeld if
    another driver runs the experiment in this store; with `wait`, waits for its end.
    """
    plan, store, progress = run.plan, run.store, run.progress
    with driver_lease(store, plan.name, progress.say, wait=wait):
        folders = [run.folder(spec) for spec in plan.probes]
        for line in repair_plan(plan, store, ("probes", "subsets", "sweeps"), folders):
            progress.say(line)
        for change in pool_changes(plan, store):
            progress.say(f"warning: {change}")
        if is_probed(run):
            record_pools(plan, store)
            progress.say("nothing to do: every sample and subset is stored")
            return
        engines = {variant.probe.engine for _, variant in plan.experiment.variants}
        if engines & {*ENGINES}:  # another engine may read no weights
            plan.check_models(spec.model for spec in plan.probes)
        meter = progress.meter = usage_meter(plan.name, store)
        with progress, ray_session(max_resources) as cluster:
            run = replace(run, cluster=cluster)
            progress.expect(Forecast([], estimate(run, []), Capacity((1.0,), 1)))
            try:
                run_probes(run)
            finally:  # later runs' caps count what the probes have used
                record_pools(plan, store)
                manifest = read_manifest(plan.name, store)
                manifest["spent"] = meter.as_json()
                save_manifest(manifest, store)


class Sweep:
    """The cells of a run in progress, for Ray Tune; `outcome` fills as they end."""

    def __init__(
        self,
        run: Run,
        unfinished: Sequence[Cell],
        tracker: Tracker,
        outcome: SweepOutcome,
    ) -> None:
        """Raises ResourceError if no trial fits the cluster of the run."""
        self.run = run
        self.tracker = tracker
        self.outcome = outcome
        self.plan, self.store, self.progress = run.plan, run.store, run.progress
        self.manifest = read_manifest(self.plan.name, self.store)
        self.unfinished = unfinished
        states = {cell.cell_id: cell_state(self.store, cell) for cell in unfinished}
        self.untrained = [cell for cell in unfinished if states[cell.cell_id].needs_training]
        started = [i for i, state in states.items() if state is CellState.RUNNING]
        # After which update a cell resumes, by cell_id.
        self.updates = {i: CellFolder(self.store, i).last_update() for i in started}
        self.same: dict[str, Cell] = {}  # by cell_id, of cells that need no training
        self.other_subsets = OtherSubsets(self.plan, self.store, [])
        self.meter = self.progress.meter = UsageMeter(self.manifest.get("spent"))
        self._saved_at = float("-inf")
        self.speeds: Mapping[str, Speed] | None = None  # from the cells finished at the start
        self.order: Mapping[str, Work] = {}
        self.queue = self.planned_queue()

    def planned_queue(self) -> CellQueue:
        """The queue of the cells to train; its forecast is shown from now on.

        The first estimates decide the order, which is then the one that `decile plan` shows.
        """
        experiment = self.plan.experiment
        estimates = estimate(self.run, self.untrained, self.speeds)
        self.speeds = estimates.speeds
        self.order = self.order or estimates.works
        queue = make_queue(
            experiment,
            self.untrained,
            estimates,
            cluster_capacity(self.run.cluster, experiment.resources),
            self.meter,
            self.updates,
            self.order,
        )
        self.progress.expect(queue.forecast)
        return queue

    def check_settings(self) -> None:
        """Raise UserError if a library refuses the settings of a cell to train."""
        models = [cell.probe.model for cell in self.untrained]
        settings = settings_of(self.plan.experiment, models)
        check_once(self.plan.source, self.plan.name, settings)
        check_servers(self.untrained)

    def probe(self) -> None:
        """Draw the missing samples and select the subsets; the queue is planned again with them."""
        probes = run_probes(self.run)
        for line in difficulty_lines(self.plan.cells, self.store, probes):
            self.progress.say(line)
        self.other_subsets = OtherSubsets(self.plan, self.store, probes)
        self.same = self._same_training()
        self.untrained = [cell for cell in self.untrained if cell.cell_id not in self.same]
        self.queue = self.planned_queue()  # completion lengths are known now
        self.run.folders.clear()  # not read again; those of large pools take much memory

    def _same_training(self) -> dict[str, Cell]:
        """cell_id -> a cell on the same prompts, for unfinished cells that need no training."""
        unfinished = {cell.cell_id for cell in self.unfinished}
        finished = [cell for cell in self.plan.cells if cell.cell_id not in unfinished]
        same = same_training(self.store, [*finished, *self.unfinished])
        started = {i for i in unfinished & same.keys() if CellFolder(self.store, i).checkpoints()}
        for cell in self.unfinished:
            if cell.cell_id in same and cell.cell_id not in started:
                other = same[cell.cell_id].name
                self.progress.say(f"{cell.name}: the same prompts as {other}, trained once")
        return {i: other for i, other in same.items() if i in unfinished - started}

    def evaluate_trained(self) -> None:
        """Evaluate the trained cells with their own engines."""
        states = [(cell, cell_state(self.store, cell)) for cell in self.unfinished]
        trained = [cell for cell, state in states if state is CellState.TRAINED]
        cluster = self.run.cluster
        start = time.monotonic()
        for cell, failure in evaluate_trained(
            self.store, self.plan.name, trained, cluster, self.progress.evaluated
        ):
            self._finish(cell, cell_state(self.store, cell), failure or None)
        self.meter.add(time.monotonic() - start, floor(cluster.get("GPU", 0.0)))

    def copy_results(self) -> None:
        """Finish the cells that need no training with the results of those on the same prompts."""
        for cell in self.unfinished:
            if (other := self.same.get(cell.cell_id)) is None:
                continue
            if copy_result_from(self.store, cell, other):
                self._finish(cell, CellState.FINISHED, None)
            elif reason := self.outcome.failed.get(other.cell_id):
                self.outcome.failed[cell.cell_id] = f"as {other.name}: {reason}"

    def next(self) -> Cell | None:
        """The next cell to start. If a cap had dropped its block, the change is saved first."""
        started = len(self.meter.started)
        cell = self.queue.next()
        starts_block = len(self.meter.started) > started
        self.save(if_due=cell is not None and not (self.queue.capped and starts_block))
        if cell is not None:
            self.tracker.start(cell)
            self.progress.started(cell)
        return cell

    def waits(self) -> bool:
        """Whether a cap makes the next cell wait for a measurement."""
        return self.queue.waits()

    def updated(self, cell: Cell, report: Mapping[str, Any]) -> None:
        """A cell has completed another update, or reports its activity before the next one."""
        if "activity" in report:
            self.progress.active(cell, **report)
            return
        self.tracker.live(cell, report["update"], report["metrics"])
        self.progress.update(cell, self.other_subsets.with_explanation(cell, report))
        self.save(if_due=True)

    def retried(self, cell: Cell, error: str) -> None:
        """A trial failed, and a new one resumes the cell."""
        self.progress.say(f"{cell.name}: retried after {remote_fault(error, self.store)}")

    def ended(self, cell: Cell, error: str | None) -> None:
        """A trial has ended, with its error if it failed."""
        self.queue.cell_ended(cell)
        self.save(if_due=True)
        state = cell_state(self.store, cell)
        if error is None and state is CellState.TRAINED:
            self.progress.trained(cell)
        else:
            self._finish(cell, state, error)

    def _finish(self, cell: Cell, state: CellState, error: str | None) -> None:
        """Report the final state of a cell in this run."""
        finished = error is None and state is CellState.FINISHED
        if finished and (result := CellFolder(self.store, cell.cell_id).result()):
            self.outcome.finished.append(cell.cell_id)
            self.tracker.sync(cell)
            self.progress.finished(
                cell,
                f"accuracy {result.accuracy_base:.3f} → {result.accuracy_final:.3f}, "
                f"learnable {result.learnable_pct:.1f} %, {duration(result.ledger.seconds)}",
            )
        else:
            place = CellFolder(self.store, cell.cell_id).place
            lacking = (
                f"its training ended, but a file of {place} in {self.store.uri} is missing or "
                "damaged: rerun the same command to train it again"
            )
            reason = redact(remote_fault(error, self.store) if error else lacking)
            self.outcome.failed[cell.cell_id] = reason
            self.tracker.fail(cell, reason)
            self.progress.finished(cell, f"FAILED: {reason}")

    def save(self, *, if_due: bool = False) -> None:
        """Save what the runs have used and what a cap dropped; `if_due`, at most once a minute."""
        if if_due and time.monotonic() - self._saved_at < SAVE_SECONDS:
            return
        self._saved_at = time.monotonic()
        self.manifest["spent"] = self.meter.as_json()
        if dropped := self.queue.dropped_json():
            self.manifest["dropped"] = dropped
        save_manifest(self.manifest, self.store)
