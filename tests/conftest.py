"""Fixtures and markers of all tests."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from sweeps import experiments, run

from orchestrator.storage.store import Store

FIXTURE_MARKERS = {
    "finished": "cluster",
    "browser": "browser",
    "empty_database": "slow",
    "server": "slow",
}

# A shell in the background ignores the first, nohup the second; commands would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.environ.pop("COLUMNS", None)  # it would set the width of what commands print
# Time is never asserted: a test may be slow on a busy machine.
settings.register_profile("default", deadline=None)
settings.register_profile("check", deadline=None, max_examples=25)  # make check
settings.register_profile("ci", deadline=None, derandomize=True)  # make test: the same each time
settings.register_profile(  # make mutants: that an example fails is enough, it need not be small
    "mutants",
    deadline=None,
    derandomize=True,
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip modules that are deselected as a whole: importing torch and Ray takes seconds."""
    if collection_path.suffix != ".py":
        return None
    marker = re.search(r"^pytestmark = pytest\.mark\.(\w+)$", collection_path.read_text(), re.M)
    return True if marker and f"not {marker[1]}" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a fixture which starts a sweep, a browser or a server."""
    for item in items:
        for fixture, marker in FIXTURE_MARKERS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small finished sweep; its storage is `runs` in the same folder."""
    file = experiments(tmp_path_factory.mktemp("finished"))
    run(file)
    return file


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs: creating one takes seconds, copying it does not."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Store:
    """A store with an empty MLflow database in it."""
    store = Store(str(tmp_path / "runs"))
    shutil.copyfile(empty_database, store.local_path() / "mlflow.db")
    return store
