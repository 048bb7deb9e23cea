"""The store: files are complete or absent."""

import hashlib
import json
import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from remedies import refused

from orchestrator.storage.errors import StoreError
from orchestrator.storage.locks import exclusive, is_held
from orchestrator.storage.proof import FileProof
from orchestrator.storage.schema import LOG
from orchestrator.storage.store import Store

ROWS = pa.Table.from_pylist([{"update": 1, "name": "loss", "value": 0.5}], schema=LOG)


def test_tables_and_json_round_trip_without_leftover_files(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "runs"))
    store.write_table(ROWS, "a", "t.parquet")
    store.write_json({"x": 1}, "a", "j.json")
    assert store.read_table(LOG, "a", "t.parquet") == ROWS
    assert store.read_json("a", "j.json") == {"x": 1}
    assert store.names("a") == ["j.json", "t.parquet"]
    assert sorted(p.name for p in (tmp_path / "runs" / "a").iterdir()) == ["j.json", "t.parquet"]


def test_a_torn_foreign_or_absent_table_reads_as_none(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_table(ROWS, "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "torn.parquet").write_bytes(whole[:length])
        assert store.read_table(LOG, "torn.parquet") is None, length
    other_type = LOG.set(0, pa.field("update", pa.int64()))
    for foreign in (ROWS.drop_columns(["value"]), ROWS.cast(other_type)):
        store.write_table(foreign, "foreign.parquet")
        assert store.read_table(LOG, "foreign.parquet") is None
    assert store.read_table(LOG, "absent.parquet") is None


def test_a_file_that_is_not_used_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(str(tmp_path))
    for name in ("a.json", "b.json"):
        store.write_json({}, "sub", name)
        (tmp_path / "sub" / name).write_text('{"decile.sha256": 1}')
    for _ in range(2):
        assert store.open_json("sub", "a.json") is None and store.read_json("sub", "b.json") is None
    assert [message.split()[0] for message in caplog.messages] == ["sub/a.json", "sub/b.json"]


def test_files_are_copied_in_and_out_and_hashed(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "runs"))
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "x").write_bytes(b"abc")
    store.copy_in(source, "a", "b")
    assert store.sizes("a") == {"b/deep/x": 3}
    proof: FileProof = {"size": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert store.hash_file("a", "b", "deep", "x") == proof
    for _ in range(2):  # into a folder that exists, too
        store.copy_out(tmp_path / "new" / "copy", "a")
    assert (tmp_path / "new" / "copy" / "b" / "deep" / "x").read_bytes() == b"abc"
    for _ in range(2):
        assert store.local_path("c", "d") == tmp_path / "runs" / "c" / "d"
    assert store.folders() == ["a", "c"] and store.folders("c") == ["d"]
    for _ in range(2):
        store.delete_folder("a", "b")
    assert store.folders("a") == [] and store.sizes("a") == {}
    with pytest.raises(FileNotFoundError):
        store.hash_file("a", "b", "deep", "x")


def test_what_a_json_file_lists_is_returned_with_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    files: dict[str, FileProof] = {"x": {"size": 1, "sha256": "0"}}
    proof = store.write_json({"a": 1}, "m.json", files=files)
    assert store.open_json("m.json") == ({"a": 1}, files)
    assert store.hash_file("m.json") == proof
    store.write_json({"a": 1}, "none.json")
    assert store.open_json("none.json") == ({"a": 1}, {})
    (tmp_path / "mine.json").write_text('{"a": 1}')
    assert store.open_json("mine.json") is None
    assert store.open_json("absent.json") is None


def test_a_writer_that_dies_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    store = Store(str(tmp_path))
    store.write_json({"x": [1]}, "j.json")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        store.write_json({"x": [2]}, "j.json")
    assert store.read_json("j.json") == {"x": [1]}
    assert [p.name for p in tmp_path.iterdir()] == ["j.json"]


def test_what_cannot_be_a_storage_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="file/runs .*--storage"):
        Store(str(file / "runs")).check_writable()
    with refused(file, by=StoreError):
        Store(str(file))
    assert file.read_text() == "mine"
    for uri in ("nowhere://x", " ", "s3://[x/y", "s3://KEY@bucket"):
        with refused("s3://", by=StoreError) as caught:
            Store(uri)
        assert "KEY@" not in str(caught.value)


def test_a_relative_storage_is_the_same_folder_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = Store("./runs").uri
    monkeypatch.chdir("/")
    assert Store(uri).root == str(tmp_path.resolve() / "runs")


def test_checking_a_storage_leaves_nothing_behind(tmp_path: Path) -> None:
    Store(str(tmp_path / "a" / "b")).check_writable()
    assert list(tmp_path.iterdir()) == []
    store = Store(str(tmp_path))
    store.write_json({"x": 1}, "j.json")
    store.check_writable()
    assert [p.name for p in tmp_path.iterdir()] == ["j.json"]


