"""The store -> MLflow, and MLflow's own pages.

The store is the truth and this a view of it: a run that contradicts the store is dropped and
written anew, and a tracking server that dies costs one warning, never a sweep.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report.rows import read_rows
from orchestrator.storage.errors import UserError
from orchestrator.storage.hashing import canonical_hash
from orchestrator.storage.store import Store, StoreError
from orchestrator.tracking.client import failures
from orchestrator.tracking.mlflow_internals import compare_page
from orchestrator.tracking.rows import read_view, redact
from orchestrator.tracking.runs import SweepRuns
from orchestrator.tracking.sweep_view import read_sweep, sweep_digest

LOG = logging.getLogger(__name__)


def default_tracking_uri(store: Store) -> str:
    """SQLite beside the results; UserError where the storage is no local folder."""
    if not store.local:
        raise UserError(f"storage {store.uri} holds no MLflow database: give --tracking-uri")
    return f"sqlite:///{store.path('mlflow.db')}"


class Tracker:
    """Writes one sweep to MLflow. For the driver alone: it relies on being the only writer.

    No method raises when MLflow fails: the first failure is told once, then there is silence, and
    `enabled` is False.
    """

    def __init__(self, uri: str, store: Store, plan: Plan) -> None:
        self._uri, self._store, self._plan = uri, store, plan
        self._runs: SweepRuns | None = None
        self.enabled = True

    @classmethod
    def open(cls, uri: str, store: Store, plan: Plan) -> "Tracker":
        """Connect; find or make the sweep's experiment and its parent run."""
        tracker = cls(uri, store, plan)
        tracker._attempt(tracker._connect)
        return tracker

    def start(self, cell: Cell) -> None:
        """A trial of the cell begins, for the first time or again."""
        self._attempt(lambda: self._live_runs.start(cell))

    def live(self, cell: Cell, update: int, metrics: Mapping[str, float]) -> None:
        """What a running trial reports; an update that was logged before is not logged again."""
        self._attempt(lambda: self._live_runs.live(cell, update, metrics))

    def sync(self, cell: Cell) -> None:
        """Write all of a finished cell that MLflow misses; of any other, what was held back."""
        if not self.enabled:
            return
        result = self._store.read_json("cells", cell.cell_id, "result.json")
        if result is None:
            self._attempt(lambda: self._live_runs.flush())
        elif self._live_runs.digest(cell) != canonical_hash(result):
            self._write(cell, result)

    def fail(self, cell: Cell, reason: str) -> None:
        """The trial died; `reason` becomes the tag decile.error."""
        self._attempt(lambda: self._live_runs.fail(cell, reason))

    def stop(self, cell: Cell, reason: str) -> None:
        """The trial was ended early on purpose; its run is killed, and says why."""
        self._attempt(lambda: self._live_runs.fail(cell, reason, status="KILLED"))

    def close(self, ok: bool) -> None:
        """End the sweep; its parent run shows the report of all cells that are finished."""
        self._show()
        self._attempt(lambda: self._live_runs.close(ok))

    @property
    def page(self) -> str:
        """Where a running MLflow compares the cells, after its address; empty without MLflow."""
        return compare_page(self._live_runs.experiment_id) if self.enabled else ""

    @property
    def _live_runs(self) -> SweepRuns:
        if self._runs is None:
            raise RuntimeError("this Tracker is not connected: make it with Tracker.open")
        return self._runs

    def _connect(self) -> None:
        self._runs = SweepRuns(self._uri, self._store, self._plan)

    def _write(self, cell: Cell, result: dict[str, Any]) -> None:
        """The store is read outside of the boundary: its failures are not MLflow's."""
        try:
            test = self._plan.pool(cell.baseline).prompts("test")
            view = read_view(self._store, cell, result, test)
        except StoreError as error:
            LOG.warning("MLflow does not show cell %s: %s", cell.name, error)
            return
        self._attempt(lambda: self._live_runs.write(cell, view))

    def _show(self) -> None:
        """The report is drawn outside of the boundary, and only where it changed."""
        if not self.enabled:
            return
        rows = read_rows(self._store, self._plan.cells)
        digest = sweep_digest(self._store, self._plan, rows)
        if rows and digest != self._live_runs.parent.digest:
            view = read_sweep(self._store, self._plan, rows, digest)
            self._attempt(lambda: self._live_runs.show(view))

    def _attempt(self, action: Callable[[], None]) -> None:
        """The one place where a failing tracker is caught."""
        if not self.enabled:
            return
        try:
            action()
        except Exception as error:
            if not isinstance(error, failures()):
                raise
            self.enabled = False
            LOG.warning(
                "MLflow at %s failed (%s). Nothing is lost: results are in the store; when MLflow "
                "is back, run the same command again to rebuild it.",
                redact(self._uri),
                " ".join(redact(str(error)).split())[:300],
            )


def ui_command(store: Store, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The command that serves the store's MLflow database with one worker.

    It also takes MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false, else MLflow starts eight more processes.
    """
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", default_tracking_uri(store)),
        *("--artifacts-destination", Path(store.path("mlartifacts")).as_uri()),
        *("--host", host, "--port", str(port), "--workers", "1"),
        *("--uvicorn-opts", "--log-level warning"),
    ]


def serve_ui(store: Store, host: str = "127.0.0.1", port: int = 5000) -> int:
    """Become the MLflow server; signals then reach it alone. UserError where it cannot start."""
    command = ui_command(store, host, port)
    if not store.exists("mlflow.db"):
        raise UserError(f"{store.path('mlflow.db')} does not exist: run a sweep first (decile run)")
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise UserError(
            f"port {port} of {host} cannot be used ({error.strerror}): choose another port"
        ) from error
    sys.stderr.write(f"MLflow starts at http://{host}:{port} (Ctrl-C ends it)\n")
    sys.stderr.flush()
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    os.execve(command[0], command, os.environ | quiet)  # noqa: S606 (a list, no shell)
