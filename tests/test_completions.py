"""Manually labelled completions: the lenient and the strict mark of each, and why.

`completions.jsonl` was judged by hand before any code was run on it. Where the code disagrees with
a line, the code is wrong until somebody has argued otherwise in that line's note.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.base import Answer
from tasks.marking.equivalence import mark_expressions
from tasks.marking.marks import Mark, mark_letter, mark_number

pytestmark = pytest.mark.slow

FILE = Path(__file__).with_name("completions.jsonl")
CASES: dict[int, dict[str, Any]] = {
    line: json.loads(text) for line, text in enumerate(FILE.read_text("utf-8").splitlines(), 1)
}
READINGS = ("strict", "lenient")
ONE_BY_ONE: dict[str, Callable[[str, str, str, bool], Mark]] = {
    "number": mark_number,
    "letter": mark_letter,
}


def lines(*markers: str) -> list[Any]:
    """The line numbers of these markers' cases, each with an id that names its location."""
    return [
        pytest.param(line, id=f"{line}-{case['marker']}")
        for line, case in CASES.items()
        if case["marker"] in markers
    ]


def judged(case: dict[str, Any], outcome: str, rule: str) -> tuple[str, str]:
    """What is compared; by which way an expression is found to be wrong is the code's choice."""
    free = case["marker"] == "expression" and outcome == "wrong"
    return outcome, rule.partition("-")[0] if free else rule


def check(line: int, marks: dict[str, Mark]) -> None:
    """The judgements of one case against its line."""
    case = CASES[line]
    marked = {r: judged(case, marks[r].outcome, marks[r].rule) for r in READINGS}
    want = {r: judged(case, case[r], case[f"{r}_rule"]) for r in READINGS}
    assert marked == want, f"{FILE.name}:{line}: {case['note']}"


@pytest.mark.parametrize("line", lines("number", "letter"))
def test_marks_of_numbers_and_letters_match_manual_labels(line: int) -> None:
    case = CASES[line]
    mark = ONE_BY_ONE[case["marker"]]
    check(
        line,
        {
            reading: mark(case["completion"], case["answer"], reading, case["truncated"])
            for reading in READINGS
        },
    )


@pytest.fixture(scope="module")
def expressions() -> dict[int, dict[str, Mark]]:
    """The marks of all expressions, computed in one batch per reading."""
    cases = {line: case for line, case in CASES.items() if case["marker"] == "expression"}
    answers = [Answer(c["completion"], c["answer"], c["truncated"]) for c in cases.values()]
    columns = [mark_expressions(answers, reading) for reading in READINGS]
    return {
        line: dict(zip(READINGS, marks, strict=True))
        for line, marks in zip(cases, zip(*columns, strict=True), strict=True)
    }


@pytest.mark.parametrize("line", lines("expression"))
def test_marks_of_expressions_match_manual_labels(
    line: int, expressions: dict[int, dict[str, Mark]]
) -> None:
    check(line, expressions[line])


def test_the_last_number_counts_only_with_last_number_and_without_truncation() -> None:
    text = "She sells 9 eggs for $2 each, which gives $18"
    assert mark_number(text, "18", "lenient", False).outcome == "unparsed"
    mark = mark_number(text, "18", "lenient", False, last_number=True)
    assert (mark.outcome, mark.rule) == ("correct", "lenient:last-number")
    assert mark_number(text, "18", "lenient", True, last_number=True).outcome == "truncated"
    assert mark_number(text, "18", "strict", False, last_number=True).outcome == "unparsed"
