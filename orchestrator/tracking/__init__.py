"""The store -> MLflow, and the MLflow UI.

The store is the source of truth and MLflow a view of it: a run that contradicts the store is
deleted and rewritten, and a failing tracking server costs one warning, never the sweep.
"""

import logging
import os
import shlex
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster.redaction import redact
from cluster.terminal import echo
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.plugins.deadlines import within
from orchestrator.report.analysis import SweepAnalysis
from orchestrator.storage.errors import StoreError, UserError
from orchestrator.storage.store import Store
from orchestrator.tracking.client import failures, is_damaged, is_full
from orchestrator.tracking.mlflow_internals import compare_page, compare_pages, relocate_artifacts
from orchestrator.tracking.runs import SweepRuns
from orchestrator.tracking.views import read_view, sweep_view, view_digest
from orchestrator.training.cell_folder import CellFolder

LOG = logging.getLogger(__name__)
VIEW_SECONDS = 60.0  # for one write to a server: a cell, or the sweep


def default_tracking_uri(store: Store) -> str:
    """A SQLite file in the storage; UserError if the storage is not a local folder."""
    if not store.local:
        raise UserError(f"storage {store.uri} cannot hold an MLflow database: pass --tracking-uri")
    return f"sqlite:///{store.path('mlflow.db')}"


class Tracker:
    """Writes one sweep to MLflow. Used by the driver only, because it must be the only writer.

    No method raises when MLflow fails: the first failure is logged, `enabled` becomes False, and
    all later calls do nothing.
    """

    def __init__(self, uri: str, store: Store, plan: Plan) -> None:
        """Connect; find or create the sweep's experiment and its parent run."""
        self._uri, self._store, self._plan = uri, store, plan
        self._lock = threading.RLock()  # for `interrupt`, which another thread calls
        self.enabled = True
        self._attempt(self._connect)

    def _connect(self) -> None:
        self._runs = SweepRuns(self._uri, self._store, self._plan)

    def start(self, cell: Cell) -> None:
        """A trial of the cell starts, for the first time or again."""
        self._attempt(lambda: self._runs.start(cell))

    def live(self, cell: Cell, update: int, metrics: Mapping[str, float]) -> None:
        """Log a running trial's metrics; an update that was logged before is not logged again."""
        self._attempt(lambda: self._runs.live(cell, update, metrics))

    def sync(self, cell: Cell) -> None:
        """Write what MLflow lacks of a finished cell, or an unfinished one's pending metrics."""
        if not self.enabled:
            return
        result = CellFolder(self._store, cell.cell_id).result()
        if result is None:
            self._attempt(lambda: self._runs.flush())
        elif self._runs.digest(cell) != view_digest(result):
            # The store is read outside of _attempt: its failures are not MLflow's.
            try:
                test = self._plan.pool(cell.baseline).prompts("test")
                view = read_view(self._store, cell, test)
            except StoreError as error:
                LOG.warning("MLflow does not show cell %s: %s", cell.name, error)
                return
            self._attempt(lambda: self._runs.write(cell, view))

    def fail(self, cell: Cell, reason: str) -> None:
        """The trial failed; `reason` becomes the tag decile.error."""
        self._attempt(lambda: self._runs.fail(cell, reason))

    def show(self, analysis: SweepAnalysis) -> None:
        """Bring the runs up to date with the analysis, unless they already show it."""
        if not self.enabled or not analysis.rows:
            return
        self._attempt(lambda: self._runs.mark_collapsed(analysis.collapsed))
        if self.enabled and analysis.digest != self._runs.parent.digest:
            view = sweep_view(analysis)  # outside of _attempt: its failures are not MLflow's
            self._attempt(lambda: self._runs.parent.show(view))

    def interrupt(self) -> None:
        """Mark the runs in progress as killed; nothing is written after that."""
        with self._lock:
            self._attempt(lambda: self._runs.interrupt())
            self.enabled = False

    def close(self, ok: bool) -> None:
        """End the parent run."""
        self._attempt(lambda: self._runs.close(ok))

    @property
    def page(self) -> str:
        """Path of the MLflow page that compares the cells; empty without MLflow."""
        return compare_page(self._runs.experiment_id) if self.enabled else ""

    def _attempt(self, action: Callable[[], None]) -> None:
        """The only place where failures of MLflow are caught."""
        self._store.before_write()  # MLflow's files may be in the storage
        try:
            with self._lock:
                if self.enabled and self._uri.startswith("sqlite"):
                    action()
                elif self.enabled:
                    within(VIEW_SECONDS, action)
        except Exception as error:
            if not isinstance(error, failures()):
                raise
            self.enabled = False
            reason = getattr(error, "orig", None) or error  # SQLAlchemy adds SQL and a link
            reason = " ".join(redact(str(reason)).split())[:300]
            remedy = "rerun the same command to complete its runs when MLflow is available"
            if is_damaged(error):
                remedy = "rename that file, and rerun the same command to write a new one"
            elif is_full(error):
                free = "free space on that disk, and rerun the same command"
                remedy = f"{free} to complete its runs"
            LOG.warning(
                f"MLflow at {redact(self._uri)} failed ({reason}). The results are in the "
                f"storage: {remedy}"
            )


