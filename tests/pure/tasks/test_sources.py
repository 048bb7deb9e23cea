"""Rows from files or the hub are read and checked in the same way, and errors are named."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import remedies

import tasks.sources.source
from tasks import TaskError, get_task
from tasks.marking.digits import normalize_number
from tasks.sources.files import SUFFIXES, Row, read_file
from tasks.sources.source import Source, read_rows

PIN = "0123456789" * 4
SOURCE = Source(
    hub="someone/sums",
    revision=PIN,
    split="train",
    stems=("train",),
    columns=("question", "answer"),
    advice="path: FOLDER with train.jsonl and test.jsonl",
    count=2,
    configs=("easy", "hard"),
)
# U+2028 ends a line for str.splitlines, but not in JSON lines.
ROWS = [{"question": "1+1?\u2028", "answer": "2"}, {"question": "2+2?", "answer": "4"}]


def write(path: Path, rows: Sequence[Any]) -> Path:
    """The rows in the form that the file's name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
        return path
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n"
    text = lines if ".jsonl" in path.suffixes else json.dumps(rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


refused = partial(remedies.refused, by=TaskError)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """A cache that holds every data set, with one row per config; the calls that it gets."""
    datasets = pytest.importorskip("datasets")
    calls: list[tuple[object, ...]] = []

    def load(folder: str, config: str, *, split: str, **options: object) -> list[Row]:
        assert options["streaming"] is True
        calls.append((*folder.split("@"), config, split))
        return [ROWS[len(calls) - 1]]

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(
        tasks.sources.source, "downloaded_folder", lambda repository: Path(str(repository))
    )
    return calls


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz"])
def test_every_file_format_gives_the_same_rows_and_the_hash_of_the_file(
    tmp_path: Path, suffix: str
) -> None:
    file = write(tmp_path / f"train{suffix}", ROWS)
    read = read_rows(SOURCE, str(tmp_path))
    assert read.rows == ROWS
    assert read.origin == f"train{suffix} sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert not read.notes


def test_a_hub_id_never_means_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: list[tuple[object, ...]]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(SOURCE.hub) / "train.jsonl", ROWS[:1])
    assert read_rows(SOURCE, None).rows == ROWS
    assert len(hub) == 2


def test_a_clone_of_the_hubs_folder_is_read_config_by_config(tmp_path: Path) -> None:
    for config, row in zip(("hard", "easy"), ROWS, strict=True):
        write(tmp_path / config / "train-00000-of-00001.parquet", [row])
        write(tmp_path / config / "test-00000-of-00001.parquet", ROWS)
    read = read_rows(SOURCE, str(tmp_path))
    assert read.rows == ROWS[::-1]  # in the order of the source's configs, not of the names
    assert read.origin.count("sha256:") == 2


def test_only_a_single_split_source_can_be_given_as_a_file(tmp_path: Path) -> None:
    file = write(tmp_path / "some.jsonl", ROWS)
    assert read_rows(replace(SOURCE, alone=True), str(file)).rows == ROWS
    with refused(file, SOURCE.advice):
        read_rows(SOURCE, str(file))


def test_json_rows_can_be_under_a_key(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps({"canary": "x", "examples": ROWS}))
    assert read_rows(replace(SOURCE, records="examples"), str(tmp_path)).rows == ROWS
    assert read_rows(SOURCE, str(tmp_path)).rows == ROWS  # the only list of rows
    with refused(tmp_path / "train.json", '{"rows": [rows]}'):
        read_rows(replace(SOURCE, records="rows"), str(tmp_path))


@pytest.mark.parametrize(
    ("content", "line", "values"),
    [
        ('{"question": "a", "answer": "b"}\n\n{"question": \n', 3, ("JSON",)),
        ('{"question": "a", "answer": "b"}\n{"question": "a"}', 2, ("'answer'", "question")),
        ('{"q": "a", "answer": "b"}', 1, ("'question'", "q, answer")),
        ('{"question": "a", "answer": null}', 1, ("'answer'", "null")),
        ("[1]", 1, ("question, answer",)),
    ],
)
def test_an_invalid_line_is_named(
    tmp_path: Path, content: str, line: int, values: tuple[str, ...]
) -> None:
    (tmp_path / "train.jsonl").write_text(content)
    with refused(f"train.jsonl:{line}", *values):
        read_rows(SOURCE, str(tmp_path))


