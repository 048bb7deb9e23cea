"""Files that users name: pipes, devices, folders, huge and endless ones, and huge numbers."""

import gzip
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from factories import small_plan
from processes import hang_limit
from remedies import problems
from user_files_cases import HUGE

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.config.yaml_lines import named_values
from orchestrator.planning.plan import make_plan
from orchestrator.planning.pools import load_prompts
from orchestrator.storage.errors import UserError, one_line
from orchestrator.storage.proof import read_parquet
from tasks import TaskError
from tasks.sources import user_files
from tasks.sources.files import read_file
from tasks.sources.user_files import MAX_SETTINGS, free_memory, open_file, open_text, read_bytes


def pipe(file: Path) -> None:
    os.mkfifo(file)


def linked_pipe(file: Path) -> None:
    target = file.with_name(f"{file.name}.fifo")
    os.mkfifo(target)
    file.symlink_to(target)


def zeros(file: Path) -> None:
    file.symlink_to("/dev/zero")


def descriptor(file: Path) -> None:
    """What the shell passes for <(command): a link to a pipe."""
    reading, _ = os.pipe()
    file.symlink_to(f"/proc/{os.getpid()}/fd/{reading}")


IRREGULAR = (pipe, linked_pipe, zeros, descriptor)


def reading_commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Every command that reads files, once per kind of file: the file's name, the arguments."""
    out = str(folder / "out.parquet")
    yield "e.yaml", ["plan", f"{folder}/e.yaml", "-e", "x"]
    yield "e.yaml", ["ls", "experiments", f"{folder}/e.yaml"]
    yield "e.yaml", ["doctor", f"{folder}/e.yaml"]
    for name in ("a.jsonl", "a.json", "a.jsonl.gz", "a.parquet"):
        path = f"{folder}/{name}"
        yield name, ["mark", "--task", "gsm8k", "--input", path, "--output", out]
        yield name, ["init", "--train", path, "--model", "tiny", "--out", f"{folder}/new.yaml"]
        yield name, ["import", path, "--task", "gsm8k", "--out", out]
        yield name, ["compare", path, f"{folder}/good.jsonl"]
        yield name, ["diagnose", path]
    for name in ("a.csv", "a.eval", "a.unknown"):
        yield name, ["compare", f"{folder}/{name}", f"{folder}/good.jsonl"]
    yield "a.eval", ["import", f"{folder}/a.eval", "--task", "gsm8k", "--out", out]
    select = ["--policy", "hard", "--budget", "1", "--out", out]
    yield "a.parquet", ["select", "--probe", f"{folder}/a.parquet", *select]
    export = ["--task", "shuffled_objects", "--layout", "trl", "--out", f"{folder}/out.jsonl"]
    yield "a.parquet", ["export", "--subset", f"{folder}/a.parquet", *export]


