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
from tasks.marking.marks import OUTCOMES, Mark, mark_letter, mark_number
from tasks.marking.reading import without_thinking

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
RULES = {
    "number": {
        "no-answer",
        "strict:boxed-integer",
        "lenient:boxed-number",
        "lenient:tagged-number",
        "lenient:hash-number",
        "lenient:stated-number",
        "lenient:bold-number",
    },
    "letter": {
        "no-answer",
        "strict:boxed-letter",
        "lenient:boxed-letter",
        "lenient:boxed-option",
        "lenient:tagged-letter",
        "lenient:tagged-option",
        "lenient:stated-letter",
        "lenient:line-letter",
    },
    "expression": {
        "no-answer",
        "strict:boxed-text",
        "lenient:boxed-text",
        "lenient:stated-text",
        "lenient:tagged-text",
        "lenient:hash-text",
        "lenient:boxed-value",
        "lenient:stated-value",
        "lenient:tagged-value",
        "lenient:hash-value",
        "lenient:boxed-option",
        "lenient:boxed-too-large",
        "lenient:too-long",
        "lenient:boxed-unreadable",
    },
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


def test_the_fixture_is_large_and_well_formed() -> None:
    keys = ["marker", "completion", "answer", "truncated"]
    keys += ["strict", "strict_rule", "lenient", "lenient_rule", "note"]
    assert len(CASES) >= 150
    for line, case in CASES.items():
        assert list(case) == keys, line
        assert case["marker"] in RULES, line
        assert case["note"].strip(), line
        for reading in READINGS:
            assert case[reading] in OUTCOMES, line
            unanswered = case[reading] == ("truncated" if case["truncated"] else "unparsed")
            assert case[f"{reading}_rule"].endswith(("no-answer", "-unreadable")) == unanswered, (
                line
            )
    distinct = {
        (case["marker"], case["completion"], case["answer"], case["truncated"])
        for case in CASES.values()
    }
    assert len(distinct) == len(CASES)


@pytest.mark.parametrize("marker", RULES)
def test_exactly_the_known_rules_occur(marker: str) -> None:
    cases = [case for case in CASES.values() if case["marker"] == marker]
    assert {case[f"{r}_rule"] for case in cases for r in READINGS} == RULES[marker]


def test_lenient_accepts_what_strict_accepts_except_inside_thinking() -> None:
    for line, case in CASES.items():
        aloud = "\\boxed" in without_thinking(case["completion"])
        if case["strict"] == "correct" and aloud:
            assert case["lenient"] == "correct", line