def test_an_invalid_row_of_parquet_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", [{"question": "a"}, {"question": None}])
    with refused("a.parquet row 1 ", "'answer'", "one of question"):
        read_file(file, ["question", "answer"])
    with refused("a.parquet row 2: ", "'question'", "null"):
        read_file(file, ["question"])


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("a.parquet", b"no", "Parquet"),
        ("a.jsonl", b'{"question": "\xff"}', "utf-8"),
        ("a.jsonl.gz", b"\x1f\x8b{}", "compress"),
        ("a.json.gz", gzip.compress(b"[]" * 99, mtime=0)[:-12], "compress"),
        ("a.csv", gzip.compress(b"question\na\n" * 99, mtime=0)[:-12], "compress"),
        ("a.json", b"[", "JSON"),
        ("a.xls", b"", ", ".join(SUFFIXES[:-1])),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: bytes, value: str) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(name, value):
        read_file(tmp_path / name, ["question"])


def test_a_missing_folder_or_file_is_named_with_what_to_write(tmp_path: Path) -> None:
    with refused(tmp_path / "no", SOURCE.advice):
        read_rows(SOURCE, str(tmp_path / "no"))
    write(tmp_path / "test.jsonl", ROWS)
    with refused(f"{tmp_path} has no train", *SUFFIXES):
        read_rows(SOURCE, str(tmp_path))
    write(tmp_path / "easy" / "train-00000-of-00001.parquet", ROWS)  # and hard is not there
    with refused(f"{tmp_path} has no train"):
        read_rows(SOURCE, str(tmp_path))
    with refused(tmp_path / "a.jsonl"):
        read_file(tmp_path / "a.jsonl", [])


def test_an_unexpected_number_of_rows_is_refused_or_noted(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", ROWS * 600)
    with refused("train.jsonl", "1,200 rows", "2:", "partial: true") as caught:
        read_rows(SOURCE, str(tmp_path))
    read = read_rows(SOURCE, str(tmp_path), partial=True)
    [note] = read.notes
    assert len(read.rows) == 1200 and str(caught.value).startswith(note)
    assert not read_rows(replace(SOURCE, count=None), str(tmp_path)).notes


def test_the_hub_is_read_config_by_config_at_the_pinned_commit(
    hub: list[tuple[object, ...]],
) -> None:
    read = read_rows(SOURCE, None)
    assert read.rows == ROWS
    assert read.origin == f"someone/sums@{PIN}"
    assert hub == [("someone/sums", PIN, c, "train") for c in ("easy", "hard")]
    hub.clear()
    other = read_rows(SOURCE, None, revision="f" * 40)
    assert other.origin == f"someone/sums@{'f' * 40}"
    assert [call[1] for call in hub] == ["f" * 40] * 2


@pytest.mark.parametrize("revision", [None, "main", "refs/pr/1", "abc1234"])
def test_the_hub_is_not_read_without_a_commit(
    hub: list[tuple[object, ...]], revision: str | None
) -> None:
    with refused(f"and {revision!r} is not a commit: write revision"):
        read_rows(replace(SOURCE, revision=None), None, revision=revision)
    assert not hub


def test_rows_of_the_hub_are_checked_like_those_of_files(hub: list[tuple[object, ...]]) -> None:
    with refused(f"someone/sums@{PIN} row 1 has no column 'level': write one of question, answer"):
        read_rows(replace(SOURCE, columns=("level",)), None)
    with refused("has 2 rows; the official number is 3"):
        hub.clear()
        read_rows(replace(SOURCE, count=3), None)


def test_a_revision_of_a_local_copy_is_refused(tmp_path: Path) -> None:
    with refused("revision is only read from the hub"):
        read_rows(SOURCE, str(tmp_path), revision=PIN)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (" 1,234 ", "1234"),
        ("-3.50", "-3.50"),
        ("7/8", "7/8"),
        ("7/0", None),
        ("", None),
        ("--5", None),
        ("1e5", None),
    ],
)
def test_plain_numbers_are_normalized(text: str, number: str | None) -> None:
    assert normalize_number(text) == number


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.symlink_to("/proc/self/mem")  # opens, and fails when it is read
    task = get_task("file", path=str(file), marker="number")
    with pytest.raises(TaskError, match=r"train\.jsonl cannot be read: .*Input/output error"):
        task.train()
