"""What the tests of session share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


START = "[2026-11-25 15:35:58,765 C 12 12] (raylet) node_manager.cc:3576:  "
TIMED_OUT = (
    f"{START}An unexpected system state has occurred. You have likely discovered a bug in Ray. "
    "Please report this issue at https://x and we'll work with you to fix it. Check failed: "
    "s.has_value() Timed out waiting for file /x/metrics_agent_port"
)
