"""The store -> MLflow, and MLflow's own pages. The only room that imports mlflow, when it is used.

The store is the truth and this a view of it: a run that contradicts the store is dropped and written
anew, and a tracking server that dies costs a warning, never a sweep.
"""

import csv
import io
import json
import logging
import math
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.lines import UserError
from orchestrator.models import canonical_hash
from orchestrator.plan import Cell, Plan
from orchestrator.store import Store, StoreError
from orchestrator.tracking_rows import (
    CellView,
    cell_params,
    cell_tags,
    clean,
    read_view,
    sweep_params,
    sweep_tags,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

LOG = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0  # one write takes about 50 ms, however many values it holds
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_PER_BATCH = 1000  # metrics; MLflow's limit
_PARAMS_PER_BATCH = 100


def default_tracking_uri(store: Store) -> str:
    """SQLite beside the results; UserError where the storage is no local folder."""
    if not store.local:
        raise UserError(f"storage {store.uri} holds no MLflow database: give --tracking-uri")
    return f"sqlite:///{store.path('mlflow.db')}"


def redact(text: str) -> str:
    """The text with user and password of every URI in it left out."""
    return re.sub(r"(?<=://)[^\s/'\"]*@", "***@", text)


@dataclass
class _CellRun:
    """One cell's run, as far as this process knows it."""

    run_id: str
    synced: str = ""  # digest of the result that was written whole
    error: bool = False
    running: bool = True
    known: list[str] | None = None  # metrics in MLflow whose history was not read yet
    points: dict[str, dict[int, float]] = field(default_factory=dict)
    pending: list[Any] = field(default_factory=list)
    flushed: float = 0.0

    @classmethod
    def of(cls, run: "Run") -> "_CellRun":
        tags = run.data.tags
        return cls(
            run.info.run_id,
            synced=tags.get("decile.synced", ""),
            error="decile.error" in tags,
            running=run.info.status == "RUNNING",
            known=list(run.data.metrics),
        )


class Tracker:
    """Writes one sweep to MLflow. For the driver alone: it relies on being the only writer.

    No method raises when MLflow fails: the first failure is told once, the rest is silence.
    """

    _client: "MlflowClient"
    _experiment_id: str
    _parent_id: str

    def __init__(self, uri: str, store: Store, plan: Plan) -> None:
        self._uri, self._store, self._plan = uri, store, plan
        self._runs: dict[str, _CellRun] = {}
        self.enabled = True

    @classmethod
    def open(cls, uri: str, store: Store, plan: Plan) -> "Tracker":
        """Connect; find or make the sweep's experiment and its parent run."""
        tracker = cls(uri, store, plan)
        tracker._attempt(tracker._connect)
        return tracker

    def start(self, cell: Cell) -> None:
        """A trial of the cell begins, for the first time or again."""
        self._attempt(self._start, cell)

    def live(self, cell: Cell, update: int, metrics: Mapping[str, float]) -> None:
        """What a running trial reports; an update that was logged before is not logged again."""
        self._attempt(self._live, cell, update, metrics)

    def sync(self, cell: Cell) -> None:
        """Write all of a finished cell that MLflow misses; of any other, what was held back."""
        result = self._store.read_json("cells", cell.cell_id, "result.json")
        run = self._runs.get(cell.cell_id)
        if not self.enabled or (result and run and run.synced == canonical_hash(result)):
            return
        if result is None:
            self._attempt(self._flush_all)
            return
        try:
            test = self._plan.pool(cell.baseline).prompts("test")
            view = read_view(self._store, cell, result, test)
        except StoreError as error:
            LOG.warning("MLflow does not show cell %s: %s", cell.name, error)
            return
        self._attempt(self._write, cell, view)

    def fail(self, cell: Cell, reason: str) -> None:
        """The trial died; `reason` becomes the tag decile.error."""
        self._attempt(self._fail, cell, reason)

    def close(self, ok: bool, results: list[dict[str, Any]] | None = None) -> None:
        """End the sweep; its result table, one flat row per cell, is kept as JSON and CSV."""
        self._attempt(self._close, ok, results)

    def _attempt(self, action: Callable[..., None], *args: Any) -> None:
        """The one place where a failing tracker is caught."""
        if not self.enabled:
            return
        try:
            action(*args)
        except Exception as error:
            if not isinstance(error, _failures()):
                raise
            self.enabled = False
            LOG.warning(
                "MLflow at %s does not answer (%s). Nothing is lost: results are in the store %s; "
                "when MLflow is back, run the same command again to rebuild it.",
                redact(self._uri),
                " ".join(redact(str(error)).split())[:500],
                redact(self._store.uri),
            )

    def _connect(self) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic", "urllib3.connectionpool"):
            logging.getLogger(name).setLevel(logging.ERROR)
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        _check_database(self._uri)
        self._client = MlflowClient(tracking_uri=self._uri)
        self._experiment_id = self._find_experiment()
        self._parent_id = self._find_parent()
        for found in self._search(f"tags.mlflow.parentRunId = '{self._parent_id}'"):
            self._runs[found.data.tags.get("decile.cell_id", "")] = _CellRun.of(found)

    def _find_experiment(self) -> str:
        name = f"decile/{self._plan.name}"
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name, self._artifacts()))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _artifacts(self) -> str | None:
        """Where a database's artifacts lie; a server decides that itself."""
        if not self._uri.startswith(_DATABASES) or not self._store.local:
            return None
        folder = canonical_hash([self._uri, self._plan.name])
        return Path(self._store.path("mlartifacts", folder)).as_uri()

    def _find_parent(self) -> str:
        tags = sweep_tags(self._plan.name, self._plan.experiment)
        params = sweep_params(self._plan.experiment)
        found = self._search(f"tags.decile.settings = '{tags['decile.settings']}'")
        if found:
            run = min(found, key=lambda r: r.info.start_time)
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            run = self._client.create_run(self._experiment_id, run_name=self._plan.name, tags=tags)
        self._describe(run, params, tags)
        return str(run.info.run_id)

    def _search(self, where: str) -> list["Run"]:
        runs: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment_id], where, page_token=token)
            runs += page
            if not (token := page.token):
                return runs

    def _describe(self, run: "Run", params: dict[str, str], tags: dict[str, str]) -> None:
        """Log the parameters that a run misses (a kill may have left it without), and its tags."""
        from mlflow.entities import Param, RunTag

        missing = [Param(k, v) for k, v in params.items() if k not in run.data.params]
        changed = [RunTag(k, v) for k, v in tags.items() if run.data.tags.get(k) != v]
        for start in range(0, len(missing), _PARAMS_PER_BATCH):
            self._client.log_batch(
                run.info.run_id, params=missing[start : start + _PARAMS_PER_BATCH]
            )
        if changed:
            self._client.log_batch(run.info.run_id, tags=changed)

    def _run(self, cell: Cell, started: int | None = None) -> _CellRun:
        """The cell's run, made once; `started` in milliseconds since the epoch, now when None."""
        if cell.cell_id in self._runs:
            return self._runs[cell.cell_id]
        tags = cell_tags(cell) | {"mlflow.parentRunId": self._parent_id}
        made = self._client.create_run(self._experiment_id, started, tags, run_name=cell.name)
        self._describe(made, cell_params(cell), tags)
        run = self._runs[cell.cell_id] = _CellRun(made.info.run_id)
        return run

    def _start(self, cell: Cell) -> None:
        run = self._run(cell)
        self._describe(self._client.get_run(run.run_id), cell_params(cell), cell_tags(cell))
        if not run.running:
            self._client.update_run(run.run_id, status="RUNNING")
            run.running = True
        self._forgive(run)

    def _forgive(self, run: _CellRun) -> None:
        """An earlier trial's error is no longer the cell's."""
        if run.error:
            self._client.delete_tag(run.run_id, "decile.error")
            run.error = False

    def _live(self, cell: Cell, update: int, metrics: Mapping[str, float]) -> None:
        run = self._run(cell)
        self._load(run)
        self._add(run, {update: metrics}, round(time.time() * 1000))
        if time.monotonic() - run.flushed >= FLUSH_SECONDS:
            self._flush(run)

    def _load(self, run: _CellRun) -> None:
        """Read what an earlier process logged: MLflow would keep the same step twice."""
        for name in run.known or ():
            history = self._client.get_metric_history(run.run_id, name)
            run.points[name] = {m.step: m.value for m in history}
        run.known = None

    def _add(
        self, run: _CellRun, points: Mapping[int, Mapping[str, float]], timestamp: int
    ) -> None:
        """Hold back what is new and finite."""
        from mlflow.entities import Metric

        for step, metrics in points.items():
            for name, value in metrics.items():
                logged = run.points.setdefault(clean(name), {})
                if step not in logged and math.isfinite(value):
                    logged[step] = float(value)
                    run.pending.append(Metric(clean(name), float(value), timestamp, step))

    def _flush(self, run: _CellRun) -> None:
        for start in range(0, len(run.pending), _PER_BATCH):
            self._client.log_batch(run.run_id, metrics=run.pending[start : start + _PER_BATCH])
        run.pending.clear()
        run.flushed = time.monotonic()

    def _flush_all(self) -> None:
        for run in self._runs.values():
            self._flush(run)

    def _write(self, cell: Cell, view: CellView) -> None:
        """Complete a run from the store; the tag decile.synced comes last of all."""
        run = self._run(cell, view.started)
        self._load(run)
        if run.synced or _contradicts(run, view):
            self._client.delete_run(run.run_id)
            del self._runs[cell.cell_id]
            run = self._run(cell, view.started)
        self._add(run, view.points, view.finished)
        self._flush(run)
        with tempfile.TemporaryDirectory(prefix="decile-mlflow-") as folder:
            for name, data in view.files.items():
                Path(folder, name).write_bytes(data)
            self._client.log_artifacts(run.run_id, folder)
        self._forgive(run)
        self._client.set_terminated(run.run_id, "FINISHED", view.finished)
        self._client.set_tag(run.run_id, "decile.synced", view.digest)
        run.synced, run.running = view.digest, False

    def _fail(self, cell: Cell, reason: str) -> None:
        run = self._run(cell)
        self._flush(run)
        self._client.set_tag(run.run_id, "decile.error", redact(reason)[:500])
        self._client.set_terminated(run.run_id, "FAILED")
        run.error, run.running = True, False

    def _close(self, ok: bool, results: list[dict[str, Any]] | None) -> None:
        self._flush_all()
        if results:
            text = json.dumps(results, indent=2, default=str)
            self._client.log_text(self._parent_id, text, "results.json")
            self._client.log_text(self._parent_id, _as_csv(results), "results.csv")
        self._client.set_terminated(self._parent_id, "FINISHED" if ok else "FAILED")