@pytest.mark.parametrize("make", IRREGULAR)
def test_what_is_no_regular_file_is_refused_at_once(
    make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.jsonl").write_text('{"id": 1, "correct": true}\n')
    made: set[str] = set()
    for name, arguments in reading_commands(tmp_path):
        if name not in made:
            make(tmp_path / name)
            made.add(name)
        with hang_limit():
            code = main(arguments)
        message = capsys.readouterr().err
        assert code == 2 and problems(message) == [], (arguments, message)
        assert str(tmp_path / name) in message


@pytest.mark.parametrize("make", IRREGULAR)
@pytest.mark.parametrize(
    "entry",
    [
        {"datasets": {"d": {"task": "file", "options": {"path": "a.jsonl"}}}},
        {"datasets": {"d": {"task": "file", "options": {"path": "a.parquet"}}}},
        {"datasets": {"d": {"task": "gsm8k", "options": {"path": "folder", "partial": True}}}},
        {"datasets": {"d": {"task": "shuffled_objects", "without": "a.parquet"}}},
        {"models": {"m": {"recorded": "a.parquet"}}},
        {"models": {"m": {"path": "model"}}},
    ],
)
def test_entries_of_an_experiments_file_are_regular_files(
    make: Callable[[Path], None], entry: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("folder", "model"):
        (tmp_path / name).mkdir()
    for name in ("a.jsonl", "a.parquet", "folder/train.jsonl", "model/weights.safetensors"):
        make(tmp_path / name)
    (tmp_path / "model" / "config.json").write_text("{}")
    content = {
        "models": {"m": {"embedded": "tiny"}},
        "datasets": {"d": {"task": "shuffled_objects"}},
        "experiments": {"x": {"grid": {"model": ["m"], "dataset": ["d"], "policy": ["hard"]}}},
    } | entry
    file = tmp_path / "e.yaml"
    file.write_text(yaml.safe_dump(content))
    with hang_limit(), pytest.raises(UserError) as refused:
        make_plan(load_config(file), "x")
    assert problems(one_line(str(refused.value))) == [], refused.value


BOMB = 64 * 2**20


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine with less free memory than the files of these tests hold."""
    monkeypatch.setattr(user_files, "free_memory", lambda: BOMB // 4)
    monkeypatch.setattr("tasks.sources.plain_columns.free_memory", lambda: BOMB // 4)
    return BOMB // 4


def one_line_bomb(file: Path) -> None:
    file.write_bytes(gzip.compress(b"0" * BOMB, 1))


def many_lines_bomb(file: Path) -> None:
    file.write_bytes(gzip.compress(b'{"answer": "1", "completion": "x"}\n' * (BOMB // 34), 1))


def repeated_parquet(file: Path) -> None:
    """2,000 rows of one text of 64 KiB, which is stored once."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), ["x" * 2**16])
    pq.write_table(pa.table({"answer": column, "completion": column.cast(pa.string())}), file)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.jsonl.gz", one_line_bomb),
        ("a.jsonl.gz", many_lines_bomb),
        ("a.json.gz", one_line_bomb),
        ("a.parquet", repeated_parquet),
    ],
)
def test_a_file_that_memory_cannot_hold_is_refused(
    name: str, make: Callable[[Path], None], tmp_path: Path, little_memory: int
) -> None:
    make(file := tmp_path / name)
    assert file.stat().st_size < 2**20
    with pytest.raises(TaskError) as refused:
        read_file(file, [])
    assert str(file) in str(refused.value) and problems(str(refused.value)) == []


def test_a_row_is_not_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_files, "MAX_LINE", 40)
    (file := tmp_path / "a.jsonl").write_text('{"a": 1}\n' + '{"a": "' + "x" * 30 + '"}\n')
    assert len(read_file(file, []).rows) == 2
    file.write_text('{"a": 1}\n' + '{"a": "' + "x" * 31 + '"}\n')
    with pytest.raises(TaskError, match=r"a\.jsonl:2 is longer than"):
        read_file(file, [])


def test_plain_columns_that_memory_cannot_hold_are_refused(
    tmp_path: Path, little_memory: int
) -> None:
    file = tmp_path / "a.jsonl"
    line = json.dumps({"question": "What is 1 + 1? " + "x" * 10_000, "answer": "2"})
    file.write_text(f"{line}\n" * 2_000)
    from tasks import get_task

    task = get_task("file", path=str(file), question="question", answer="answer", marker="number")
    with pytest.raises(TaskError, match="of free memory"):
        load_prompts(task, "train")


def test_a_table_that_memory_cannot_hold_is_refused(tmp_path: Path, little_memory: int) -> None:
    repeated_parquet(file := tmp_path / "a.parquet")
    with pytest.raises(TaskError, match="of free memory"):
        read_parquet(file)


