"""What several files of tests look at."""

from pathlib import Path

import pytest
from sweeps import experiments, run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small sweep that nobody disturbed; its results lie beside it."""
    file = experiments(tmp_path_factory.mktemp("finished"))
    run(file)
    return file


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs: making one takes seconds, copying it none."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file
