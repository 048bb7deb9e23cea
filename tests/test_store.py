"""Files are whole or absent."""

from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.schema import LOG
from orchestrator.store import Store, StoreError

ROWS = pa.Table.from_pylist([{"update": 1, "name": "loss", "value": 0.5}], schema=LOG)


def test_tables_and_json_come_back_and_leave_nothing_else(tmp_path: Path) -> None:
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
    (tmp_path / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    store.write_table(ROWS.drop_columns(["value"]), "foreign.parquet")
    for name in ("torn.parquet", "foreign.parquet", "absent.parquet"):
        assert store.read_table(LOG, name) is None


def test_a_writer_that_dies_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    store = Store(str(tmp_path))
    store.write_json([1], "j.json")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        store.write_json([2], "j.json")
    assert store.read_json("j.json") == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["j.json"]


def test_a_storage_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="--storage"):
        Store(str(tmp_path / "file" / "runs")).check_writable()
    with pytest.raises(StoreError, match="s3://"):
        Store("nowhere://x")


def test_a_relative_storage_means_the_same_folder_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = Store("./runs").uri
    monkeypatch.chdir("/")
    assert Store(uri).root == str(tmp_path.resolve() / "runs")


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    Store(str(tmp_path / "new")).check_writable()
    assert list(tmp_path.iterdir()) == []