def _failures() -> tuple[type[Exception], ...]:
    """What a tracker that is dead, full or broken raises; requests' errors are OSErrors."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError


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


def _contradicts(run: _CellRun, view: CellView) -> bool:
    """Whether a logged point differs from the store's: a replay on a GPU need not repeat itself."""
    return any(
        not math.isclose(run.points.get(clean(name), {}).get(step, value), value, rel_tol=1e-6)
        for step, metrics in view.points.items()
        for name, value in metrics.items()
        if math.isfinite(value)
    )


def _as_csv(rows: list[dict[str, Any]]) -> str:
    """The rows as CSV; columns in the order in which they first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def ui_command(store: Store, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The command that serves the store's MLflow database: one worker, no job runner."""
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", default_tracking_uri(store)),
        *("--artifacts-destination", Path(store.path("mlartifacts")).as_uri()),
        *("--host", host, "--port", str(port), "--workers", "1"),
    ]


def serve_ui(store: Store, host: str = "127.0.0.1", port: int = 5000) -> int:
    """Become the MLflow server; signals then reach it alone. UserError where it cannot start."""
    command = ui_command(store, host, port)
    if not store.exists("mlflow.db"):
        raise UserError(f"{store.path('mlflow.db')} does not exist: run a sweep first (decile run)")
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise UserError(
            f"port {port} of {host} cannot be used ({error.strerror}): choose another port"
        ) from error
    print(f"MLflow: http://{host}:{port} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    os.execve(command[0], command, os.environ | quiet)  # noqa: S606 (a list, no shell)
