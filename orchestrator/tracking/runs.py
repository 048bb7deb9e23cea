"""One sweep's runs in MLflow: an experiment, a parent run, one run per cell. Imports mlflow late.

Everything here raises what MLflow raises; `tracking.Tracker` is where that is caught.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report.drawing import COLOURS
from orchestrator.storage.hashing import canonical_hash
from orchestrator.storage.store import Store
from orchestrator.tracking.client import (
    DATABASES,
    attach,
    connect,
    describe,
    log_metrics,
    search,
)
from orchestrator.tracking.mlflow_internals import RUN_COLOUR, experiment_tags
from orchestrator.tracking.parent import ParentRun
from orchestrator.tracking.rows import (
    CellView,
    cell_params,
    cell_tags,
    clean,
    redact,
    run_name,
)

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

FLUSH_SECONDS = 1.0  # one write takes about 50 ms, however many values it holds


@dataclass
class CellRun:
    """One cell's run, as far as this process knows it."""

    run_id: str
    synced: str = ""  # digest of the result that was written whole
    error: bool = False
    running: bool = True
    unread: list[str] = field(default_factory=list)  # metrics in MLflow, history not read yet
    points: dict[str, dict[int, float]] = field(default_factory=dict)  # metric -> step -> value
    pending: "list[Metric]" = field(default_factory=list)
    flushed: float = 0.0

    @classmethod
    def of(cls, run: "Run") -> "CellRun":
        """What an earlier process left."""
        tags = run.data.tags
        return cls(
            run.info.run_id,
            synced=tags.get("decile.synced", ""),
            error="decile.error" in tags,
            running=run.info.status == "RUNNING",
            unread=list(run.data.metrics),
        )

    def hold(self, step: int, metrics: Mapping[str, float], timestamp: int) -> None:
        """Hold back for the next write what is finite and was not logged at this step before."""
        from mlflow.entities import Metric

        for name, value in metrics.items():
            logged = self.points.setdefault(clean(name), {})
            if step not in logged and math.isfinite(value):
                logged[step] = float(value)
                self.pending.append(Metric(clean(name), float(value), timestamp, step))

    def contradicts(self, view: CellView) -> bool:
        """Whether a logged point differs from the store's: a replay on a GPU may not repeat."""
        return any(
            not math.isclose(self.points.get(clean(name), {}).get(step, value), value, rel_tol=1e-6)
            for step, metrics in view.points.items()
            for name, value in metrics.items()
            if math.isfinite(value)
        )


