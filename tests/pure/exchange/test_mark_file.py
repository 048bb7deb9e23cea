"""`decile mark`: completions of any source are marked; the output is complete or absent."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from mark_file_cases import written

from orchestrator.cli.main import main
from orchestrator.optional.exchange.mark import OUTPUT, mark_file
from tasks import TaskError
from tasks.sources.files import Row

ROWS = [
    {"answer": "18", "completion": r"\boxed{18}"},
    {"answer": "18", "completions": [r"\boxed{18.0}", r"\boxed{17}", "hm"], "prompt_id": "x"},
    {"answer": "18", "completions": ["so 18 and", r"\boxed{18}"], "truncated": [True, False]},
]
OUTCOMES = ["correct", "correct", "wrong", "unparsed", "truncated", "correct"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_one_row_per_completion_with_both_readings(tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"out.{kind}"
    counts = mark_file("gsm8k", {}, written(tmp_path, ROWS), target).outcomes
    assert counts == {"correct": 3, "wrong": 1, "unparsed": 1, "truncated": 1, "error": 0}
    if kind == "parquet":
        table = pq.read_table(target)
        assert table.schema.equals(OUTPUT)
        rows = table.to_pylist()
    else:
        rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["outcome"] for row in rows] == OUTCOMES
    assert [row["prompt_id"] for row in rows] == ["0", "x", "x", "x", "2", "2"]
    assert [row["sample"] for row in rows] == [0, 0, 1, 2, 0, 1]
    assert (rows[1]["rule"], rows[1]["other_outcome"]) == ("lenient:boxed-number", "unparsed")
    assert rows[0]["marker"].startswith("gsm8k/")


def test_parquet_is_read_too(tmp_path: Path) -> None:
    """Its rows have all columns: where one has no value, the other one is read."""
    rows = [{"answer": "(B)", "completions": [r"\boxed{B}", "(A)"], "completion": None}] * 2
    rows.append({"answer": "(B)", "completions": None, "completion": r"\boxed{B}"})
    source = written(tmp_path, rows, "parquet")
    counts = mark_file("shuffled_objects", {}, source, tmp_path / "out.jsonl").outcomes
    assert (counts["correct"], counts["wrong"]) == (3, 2)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"completion": "x"}], "in.jsonl:1 has no column 'answer'"),
        ([{"answer": "1"}], ":1 has no completion"),
        ([{"answer": "1", "completions": ["a", 2]}], ":1: completions has list of int, str"),
        (
            [{"answer": "1", "completions": ["a", "b"], "truncated": [True]}],
            ":1: truncated has 1 entry for 2",
        ),
        ([{"answer": "1", "completion": "a", "truncated": "maybe"}], "true or false"),
    ],
)
def test_invalid_input_is_named_and_nothing_is_written(
    tmp_path: Path, rows: list[dict], words: str
) -> None:
    target = tmp_path / "out.jsonl"
    with pytest.raises(TaskError, match=words):
        mark_file("gsm8k", {}, written(tmp_path, rows), target)
    assert not target.exists()


def test_episodes_are_not_marked_from_a_file(tmp_path: Path) -> None:
    source = written(tmp_path, [{"answer": "1", "completion": "x"}])
    with pytest.raises(TaskError, match="number_guess:NumberGuess, which is not in a file"):
        mark_file("number_guess", {}, source, tmp_path / "out.jsonl")


def test_columns_are_named_and_solutions_and_chats_are_read(tmp_path: Path) -> None:
    reply = {"role": "assistant", "content": "\\boxed{4}"}
    rows = [
        {"meta": {"solution": "2+2 = 4\n#### 4"}, "outs": ["\\boxed{4}", "\\boxed{5}"]},
        {"meta": {"solution": "4"}, "outs": [{"role": "user", "content": "2+2?"}, reply]},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)))
    target = tmp_path / "out.jsonl"
    command = ["mark", "--task", "gsm8k", "--input", str(source), "--output", str(target)]
    assert main([*command, "--answer", "meta.solution", "--completions", "outs"]) == 0
    marked = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["outcome"] for row in marked] == ["correct", "wrong", "correct"]
    assert {row["answer"] for row in marked} == {"4"}


def test_the_command_counts_outcomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(written(tmp_path, ROWS)), str(tmp_path / "out.parquet")
    arguments = ["mark", "--task", "file", "--option", "marker=number", "--input", source]
    assert main([*arguments, "--output", target]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["correct", "3", "50.0%"] in map(str.split, lines)
    assert f"rows: {len(ROWS)} read, 0 left out, 6 written" in lines
    assert main([*arguments, "--output", target, "--json", "--marking", "strict", "--force"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["correct"] == 2
    assert (values["row_counts"]["read"], values["row_counts"]["written"]) == (len(ROWS), 6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--option", "last_number"], "NAME=VALUE"),
        (["--option", "nothing=1"], "'nothing'"),
        (["--output", "out.csv"], ".jsonl or .parquet"),
    ],
)
def test_an_invalid_argument_ends_with_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str], words: str
) -> None:
    files = ["--input", str(written(tmp_path, ROWS)), "--output", str(tmp_path / "out.jsonl")]
    assert main(["mark", "--task", "gsm8k", *files, *change]) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err


def test_marks_keep_the_ids_of_the_file_and_else_those_of_questions(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"{n}+1?",
            "answer": str(n + 1),
            "completion": str(n),
            "index": n % 2,
            "qid": n,
        }
        for n in range(4)
    ]

    def ids(name: str, rows: Sequence[Row]) -> tuple[list[str], list[str]]:
        source, target = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.out.jsonl"
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        notes: list[str] = []
        mark_file("file", {"marker": "number"}, source, target, notes=notes)
        lines = map(json.loads, target.read_text().splitlines())
        return [row["prompt_id"] for row in lines], notes

    assert ids("known", rows) == (["0", "1", "2", "3"], [])
    unnamed = [{k: v for k, v in row.items() if k != "qid"} for row in rows]
    hashed, notes = ids("hashed", unnamed)  # one index has two answers: it numbers something else
    assert len({*hashed}) == 4 and not notes
    assert ids("reversed", unnamed[::-1]) == (hashed[::-1], [])
    bare = [{k: row[k] for k in ("answer", "completion")} for row in rows]
    numbers, notes = ids("bare", bare)
    assert numbers == ["0", "1", "2", "3"]
    assert any("4 rows" in note for note in notes)
