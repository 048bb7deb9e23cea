"""A reward function as the marker of `task: file`, and the example of docs/quickstart.md."""

from pathlib import Path
from typing import Any

import pytest
from function_markers_cases import (
    MODULE,
    ROWS,
    folder,  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
    prompts_and_completions,
    task,
)
from reward_functions_of_users import CALLS

from orchestrator.probing.checks import MarkerFails, check_marker
from orchestrator.probing.samples import MarkingError, mark_completions
from tasks import Answer, Mark, TaskError
from tasks.question_file import QuestionFile


def test_a_function_that_fails_too_often_stops_the_run() -> None:
    prompts, completions = prompts_and_completions("raise", 400)
    with pytest.raises(MarkingError, match=r"\d of \d+ answers .*ZeroDivision"):
        mark_completions(task("acts"), completions, prompts[::-1], 0.1)


def test_columns_that_a_file_does_not_have_are_refused() -> None:
    with pytest.raises(TaskError, match="needs level; the columns of mine.jsonl are question"):
        task("needs").train()
    with pytest.raises(TaskError, match="mine.jsonl has no column 'levle': .* question"):
        task("number", columns=["levle"]).train()
    some = [*ROWS, {"question": "other", "answer": "7", "level": 5}]
    marked = task("needs", rows=some)
    marks = marked.mark_all([Answer.to(prompt, "x") for prompt in marked.train()])
    assert [mark.score for mark in marks] == [0] * 6 + [0.5]
    assert marked.mark_all([Answer.to(marked.train()[0], "x")])[0].score == 0


def marks_of(name: str, completion: str, truncated: bool = False, **options: Any) -> Mark:
    marker: QuestionFile = task(name, **options)
    return marker.mark(completion, "4", truncated)


def test_a_score_becomes_a_mark() -> None:
    rule = f"{MODULE}:returns"
    assert marks_of("accuracy", r"\boxed{4}") == Mark("correct", "4", f"{MODULE}:accuracy", 1.0)
    assert marks_of("returns", "numpy") == Mark("wrong", None, rule, 0.25)
    assert marks_of("returns", "numpy", threshold=0.25) == Mark("correct", None, rule, 0.25)
    assert marks_of("returns", "none") == Mark("unparsed", None, rule)
    assert marks_of("returns", "none", truncated=True) == Mark("truncated", None, rule)
    assert marks_of("returns", "nan") == Mark("error", None, "not-finite")
    assert marks_of("accuracy", rf"\boxed{{{'4' * 300}}}").extracted is None
    with pytest.raises(
        TaskError, match=r"returned 2 for the completion 'x': .* from 0 to 1; rewar"
    ):
        marks_of("scale", "x")


def test_both_readings_are_one_call(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv(CALLS, str(folder / "calls"))
    prompts, completions = prompts_and_completions("a", 8)
    pairs = mark_completions(task("counted", mark_limits={"processes": 1}), completions, prompts)
    assert (folder / "calls").read_text() == "4\n4\n"
    assert all(pair.mark is pair.other for pair in pairs)


def test_the_marker_check_calls_the_function_and_reports_its_scores() -> None:
    assert check_marker(task(), task().train()) == (
        f"{MODULE}:accuracy called for 6 gold answers: 6 correct, mean score 1.00"
    )
    assert "0 correct, mean score 0.50" in str(check_marker(task("acts"), task("acts").train()))
    rows = [{"question": "q", "answer": "nothing"}]
    with pytest.raises(MarkerFails, match="'nothing': AssertionError@"):
        check_marker(task("picky", rows=rows), task("picky", rows=rows).train())