class SweepRuns:
    """The runs of one sweep, for its only writer."""

    def __init__(self, uri: str, store: Store, plan: Plan) -> None:
        """Connect; find or make the experiment and the parent run, and list the cells' runs."""
        self._client = connect(uri)
        self.experiment_id = self._find_experiment(f"decile/{plan.name}", _artifacts(uri, store))
        self.parent = ParentRun.of(self._client, self.experiment_id, plan)
        where = f"tags.mlflow.parentRunId = '{self.parent.run_id}'"
        children = search(self._client, self.experiment_id, where)
        self._runs = {r.data.tags.get("decile.cell_id", ""): CellRun.of(r) for r in children}
        known = (r.data.tags for r in reversed(children))
        self._colours = {
            t["policy"]: t[RUN_COLOUR] for t in known if {"policy", RUN_COLOUR} <= t.keys()
        }

    def digest(self, cell: Cell) -> str:
        """Digest of the result that the cell's run shows whole; empty where there is none."""
        run = self._runs.get(cell.cell_id)
        return run.synced if run else ""

    def start(self, cell: Cell) -> None:
        """Mark the cell's run as running, and the parent."""
        self.parent.begin()
        run = self._run(cell)
        known = self._client.get_run(run.run_id)
        describe(self._client, known, cell_params(cell), cell_tags(cell))
        if not run.running:
            self._client.update_run(run.run_id, status="RUNNING")
            run.running = True
        self._clear_error(run)

    def live(self, cell: Cell, update: int, metrics: Mapping[str, float]) -> None:
        """Log one update's metrics, at most one write a second."""
        run = self._run(cell)
        self._read(run)
        run.hold(update, metrics, round(time.time() * 1000))
        if time.monotonic() - run.flushed >= FLUSH_SECONDS:
            self._flush(run)

    def write(self, cell: Cell, view: CellView) -> None:
        """Complete a run from the store; the tag decile.synced comes last of all."""
        run = self._run(cell, view.started)
        self._read(run)
        if run.synced or run.contradicts(view):
            self._client.delete_run(run.run_id)
            del self._runs[cell.cell_id]
            run = self._run(cell, view.started)
        for step, metrics in view.points.items():
            run.hold(step, metrics, view.finished)
        self._flush(run)
        attach(self._client, run.run_id, view.files)
        self._clear_error(run)
        self._client.set_terminated(run.run_id, "FINISHED", view.finished)
        self._client.set_tag(run.run_id, "decile.synced", view.digest)
        run.synced, run.running = view.digest, False
        run.points.clear()  # nothing is held against them any more

    def fail(self, cell: Cell, reason: str, status: str = "FAILED") -> None:
        """Mark the cell's run as failed, or killed."""
        run = self._run(cell)
        self._flush(run)
        self._client.set_tag(run.run_id, "decile.error", redact(reason)[:500])
        self._client.set_terminated(run.run_id, status)
        run.error, run.running = True, False

    def flush(self) -> None:
        """Write everything that was held back."""
        for run in self._runs.values():
            self._flush(run)

    def close(self, ok: bool) -> None:
        """End the parent run."""
        self.flush()
        self.parent.end(ok)

    def _find_experiment(self, name: str, artifacts: str | None) -> str:
        """The experiment, with the views that people find there."""
        found = self._client.get_experiment_by_name(name)
        if found is None:
            found = self._client.get_experiment(self._client.create_experiment(name, artifacts))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        for key, value in experiment_tags(found.tags, round(time.time() * 1000)).items():
            self._client.set_experiment_tag(found.experiment_id, key, value)
        return str(found.experiment_id)

    def _run(self, cell: Cell, started: int | None = None) -> CellRun:
        """The cell's run, made once; `started` in milliseconds since the epoch, now when None."""
        if cell.cell_id not in self._runs:
            tags = cell_tags(cell) | {"mlflow.parentRunId": self.parent.run_id}
            once = tags | {RUN_COLOUR: self._colour(cell.policy)}  # people may choose another
            name = run_name(cell)
            made = self._client.create_run(self.experiment_id, started, once, run_name=name)
            self._runs[cell.cell_id] = CellRun(made.info.run_id)
            describe(self._client, made, cell_params(cell), tags)
        return self._runs[cell.cell_id]

    def _colour(self, policy: str) -> str:
        """One colour for all seeds of a policy, as in the report; first one that no other has."""
        if policy not in self._colours:
            free = [c for c in COLOURS if c not in self._colours.values()]
            again = COLOURS[len(self._colours) % len(COLOURS)]
            self._colours[policy] = free[0] if free else again
        return self._colours[policy]

    def _read(self, run: CellRun) -> None:
        """Read what an earlier process logged: MLflow would keep the same step twice."""
        for name in run.unread:
            history = self._client.get_metric_history(run.run_id, name)
            run.points[name] = {m.step: m.value for m in history}
        run.unread = []

    def _flush(self, run: CellRun) -> None:
        log_metrics(self._client, run.run_id, run.pending)
        run.pending.clear()
        run.flushed = time.monotonic()

    def _clear_error(self, run: CellRun) -> None:
        """An earlier trial's error is no longer the cell's."""
        if run.error:
            self._client.delete_tag(run.run_id, "decile.error")
            run.error = False


def _artifacts(uri: str, store: Store) -> str | None:
    """Where the artifacts lie when MLflow is a database; a server decides that itself."""
    if not uri.startswith(DATABASES) or not store.local:
        return None
    return Path(store.path("mlartifacts", canonical_hash(uri))).as_uri()
