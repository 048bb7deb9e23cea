"""What makes a stored file sound: its own proof, or the manifest of its folder."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.storage.proof import BLANK, FileProof, Unsound, read_parquet, verify
from orchestrator.storage.schema import EVALUATIONS, GROUPS, LOG, MARKED, SUBSET
from orchestrator.storage.store import Store
from orchestrator.storage.verification import Checked, check_file, check_folder, local_files

LOOKS_LIKE_A_HASH = f"decile.sha256: {'0' * 64}, or {BLANK} decile.path: cells/other"


def test_a_text_that_looks_like_a_proof_is_none(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    rows = pa.table({"text": [LOOKS_LIKE_A_HASH]})
    store.write_table(rows, "t.parquet")
    store.write_text(f"# {LOOKS_LIKE_A_HASH}\n", "README.md")
    store.write_json({"about": LOOKS_LIKE_A_HASH}, "j.json")
    for name in ("t.parquet", "README.md", "j.json"):
        data = (tmp_path / name).read_bytes()
        verify(data, name)
        with pytest.raises(Unsound, match=f"copy of {name}"):
            verify(data, f"a/{name}")
        place = data.index(b"sha256: 000") + 10
        with pytest.raises(Unsound, match="hash"):
            verify(data[:place] + b"1" + data[place + 1 :], name)
    assert store.read_json("j.json") == {"about": LOOKS_LIKE_A_HASH}


def proof_of(data: bytes) -> FileProof:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_a_file_without_a_proof_is_read_only_outside_of_a_storage(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    pq.write_table(rows, tmp_path / "t.parquet")
    (tmp_path / "j.json").write_text('{"a": 1}')
    (tmp_path / "README.md").write_text("# Title")
    store = Store(str(tmp_path))
    for name in ("t.parquet", "j.json", "README.md"):
        assert check_file(store, name) == Checked(name, "has no proof")
    assert read_parquet(tmp_path / "t.parquet") == rows


def test_a_readme_whose_comment_is_not_at_its_end_is_of_another_file(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_text("# Title", "README.md")
    data = (tmp_path / "README.md").read_bytes()
    digits = hashlib.sha256(data[:-70] + BLANK.encode() + data[-6:] + b"More.\n").hexdigest()
    more = data[:-70] + digits.encode() + data[-6:] + b"More.\n"
    verify(data, "README.md")
    with pytest.raises(Unsound, match="copy"):
        verify(more, "README.md")


def test_a_table_elsewhere_is_read_with_its_hash_but_in_any_place(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2]})
    Store(str(tmp_path)).write_table(rows, "deep", "t.parquet")
    data = (tmp_path / "deep" / "t.parquet").read_bytes()
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(data)
    assert read_parquet(copy) == rows
    with pytest.raises(Unsound, match="copy of deep/t.parquet"):
        verify(data, "copy.parquet")
    copy.write_bytes(data.replace(b"deep/t", b"deep/u"))
    with pytest.raises(Unsound, match="hash"):
        read_parquet(copy)


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("subsets/a.parquet", SUBSET),
        ("probes/a1/marks-1.parquet", MARKED),
        ("cells/a/evaluated/4.parquet", EVALUATIONS),
        ("cells/a/checkpoint-2/discarded.parquet", GROUPS),
        ("cells/a/log.parquet", LOG),
        ("probes/a1/train-1.parquet", None),
    ],
)
def test_a_table_has_the_schema_of_its_place(
    tmp_path: Path, path: str, schema: pa.Schema | None
) -> None:
    store = Store(str(tmp_path))
    store.write_table(pa.table({"a": [1]}), path)
    problem = "" if schema is None else "has a different schema"
    assert check_file(store, path) == Checked(path, problem)
    if schema is not None:
        store.write_table(schema.empty_table(), path)
        assert check_file(store, path) == Checked(path)
    (tmp_path / path).unlink()
    assert check_file(store, path) == Checked(path, "is missing")


def folder_of(tmp_path: Path, **more: Any) -> tuple[Store, Path]:
    """A folder with a manifest of a library's file, a table and a JSON file."""
    store, folder = Store(str(tmp_path)), tmp_path / "cells" / "a"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(b"0123")
    log = LOG.empty_table()
    files = {
        "model/weights": proof_of(b"0123"),
        "log.parquet": store.write_table(log, "cells", "a", "log.parquet"),
        "ledger.json": store.write_json({"a": 1}, "cells", "a", "ledger.json"),
    }
    store.write_json({}, "cells", "a", "m.json", files=files | more)
    return store, folder


