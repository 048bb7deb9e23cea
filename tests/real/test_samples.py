"""Completions are marked in batches: both readings, counted errors, the reason of a failure."""

import pytest
from misbehaving_task import Moody
from samples_cases import golds, texts

from orchestrator.probing.checks import MarkerFails, check_marker
from orchestrator.probing.samples import MarkingError, mark_completions
from tasks import make_prompt


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
