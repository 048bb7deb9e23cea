"""The store in a real MLflow: SQLite files, a server on loopback, and unavailable ones."""

import shutil
import subprocess
import sys
from pathlib import Path

from factories import finished_cell
from mlflow import MlflowClient
from mlflow_server import serving
from processes import LIMIT
from tracking_cases import opened, plan, runs_of  # noqa: F401 (fixtures)

from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store
from orchestrator.tracking import (
    default_tracking_uri,
)


def test_two_processes_create_one_database(tmp_path: Path) -> None:
    code = (
        f"from orchestrator.tracking.client import connect; connect('sqlite:///{tmp_path}/new.db')"
    )
    creators = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [creator.wait(timeout=LIMIT) for creator in creators] == [0, 0]


def test_the_ui_of_a_moved_storage_finds_its_artifacts(
    store: Store, plan: Plan, tmp_path: Path
) -> None:
    cell = plan.cells[0]
    finished_cell(store, plan, cell)
    opened(store, plan).sync(cell)
    run_id = runs_of(default_tracking_uri(store), plan)[1][cell.cell_id].info.run_id
    moved = Store(str(shutil.move(store.root, tmp_path / "elsewhere")))
    with serving(moved) as (address, _):
        assert [f.path for f in MlflowClient(address).list_artifacts(run_id)]
