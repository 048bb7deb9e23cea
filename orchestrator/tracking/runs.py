"""One sweep's runs in MLflow: an experiment, a parent run, one run per cell. Imports mlflow late.

Everything here raises what MLflow raises; `tracking.Tracker` is where that is caught.
"""

import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cells import Cell
from orchestrator.models import canonical_hash
from orchestrator.plan import Plan
from orchestrator.store import Store
from orchestrator.tracking.rows import (
    CellView,
    as_csv,
    cell_params,
    cell_tags,
    clean,
    redact,
    sweep_params,
    sweep_tags,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

FLUSH_SECONDS = 1.0  # one write takes about 50 ms, however many values it holds
METRICS_PER_BATCH = 1000  # MLflow's limits
PARAMS_PER_BATCH = 100
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout may be read by a program
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


def failures() -> tuple[type[Exception], ...]:
    """What a tracker raises that is dead, full or broken, or whose database driver is missing.

    The errors of requests are OSErrors.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError, ModuleNotFoundError


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
        self._experiment_id = self._find_experiment(f"decile/{plan.name}", _artifacts(uri, store))
        self._parent_id = self._find_parent(plan)
        children = self._search(f"tags.mlflow.parentRunId = '{self._parent_id}'")
        self._runs = {r.data.tags.get("decile.cell_id", ""): CellRun.of(r) for r in children}

    def digest(self, cell: Cell) -> str:
        """Digest of the result that the cell's run shows whole; empty where there is none."""
        run = self._runs.get(cell.cell_id)
        return run.synced if run else ""

    def start(self, cell: Cell) -> None:
        """Mark the cell's run as running."""
        run = self._run(cell)
        self._describe(self._client.get_run(run.run_id), cell_params(cell), cell_tags(cell))
        if not run.running:
            self._client.update_run(run.run_id, status="RUNNING")
            run.running = True
        self._forgive(run)

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
        self._attach(run, view.files)
        self._forgive(run)
        self._client.set_terminated(run.run_id, "FINISHED", view.finished)
        self._client.set_tag(run.run_id, "decile.synced", view.digest)
        run.synced, run.running = view.digest, False
        run.points.clear()  # nothing is held against them any more

    def fail(self, cell: Cell, reason: str) -> None:
        """Mark the cell's run as failed."""
        run = self._run(cell)
        self._flush(run)
        self._client.set_tag(run.run_id, "decile.error", redact(reason)[:500])
        self._client.set_terminated(run.run_id, "FAILED")
        run.error, run.running = True, False

    def flush(self) -> None:
        """Write everything that was held back."""
        for run in self._runs.values():
            self._flush(run)

    def close(self, ok: bool, results: list[dict[str, Any]] | None) -> None:
        """End the parent run, with the result table as artifacts."""
        self.flush()
        if results:
            text = json.dumps(results, indent=2, default=str)
            self._client.log_text(self._parent_id, text, "results.json")
            self._client.log_text(self._parent_id, as_csv(results), "results.csv")
        self._client.set_terminated(self._parent_id, "FINISHED" if ok else "FAILED")

    def _find_experiment(self, name: str, artifacts: str | None) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name, artifacts))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _find_parent(self, plan: Plan) -> str:
        tags = sweep_tags(plan.name, plan.experiment)
        found = self._search(f"tags.decile.settings = '{tags['decile.settings']}'")
        if found:
            run = min(found, key=lambda r: r.info.start_time)
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            run = self._client.create_run(self._experiment_id, run_name=plan.name, tags=tags)
        self._describe(run, sweep_params(plan.experiment), tags)
        return str(run.info.run_id)

    def _search(self, where: str) -> "list[Run]":
        runs: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment_id], where, page_token=token)
            runs += page
            if not (token := page.token):
                return runs

    def _run(self, cell: Cell, started: int | None = None) -> CellRun:
        """The cell's run, made once; `started` in milliseconds since the epoch, now when None."""
        if cell.cell_id not in self._runs:
            tags = cell_tags(cell) | {"mlflow.parentRunId": self._parent_id}
            made = self._client.create_run(self._experiment_id, started, tags, run_name=cell.name)
            self._runs[cell.cell_id] = CellRun(made.info.run_id)
            self._describe(made, cell_params(cell), tags)
        return self._runs[cell.cell_id]

    def _describe(self, run: "Run", params: dict[str, str], tags: dict[str, str]) -> None:
        """Log the parameters that a run misses (a kill may have left it without), and its tags."""
        from mlflow.entities import Param, RunTag

        missing = [Param(k, v) for k, v in params.items() if k not in run.data.params]
        changed = [RunTag(k, v) for k, v in tags.items() if run.data.tags.get(k) != v]
        for start in range(0, len(missing), PARAMS_PER_BATCH):
            batch = missing[start : start + PARAMS_PER_BATCH]
            self._client.log_batch(run.info.run_id, params=batch)
        if changed:
            self._client.log_batch(run.info.run_id, tags=changed)

    def _read(self, run: CellRun) -> None:
        """Read what an earlier process logged: MLflow would keep the same step twice."""
        for name in run.unread:
            history = self._client.get_metric_history(run.run_id, name)
            run.points[name] = {m.step: m.value for m in history}
        run.unread = []

    def _flush(self, run: CellRun) -> None:
        for start in range(0, len(run.pending), METRICS_PER_BATCH):
            batch = run.pending[start : start + METRICS_PER_BATCH]
            self._client.log_batch(run.run_id, metrics=batch)
        run.pending.clear()
        run.flushed = time.monotonic()

    def _forgive(self, run: CellRun) -> None:
        """An earlier trial's error is no longer the cell's."""
        if run.error:
            self._client.delete_tag(run.run_id, "decile.error")
            run.error = False

    def _attach(self, run: CellRun, files: Mapping[str, bytes]) -> None:
        with tempfile.TemporaryDirectory(prefix="decile-mlflow-") as folder:
            for name, data in files.items():
                Path(folder, name).write_bytes(data)
            self._client.log_artifacts(run.run_id, folder)


def connect(uri: str) -> "MlflowClient":
    """A client that fails in seconds and speaks only of what matters."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    _quiet()
    _check_database(uri)
    return MlflowClient(tracking_uri=uri)


def _quiet() -> None:
    """Migrations and retries are no news; what matters is told once by the tracker."""
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def _artifacts(uri: str, store: Store) -> str | None:
    """Where the artifacts lie when MLflow is a database; a server decides that itself."""
    if not uri.startswith(_DATABASES) or not store.local:
        return None
    return Path(store.path("mlartifacts", canonical_hash(uri))).as_uri()


def _check_database(uri: str) -> None:
    """One quick try: MLflow itself tries an unusable database for 100 seconds before it says so."""
    if not uri.startswith(_DATABASES):
        return
    import sqlalchemy

    url = sqlalchemy.make_url(uri)
    if url.drivername.startswith("sqlite") and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sqlalchemy.create_engine(url)
    try:
        sqlalchemy.inspect(engine).get_table_names()
    finally:
        engine.dispose()
