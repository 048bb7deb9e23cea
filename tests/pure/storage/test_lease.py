"""One driver per experiment and storage: the second one learns who runs."""

import fcntl
import json
import os
import threading
import time
from pathlib import Path

import pytest
from processes import wait_until

from orchestrator.storage import lease
from orchestrator.storage.lease import LeaseHeld, ObjectLease, driver_lease
from orchestrator.storage.locks import exclusive
from orchestrator.storage.store import Store


def aged(store: Store, seconds: float, **claim: object) -> None:
    """A claim of another driver that was written so long ago."""
    store.write_bytes(json.dumps(claim).encode(), "sweeps", "small.lease", "other.json")
    written = time.time() - seconds
    os.utime(store.path("sweeps", "small.lease", "other.json"), (written, written))


@pytest.fixture
def folder_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A folder that is used as an object store, and no time to lose."""
    monkeypatch.setattr(lease.random, "uniform", lambda *_: 0.0)
    store = Store(str(tmp_path))
    store.local_path("sweeps", "small.lease")
    store.local = False
    return store


def test_a_current_claim_of_another_machine_is_respected(folder_objects: Store) -> None:
    """A driver whose claim may have been written in the same moment tries again, and withdraws."""
    store = folder_objects
    for seconds, claim in ((0, {"host": "a"}), (50, {"host": "b"}), (50, {"held": True})):
        aged(store, seconds, **claim)
        assert ObjectLease(store, "small").acquire() == claim
        assert store.names("sweeps", "small.lease") == ["other.json"], "its own is withdrawn"
    store.write_bytes(b"{", "sweeps", "small.lease", "other.json")  # half of a claim counts
    assert ObjectLease(store, "small").acquire() == {}
    aged(store, 70, held=True)
    mine = ObjectLease(store, "small")
    assert mine.acquire() is None, "not renewed for a minute"
    [name] = store.names("sweeps", "small.lease")
    held = json.loads(store.read_bytes("sweeps", "small.lease", name))
    assert held["held"] is True and held["pid"] == os.getpid()
    mine.release()
    mine.release()
    assert store.names("sweeps", "small.lease") == []


def test_the_driver_that_holds_the_lease_is_named_before_those_that_try(
    folder_objects: Store,
) -> None:
    aged(folder_objects, 1, host="holder", held=True)
    for name in ("a", "z"):
        data = json.dumps({"host": name}).encode()
        folder_objects.write_bytes(data, "sweeps", "small.lease", f"{name}.json")
    assert ObjectLease(folder_objects, "small").acquire() == {"host": "holder", "held": True}


def test_a_claim_is_renewed_until_it_is_withdrawn(
    folder_objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.01)
    mine = ObjectLease(folder_objects, "small")
    assert mine.acquire() is None
    [name] = folder_objects.names("sweeps", "small.lease")
    path = folder_objects.path("sweeps", "small.lease", name)
    os.utime(path, (0, 0))
    assert wait_until(lambda: os.stat(path).st_mtime > 0)
    mine.release()
    assert not os.path.exists(path)
    with pytest.raises(FileNotFoundError, match="was deleted"):
        mine._other_claim()


def test_a_driver_that_only_tries_does_not_end_the_one_that_holds_the_lease(
    folder_objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(lease.ending, "end_process", lambda code, text: ended.append(text))
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.01)
    mine = ObjectLease(folder_objects, "small")
    assert mine.acquire() is None
    [name] = folder_objects.names("sweeps", "small.lease")
    path = folder_objects.path("sweeps", "small.lease", name)

    def renewed_again() -> None:
        for _ in range(2):
            os.utime(path, (0, 0))
            assert wait_until(lambda: os.stat(path).st_mtime > 0, lambda: not ended)

    aged(folder_objects, 0, host="tries")
    renewed_again()
    folder_objects.delete("sweeps", "small.lease", "other.json")
    monkeypatch.setattr(lease, "TERM_SECONDS", -1)  # overdue, but its claim is still there
    renewed_again()
    mine.release()


def test_a_holder_that_has_not_written_its_name_yet_is_said_to_be_unknown(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with (store.local_path("sweeps") / ".small.lease").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with (
            pytest.raises(LeaseHeld, match=r"\(host \?, process \?, since \?\): wait until"),
            driver_lease(store, "small", print),
        ):
            raise AssertionError("two drivers")


def test_a_process_of_another_boot_or_container_is_not_taken_for_a_dead_one() -> None:
    here, dead = lease._pid_space(), 2**22 + 1
    assert here
    assert lease._is_dead({"ids": here, "pid": dead})
    assert not lease._is_dead({"ids": here, "pid": os.getpid()})
    for claim in ({"pid": dead}, {"ids": "", "pid": dead}, {"ids": f"{here}0", "pid": dead}):
        assert not lease._is_dead(claim)


def test_a_process_that_waits_for_a_cell_says_for_which_one(tmp_path: Path) -> None:
    waiting, released = threading.Event(), threading.Event()
    processes: list[str] = []

    def waits(process: str) -> None:
        processes.append(process)
        waiting.set()

    def second() -> None:
        with exclusive(tmp_path, waits):
            released.set()

    with exclusive(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(60)
        assert not released.is_set()
    thread.join(60)
    assert released.is_set()
    assert processes == [str(os.getpid())]
