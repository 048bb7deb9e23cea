"""Manually labelled completions: the lenient and the strict mark of each, and why.

`completions.jsonl` was judged by hand before any code was run on it. Where the code disagrees with
a line, the code is wrong until somebody has argued otherwise in that line's note.
"""

import json
from collections.abc import Callable
from typing import Any

from paths import SUPPORT

from tasks.marking.equivalence import mark_expressions
from tasks.marking.letters import mark_letter
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number
from tasks.prompts import Answer

FILE = SUPPORT / "completions.jsonl"
CASES: dict[int, dict[str, Any]] = {
    line: json.loads(text) for line, text in enumerate(FILE.read_text("utf-8").splitlines(), 1)
}
READINGS = ("strict", "lenient")
ONE_BY_ONE: dict[str, Callable[[str, str, str, bool], Mark]] = {
    "number": mark_number,
    "letter": mark_letter,
}


def judged(case: dict[str, Any], outcome: str, rule: str) -> tuple[str, str]:
    """What is compared; by which way an expression is found to be wrong is the code's choice."""
    free = case["marker"] == "expression" and outcome == "wrong"
    return outcome, rule.partition("-")[0] if free else rule


def differences(line: int, marks: dict[str, Mark]) -> list[str]:
    """The judgements of one case that are not those of its line."""
    case = CASES[line]
    marked = {r: judged(case, marks[r].outcome, marks[r].rule) for r in READINGS}
    want = {r: judged(case, case[r], case[f"{r}_rule"]) for r in READINGS}
    if marked == want:
        return []
    return [f"{FILE.name}:{line}: {marked} instead of {want}: {case['note']}"]


def test_marks_of_numbers_and_letters_match_manual_labels() -> None:
    problems, cases = [], {n: c for n, c in CASES.items() if c["marker"] in ONE_BY_ONE}
    for line, case in cases.items():
        mark, given = ONE_BY_ONE[case["marker"]], (case["completion"], case["answer"])
        marks = {reading: mark(*given, reading, case["truncated"]) for reading in READINGS}
        problems += differences(line, marks)
    assert len(cases) > 200 and problems == []


def test_marks_of_expressions_match_manual_labels() -> None:
    cases = {line: case for line, case in CASES.items() if case["marker"] == "expression"}
    answers = [Answer(c["completion"], c["answer"], c["truncated"]) for c in cases.values()]
    columns = [mark_expressions(answers, reading) for reading in READINGS]
    problems = []
    for line, marks in zip(cases, zip(*columns, strict=True), strict=True):
        problems += differences(line, dict(zip(READINGS, marks, strict=True)))
    assert len(cases) > 100 and problems == []


def test_the_last_number_counts_only_with_last_number_and_without_truncation() -> None:
    text = "She sells 9 eggs for $2 each, which gives $18"
    assert mark_number(text, "18", "lenient", False).outcome == "unparsed"
    mark = mark_number(text, "18", "lenient", False, last_number=True)
    assert (mark.outcome, mark.rule) == ("correct", "lenient:last-number")
    assert mark_number(text, "18", "lenient", True, last_number=True).outcome == "truncated"
    assert mark_number(text, "18", "strict", False, last_number=True).outcome == "unparsed"
