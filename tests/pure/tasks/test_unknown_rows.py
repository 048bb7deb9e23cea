"""What a file may hold that is no question or answer is refused by its line, never passed over."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from remedies import refused

from orchestrator.optional.exchange.imports import import_probe
from tasks import TaskError, get_task
from tasks.question_file import QuestionFile
from tasks.sources.files import read_file
from tasks.sources.media import LINKED
from tasks.sources.survey import FileSurvey, survey_rows


def written(folder: Path, rows: Sequence[Mapping[str, Any]], name: str = "mine.jsonl") -> str:
    """The path of a file with these rows."""
    file = folder / name
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return str(file)


def survey(file: str, **options: Any) -> FileSurvey:
    return survey_rows(read_file(file, []), **options)


def user(*parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is shown?"}]}]


IMAGES: dict[str, dict[str, Any]] = {
    "a column": {"image": "a.png"},
    "a list": {"images": ["a.png", "b.png"]},
    "bytes": {"image": {"bytes": "00", "path": None}},
    "a numbered column": {"image_1": "a.png"},
    "a tag": {"question": "<image>\nWhat is shown?"},
    "a numbered tag": {"question": "What does <image 1> show?"},
    "a part": {"question": user({"type": "image", "image": "a.png"})},
    "an address": {"question": user({"type": "image_url", "image_url": {"url": "a.png"}})},
    "a sound": {"question": user({"type": "input_audio", "input_audio": {}})},
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_question_with_an_image_is_refused(tmp_path: Path, name: str) -> None:
    rows = [{"question": f"What is {i}?", "answer": str(i), "image": None} for i in range(40)]
    file = written(tmp_path, rows)
    assert len(QuestionFile(train=file).train()) == 40 and not survey(file).invalid
    rows[2] |= IMAGES[name]
    file = written(tmp_path, rows)
    with refused(f"{file}:3", by=TaskError):
        QuestionFile(train=file).train()
    assert [place for place, _ in survey(file).invalid] == [f"{file}:3"]
    assert len(QuestionFile(train=file, skip_invalid=True).train()) == 39


@pytest.mark.parametrize("suffix", ["", " "])  # read by columns, and by rows
def test_a_link_to_an_image_is_noted(tmp_path: Path, suffix: str) -> None:
    rows = [{"question": f"What is {i}?", "answer": f"{i}{suffix}"} for i in range(4)]
    for row in rows[:2]:
        row["question"] += " ![](https://example.org/a.png)"
    task = QuestionFile(train=written(tmp_path, rows))
    assert len(task.train()) == 4 and any(f"2 {LINKED}" in note for note in task.notes)


@pytest.mark.parametrize("word", ["nan", "None", " null "])
@pytest.mark.parametrize("suffix", ["", " "])
def test_a_word_for_a_missing_question_is_not_asked(tmp_path: Path, word: str, suffix: str) -> None:
    rows = [{"question": f"What is {i}?", "answer": f"{i}{suffix}"} for i in range(40)]
    rows[1]["question"] = word
    file = written(tmp_path, rows)
    with refused(f"{file}:2", by=TaskError):
        QuestionFile(train=file).train()
    assert survey(file).invalid == [(f"{file}:2", "no question")]


def test_an_import_tells_which_questions_have_images(tmp_path: Path) -> None:
    rows = [{"question": f"What is {i}?", "answer": str(i), "completion": "1"} for i in range(4)]
    file = written(tmp_path, [*rows[:3], rows[3] | {"image": "a.png"}])
    notes = import_probe(file, None, get_task("file")).notes
    assert [note for note in notes if "image" in note and "4" in note]


def test_images_of_a_plain_file_are_refused(tmp_path: Path) -> None:
    """Also where columns are read without a Python object per row."""
    rows = [{"question": f"What is {i}?", "answer": i, "image": f"{i}.png"} for i in range(40)]
    file = str(tmp_path / "mine.parquet")
    pq.write_table(pa.Table.from_pylist(rows), file)
    with refused(f"{file} row 1", "image", by=TaskError):
        QuestionFile(train=file).train()


@pytest.mark.parametrize("optional", [False, True])
def test_ids_are_not_asked_where_the_questions_are_null(tmp_path: Path, optional: bool) -> None:
    rows = [{"prompt": None, "uid": f"row-{i}", "answer": str(i)} for i in range(40)]
    file = written(tmp_path, rows)
    with refused("'prompt'", "40 of 40", f"{file}:1", by=TaskError):
        survey(file, optional=optional)
    for row in rows[:19]:
        row["prompt"] = f"What is {row['answer']}?"
    file = written(tmp_path, rows)
    with refused("'prompt'", "21 of 40", f"{file}:20", by=TaskError):
        survey(file, optional=optional)
    for row in rows[:39]:
        row["prompt"] = f"What is {row['answer']}?"
    assert [place for place, _ in survey(written(tmp_path, rows)).invalid] == [f"{file}:40"]


def test_a_column_of_ids_alone_is_no_question(tmp_path: Path) -> None:
    file = written(tmp_path, [{"uid": f"row-{i}", "answer": str(i)} for i in range(40)])
    with refused("questions", "'uid'", by=TaskError):
        survey(file)


@pytest.mark.parametrize("marker", ["text", "expression"])
@pytest.mark.parametrize(("answer", "accepted"), [("x y", True), ("B", False), ("1", False)])
def test_choices_in_prose_have_no_letters(
    tmp_path: Path, answer: str, accepted: bool, marker: Any
) -> None:
    """Their texts stand in the question, but an answer that is a letter or a number says none."""
    row = {"question": "Is it w z or x y?", "choices": ["w z", "x y"], "answer": answer}
    file = written(tmp_path, [row])
    if accepted:
        assert len(QuestionFile(train=file, marker=marker).train()) == 1
        return
    with refused(f"{file}:1", "'choices'", by=TaskError):
        QuestionFile(train=file, marker=marker).train()
    row["question"] = "Is it (A) w z or (B) x y?"
    assert len(QuestionFile(train=written(tmp_path, [row]), marker=marker).train()) == 1


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        (["What is 1?,1", "What is 2?,2"], False),
        (["1 + 1,2", "2 + 2,4"], False),
        (["The farm has two sheep,Ann", "The town has no farm,Bob"], False),
        (["the capital,Paris", "the river,Rhone", "the tower,Paris"], False),
        (["question,answer", "What is 1?,1"], True),
        (["frage,loesung", "What is 1?,1"], True),
        (["0,1", "What is 1?,1", "What is 2?,2"], True),
    ],
)
def test_the_first_row_of_a_table_without_names_is_not_lost(
    tmp_path: Path, lines: list[str], header: bool
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("\n".join(lines))
    if header:
        assert survey(str(file)).rows == len(lines) - 1
    else:
        with refused(f"{file}:1", by=TaskError):
            survey(str(file))


@pytest.mark.parametrize("value", [{"f": "x", "n": 1}, [["a"], ["b", "c"]], []])
def test_answers_that_hold_no_text_are_refused_with_their_place(tmp_path: Path, value: Any) -> None:
    rows = [{"question": f"What is {i}?", "ground_truth": value} for i in range(40)]
    file = written(tmp_path, rows)
    with refused(f"{file}:1", "'ground_truth'", by=TaskError):
        survey(file)


def test_ids_under_several_names_are_told_with_their_places(tmp_path: Path) -> None:
    rows = [{"question": f"Q{i}?", "answer": i, ("id" if i < 20 else "uid"): i} for i in range(40)]
    file = written(tmp_path, rows)
    read = survey(file)
    assert read.id is None and read.id_names == {"id": f"{file}:1", "uid": f"{file}:21"}
    assert survey(written(tmp_path, rows[:20])).id == "id"
