"""Pure tests start no process."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
OF_PYTHON = ["uname", "-p"]  # platform.uname() asks for it once
started: list[str] = []
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")  # scikit-learn would ask a process for it


def note_start(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS and OF_PYTHON not in arguments:
        started.append(f"{event}{arguments[:2]}")


sys.addaudithook(note_start)


@pytest.fixture(autouse=True)
def no_process() -> Iterator[None]:
    """A test that starts one belongs into `tests/real`."""
    started.clear()
    yield
    assert started == []
