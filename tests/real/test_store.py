"""The store: files are complete or absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nfs_locks import nfs_flock
from processes import LIMIT

ON_NFS = """
import fcntl, sys
from pathlib import Path
from orchestrator.storage.lease import driver_lease
from orchestrator.storage.locks import exclusive, is_held
from orchestrator.storage.locks import scratch_folder
from orchestrator.storage.store import Store

folder = Path(sys.argv[1])
with (
    scratch_folder("decile-x-"),
    exclusive(folder),
    driver_lease(Store(str(folder)), "small", print),
):
    print("held", is_held(folder))
print("free", not is_held(folder))
try:
    fcntl.flock((folder / ".lock").open(), fcntl.LOCK_EX)
except OSError as error:
    print(error)
"""


def test_locks_work_through_nfs(tmp_path: Path) -> None:
    library = nfs_flock(tmp_path)
    if library is None:
        pytest.skip("needs a C compiler")
    process = subprocess.run(
        [sys.executable, "-c", ON_NFS, tmp_path],
        env=os.environ | {"LD_PRELOAD": library},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert process.stdout.splitlines() == [
        "held True",
        "free True",
        "[Errno 9] Bad file descriptor",
    ], process.stderr