def test_settings_are_small(tmp_path: Path) -> None:
    small_plan(tmp_path)
    (file := tmp_path / "e.yaml").write_bytes(b"# x\n" * (MAX_SETTINGS // 4) + b"#")
    with pytest.raises(UserError, match=r"e\.yaml is larger than 4 MiB: write"):
        load_config(file)
    file.write_bytes(b"# x\n" * (MAX_SETTINGS // 4))
    with pytest.raises(UserError, match="not a mapping"):
        load_config(file)
    file.unlink()
    with file.open("wb") as sparse:
        sparse.truncate(2**40)  # a TiB of zeros
    with pytest.raises(UserError, match="larger than 4 MiB"):
        load_config(file)


def test_files_are_read_in_pieces_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 100))
    (tmp_path / "link.gz").symlink_to("a.gz")
    assert read_bytes(tmp_path / "link.gz", 100) == b"x" * 100
    with pytest.raises(TaskError):
        read_bytes(tmp_path / "link.gz", 99)
    with open_text(tmp_path / "link.gz", 50) as stream:
        assert stream.read1(10) == b"x" * 10
    assert read_bytes("/proc/self/status"), "a file that says it has no bytes"
    assert 2**20 < free_memory() < 2**50
    before = os.listdir("/proc/self/fd")
    for path in (tmp_path, "/dev/null"):
        with pytest.raises(TaskError):
            open_file(path)
    assert len(os.listdir("/proc/self/fd")) == len(before), "nothing stays open"


def test_a_log_of_inspect_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(file := tmp_path / "a.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"status": "success", "eval": {}}))
        archive.writestr("samples/1.json", b"0" * (256 * 2**20 + 1))
    assert main(["compare", str(file), str(file)]) == 2


@pytest.mark.parametrize("value", HUGE)
def test_options_of_a_command_may_be_huge(value: str) -> None:
    message = ""
    try:
        [read] = named_values([f"low={value}"]).values()
    except UserError as error:
        message = one_line(str(error))
    assert problems(message) == [] if message else len(str(read)) <= len(value)


def test_a_value_that_parquet_stores_once_counts_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["a" * 1000])
    pq.write_table(pa.table({"question": once}), tmp_path / "many.parquet")
    monkeypatch.setattr(user_files, "free_memory", lambda: 20_000_000)
    with pytest.raises(TaskError, match="free memory"):
        list(user_files.record_batches(tmp_path / "many.parquet", "many.parquet"))
    monkeypatch.setattr(user_files, "free_memory", lambda: 200_000_000)
    rows = user_files.record_batches(tmp_path / "many.parquet", "many.parquet")
    assert sum(batch.num_rows for batch in rows) == 20_000


READERS: dict[str, Callable[[str, Path], list[str]]] = {
    "diagnose": lambda file, out: [file],
    "compare": lambda file, out: [f"a={file}", f"b={file}"],
    "mark": lambda file, out: ["--task", "gsm8k", "--input", file, "--output", str(out)],
    "import": lambda file, out: [file, "--task", "gsm8k", "--out", str(out)],
    "select": lambda file, out: [
        *("--probe", file, "--policy", "hard", "--budget", "0.5", "--seed", "0"),
        *("--out", str(out)),
    ],
}


@pytest.mark.parametrize("command", READERS)
def test_a_damaged_parquet_file_is_the_users_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"step": [1, 1], "prompt": ["q", "q"], "reward": [0.0, 1.0], "completion": ["a", "b"]}
    pq.write_table(pa.table(rows | {"answer": ["1", "1"]}), whole := tmp_path / "whole.parquet")
    content = whole.read_bytes()
    for at in range(4, len(content), max(1, len(content) // 40)):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        (file := tmp_path / "damaged.parquet").write_bytes(damaged)
        code = main([command, *READERS[command](str(file), tmp_path / f"{at}.parquet")])
        _, errors = capsys.readouterr()
        assert code in (0, 2, 3) and "unexpected" not in errors, (at, errors)


def test_many_columns_take_a_time_that_is_not_quadratic(tmp_path: Path) -> None:
    """Each name was compared with every other one: minutes for 100,000 columns."""
    names = [f"c{i}" for i in range(100_000)]
    (file := tmp_path / "wide.csv").write_text(",".join(names) + "\n" + "1," * 99_999 + "1\n")
    with hang_limit():
        assert len(read_file(file, []).rows[0]) == 100_000
    file.write_text(",".join([*names, "c7"]) + "\n")
    with pytest.raises(TaskError, match="two columns 'c7'"):
        read_file(file, [])


def test_rows_that_take_more_memory_than_their_text_are_refused_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (file := tmp_path / "small-rows.jsonl").write_text('{"a": 1}\n' * 200_000)
    monkeypatch.setattr(user_files, "LOOK_BYTES", 2**16)
    monkeypatch.setattr(user_files, "ANNOUNCE_SECONDS", 0.0)
    left = iter([2**30, 2**30, 2**28])  # at the start, and at each look
    monkeypatch.setattr(user_files, "free_memory", lambda: next(left))
    with pytest.raises(TaskError, match="free memory"):
        read_file(file, [])
    shares = [float(record.args[1]) for record in caplog.records]  # type: ignore[index, arg-type]
    assert len(shares) == 1 and 0 < shares[0] < 100
