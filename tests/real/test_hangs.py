"""Workers that wait for each other for too long: one line says which wait, and for which."""

import json
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train.torch
from factories import small_plan
from pyarrow.fs import LocalFileSystem
from ray.train import UserCallback, WorkerGroupError
from ray.train.v2._internal.callbacks.nccl_ras import NCCLRASCallback, parse_ras_schema
from ray.train.v2._internal.exceptions import BroadcastCollectiveTimeoutError
from ray.train.v2.api.exceptions import ControllerError, NCCLHangError

from cluster.ray_internals import WorkerPlace, current_line, limited_waits
from orchestrator.training.hangs import GRACE, GroupWatch, hang_line, is_timeout
from orchestrator.training.tune_runner import _run_group

GLOO = RuntimeError(
    "[third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 15000ms for recv operation to complete"
)
REPORT = BroadcastCollectiveTimeoutError(15.09, [1], 15.0)
STORE = RuntimeError("wait timeout after 5000ms, keys: /default_pg/0//cpu//0/rank_1")
MEETING = RuntimeError("Timed out after 16 seconds waiting for clients. 1/2 clients joined.")
NCCL = RuntimeError(
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
)
WAITS = WorkerPlace(0, "10.0.0.1", 11, failed=True)
SLEEPS = WorkerPlace(1, "10.0.0.2", 12, line="tasks/slow.py:14 in mark", stack="File ...")


def group_error(**failures: BaseException) -> WorkerGroupError:
    """As it arrives at the trial: `rank_0` raised this."""
    by_rank = {int(name.rpartition("_")[2]): error for name, error in failures.items()}
    error: Any = WorkerGroupError("text", by_rank)  # type: ignore[arg-type]
    return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]


def hang(
    folder: Path, error: BaseException, places: list[WorkerPlace], *, nccl: bool, quiet: float = 0
) -> str | None:
    """The line of the error of a group, whose workers were at these places."""
    watch = GroupWatch(folder, "group_worker", 600, nccl=nccl)
    if places:
        watch.file.write_text(json.dumps([quiet, places]))
    reason = watch.hang(error)
    return reason and str(reason)


@pytest.mark.parametrize("error", [GLOO, REPORT, STORE, MEETING, NCCL])
def test_a_wait_for_a_worker_that_sleeps_is_one_line(tmp_path: Path, error: Exception) -> None:
    assert hang(tmp_path, group_error(rank_0=error), [WAITS, SLEEPS], nccl=False) == (
        "worker 0 (node 10.0.0.1, process 11) timed out after 600 s waiting for worker 1 "
        "(node 10.0.0.2, process 12), which was at tasks/slow.py:14 in mark: "
        "if it was making progress, increase resources.timeout"
    )


@pytest.mark.parametrize("error", [OSError("timed out"), ValueError("wrong"), MemoryError()])
def test_another_error_is_no_hang(tmp_path: Path, error: Exception) -> None:
    assert not is_timeout(error)
    assert hang(tmp_path, group_error(rank_0=error), [WAITS, SLEEPS], nccl=False) is None
    both = group_error(rank_0=GLOO, rank_1=error)  # the reason of the wait
    assert hang(tmp_path, both, [WAITS, SLEEPS], nccl=False) is None


def test_a_process_that_nccl_has_ended_after_the_time_has_waited(tmp_path: Path) -> None:
    died = group_error(rank_0=RuntimeError("The actor died unexpectedly"))
    assert hang(tmp_path, died, [WAITS, SLEEPS], nccl=True, quiet=700) is not None
    assert hang(tmp_path, died, [WAITS, SLEEPS], nccl=True, quiet=30) is None
    assert hang(tmp_path, died, [WAITS, SLEEPS], nccl=False, quiet=700) is None


def test_workers_that_never_meet_are_a_hang(tmp_path: Path) -> None:
    failed = ControllerError(MEETING)
    assert hang(tmp_path, failed, [], nccl=False) == (
        "all workers timed out after 600 s waiting for each other: "
        "if one was making progress, increase resources.timeout"
    )
    assert hang(tmp_path, ControllerError(ValueError("wrong")), [], nccl=False) is None


def test_workers_that_wait_as_well_are_not_named_as_hanging() -> None:
    late = WorkerPlace(2, "10.0.0.3", 13, waits=True, line="a.py:1 in f", stack="File ...")
    line = hang_line([WAITS, SLEEPS, late, late._replace(rank=3)], 600)
    waiting, _, hanging = line.partition(" timed out after 600 s waiting for ")
    assert "worker 0" in waiting and "worker 2" in waiting and "1 more" in waiting
    assert "worker 1" in hanging and "worker 2" not in hanging
    stopped = WorkerPlace(1, "10.0.0.2", 12)
    assert "process 12), which does not respond" in hang_line([WAITS, stopped], 600)
    assert "for worker 2" in hang_line([WAITS, late], 600), "the only one that has not failed"


