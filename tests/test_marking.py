r"""Which letter a text answers with, in both readings."""

import pytest

from tasks import get_task
from tasks.marking import last_box, mark_letter

CASES = [
    # text, strict outcome, lenient outcome; the gold letter is (B)
    (r"so \boxed{(B)}", "correct", "correct"),
    (r"\boxed{B}", "correct", "correct"),
    (r"\boxed{(C)}", "wrong", "wrong"),
    (r"\boxed{(A)} no, \boxed{(B)}", "correct", "correct"),
    (r"\boxed{(B)} no, \boxed{(A)}", "wrong", "wrong"),
    (r"\boxed{\text{(B)}}", "unparsed", "correct"),
    (r"\boxed{(b)}", "unparsed", "correct"),
    (r"\boxed{ (B). }", "unparsed", "correct"),
    (r"\boxed{the B one}", "unparsed", "unparsed"),
    (r"\boxed{}", "unparsed", "unparsed"),
    (r"\boxed{(B)", "unparsed", "unparsed"),
    ("The answer is (B).", "unparsed", "correct"),
    ("the answer is: **(C)**", "unparsed", "wrong"),
    ("(B)", "unparsed", "unparsed"),
    ("", "unparsed", "unparsed"),
]


@pytest.mark.parametrize(("text", "strict", "lenient"), CASES)
def test_each_reading_gives_its_outcome_and_names_its_rule(
    text: str, strict: str, lenient: str
) -> None:
    for marking, outcome in (("strict", strict), ("lenient", lenient)):
        mark = mark_letter(text, "(B)", marking, truncated=False)
        assert mark.outcome == outcome
        assert (mark.extracted is None) == (mark.rule == "no-answer")
        assert mark.reward == float(outcome == "correct")


def test_truncated_means_cut_without_an_answer() -> None:
    assert mark_letter("and then", "(A)", "strict", truncated=True).outcome == "truncated"
    assert mark_letter(r"\boxed{(A)} and", "(A)", "strict", truncated=True).outcome == "correct"


def test_a_megabyte_of_braces_is_read() -> None:
    assert last_box("\\boxed{" * 20_000) is None
    assert mark_letter("{" * 1_000_000, "(A)", "lenient", truncated=False).outcome == "unparsed"


def test_every_gold_of_the_task_marks_correct_in_both_readings() -> None:
    for marking in ("strict", "lenient"):
        task = get_task("shuffled_objects", marking=marking, train=0, test=50)
        for prompt in task.test():
            assert task.mark(f"\\boxed{{{prompt.answer}}}", prompt.answer).outcome == "correct"