def problems(store: Store, **options: Any) -> dict[str, str]:
    return {
        c.path.removeprefix("cells/a/"): c.problem
        for c in check_folder(store, "cells/a", "m.json", **options)
    }


SOUND = dict.fromkeys(["ledger.json", "log.parquet", "m.json", "model/weights"], "")


def test_a_folder_is_as_its_manifest_lists_it(tmp_path: Path) -> None:
    store, folder = folder_of(tmp_path)
    assert problems(store) == problems(store, strict=True) == SOUND
    (folder / ".partial").write_text("")
    (folder / "old.json.unsound").write_text("")
    assert problems(store, strict=True) == SOUND, "neither temporary files nor those set aside"
    (folder / "checkpoint-2").mkdir()
    (folder / "checkpoint-2" / "m.json").write_text("{")
    assert problems(store, skip=("checkpoint-",), strict=True) == SOUND


def test_each_kind_of_damage_to_a_listed_file_is_named(tmp_path: Path) -> None:
    store, folder = folder_of(tmp_path)
    weights = folder / "model" / "weights"
    weights.write_bytes(b"0124")
    assert "hash" in problems(store)["model/weights"]
    assert problems(store, unread="model/") == SOUND, "only its size is compared"
    weights.write_bytes(b"0" * 1234)
    assert problems(store, unread="model/")["model/weights"] == "has 1,234 bytes instead of 4"
    weights.unlink()
    assert problems(store)["model/weights"] == "is missing"
    store.write_json({"a": 2}, "cells", "a", "ledger.json")
    assert "hash" in problems(store)["ledger.json"]
    rows = [{"update": n, "name": "loss", "value": 0.5} for n in (1, 2)]
    sizes, log = set(), folder / "log.parquet"
    for row in rows:
        table = pa.Table.from_pylist([row], schema=LOG)
        proof = store.write_table(table, "cells", "a", "log.parquet")
        sizes.add(log.stat().st_size)
        store.write_json({}, "cells", "a", "m.json", files={"log.parquet": proof})
    assert len(sizes) == 1
    store.write_table(pa.Table.from_pylist(rows[:1], schema=LOG), "cells", "a", "log.parquet")
    assert "different run" in problems(store)["log.parquet"]
    log.write_bytes(log.read_bytes()[:-8] + b"00000000")
    assert problems(store)["log.parquet"] != ""


def test_a_file_that_no_manifest_lists_proves_itself(tmp_path: Path) -> None:
    store, folder = folder_of(tmp_path)
    store.write_json({}, "cells", "a", "own.json")
    (folder / "old.json").write_text("{}")
    (folder / "notes").write_text("")
    (folder / "link").symlink_to("notes")
    unlisted = {"own.json": "", "old.json": "has no proof", "notes": ""}
    assert problems(store) == SOUND | unlisted
    strict = problems(store, strict=True)
    assert strict.pop("link") == "is a link"
    assert all("listed" in strict[name] for name in unlisted)
    assert strict == SOUND | {name: strict[name] for name in unlisted}
    (folder / "own.json").write_bytes((folder / "m.json").read_bytes())
    assert problems(store)["own.json"].endswith("copy of cells/a/m.json")
    checked = {c.path: c for c in check_folder(store, "cells/a", "m.json", strict=True)}
    assert [checked[f"cells/a/{n}"].listed for n in ("notes", "m.json", "log.parquet")] == [
        False,
        True,
        True,
    ]


def test_without_a_manifest_a_file_that_can_hold_no_proof_is_named(tmp_path: Path) -> None:
    store, folder = folder_of(tmp_path)
    (folder / "m.json").unlink()
    (folder / "old.json").write_text("{}")
    checked = [*check_folder(store, "cells/a", "m.json", strict=True)]
    assert {(c.path, c.problem, c.proven) for c in checked} == {
        ("cells/a/ledger.json", "", True),
        ("cells/a/log.parquet", "", True),
        ("cells/a/model/weights", "", False),
        ("cells/a/old.json", "has no proof", True),
    }


def test_the_files_of_a_local_folder_are_listed_with_their_hashes(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name, data in (("z", b"1"), ("b/c/x", b"22"), ("b/c/.tmp", b""), ("b/y.unsound", b"")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("z")
    os.mkfifo(tmp_path / "fifo")
    files = local_files(tmp_path)
    assert list(files.items()) == [("b/c/x", proof_of(b"22")), ("z", proof_of(b"1"))]