def ras(counts: list[int]) -> str:
    """What `ncclras -f json` of NCCL 2.28 prints of one communicator: all-reductions by rank."""
    status = {"init_state": 0, "abort_flag": False, "finalize_called": False, "destroy_flag": False}
    ranks = [
        {"rank": n, "host": f"10.0.0.{n + 1}", "pid": 11 + n, "status": status}
        | {"collective_counts": {"AllReduce": count, "Broadcast": 2}}
        for n, count in enumerate(counts)
    ]
    communicator = {"hash": "0xabc", "size": len(counts), "ranks": ranks, "missing_ranks": []}
    return json.dumps({"timestamp": "2026-11-27T03:00:00", "communicators": [communicator]})


def test_rays_hang_detector_for_nccl_gives_the_ranks(tmp_path: Path) -> None:
    with limited_waits(30, nccl=True):
        detector = NCCLRASCallback()
    storage = SimpleNamespace(
        experiment_fs_path=str(tmp_path / "run"), storage_filesystem=LocalFileSystem()
    )
    group: Any = SimpleNamespace(_storage_context=storage, get_workers=list)
    detector._worker_group = group
    detector._ras_poller = SimpleNamespace(query=lambda form: "the report")  # type: ignore[assignment]
    report = parse_ras_schema(ras([8, 7]))
    assert report is not None
    detector.prev_report = report
    detector.ras_history.append(report)
    detector.evaluate_comm_mismatch(report)  # a poll, of one every 15 s
    with pytest.raises(NCCLHangError) as caught:
        detector.evaluate_comm_mismatch(report)
    error = pickle.loads(pickle.dumps(caught.value))
    line = hang(tmp_path, error, [], nccl=True)
    assert line == (
        "worker 0 (node 10.0.0.1, process 11) timed out after 600 s waiting for worker 1 "
        "(node 10.0.0.2, process 12): if it was making progress, increase resources.timeout"
    )


DETECTOR = "RAY_TRAIN_ENABLE_NCCL_HANG_DETECTOR"


@pytest.mark.parametrize("gpus", [0, 1])
def test_the_detector_is_on_for_groups_of_gpus_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    seen: dict[str, Any] = {}

    def trainer(*_: Any, **settings: Any) -> Any:
        variables = {k: v for k, v in os.environ.items() if "NCCL" in k or "COLLECTIVE" in k}
        seen.update(variables, timeout=settings["torch_config"].timeout_s)
        return SimpleNamespace(fit=lambda: None)

    monkeypatch.setattr(ray.train.torch, "TorchTrainer", trainer)
    monkeypatch.setattr("ray.tune.integration.ray_train.TuneReportCallback", UserCallback)
    resources = {"workers": 2, "gpus": gpus, "timeout": 70}
    [cell, *_] = small_plan(tmp_path, resources=resources).cells
    _run_group(cell, str(tmp_path))
    assert seen.pop("RAY_TRAIN_COLLECTIVE_TIMEOUT_S") == "70"
    if not gpus:
        assert seen == {"timeout": 70}
        return
    assert seen.pop("NCCL_RAS_ADDR").startswith("localhost:")
    assert seen == {
        DETECTOR: "1",
        "RAY_TRAIN_NCCL_RAS_ACTION": "fail",
        "RAY_TRAIN_NCCL_RAS_CONFIRM_DURATION_S": "70",
        "timeout": 70 + GRACE,
    }
    assert DETECTOR not in os.environ


def test_variables_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DETECTOR, "0")
    with limited_waits(600, nccl=True):
        assert os.environ[DETECTOR] == "0"
    assert os.environ[DETECTOR] == "0"


@pytest.fixture
def asleep() -> Iterator[None]:
    """A thread that sleeps in a function of this name."""
    awake = threading.Event()

    def sleeps() -> None:
        awake.wait()

    thread = threading.Thread(target=sleeps)
    thread.start()
    yield
    awake.set()
    thread.join()


def test_the_line_of_a_worker_is_the_innermost_outside_libraries(asleep: None) -> None:
    waits, line, stack = current_line("sleeps")
    assert not waits and "test_hangs.py" in line and line.endswith(" in sleeps")
    assert "awake.wait()" in stack
    assert current_line("no function of this name") == (False, "", "")
