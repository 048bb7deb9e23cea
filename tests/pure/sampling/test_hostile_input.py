"""What commands refuse in one line: tables, text files, outputs, storages, custom modules."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.cli.main import main
from orchestrator.planning.pools import load_prompts
from orchestrator.sampling.base import Completion
from orchestrator.sampling.recorded import recorded_rows
from orchestrator.storage.errors import StoreError, UserError
from orchestrator.storage.local_files import check_output
from orchestrator.storage.store import Store
from tasks import Prompt, TaskError, get_task
from tasks.gsm8k import Gsm8k

EXPERIMENTS = """\
models: {tiny: {embedded: tiny}}
experiments:
  q:
    grid: {model: [tiny], dataset: [DATASET], policy: [hard]}
"""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command refuses its arguments."""
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("decile: ")
    return line


def selection(table: Path, out: Path) -> Sequence[str]:
    arguments = ["--probe", str(table), "--policy", "hard", "--budget", "1", "--out", str(out)]
    return ["select", *arguments]


NAN = float("nan")
IDS = ["a", "b"]
MARKS = ["correct", "wrong"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"prompt_id": IDS, "pass_rate": [0.5, 1.5]}, "of prompt 'b' is 1.5"),
        ({"prompt_id": IDS, "pass_rate": [0.5, NAN]}, "of prompt 'b' is nan"),
        ({"prompt_id": ["a", "a"], "pass_rate": [0.5, 0.5]}, "prompt 'a' has several rows"),
        ({"prompt_id": ["a", None], "pass_rate": [0.5, 0.5]}, "1 row has no"),
        ({"prompt_id": [], "pass_rate": []}, "has no rows"),
        ({"prompt_id": [], "sample": [], "outcome": []}, "has no rows"),
        ({"prompt_id": ["a", None], "sample": [0, 1], "outcome": MARKS}, "no prompt_id"),
        ({"prompt_id": IDS, "sample": ["0", "1"], "outcome": MARKS}, "column sample holds string"),
        ({"prompt_id": IDS, "sample": [0, 1], "outcome": ["correct", None]}, "outcome None"),
    ],
)
def test_tables_are_checked_before_a_selection(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    columns: Mapping[str, Sequence[Any]],
    words: str,
) -> None:
    table, out = tmp_path / "table.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table(dict(columns)), table)
    assert words in refused(capsys, *selection(table, out))
    assert not out.exists()


def test_a_rate_that_is_not_known_is_accepted(tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"prompt_id": IDS, "pass_rate": [0.5, None]}), table)
    assert main(selection(table, tmp_path / "out.parquet")) == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (rb'{"answer": "1", "completion": "\ud800"}', "in.jsonl:1: "),
        (rb'{"answer": "1", "completion": "\uDFFF"}', "in.jsonl:1: "),
        (b'{"answer": "1", "completion": "\xff"}', "UTF-8"),
        (b'{"completion": ' + b"[" * 100_000, ":1: invalid JSON: "),
        (b'{"truncated": ' + b"9" * 5_000 + b"}", ":1: invalid JSON"),
        (b'{"answer": null, "completion": "x"}', ":1: column 'answer' is null"),
        (b"", "has no completions"),
        (b'{"answer": "1", "completions": []}', "has no completions"),
    ],
    ids=["surrogate", "capitals", "bytes", "deep", "digits", "null", "empty", "no completion"],
)
def test_text_files_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes, words: str
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(line + b"\n")
    arguments = ["--task", "gsm8k", "--input", str(source), "--output", str(tmp_path / "o.jsonl")]
    assert words in refused(capsys, "mark", *arguments)


def test_a_whole_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(r'{"answer": "1", "completion": "\ud83d\ude00 \\boxed{1}"}')
    arguments = ["--task", "gsm8k", "--input", str(source), "--output", str(target)]
    assert main(["mark", *arguments]) == 0
    assert "\U0001f600" in target.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/dev/null", "output /dev/null "),
        ("/proc/x.parquet", "output /proc/x.parquet "),
        (".", "folder"),
        ("file/x.parquet", "/file "),
        ("x" * 300, "200 bytes"),
        ("y/" + "x" * 300 + "/z", "200 bytes"),
        ("a\0b", "output "),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="^output") as caught:
        check_output(tmp_path / name)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_new_name_in_a_new_folder_is_an_output(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "folder" / "x.parquet", [".parquet"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["select", "report"])
def test_a_command_refuses_its_output_before_its_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    file, pipe = tmp_path / "e.yaml", tmp_path / "pipe"
    file.write_text(EXPERIMENTS.replace("DATASET", "shuffled_objects"))
    os.mkfifo(pipe)  # not a device of this machine, which a regression would replace
    arguments = {
        "select": selection(tmp_path / "absent.parquet", pipe),
        "report": ["report", str(file), "-e", "q", "--out", str(pipe)],
    }
    assert f"output {pipe} " in refused(capsys, *arguments[command])
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:///x", "gs://", "http://x", "file://", "a\0b", "x" * 5_000]
)
def test_a_storage_that_cannot_be_one_is_refused(uri: str) -> None:
    with pytest.raises(StoreError, match=r"^storage ") as caught:
        Store(uri)
    assert "s3://" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("port", ["-1", "0", "65536", "9" * 500])
