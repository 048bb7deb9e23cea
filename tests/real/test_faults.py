"""Unexpected errors become one sentence that names a log file with the traceback."""

import errno
import fcntl
import os
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import (
    ObjectStoreFullError,
    OutOfDiskError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from cluster.ray_internals import (
    low_memory,
    retry_trials_that_run_out_of_memory,
    shorten_errors_of_raylets,
)
from orchestrator.storage.faults import fault_text, remote_fault, root_cause
from orchestrator.storage.lease import driver_lease
from orchestrator.storage.locks import exclusive, is_held, scratch_folder
from orchestrator.storage.store import Store

ACTOR_DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: ImplicitFunc
\tactor_id: 7ad1
\tpid: 4711
\tip: 127.0.0.1
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"""

LOW_MEMORY = """4 worker(s) were killed due to the node running low on memory. Memory on the node \
(IP: 10.0.0.7, ID: 36af) was 5.86GB used / 23.54GB limit (0.2)
OOM kill reason: Memory usage exceeded threshold
Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/x.html."""


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


def log_of(sentence: str) -> str:
    return Path(sentence.rpartition("traceback: ")[2].rstrip(")")).read_text()


def test_a_full_disk_is_named_and_resumable(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/part.parquet")
    remote = RayTaskError("draw", "Traceback: deep down", full)
    for error in (full, remote, remote.as_instanceof_cause()):
        text = fault_text(raised(error), Store(str(tmp_path)))
        assert text.startswith("/data/part.parquet: ") and "free some" in text
        assert "Traceback" in log_of(text)
        assert text.count("\n") == 0


def test_an_unexpected_error_keeps_its_traceback_in_a_log_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = fault_text(raised(KeyError("http://user:hunter2@host/")), Store(str(tmp_path / "none")))
    assert text.startswith("unexpected error: KeyError: ")
    assert str(tmp_path / "decile-") in text, "a storage that does not exist is not created"
    assert "Traceback" in log_of(text) and "hunter2" not in log_of(text)


def test_the_log_is_in_the_storage_or_else_in_tmpdir_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    error = raised(KeyError("x"))
    trace = "".join(traceback.format_exception(error))
    store = Store(str(tmp_path / "runs"))
    assert log_of(fault_text(error)) == log_of(fault_text(error, store)) == trace
    assert len([*temporary.iterdir()]) == 2 and not (tmp_path / "runs").exists()
    assert {file.stat().st_mode & 0o777 for file in temporary.iterdir()} == {0o600}
    (tmp_path / "runs").mkdir()
    text = fault_text(error, store)
    [name] = store.names("logs")
    assert text.endswith(f"resume (traceback: {tmp_path}/runs/logs/{name})")
    assert log_of(text) == trace and len([*temporary.iterdir()]) == 2
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert "no traceback" in fault_text(error)


@pytest.mark.parametrize(
    ("number", "files", "start", "remedy"),
    [
        (errno.EACCES, ["/data/x"], "/data/x: Permission denied (node HOST): ", "correct this"),
        (errno.EIO, [], "Input/output error (node HOST): ", "correct this"),
        (errno.EMFILE, ["/x"], "/x: ", "ulimit -n"),
        (errno.ENOMEM, [], "Cannot allocate memory (node HOST): ", "ulimit -v"),
        (errno.EDQUOT, ["/x"], "/x: ", "free some"),
        (errno.EISDIR, [".x.tmp", None, "/x"], "/x: Is a directory (node HOST): ", "correct this"),
    ],
)
def test_an_error_of_the_system_names_file_and_node(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    number: int,
    files: list[Any],
    start: str,
    remedy: str,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "HOST")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    error = OSError(number, os.strerror(number), *files)
    in_tune = RuntimeError(f"Traceback:\nOSError: {error}")
    for each in (error, in_tune):
        text = fault_text(raised(each))
        assert text.startswith(start) and remedy in text and "(node HOST)" in text


def test_an_error_without_a_file_says_what_its_library_says(tmp_path: Path) -> None:
    text = "Cannot delete '/data/x'. Detail: [errno 13] Permission denied"
    own = OSError(errno.EACCES, text)
    in_tune = RuntimeError(f"Traceback:\nPermissionError: [Errno 13] {text}")
    for error in (own, in_tune):
        assert fault_text(raised(error), Store(str(tmp_path))).startswith(f"{text} (node ")
    named = RuntimeError("Trace:\nNotADirectoryError: [Errno 20] Not a directory: '/data/x'")
    assert fault_text(named, Store(str(tmp_path))).startswith("/data/x: Not a directory (node ")


@pytest.mark.parametrize(
    "number", [errno.EFBIG, errno.EROFS, errno.ENOSPC, errno.EIO, errno.ENOLCK]
)
def test_errors_of_open_files_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Those of write, fsync and flock have no name of a file."""

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    store = Store(str(tmp_path))
    store.write_bytes(b"1", "cells", "a", ".lock")
    uses = {
        "cells/a/j.json": lambda: store.write_json({}, "cells", "a", "j.json"),
        "cells/a/.lock": lambda: exclusive(tmp_path / "cells" / "a").__enter__(),
        "sweeps/.small.lease": lambda: driver_lease(store, "small", print).__enter__(),
    }
    monkeypatch.setattr("os.fsync", fails)
    monkeypatch.setattr("fcntl.flock", fails)
    for path, use in (uses | {"cells/a/.lock ": lambda: is_held(tmp_path / "cells" / "a")}).items():
        with pytest.raises(OSError, match=rf"Errno {number}") as caught:
            use()
        assert caught.value.filename == str(tmp_path / path.strip())
    assert store.sizes("cells") == {"a/.lock": 1}, "no temporary file is left"


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json({}, "cells", "a")
    for use in (
        lambda: store.names("cells", "a"),
        lambda: store.write_json({}, "cells", "a", "result.json"),
        lambda: is_held(tmp_path / "cells" / "a"),
    ):
        with pytest.raises((NotADirectoryError, FileExistsError)) as caught:
            use()
        assert str(caught.value.filename).startswith(str(tmp_path / "cells" / "a"))


@pytest.mark.parametrize(
    "error",
    [
        ObjectStoreFullError("x"),
        OutOfDiskError("x"),
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("libscipy_openblas.so: failed to map segment from shared object"),
        RuntimeError("Traceback:\nRuntimeError: DefaultCPUAllocator: can't allocate memory: 9"),
        RuntimeError(ACTOR_DIED),
        WorkerCrashedError(),
    ],
)
def test_too_little_memory_or_disk_is_no_bug_to_report(tmp_path: Path, error: Exception) -> None:
    text = fault_text(raised(error), Store(str(tmp_path)))
    on_disk = isinstance(error, (ObjectStoreFullError, OutOfDiskError))
    assert ("TMPDIR" if on_disk else "ulimit -v") in text and "report" not in text
    assert ("Ray worker" in text) == ("died unexpectedly" in str(error))


@pytest.mark.parametrize("kind", [OutOfMemoryError, RuntimeError])
def test_a_worker_that_ray_ends_for_its_memory_says_how_much_was_used(
    tmp_path: Path, kind: type[Exception]
) -> None:
    """Tune wraps the error of Ray in one of its own."""
    error = kind(f"Caught unexpected exception: {LOW_MEMORY}")
    text = fault_text(raised(error), Store(str(tmp_path)))
    assert text.startswith("node 10.0.0.7 ") and "(5.86GB of 23.54GB" in text
    assert "ulimit -v" in text
    line = remote_fault(f"ray.exceptions.OutOfMemoryError: {LOW_MEMORY}", Store(str(tmp_path)))
    assert "node 10.0.0.7 " in line and "(5.86GB of 23.54GB" in line and log_of(line)
    assert low_memory(ACTOR_DIED) == ""


def test_tune_tries_a_trial_again_that_ray_ends_for_its_memory() -> None:
    from ray.air.execution._internal.actor_manager import RayActorManager

    retry_trials_that_run_out_of_memory()
    retry_trials_that_run_out_of_memory()
    passed: list[Exception] = []
    actor = SimpleNamespace(actor_id=1, _on_error=lambda _, error: passed.append(error))
    task: Any = SimpleNamespace(_tracked_actor=actor, _on_error=None)
    manager: Any = SimpleNamespace(_failed_actor_ids=set(), _cleanup_actor=lambda **_: None)
    RayActorManager._actor_task_failed(manager, task, OutOfMemoryError(LOW_MEMORY))
    assert isinstance(passed[0], RayActorError) and str(passed[0]) == LOW_MEMORY


def test_of_rays_own_errors_one_line_is_printed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray._private import worker

    printed: list[Any] = []
    monkeypatch.setattr(worker, "print_to_stdstream", lambda data, _: printed.append(data["lines"]))
    monkeypatch.setattr(worker.print_to_stdstream, "__module__", "ray")
    shorten_errors_of_raylets()
    trace = "Task failed: Traceback (most recent call last):\n  File x\nOSError: full"
    for text in (LOW_MEMORY, trace, "Raylet is terminated. Last lines:\nx", "one\ntwo"):
        worker.print_to_stdstream({"lines": [text], "pid": "raylet"}, False)
    assert printed == [["OSError: full"], ["one", "two"]]
    [message] = caplog.messages
    assert message.startswith("node 10.0.0.7 ") and "(5.86GB of 23.54GB" in message


def test_the_error_of_a_workers_first_call_is_told_from_a_dead_worker(tmp_path: Path) -> None:
    text = "The actor died because of an error raised in its creation task\nKeyError: 'x'"
    assert fault_text(RuntimeError(text)).startswith("unexpected error: KeyError: 'x' (node ")
    assert remote_fault(text, Store(str(tmp_path))).startswith("KeyError: 'x' (traceback: ")


def test_the_first_error_of_a_chain_is_named(tmp_path: Path) -> None:
    first, second = KeyError("first"), ValueError("second")
    second.__cause__ = first
    assert root_cause(second) is first and root_cause(first) is first
    first.__cause__ = second  # a chain that does not end
    assert root_cause(second) in (first, second)
    long = fault_text(RuntimeError("x" * 1000), Store(str(tmp_path)))
    assert "x" * (300 - len("RuntimeError: ")) in long and "x" * 300 not in long
    two = fault_text(RuntimeError("in a worker:\nKeyError: 'x'"), Store(str(tmp_path)))
    assert two.startswith("unexpected error: KeyError: 'x' (node ")
    empty = fault_text(RuntimeError(), Store(str(tmp_path)))
    assert empty.startswith("unexpected error: RuntimeError: no message (node ")


def test_a_full_disk_of_a_trial_is_said_without_a_place_that_is_unknown(tmp_path: Path) -> None:
    error = f"OSError: {os.strerror(errno.ENOSPC)}"
    text = remote_fault(f"Trace\n{error}", Store(str(tmp_path)))
    assert text.startswith(f"{error}: free space (traceback: ") and text.endswith(".log)")


def test_a_retried_trial_gives_one_line_with_its_process_and_log(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    line = remote_fault(ACTOR_DIED, store)
    assert "(node 127.0.0.1, process 4711, " in line
    assert log_of(line) == ACTOR_DIED and f"traceback: {tmp_path}/logs/" in line
    trace = "ray::ImplicitFunc.train() (pid=12, ip=10.0.0.7)\n  File x\nRuntimeError: short of it"
    assert remote_fault(trace, store).startswith("RuntimeError: short of it (node 10.0.0.7, proc")
    assert remote_fault("ValueError: wrong", store) == "ValueError: wrong"


def test_scratch_folders_of_killed_processes_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "decile-x-left").mkdir()
    (tmp_path / "decile-y-other").mkdir()
    with scratch_folder("decile-x-") as used, scratch_folder("decile-x-") as own:
        (own / "file").write_text("")
        assert {f.name for f in tmp_path.iterdir()} == {own.name, used.name, "decile-y-other"}
    assert {f.name for f in tmp_path.iterdir()} == {"decile-y-other"}


def test_a_scratch_folder_that_is_a_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "decile-x-link").symlink_to("mine")
    with scratch_folder("decile-x-"):
        pass
    assert (tmp_path / "decile-x-link").is_symlink()
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_scratch_folder_whose_lock_was_replaced_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has deleted it, and a third is about to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flock, replaced = fcntl.flock, []

    def replace(lock: int, operation: int) -> None:
        flock(lock, operation)
        for file in [] if replaced else tmp_path.glob("decile-x-*/.lock"):
            file.unlink()
            file.write_text("")
            replaced.append(file.parent)

    monkeypatch.setattr(fcntl, "flock", replace)
    with scratch_folder("decile-x-") as folder:
        assert replaced and folder not in replaced
