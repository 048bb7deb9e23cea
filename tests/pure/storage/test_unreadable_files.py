"""Small files of other processes: what cannot be read, or is not what it should be, is unknown."""

import fcntl
import json
import os
import re
from pathlib import Path

import pytest
from damaged_store import example

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.pipeline.audit import audit, repair_plan
from orchestrator.planning.plan import make_plan
from orchestrator.report.analysis import analyse
from orchestrator.storage import user_cache
from orchestrator.storage.lease import FolderLease, LeaseHeld, ObjectLease, driver_lease
from orchestrator.storage.proof import Unsound, open_json
from orchestrator.storage.store import SET_ASIDE, Store
from orchestrator.storage.verification import is_stored
from orchestrator.training.micro_batch import fitted_grpo

NOT_JSON = (b"", b"\xff\xfe\x80", b"{", b"[" * 100_000, b"9" * 5_000, b"\x00" * 9, b"\x1b]0;x\x07")
NOT_AN_OBJECT = (b"[]", b"3", b'"x"', b"null", b"NaN", b"[[1]]")
OTHER_OBJECTS = (b"{}", b'{"a": 1}', b'{"proof": []}', b'{"proof": {"decile.path": 1}}')
HOLDERS = (
    *(NOT_JSON + NOT_AN_OBJECT + OTHER_OBJECTS),
    *(
        json.dumps({"ids": "IDS", "pid": pid}).encode()
        for pid in (2**80, -1, 0, "x", [], 1.5, True)
    ),
    json.dumps({"host": "\x1b]0;x\x07\n\u202e" + "h" * 10_000, "pid": {}, "since": [1]}).encode(),
    json.dumps({"host": "\x1b]0;x\x07\nfree", "pid": 7, "since": "\u202e"}).encode(),
)


def identified(holder: bytes) -> bytes:
    """The holder as one of this boot and container, of which dead ones are recognized."""
    from orchestrator.storage.lease import _pid_space

    return holder.replace(b"IDS", _pid_space().encode())


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_holder_that_cannot_be_read_is_unknown(tmp_path: Path, holder: bytes) -> None:
    store = Store(str(tmp_path))
    file = store.local_path("sweeps") / ".small.lease"
    file.write_bytes(identified(holder))
    with file.open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LeaseHeld), driver_lease(store, "small", print):
            raise AssertionError("two drivers")
    lease = FolderLease(store, "small")
    assert lease.acquire() is None, "the lock alone decides"
    lease.release()


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_claim_that_cannot_be_read_counts(
    tmp_path: Path, holder: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    folder = store.local_path("sweeps", "small.lease")
    (folder / "other.json").write_bytes(identified(holder))
    store.local = False
    monkeypatch.setattr("orchestrator.storage.lease.ATTEMPTS", 1)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert ObjectLease(store, "small").acquire() is not None
    assert sorted(os.listdir(folder)) == ["other.json"]


def kinds(root: Path) -> dict[str, Path]:
    """One file of every kind of JSON that a storage holds."""
    files = sorted(root.rglob("*.json"))
    return {re.sub(r"[0-9a-f]{16}|\d+", "N", str(file.relative_to(root))): file for file in files}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiments file and a storage with every kind of file."""
    folder = tmp_path_factory.mktemp("full")
    example(folder)
    return folder


def test_no_content_of_a_small_file_is_an_unexpected_error(
    full: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All kinds of files at once, each with another content in every round."""
    contents = [*NOT_JSON[1:3], *NOT_AN_OBJECT[:2], *OTHER_OBJECTS[:2]]
    plan = make_plan(load_config(full / "experiments.yaml"), "small")
    found = kinds(full / "runs")
    assert {"cells/N/micro_batch.json", "sweeps/small.json"} <= {*found}
    originals = {file: file.read_bytes() for file in found.values()}
    for round_ in range(len(contents)):
        for number, file in enumerate(found.values()):
            file.write_bytes(contents[(number + round_) % len(contents)])
        assert main(["plan", str(full / "experiments.yaml"), "-e", "small"]) == 0
        assert analyse(plan, Store(str(full / "runs")))
        assert [fitted_grpo(cell, Store(str(full / "runs"))) for cell in plan.cells]
    for file, content in originals.items():
        file.write_bytes(content)


@pytest.mark.parametrize("value", [[], "x", 3, None])
def test_a_proof_in_another_place_is_unsound(value: object) -> None:
    from orchestrator.storage.proof import BLANK, HASH, _filled

    data = _filled(json.dumps([{HASH: BLANK}, value]).encode())
    with pytest.raises(Unsound):
        open_json(data, "j.json")
    with pytest.raises(Unsound):
        open_json(_filled(json.dumps({HASH: BLANK, "proof": value}).encode()), "j.json")


def test_a_cache_that_holds_garbage_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.storage.proof import BLANK, HASH, _filled

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "decile").mkdir()
    proven_list = _filled(json.dumps([{HASH: BLANK}]).encode())
    for content in (*NOT_JSON, *NOT_AN_OBJECT, *OTHER_OBJECTS, proven_list):
        (tmp_path / "decile" / "hashes.json").write_bytes(content)
        assert user_cache.read("hashes.json") == {}


LONG = ["x" * 255, "é" * 127 + "x", "x" + "é" * 127, "🚀" * 63 + "abc", "x" * 248, "x" * 120, "j"]


@pytest.mark.parametrize("name", LONG)
def test_a_file_of_any_name_is_set_aside(tmp_path: Path, name: str) -> None:
    store = Store(str(tmp_path))
    for number in range(3):
        store.write_bytes(b"new", "t")  # replace_file's temporary name is longer than 255 bytes
        store.rename(name, "t")
        store.set_aside(name)
        names = store.names()
        assert len(names) == number + 1 and all(each.endswith(SET_ASIDE) for each in names)
        assert not any(is_stored(each) for each in names)
        assert max(len(each.encode()) for each in names) <= max(128, len(name.encode()))


def test_an_unsound_file_with_the_longest_name_does_not_block_a_run(full: Path) -> None:
    plan = example(full / "own").plan
    store = Store(str(full / "own" / "runs"))
    cell = plan.cells[0].cell_id
    file = Path(store.path("cells", cell, "x" * 250 + ".json"))
    file.write_bytes(b"not JSON")
    assert [line for line in repair_plan(plan, store) if "x" * 250 in line]
    assert not file.exists()
    assert [path for path in audit(store, lambda *_: None).set_aside if "x" * 200 in path]
