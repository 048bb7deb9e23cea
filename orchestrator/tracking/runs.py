"""One sweep's runs in MLflow: an experiment, a parent run, one run per cell.

Imports mlflow inside functions. MLflow's exceptions propagate; `tracking.Tracker` catches them.
"""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.redaction import redact
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report.sections.figures import policy_styles
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import Store
from orchestrator.tracking.client import (
    DATABASES,
    connect,
    log_files,
    log_metrics,
    log_params_and_tags,
    search_runs,
)
from orchestrator.tracking.mlflow_internals import RUN_COLOUR, experiment_tags, relocate_artifacts
from orchestrator.tracking.views import (
    DESCRIPTION_HEAD,
    CellView,
    SweepView,
    cell_params,
    cell_tags,
    clean,
    run_name,
    sweep_params,
    sweep_tags,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run, RunInfo

DESCRIPTION = "mlflow.note.content"
SYNCED = "decile.synced"  # digest of the inputs of what the run shows, written last
COLLAPSED = "decile.collapsed"  # the cell ended below its base model beyond chance


class ParentRun:
    """The parent of the runs of all cells of a sweep; it must have one writer only."""

    def __init__(self, client: "MlflowClient", run: "Run") -> None:
        self._client = client
        self.run_id = str(run.info.run_id)
        self._status = str(run.info.status)
        self.digest = str(run.data.tags.get(SYNCED, ""))

    @classmethod
    def of(cls, client: "MlflowClient", experiment_id: str, plan: Plan) -> "ParentRun":
        """Find the run of the plan's settings, or create it."""
        tags = sweep_tags(plan.name, plan.experiment)
        where = f"tags.decile.settings = '{tags['decile.settings']}'"
        if runs := search_runs(client, experiment_id, where):
            run = min(runs, key=lambda r: r.info.start_time)
        else:
            run = client.create_run(experiment_id, run_name=plan.name, tags=tags)
        log_params_and_tags(client, run, sweep_params(plan.experiment), tags)
        return cls(client, run)

    def begin(self) -> None:
        """Mark the run as running."""
        if self._status != "RUNNING":
            self._client.update_run(self.run_id, status="RUNNING")
            self._status = "RUNNING"

    def show(self, view: SweepView) -> None:
        """Write the view, and the tag decile.synced last; only changed metrics are logged."""
        from mlflow.entities import Metric

        run = self._client.get_run(self.run_id)
        log_files(self._client, run.info, view.files)
        now = round(time.time() * 1000)
        log_metrics(
            self._client,
            self.run_id,
            [
                Metric(name, value, now, 0)  # with one step, MLflow draws bars
                for name, value in view.metrics.items()
                if math.isfinite(value) and run.data.metrics.get(name) != value
            ],
        )
        tags = dict(view.tags)
        existing = run.data.tags.get(DESCRIPTION, "")
        if not existing or existing.startswith(DESCRIPTION_HEAD):  # otherwise a user wrote it
            tags[DESCRIPTION] = view.description
        log_params_and_tags(self._client, run, {}, tags)
        self._client.set_tag(self.run_id, SYNCED, view.digest)
        self.digest = view.digest

    def end(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED."""
        if self._status != status:
            self._client.set_terminated(self.run_id, status)
            self._status = status


FLUSH_SECONDS = 1.0  # between writes of a run; one takes about 50 ms, whatever its size
FLUSH_SHARE = 1 / 10  # of the driver's time that goes into the writes of all running cells, at most


@dataclass
class CellRun:
    """The state of one cell's run, as known to this process."""

    info: "RunInfo"
    synced: str = ""  # digest of the result that was completely written
    error: bool = False
    collapsed: bool = False
    running: bool = True
    doubled: bool = False  # some point was logged twice
    unread: list[str] = field(default_factory=list)  # metrics with unread history
    points: dict[str, dict[int, float]] = field(default_factory=dict)  # metric -> step -> value
    pending: "list[Metric]" = field(default_factory=list)
    flushed: float = 0.0

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return str(self.info.run_id)

    @classmethod
    def of(cls, run: "Run") -> "CellRun":
        """The state left by an earlier process."""
        tags = run.data.tags
        return cls(
            run.info,
            synced=tags.get("decile.synced", ""),
            error="decile.error" in tags,
            collapsed=COLLAPSED in tags,
            running=run.info.status == "RUNNING",
            unread=list(run.data.metrics),
        )

    def queue(self, step: int, metrics: Mapping[str, float], timestamp: int) -> None:
        """Queue finite values that were not logged at this step before for the next write."""
        from mlflow.entities import Metric

        for name, value in metrics.items():
            logged = self.points.setdefault(clean(name), {})
            if step not in logged and math.isfinite(value):
                logged[step] = float(value)
                self.pending.append(Metric(clean(name), float(value), timestamp, step))

    def agrees(self, view: CellView) -> bool:
        """Whether the store has every logged point, with the same value; it may have more.

        Resumed trials may not be reproducible, and two drivers may have logged the same point.
        """
        stored = {
            (clean(name), step): value
            for step, metrics in view.points.items()
            for name, value in metrics.items()
        }
        return not self.doubled and all(
            math.isclose(stored.get((name, step), math.nan), value, rel_tol=1e-6)
            for name, points in self.points.items()
            for step, value in points.items()
        )


class SweepRuns:
    """The runs of one sweep; they must have one writer only."""

    def __init__(self, uri: str, store: Store, plan: Plan) -> None:
        """Connect; find or create the experiment and the parent run; list the cells' runs."""
        self._client = connect(uri)
        if store.local and uri == f"sqlite:///{store.path('mlflow.db')}":
            relocate_artifacts(Path(store.path("mlflow.db")), Path(store.path("mlartifacts")))
        artifacts = None
        if uri.startswith(DATABASES) and store.local:  # a server chooses its own location
            artifacts = Path(store.path("mlartifacts", canonical_hash(uri))).as_uri()
        name = f"decile/{plan.name}"
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            created = self._client.create_experiment(name, artifacts)
            experiment = self._client.get_experiment(created)
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        now, swept = (
            round(time.time() * 1000),
            [clean(a) for a in plan.experiment.grid.setting_axes],
        )
        for key, value in experiment_tags(experiment.tags, now, swept).items():
            self._client.set_experiment_tag(experiment.experiment_id, key, value)
        self.experiment_id = str(experiment.experiment_id)
        self.parent = ParentRun.of(self._client, self.experiment_id, plan)
        where = f"tags.mlflow.parentRunId = '{self.parent.run_id}'"
        children = search_runs(self._client, self.experiment_id, where)
        self._runs: dict[str, CellRun] = {}
        # If two drivers have left several runs of a cell, the one with the result is kept.
        for child in sorted(children, key=lambda r: "decile.synced" not in r.data.tags):
            if (cell_id := child.data.tags.get("decile.cell_id", "")) in self._runs:
                self._client.delete_run(child.info.run_id)
            else:
                self._runs[cell_id] = CellRun.of(child)
        styles = policy_styles(cell.policy for cell in plan.cells)
        self._next_flush = 0.0
        self._colours = {policy: colour for policy, (colour, _) in styles.items()}

    def digest(self, cell: Cell) -> str:
        """Digest of the result that the cell's run completely shows; empty without one."""
        run = self._runs.get(cell.cell_id)
        return run.synced if run else ""

    def start(self, cell: Cell) -> None:
        """Mark the cell's run as running, and the parent."""
        self.parent.begin()
        exists = cell.cell_id in self._runs
        run = self._run(cell)
        if exists:  # written by an earlier process, perhaps not to its end, or for an earlier trial
            stored = self._client.get_run(run.run_id)
            log_params_and_tags(self._client, stored, cell_params(cell), cell_tags(cell))
        if not run.running:
            self._client.update_run(run.run_id, status="RUNNING")
            run.running = True
        self._clear_error(run)

    def live(self, cell: Cell, update: int, metrics: Mapping[str, float]) -> None:
        """Log one update's metrics; the writes are limited by run, and for all runs together."""
        run = self._run(cell)
        self._read(run)
        run.queue(update, metrics, round(time.time() * 1000))
        now = time.monotonic()
        if now - run.flushed >= FLUSH_SECONDS and now >= self._next_flush:
            self._flush(run)
            self._next_flush = run.flushed + (run.flushed - now) / FLUSH_SHARE

    def write(self, cell: Cell, view: CellView) -> None:
        """Complete a run from the store, the tag decile.synced last."""
        run = self._run(cell, view.started)
        self._read(run)
        if not run.agrees(view):
            self._client.delete_run(run.run_id)
            del self._runs[cell.cell_id]
            run = self._run(cell, view.started)
        for step, metrics in view.points.items():
            run.queue(step, metrics, view.finished)
        log_files(self._client, run.info, view.files)
        self._clear_error(run)
        self._client.set_terminated(run.run_id, "FINISHED", view.finished)
        self._flush(run, {"decile.synced": view.digest})
        run.synced, run.running = view.digest, False
        run.unread = list(run.points)
        run.points.clear()  # of a finished cell: read again if ever needed

    def mark_collapsed(self, cell_ids: Collection[str]) -> None:
        """Tag the runs of these cells only: a larger sweep may clear a tagged cell."""
        for cell_id, run in self._runs.items():
            if run.collapsed != (cell_id in cell_ids):
                run.collapsed = not run.collapsed
                if run.collapsed:
                    self._client.set_tag(run.run_id, COLLAPSED, "true")
                else:
                    self._client.delete_tag(run.run_id, COLLAPSED)

    def fail(self, cell: Cell, reason: str) -> None:
        """Mark the cell's run as failed."""
        run = self._run(cell)
        self._flush(run)
        self._client.set_tag(run.run_id, "decile.error", redact(reason)[:500])
        self._client.set_terminated(run.run_id, "FAILED")
        run.error, run.running = True, False

    def flush(self) -> None:
        """Write all queued values."""
        for run in self._runs.values():
            self._flush(run)

    def interrupt(self) -> None:
        """Mark the runs in progress as killed, the parent's included."""
        for run in self._runs.values():
            if run.running:
                self._client.set_terminated(run.run_id, "KILLED")
        self.parent.end("KILLED")

    def close(self, ok: bool) -> None:
        """End the parent run."""
        self.flush()
        self.parent.end("FINISHED" if ok else "FAILED")

    def _run(self, cell: Cell, started: int | None = None) -> CellRun:
        """The cell's run, created once; `started`: milliseconds since the epoch, default now."""
        if cell.cell_id not in self._runs:
            tags = cell_tags(cell) | {"mlflow.parentRunId": self.parent.run_id}
            initial = tags | {RUN_COLOUR: self._colours[cell.policy]}  # users may change it
            name = run_name(cell)
            run = self._client.create_run(self.experiment_id, started, initial, run_name=name)
            self._runs[cell.cell_id] = CellRun(run.info)
            log_params_and_tags(self._client, run, cell_params(cell), tags)
        return self._runs[cell.cell_id]

    def _read(self, run: CellRun) -> None:
        """Read the history of an earlier process: MLflow would store the same step twice."""
        for name in run.unread:
            history = self._client.get_metric_history(run.run_id, name)
            run.points[name] = {m.step: m.value for m in history}
            run.doubled |= len(run.points[name]) < len(history)
        run.unread = []

    def _flush(self, run: CellRun, tags: Mapping[str, str] = MappingProxyType({})) -> None:
        """Write the queued values, and then the tags."""
        log_metrics(self._client, run.run_id, run.pending, tags)
        run.pending.clear()
        run.flushed = time.monotonic()

    def _clear_error(self, run: CellRun) -> None:
        """Delete the error of an earlier trial."""
        if run.error:
            self._client.delete_tag(run.run_id, "decile.error")
            run.error = False
