"""One driver per experiment and storage: the second one learns who runs."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from s3_server import bucket, s3_server

from orchestrator.storage import lease
from orchestrator.storage.errors import StoreError
from orchestrator.storage.lease import LeaseHeld, ObjectLease, driver_lease
from orchestrator.storage.store import Store

BUCKET = "bucket"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["folder", BUCKET])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty storage."""
    if request.param == "folder":
        return str(tmp_path)
    name = f"lease-{abs(hash(request.node.name))}"
    return bucket(request.getfixturevalue("server"), name)


@pytest.fixture(params=["folder", BUCKET])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An object store, or a folder that is used as one."""
    if request.param == "bucket":
        name = f"objects-{abs(hash(request.node.name))}"
        return Store(bucket(request.getfixturevalue("server"), name))
    store = Store(str(tmp_path))
    store.local_path("sweeps", "small.lease")
    store.local = False
    return store


def test_a_second_driver_learns_who_runs(storage: str) -> None:
    with driver_lease(Store(storage), "small", print):
        with pytest.raises(LeaseHeld) as refused, driver_lease(Store(storage), "small", print):
            raise AssertionError("two drivers")
        with driver_lease(Store(storage), "other", print):
            pass
    assert f"process {os.getpid()}, since 2" in str(refused.value)
    assert "--wait" in str(refused.value)
    with driver_lease(Store(storage), "small", print):
        pass


def test_a_waiting_driver_says_so_and_starts_after_the_first(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "WAIT_SECONDS", 0.05)
    messages, first = [], ExitStack()
    waits = threading.Event()

    def say(text: str) -> None:
        messages.append(text)
        waits.set()

    def second() -> None:
        with driver_lease(Store(storage), "small", say, wait=True):
            messages.append("runs")

    first.enter_context(driver_lease(Store(storage), "small", print))
    thread = threading.Thread(target=second)
    thread.start()
    assert waits.wait(60)
    assert len(messages) == 1 and "waiting" in messages[0]
    first.close()
    thread.join(60)
    assert messages[-1] == "runs"


def test_of_drivers_that_start_at_once_at_most_one_holds_the_lease(storage: str) -> None:
    holders, barrier, most = [0], threading.Barrier(4), []

    def drive() -> None:
        barrier.wait()
        try:
            with driver_lease(Store(storage), "small", print):
                holders[0] += 1
                most.append(holders[0])
                threading.Event().wait(0.2)
                holders[0] -= 1
        except LeaseHeld:
            pass

    threads = [threading.Thread(target=drive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) <= {1}
    with driver_lease(Store(storage), "small", print):
        pass


def test_a_claim_that_is_not_renewed_becomes_void(
    objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = objects
    abandoned = ObjectLease(store, "small")
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 600)
    monkeypatch.setattr(lease, "_pid_space", lambda: "")  # as on another machine
    assert abandoned.acquire() is None
    with pytest.raises(LeaseHeld), driver_lease(store, "small", print):
        raise AssertionError("two drivers")
    monkeypatch.setattr(lease, "TERM_SECONDS", -1)
    with driver_lease(store, "small", print):
        pass
    assert store.names("sweeps", "small.lease") == []


def test_the_claim_of_a_dead_process_of_this_machine_is_void(
    objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = objects
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 2**22 + 1)  # larger than any process id
        assert ObjectLease(store, "small").acquire() is None
    with driver_lease(store, "small", print):
        pass


def test_a_driver_whose_claim_was_taken_over_ends(
    objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a machine has slept: the claim became void, and another driver deleted it."""
    ended, store = threading.Event(), objects
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.05)
    monkeypatch.setattr(lease, "TERM_SECONDS", -1)
    messages: list[str] = []

    def end(code: int, text: str) -> None:
        messages.append(f"{code} {text}")
        ended.set()

    monkeypatch.setattr(lease.ending, "end_process", end)
    claimed = ObjectLease(store, "small")
    assert claimed.acquire() is None
    [claim] = store.names("sweeps", "small.lease")
    store.delete("sweeps", "small.lease", claim)
    assert ended.wait(60)
    claimed.release()
    assert messages[0].startswith("1 the lease ") and "another driver" in messages[0]


@pytest.mark.parametrize("what", ["moved", "deleted", "replaced"])
def test_a_driver_writes_nothing_where_its_storage_was(tmp_path: Path, what: str) -> None:
    store = Store(str(tmp_path / "runs"))
    with driver_lease(store, "small", print):
        store.write_json({"a": 1}, "cells", "before.json")
        if what == "deleted":
            shutil.rmtree(store.root)
        else:
            os.rename(store.root, tmp_path / "moved")
        if what == "replaced":
            shutil.copytree(tmp_path / "moved" / "cells", tmp_path / "runs" / "cells")
        for write in WRITES:
            with pytest.raises(StoreError, match="moved or deleted"):
                write(store)
    left = [] if what != "replaced" else ["before.json"]
    assert [file.name for file in (tmp_path / "runs").rglob("*.json")] == left
    if what == "moved":  # its lease is free
        moved = Store(str(tmp_path / "moved"))
        with driver_lease(moved, "small", print):
            moved.write_json({"a": 2}, "cells", "after.json")


WRITES = [
    lambda store: store.write_json({}, "cells", "x.json"),
    lambda store: store.write_text("", "cells", "x.md"),
    lambda store: store.local_path("cells", "x"),
    lambda store: store.rename("y.json", "cells", "before.json"),
    lambda store: store.set_aside("cells", "before.json"),
    lambda store: store.delete("cells", "before.json"),
    lambda store: store.delete_folder("cells"),
    lambda store: store.copy_in(Path(__file__).parent, "cells"),
]


def test_no_worker_creates_a_storage_that_is_gone(tmp_path: Path) -> None:
    """A worker has no lease."""
    store = Store(str(tmp_path / "runs"))
    store.write_json({"a": 1}, "cells", "before.json")
    os.rename(store.root, tmp_path / "moved")
    for write in WRITES:
        with pytest.raises(StoreError, match="moved or deleted"):
            write(store)
    assert not Path(store.root).exists()
