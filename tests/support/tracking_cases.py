"""The store in a real MLflow: SQLite files, a server on loopback, and unavailable ones."""

from pathlib import Path

import pytest
from factories import small_plan
from mlflow import MlflowClient
from mlflow.entities import Run

from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store
from orchestrator.tracking import (
    Tracker,
    default_tracking_uri,
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return small_plan(tmp_path)


def opened(store: Store, plan: Plan) -> Tracker:
    tracker = Tracker(default_tracking_uri(store), store, plan)
    assert tracker.enabled
    return tracker


def runs_of(uri: str, plan: Plan) -> tuple[list[Run], dict[str, Run]]:
    """Parents, and the cells' runs by cell id; fails where a cell has two runs."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(f"decile/{plan.name}")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    parents = [r for r in runs if "decile.sweep" in r.data.tags]
    children = [r for r in runs if "decile.sweep" not in r.data.tags]
    by_cell = {r.data.tags["decile.cell_id"]: r for r in children}
    assert len(by_cell) == len(children)
    return parents, by_cell
