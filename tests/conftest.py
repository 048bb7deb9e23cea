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
