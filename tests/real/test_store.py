"""The store: files are complete or absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nfs_locks import nfs_flock
from processes import LIMIT

from orchestrator.storage.faults import fault_text
from orchestrator.storage.remote import Remote, RemoteFails

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


@pytest.mark.parametrize(
    ("words", "passes"),
    [
        ("AWS Error SLOW_DOWN during ListObjectsV2 operation: reduce your request rate.", True),
        ("HTTP status 503", True),
        ("curlCode: 7, Couldn't connect to server", True),
        ("AWS Error ACCESS_DENIED during GetObject operation", False),
        ("Bucket 'b' not found", False),
    ],
)
def test_a_storage_that_refuses_calls_is_no_bug(words: str, passes: bool) -> None:
    class Refusing:
        def get_file_info(self, path: str) -> None:
            raise OSError(words)

    with pytest.raises(RemoteFails, match=r"storage b/runs/x \(get_file_info\): ") as caught:
        Remote(Refusing()).get_file_info("b/runs/x")
    assert caught.value.passes is passes
    text = fault_text(caught.value)  # also of a worker
    assert words.rstrip(".") in text and "report it" not in text
    assert ("wait" in text) is passes


def test_commands_that_start_at_once_in_a_new_folder_do_not_disturb_each_other(
    tmp_path: Path,
) -> None:
    """Each creates the folder, checks it, and removes it again."""
    script = (
        "import sys\nfrom orchestrator.storage.store import Store\n"
        "for i in range(200):\n"
        "    store = Store(f'{sys.argv[1]}/{i % 3}/deep')\n"
        "    store.check_writable()\n"
        "    if i > 150: store.write_json({}, 'sweeps', f'{sys.argv[2]}.json')\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path, str(i)], stderr=subprocess.PIPE)
        for i in range(3)
    ]
    errors = [process.communicate(timeout=LIMIT)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], errors
    assert len([*tmp_path.rglob("*.json")]) == 9