def test_metadata_of_a_table_is_kept_and_does_not_make_it_foreign(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_table(ROWS.replace_schema_metadata({"why": "because"}), "t.parquet")
    table = store.read_table(LOG, "t.parquet")
    assert table is not None
    assert table.schema.metadata[b"why"] == b"because"


def test_deleting_twice_is_allowed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json({"x": 1}, "j.json")
    for _ in range(2):
        store.delete("j.json")
    assert not store.exists("j.json")
    assert store.read_json("j.json") is None


def test_names_and_folders_separate_files_from_folders_and_hide_temporary_files(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    for name in ("b", "a"):
        store.write_json({"x": 1}, "x", f"{name}.json")
        store.write_json({"x": 1}, "x", name, "deep.json")
    (tmp_path / "x" / ".a.json.0.tmp").write_text("half")
    assert store.names("x") == ["a.json", "b.json"]
    assert store.folders("x") == ["a", "b"]
    assert store.names("none") == store.folders("none") == []
    assert not store.exists("x", "a"), "a folder is no file"


@pytest.mark.parametrize("name", ["runs", "with space", "per%41cent", "num#ber?", "ünïcode"])
def test_any_folder_name_is_used_unchanged_and_is_that_of_its_uri(
    tmp_path: Path, name: str
) -> None:
    Store(str(tmp_path / name)).write_json({"x": 1}, "j.json")
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert Store((tmp_path / name).as_uri()).read_json("j.json") == {"x": 1}


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with exclusive(tmp_path):
            order.append("second")

    waiting = threading.Thread(target=second)
    with exclusive(tmp_path):
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]


def test_a_table_is_read_only_as_it_is_listed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    older = store.write_table(ROWS, "t.parquet")
    assert store.read_table(LOG, "t.parquet", listed=older) == ROWS
    newer = store.write_table(pa.concat_tables([ROWS, ROWS]), "t.parquet")
    assert store.read_table(LOG, "t.parquet", listed=newer) is not None
    assert store.read_table(LOG, "t.parquet", listed=older) is None
    same_size = {"size": newer["size"], "sha256": older["sha256"]}
    assert store.read_table(LOG, "t.parquet", listed=same_size) is None


def test_links_are_neither_listed_nor_read(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json({"x": 1}, "a", "j.json")
    for name, target in {"loop": ".", "up": "..", "dead": "none", "k.json": "j.json"}.items():
        (tmp_path / "a" / name).symlink_to(target)
    assert store.names("a") == ["j.json"] and store.folders("a") == []
    assert [*store.sizes("a")] == [*store.sizes("", "a")] == ["j.json"]
    assert not store.exists("a", "k.json") and store.read_json("a", "k.json") is None
    with pytest.raises(FileNotFoundError):
        store.hash_file("a", "k.json")
    store.write_json({"x": 2}, "a", "k.json")
    assert store.read_json("a", "j.json") == {"x": 1}, "the link was replaced, not followed"
    assert store.read_json("a", "k.json") == {"x": 2}


def test_a_folder_that_is_a_link_is_refused_and_nothing_is_written_through_it(
    tmp_path: Path,
) -> None:
    store, other = Store(str(tmp_path / "runs")), tmp_path / "other"
    store.write_bytes(b"1", "a", "b", "j.json")
    shutil.copytree(tmp_path / "runs" / "a", other)
    (tmp_path / "runs" / "c").symlink_to(other)
    for use in (
        lambda: store.read_json("c", "b", "j.json"),
        lambda: store.write_json({"x": 2}, "c", "b", "j.json"),
        lambda: store.names("c"),
        lambda: store.sizes("c", "b"),
        lambda: store.local_path("c"),
        lambda: store.set_aside("c", "b", "j.json"),
        lambda: store.delete("c/b/j.json"),
        lambda: store.delete_folder("c"),
    ):
        with refused(f"{tmp_path / 'runs'}: c ", by=StoreError):
            use()
    assert [path.relative_to(other).as_posix() for path in other.rglob("*")] == ["b", "b/j.json"]
    assert (other / "b" / "j.json").read_text() == "1"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_root_may_be_a_link(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    store = Store(f"{scheme}{tmp_path / 'runs'}")
    store.write_json({"x": 1}, "a", "j.json")
    assert store.folders() == ["a"] and store.read_json("a", "j.json") == {"x": 1}
    assert (tmp_path / "disk" / "a" / "j.json").is_file()


def test_deleting_a_folder_does_not_follow_links_in_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json({"x": 1}, "kept", "j.json")
    store.write_json({"x": 1}, "old", "j.json")
    (tmp_path / "old" / "link").symlink_to("../kept")
    store.delete_folder("old")
    assert store.folders() == ["kept"] and store.read_json("kept", "j.json") == {"x": 1}


def test_a_fifo_is_never_opened(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_bytes(b"1", "a", "j.json")
    for name in ("f.json", "t.parquet", ".lock"):
        os.mkfifo(tmp_path / "a" / name)
    results: list[object] = []

    def read() -> None:
        results.extend([store.read_json("a", "f.json"), store.read_table(LOG, "a", "t.parquet")])
        results.extend([store.sizes("a"), is_held(tmp_path / "a")])
        with refused(tmp_path / "a" / ".lock"):
            exclusive(tmp_path / "a").__enter__()

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(20)
    assert results == [None, None, {"j.json": 1}, False] and not reading.is_alive()


def test_names_that_are_not_utf_8_are_ignored(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_bytes(b"1", "a", "j.json")
    place = os.fsencode(tmp_path / "a")
    os.mkdir(place + b"/caf\xe9")
    for name in (b"/\xff.json", b"/caf\xe9/x.json"):
        Path(os.fsdecode(place + name)).write_text("{}")
    assert store.names("a") == ["j.json"] and store.folders("a") == []
    assert store.sizes("a") == {"j.json": 1}
    assert sorted(entry.path for entry in store.entries("a") if entry.problem) == [
        r"\xff.json",
        r"caf\xe9",
    ]


def test_what_was_set_aside_before_is_never_replaced(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    (tmp_path / "j.json.unsound").symlink_to("elsewhere")
    for value in (1, 2):
        store.write_json({"x": value}, "j.json")
        store.set_aside("j.json")
    assert (tmp_path / "j.json.unsound").is_symlink()
    kept = [json.loads((tmp_path / f"j.json.{n}.unsound").read_text()) for n in (2, 3)]
    assert [each["x"] for each in kept] == [1, 2]
