"""A sweep's parent run in MLflow: settings, report, status. Imports mlflow inside functions.

MLflow's exceptions propagate; `tracking.Tracker` catches them.
"""

import math
import time
from typing import TYPE_CHECKING

from orchestrator.planning.plan import Plan
from orchestrator.tracking.cell_view import sweep_params, sweep_tags
from orchestrator.tracking.client import log_files, log_metrics, log_params_and_tags, search_runs
from orchestrator.tracking.sweep_view import DESCRIPTION_HEAD, SweepView

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

DESCRIPTION = "mlflow.note.content"
SYNCED = "decile.synced"  # digest of the inputs of what the run shows, written last


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
