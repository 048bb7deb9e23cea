"""Completions are marked in batches: both readings, counted errors, the reason of a failure."""

from samples_cases import golds, texts

from orchestrator.probing.samples import mark_completions
from orchestrator.sampling.base import Completion, cut_at_stop
from tasks import get_task


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


def test_text_behind_a_stop_string_is_cut() -> None:
    assert cut_at_stop("a Q b Q", ["Q"]) == "a "
    assert cut_at_stop("a Q b R", ["R", "Q"]) == "a "
    assert cut_at_stop("a", ["Q"]) is None
    assert cut_at_stop("a", []) is None
