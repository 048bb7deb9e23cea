"""Completions are marked in batches: both readings, counted errors, the reason of a failure."""

import pytest
from misbehaving_task import Moody

from orchestrator.probing.checks import MarkerFails, check_marker
from orchestrator.probing.samples import MarkingError, mark_completions
from orchestrator.sampling.base import Completion, cut_at_stop
from tasks import Prompt, get_task, make_prompt


def texts(*texts: str) -> list[Completion]:
    return [Completion(text, 1, "stop") for text in texts]


def golds(*answers: str) -> list[Prompt]:
    return [make_prompt("t", "", answer, "") for answer in answers]


def test_both_readings_are_returned() -> None:
    task = get_task("gsm8k")
    [one, two] = mark_completions(task, texts(r"\boxed{28.00}", r"\boxed{28}"), golds("28", "28"))
    assert (one.mark.outcome, one.other.outcome) == ("correct", "unparsed")
    assert (two.mark.outcome, two.other.outcome) == ("correct", "correct")
    assert one.columns()["other_rule"] == "no-answer"
    [strict] = mark_completions(
        get_task("gsm8k", marking="strict"), texts(r"\boxed{28.00}"), golds("28")
    )
    assert (strict.mark.outcome, strict.other.outcome) == ("unparsed", "correct")


def test_a_completion_that_was_never_generated_is_an_error_but_no_marker_failure() -> None:
    completions = [Completion("", 0, "error")] * 5 + texts(r"\boxed{1}")
    marks = mark_completions(get_task("gsm8k"), completions, golds("1") * 6, max_errors=0.0)
    assert [j.mark.outcome for j in marks] == ["error"] * 5 + ["correct"]
    assert marks[0].mark.rule == "not-generated"


def test_too_many_errors_in_a_batch_stop_it_with_the_reason() -> None:
    few, many = texts("fail", "fail", "x", "y"), texts(*["fail"] * 3, *["x"] * 7)
    assert len(mark_completions(Moody(), few, golds("1") * 4, max_errors=0.1)) == 4
    assert len(mark_completions(Moody(), many, golds("1") * 10, max_errors=0.3)) == 10
    with pytest.raises(MarkingError, match=r"3 of 10 .*\(3 × moody\)"):
        mark_completions(Moody(), many, golds("1") * 10, max_errors=0.2)


def test_a_marker_that_marks_wrongly_is_detected() -> None:
    assert check_marker(Moody(), Moody().test()).startswith("4 gold answers")
    with pytest.raises(MarkerFails, match="marks correct"):
        check_marker(Moody(lies=True), Moody().test())
    with pytest.raises(MarkerFails, match="marks error by moody.*'q'"):
        check_marker(Moody(), [make_prompt("moody", "q", "fail", "")])


def test_text_behind_a_stop_string_is_cut() -> None:
    assert cut_at_stop("a Q b Q", ["Q"]) == "a "
    assert cut_at_stop("a Q b R", ["R", "Q"]) == "a "
    assert cut_at_stop("a", ["Q"]) is None
    assert cut_at_stop("a", []) is None
