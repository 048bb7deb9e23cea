"""Kinds of gold answers, mixes of them, and rows that no model could answer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from remedies import refused

from tasks import TaskError
from tasks.question_file import QuestionFile
from tasks.sources.answer_kinds import (
    Kind,
    answer_form,
    kind_of,
    mixed_kinds,
    stands_for_none,
    structure_of,
    why_unlikely,
    with_other_kinds,
)
from tasks.sources.files import read_file
from tasks.sources.survey import FileSurvey, survey_rows
from tasks.sources.texts import NO_ANSWERS

Row = dict[str, Any]


def written(folder: Path, rows: Sequence[Mapping[str, Any]], name: str = "mine.jsonl") -> str:
    """The path of a file with these rows."""
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([*rows]), file)
    else:
        file.write_text("\n".join(json.dumps(row) for row in rows))
    return str(file)


def survey(file: str) -> FileSurvey:
    return survey_rows(read_file(file, []))


@pytest.mark.parametrize(
    ("answer", "form", "kind"),
    [
        ("42", "integers", "number"),
        ("-0.5", "decimals", "number"),
        ("1/2", "fractions", "number"),
        ("B", "letters", "letter"),
        (r"\frac{1}{2}", "LaTeX or formulas", "expression"),
        ("12 km", "numbers with a unit", "expression"),
        ("1,234 km", "numbers with a unit", "expression"),
        ("1,234", "integers", "number"),
        ("3,5", "numbers with a comma", "expression"),
        ("-12,25 kg", "numbers with a comma", "expression"),
        ("2024-01-15", "dates", "text"),
        ("January 15, 2024", "dates", "text"),
        ("10 to 11", "ranges or estimates", "text"),
        ("10–11", "ranges or estimates", "text"),
        ("8±1", "ranges or estimates", "text"),
        ("about 98", "ranges or estimates", "text"),
        ("5-7 days", "ranges or estimates", "text"),
        ("1 and 2", "LaTeX or formulas", "expression"),
        ("Yes", "yes or no", "text"),
        ("true", "yes or no", "text"),
        ("Paris", "single words", "text"),
        ("New York", "free text", "text"),
        ("TBD", "placeholders", "none"),
        ("?", "placeholders", "none"),
        ("unknown", "placeholders", "none"),
        ("[]", "data structures", "none"),
        ('{"n": 1}', "JSON objects", "none"),
    ],
)
def test_every_answer_has_one_kind(answer: str, form: str, kind: str) -> None:
    if answer == "1 and 2":
        assert answer_form(answer) != "ranges or estimates"  # two solutions
    else:
        assert (answer_form(answer), kind_of(answer)) == (form, kind)


STRUCTURES = {
    "constraints": '[{"instruction_id": ["kw:exist"], "kwargs": [{"n": 3}]}]',
    "asserts": "['assert f(1) == 2', 'assert f(2) == 3']",
    "an assert": "assert f(1) == 2",
    "nested": '[["a", "b"], ["c"]]',
    "ragged": "[[1, 2], [3]]",
    "python": "{'inputs': ['0'], 'outputs': ['2']}",
    "empty": "[]",
    "tuples": "('a', 'b')",
}


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("marker", ["text", "expression", "number", "letter"])
def test_a_data_structure_is_no_answer(tmp_path: Path, name: str, marker: Any) -> None:
    assert structure_of(STRUCTURES[name])
    good = {"text": "red", "expression": "x+1", "number": "3", "letter": "A"}[marker]
    rows = [{"question": f"Q{i} (A) or (B)?", "answer": good} for i in range(40)]
    rows[4]["answer"] = STRUCTURES[name]
    for suffix in (".jsonl", ".parquet"):  # read by rows, and by columns
        file = written(tmp_path, rows, f"mine{suffix}")
        place = f"{file}:5" if suffix == ".jsonl" else f"{file} row 5"
        with refused(place, by=TaskError):
            QuestionFile(train=file, marker=marker).train()
        assert len(QuestionFile(train=file, marker=marker, skip_invalid=True).train()) == 39
        assert [place for place, _ in survey(file).invalid] == [place]


@pytest.mark.parametrize(
    "answer", ["[1, 2]", "(1, 2)", "[[1, 2], [3, 4]]", "[0, 1)", "{1, 2}", "(x+1)(x-2)", "(A)"]
)
def test_lists_of_numbers_and_intervals_are_answers(answer: str) -> None:
    assert not structure_of(answer)


@pytest.mark.parametrize("word", ["tbd", "TODO", "?", "-", "n/a", "…", "[TBD]", "(tbd)"])
@pytest.mark.parametrize("marker", ["text", "expression"])
def test_what_stands_for_a_missing_answer_is_refused(
    tmp_path: Path, word: str, marker: Any
) -> None:
    assert stands_for_none(word, NO_ANSWERS)
    rows = [
        {"question": f"Q{i}?", "answer": "red" if marker == "text" else "2x"} for i in range(40)
    ]
    rows[6]["answer"] = word
    file = written(tmp_path, rows)
    with refused(f"{file}:7", word, by=TaskError):
        QuestionFile(train=file, marker=marker).train()


def test_words_that_may_stand_for_a_missing_answer_are_reported(tmp_path: Path) -> None:
    rows = [{"question": f"Q{i}?", "answer": "red"} for i in range(40)]
    rows[1]["answer"], rows[2]["answer"] = "unknown", "None"
    file = written(tmp_path, rows)
    assert len(QuestionFile(train=file, marker="text").train()) == 40
    read = survey(file)
    assert [place for place, _ in read.unlikely] == [f"{file}:2", f"{file}:3"]
    assert read.likely["placeholders"] == (0, 2) and read.likely["single words"] == (38, 38)


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        ({"number": 100}, []),
        ({"number": 50, "expression": 50}, []),  # one marker reads both
        ({"number": 90, "text": 10}, []),
        ({"number": 89, "text": 11}, [("number",), ("text",)]),
        ({"number": 30, "letter": 30, "none": 2}, [("number", "none"), ("letter",)]),
        ({"number": 30, "expression": 30, "text": 30}, [("number",), ("expression",), ("text",)]),
        ({"number": 30, "expression": 3, "text": 30}, [("number", "expression"), ("text",)]),
        ({"none": 50}, []),
    ],
)
def test_a_mix_has_a_part_for_every_kind_of_answer(
    counts: dict[Kind, int], parts: list[tuple[Kind, ...]]
) -> None:
    empty: dict[Kind, int] = dict.fromkeys(("number", "letter", "expression", "text", "none"), 0)
    assert mixed_kinds(empty | counts) == parts


def test_a_mix_takes_in_further_kinds_of_a_test_file() -> None:
    mix: list[tuple[Kind, ...]] = [("number",), ("text",)]
    more: dict[Kind, int] = {"number": 1, "letter": 2, "expression": 1, "text": 1, "none": 1}
    expected = [("number", "expression", "none"), ("text",), ("letter",)]
    assert with_other_kinds(mix, more) == expected


@pytest.mark.parametrize(
    ("answer", "question", "likely"),
    [
        ("(C)", "Which? (A) x (B) y (C) z", True),
        ("(C)", "Which?\nA. x\nB. y\nC. z", True),
        ("(C)", "Which is it?", False),
        ("(A)", "A farm has sheep. Which?", False),
        ("(A)", "Is it A or B?", True),
        ("3.14", "", True),
        ("3.14159265358979", "", False),
        ("New York", "", True),
        ("one two three four five six seven eight nine ten eleven", "", False),
        ("10 to 11", "", False),
        ("2024-01-15", "", True),
        ("7", "", True),
    ],
)
def test_answers_that_no_model_gives_are_told(answer: str, question: str, likely: bool) -> None:
    assert bool(why_unlikely(answer, question, answer_form(answer))) is not likely


CHOICES = ["red", "green", "blue"]


def mixed_rows() -> list[Row]:
    """Rows of five kinds of answers: numbers, choices, LaTeX, words, and none."""
    rows: list[Row] = [{"question": f"How many {i}?", "answer": str(i)} for i in range(30)]
    rows += [
        {"question": f"Which {i}?", "options": CHOICES, "answer": "ABC"[i % 3]} for i in range(30)
    ]
    rows += [{"question": f"Solve {i}.", "answer": rf"\frac{{{i}}}{{7}}"} for i in range(30)]
    rows += [{"question": f"Who {i}?", "answer": ["Yes", "Ann Lee"][i % 2]} for i in range(30)]
    return [*rows, {"question": "Really?", "answer": "tbd"}]


def test_the_rows_of_a_mixed_file_are_in_exactly_one_part(tmp_path: Path) -> None:
    file = written(tmp_path, mixed_rows())
    whole = survey(file)
    kinds = [("number", "none"), ("letter",), ("expression",), ("text",)]
    assert whole.marker == "mix" and [*whole.mix] == kinds
    assert [(part.marker, part.rows) for part in whole.parts] == [
        ("number", 31),
        ("letter", 30),
        ("expression", 30),
        ("text", 30),
    ]
    assert [place for place, _ in whole.invalid] == [f"{file}:121"]
    places = []
    for part, own in zip(whole.parts, kinds, strict=True):
        task = QuestionFile(train=file, marker=part.marker, kinds=own, skip_invalid=True)
        places += [prompt.place for prompt in task.train()]
        if part.marker == "letter":
            assert all("\n(C) blue" in prompt.question for prompt in task.train())
    assert sorted(places) == sorted(f"{file}:{line}" for line in range(1, 121))
    with refused(f"{file}:121", by=TaskError):
        QuestionFile(train=file, marker="number", kinds=["number", "none"]).train()


def test_ids_do_not_depend_on_the_part(tmp_path: Path) -> None:
    rows = mixed_rows()
    numbers = [row for row in rows if row["answer"].isdigit()]
    alone = QuestionFile(train=written(tmp_path, numbers, "numbers.jsonl"), marker="number")
    part = QuestionFile(train=written(tmp_path, rows), marker="number", kinds=["number"])
    assert [p.prompt_id for p in part.train()] == [p.prompt_id for p in alone.train()]


@pytest.mark.parametrize("marker", ["text", "expression"])
def test_dates_and_ranges_are_told_where_they_are_read(tmp_path: Path, marker: Any) -> None:
    """Only the gold's own spelling is marked correct."""
    good = {"text": "red", "expression": "2x"}[marker]
    rows = [{"question": f"Q{i}?", "answer": good} for i in range(20)]
    rows[0]["answer"], rows[1]["answer"] = "2024-01-15", "8±1"
    task = QuestionFile(train=written(tmp_path, rows), marker=marker)
    task.train()
    assert any("2 of 20" in note and "2024-01-15" in note for note in task.notes)


def test_wrong_kinds_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, mixed_rows())
    for kinds in (["numbers"], [], "number"):
        with refused("kinds", by=TaskError):
            QuestionFile(train=file, kinds=kinds)  # type: ignore[arg-type]
    with refused("kinds", by=TaskError):
        QuestionFile(train=file, kinds=["number"], answers="optional")
    only = written(tmp_path, [{"question": f"Q{i}", "answer": "x y"} for i in range(20)], "w.jsonl")
    with refused("number", by=TaskError):
        QuestionFile(path=only, kinds=["number"]).train()
