"""Unexpected errors become one sentence that names a log file with the traceback."""

import errno
import tempfile
from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

from orchestrator.storage.faults import fault_text, remote_fault
from orchestrator.storage.scratch import scratch_folder
from orchestrator.storage.store import Store

ACTOR_DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: ImplicitFunc
\tactor_id: 7ad1
\tpid: 4711
\tip: 127.0.0.1
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"""


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


def log_of(sentence: str) -> str:
    return Path(sentence.rpartition("traceback: ")[2].rstrip(")")).read_text()


def test_a_full_disk_is_named_and_resumable(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/data/part.parquet")
    remote = RayTaskError("draw", "Traceback: deep down", full)
    for error in (full, remote, remote.as_instanceof_cause()):
        text = fault_text(raised(error), Store(str(tmp_path)))
        assert text.startswith("/data/part.parquet: no space left on the device (node ")
        assert "free some, then rerun the same command to resume" in text
        assert "Traceback" in log_of(text)
        assert text.count("\n") == 0


def test_the_error_within_a_traceback_of_tune_is_named(tmp_path: Path) -> None:
    trace = "Traceback (most recent call last):\n  File x\n"
    full = RuntimeError(f"{trace}OSError: [Errno 28] No space left on device: '/data/x.json'")
    text = fault_text(raised(full), Store(str(tmp_path)))
    assert text.startswith("/data/x.json: no space left on the device (node ")
    text = fault_text(raised(RuntimeError(f"{trace}KeyError: 'x'")), Store(str(tmp_path)))
    assert text.startswith("unexpected error: KeyError: 'x' (node ")


def test_an_unexpected_error_keeps_its_traceback_in_a_log_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = fault_text(raised(KeyError("http://user:hunter2@host/")), Store(str(tmp_path / "none")))
    assert text.startswith("unexpected error: KeyError: ")
    assert str(tmp_path / "decile-") in text, "a storage that does not exist is not created"
    assert "Traceback" in log_of(text) and "hunter2" not in log_of(text)


def test_a_retried_trial_gives_one_line_with_its_process_and_log(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    line = remote_fault(ACTOR_DIED, store)
    assert line.startswith(
        "its process died (killed, or out of memory) (node 127.0.0.1, process 47"
    )
    assert log_of(line) == ACTOR_DIED
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