def comparison_links(tracking_uri: str | None, store: Store, page: str) -> list[str]:
    """Where the sweep's curves can be seen; `page` is empty if MLflow failed.

    `decile ui` prints its pages, because only it knows its port.
    """
    if tracking_uri is None:
        return [shlex.join(["decile", "ui", "--storage", store.uri])]
    has_ui = tracking_uri.startswith("http") and page
    return [redact(f"{tracking_uri.rstrip('/')}/{page}" if has_ui else tracking_uri)]


def ui_command(store: Store, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The command that serves the store's MLflow database with one worker.

    Run it with MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false; otherwise MLflow starts eight more
    processes.
    """
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", default_tracking_uri(store)),
        *("--artifacts-destination", Path(store.path("mlartifacts")).as_uri()),
        *("--host", host, "--port", str(port), "--workers", "1"),
        *("--uvicorn-opts", "--log-level warning"),
    ]


def free_port(host: str, port: int | None) -> int:
    """The port; without one, 5000 or another free port. Raises UserError if it is not free."""
    for each in (5000, 0) if port is None else (port,):
        try:
            with socket.create_server((host, each)) as server:
                return int(server.getsockname()[1])
        except OSError as error:
            reason = error.strerror
    raise UserError(f"port {port} of {host} is not available ({reason}): choose another port")


def serve_ui(store: Store, host: str = "127.0.0.1", port: int | None = None) -> int:
    """Replace this process by the MLflow server. Raises UserError if it cannot start."""
    if not Path(store.path("mlflow.db")).is_file():  # MLflow's own: it may be a link
        raise UserError(f"{store.path('mlflow.db')} does not exist: run a sweep first (decile run)")
    try:
        relocate_artifacts(Path(store.path("mlflow.db")), Path(store.path("mlartifacts")))
        pages = compare_pages(Path(store.path("mlflow.db")))
    except sqlite3.Error as error:
        raise UserError(
            f"{store.path('mlflow.db')} cannot be used ({error}): delete it, and rerun "
            "decile run to build it again from the storage"
        ) from error
    port = free_port(host, port)
    for name, page in pages.items():
        echo(f"{name}: http://{host}:{port}/{page}", sys.stderr)
    echo(f"MLflow UI: http://{host}:{port} (press Ctrl-C to stop)", sys.stderr)
    command = ui_command(store, host, port)
    variables = {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONSAFEPATH": "1",  # otherwise Python imports the user's modules first
    }
    os.execve(command[0], command, os.environ | variables)  # noqa: S606 (a list, no shell)
