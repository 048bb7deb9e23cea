"""A sweep's parent run in MLflow: its settings, its report, how it ended. Imports mlflow late.

Everything here raises what MLflow raises; `tracking.Tracker` is where that is caught.
"""

import math
import time
from typing import TYPE_CHECKING

from orchestrator.planning.plan import Plan
from orchestrator.tracking.client import attach, describe, log_metrics, search
from orchestrator.tracking.rows import sweep_params, sweep_tags
from orchestrator.tracking.sweep_view import NOTE_HEAD, SweepView

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

NOTE = "mlflow.note.content"
SYNCED = "decile.synced"  # as on the runs of cells: the digest of what is shown whole


class ParentRun:
    """The one run under which all cells of a sweep stand, for its only writer."""

    def __init__(self, client: "MlflowClient", run: "Run") -> None:
        self._client = client
        self.run_id = str(run.info.run_id)
        self._status = str(run.info.status)
        self.digest = str(run.data.tags.get(SYNCED, ""))

    @classmethod
    def of(cls, client: "MlflowClient", experiment_id: str, plan: Plan) -> "ParentRun":
        """Find the run of the plan's settings, or make it."""
        tags = sweep_tags(plan.name, plan.experiment)
        where = f"tags.decile.settings = '{tags['decile.settings']}'"
        if found := search(client, experiment_id, where):
            run = min(found, key=lambda r: r.info.start_time)
        else:
            run = client.create_run(experiment_id, run_name=plan.name, tags=tags)
        describe(client, run, sweep_params(plan.experiment), tags)
        return cls(client, run)

    def begin(self) -> None:
        """A trial of the sweep runs."""
        if self._status != "RUNNING":
            self._client.update_run(self.run_id, status="RUNNING")
            self._status = "RUNNING"

    def show(self, view: SweepView) -> None:
        """Write the view; the tag decile.synced comes last of all.

        A number that is there already is not logged again.
        """
        from mlflow.entities import Metric

        run = self._client.get_run(self.run_id)
        attach(self._client, self.run_id, view.files)
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
        describe(self._client, run, {}, view.tags | _note(run, view))
        self._client.set_tag(self.run_id, SYNCED, view.digest)
        self.digest = view.digest

    def end(self, ok: bool) -> None:
        """Nothing runs any more."""
        status = "FINISHED" if ok else "FAILED"
        if self._status != status:
            self._client.set_terminated(self.run_id, status)
            self._status = status


def _note(run: "Run", view: SweepView) -> dict[str, str]:
    """The run's description, where a person wrote none."""
    written = run.data.tags.get(NOTE, "")
    return {NOTE: view.note} if not written or written.startswith(NOTE_HEAD) else {}