def test_a_port_outside_the_range_is_refused(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert "1 to 65,535" in refused(capsys, "ui", "--port", port)


def test_a_file_name_with_a_null_byte_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read" in refused(capsys, "plan", "a\0b", "-e", "q")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('one\\ntwo')", "cannot be imported: RuntimeError: one two"),
        ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
        ("1 +", "cannot be imported: SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
    words: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_here.py").write_text(code)
    file = tmp_path / "e.yaml"
    for dataset, rest in (
        ("'broken_here:x'", ""),
        ("shuffled_objects", "    probe: {engine: 'broken_here:x'}\n"),
        ("shuffled_objects", "policies: {mine: {policy: 'broken_here:x'}}\n"),
    ):
        file.write_text(EXPERIMENTS.replace("DATASET", dataset) + rest)
        line = refused(capsys, "plan", str(file), "-e", "q")
        assert "e.yaml:" in line and "'broken_here:x'" in line and words in line


class OffTask(Gsm8k):
    """A task whose training prompts are not what they should be."""

    prompts: Any = None

    def train(self) -> list[Prompt]:
        if isinstance(self.prompts, Exception):
            raise self.prompts
        return self.prompts  # type: ignore[no-any-return]


GOOD = Prompt("id", "question", "1", "tier")


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        (None, "train() returned NoneType: "),
        ([("question", "answer")], "train()[0] is tuple: "),
        ([GOOD, Prompt("x", "q", 3, "")], "train()[1].answer is 3: "),  # type: ignore
        ([GOOD, GOOD], "train()[1] repeats"),
        ([Prompt("x", "\ud800", "1", "")], "surrogate"),
        (KeyError("column"), "train() raised KeyError: 'column'"),
    ],
)
def test_a_task_whose_prompts_are_off_is_named(prompts: Any, words: str) -> None:
    task = OffTask()
    task.prompts = prompts
    with pytest.raises(TaskError, match="OffTask") as caught:
        load_prompts(task, "train")
    assert words in str(caught.value)
    task.prompts = [GOOD]
    assert load_prompts(task, "train") == [GOOD]


class Unbuildable(Gsm8k):
    """A task whose constructor fails."""

    def __init__(self) -> None:
        raise ZeroDivisionError("no")


def test_a_task_that_cannot_be_built_is_named() -> None:
    with pytest.raises(TaskError, match="cannot be built: ZeroDivisionError: no"):
        get_task(f"{__name__}:Unbuildable")


@pytest.mark.parametrize("ids", [[], ["a", None], ["a", "a"]])
def test_a_subset_has_each_prompt_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: list[str | None]
) -> None:
    table, subset = tmp_path / "table.parquet", tmp_path / "subset.parquet"
    pq.write_table(pa.table({"prompt_id": IDS, "pass_rate": [0.1, 0.2]}), table)
    assert main(selection(table, subset)) == 0
    row = pq.read_table(subset).to_pylist()[0]
    schema = pq.read_schema(subset)
    rows = [row | {"prompt_id": prompt_id} for prompt_id in ids]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), subset)
    capsys.readouterr()
    arguments = ["--subset", str(subset), "--layout", "jsonl", "--task", "shuffled_objects"]
    line = refused(capsys, "export", *arguments, "--out", str(tmp_path / "out.jsonl"))
    assert "prompt_ids" in line and str(subset) in line


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"responses": 3}, "responses "),
        ({"responses": [3]}, "responses "),
        ({"responses": ["a"], "tokens": [1, 2]}, "tokens "),
        ({"responses": ["a"], "tokens": ["12"]}, "tokens holds '12'"),
        ({"responses": ["a"], "tokens": [-1]}, "tokens holds -1"),
        ({"responses": ["a"], "tokens": [2**31]}, "tokens holds 2147483648"),
        ({"responses": ["a"], "finish": "stop"}, "finish "),
        ({"responses": ["a"], "finish": ["eos"]}, "finish holds 'eos'.*stop, length or"),
        ({"responses": ["a"], "question": ["q"]}, "question is .'q'."),
    ],
)
def test_a_recording_of_another_form_is_refused(
    tmp_path: Path, columns: dict[str, Any], words: str
) -> None:
    file = tmp_path / "recorded.jsonl"
    file.write_text(f"\n{json.dumps({'question': 'q', **columns})}")
    with pytest.raises(TaskError, match=f"recorded.jsonl:2: {words}"):
        recorded_rows(file)


def test_responses_to_one_question_in_two_rows_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    rows = [{"question": "q", "responses": ["a"], "id": number} for number in range(2)]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert recorded_rows(file) == {"q": [Completion("a", 0, "stop")]}
    rows[1]["responses"] = ["b"]
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(TaskError, match="recorded.jsonl:2 .*recorded.jsonl:1"):
        recorded_rows(file)
