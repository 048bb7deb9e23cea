"""The letter or number that a text gives as its answer, in both readings."""

import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import hang_limit

from tasks import OUTCOMES
from tasks.marking.boxes import filled_boxes, last_box, last_filled_box, outer_boxes
from tasks.marking.letters import mark_letter
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number, number_in
from tasks.marking.reading import find_hash_line, find_statement, first_sentence, without_thinking

CASES = [
    # text, strict outcome, lenient outcome; the gold letter is (B)
    (r"so \boxed{(B)}", "correct", "correct"),
    (r"\boxed{(A)} no, \boxed{(B)}", "correct", "correct"),
    (r"\boxed{(B)} no, \boxed{(A)}", "wrong", "wrong"),
    (r"\boxed{(b)}", "unparsed", "correct"),
    (r"\boxed{ (B). }", "unparsed", "correct"),
    (r"\boxed{the B one}", "unparsed", "unparsed"),
    (r"\boxed{}", "unparsed", "unparsed"),
    (r"\boxed{(B)", "unparsed", "unparsed"),
    ("the answer is: **(C)**", "unparsed", "wrong"),
    ("(B)", "unparsed", "correct"),
    ("B", "unparsed", "correct"),
    ("The red one is Bob's.\n\n**B**.\n", "unparsed", "correct"),
    ("(A) is Bob's.\nC.", "unparsed", "wrong"),
    ("", "unparsed", "unparsed"),
    (r"\boxed{(c)}", "unparsed", "wrong"),
    (r"$\boxed{(B)}$.", "correct", "correct"),
    (r"\boxed{\text{(A)}}", "unparsed", "wrong"),
    (r"\boxed{(B)} then \boxed{}", "unparsed", "correct"),
    (r"\boxed{(B)} then \boxed{neither}", "unparsed", "unparsed"),
    (r"\boxed{A or B}", "unparsed", "unparsed"),
    (r"\boxed{(A), (B)}", "unparsed", "unparsed"),
    (r"\boxed{2}", "unparsed", "unparsed"),
    (r"boxed{(B)}", "unparsed", "unparsed"),
    ("\\boxed{\n(B)\n}", "correct", "correct"),
    ("The answer is (A). No: the answer is (B).", "unparsed", "correct"),
    ("the answer is not (B)", "unparsed", "unparsed"),
    (r"the answer is (B), \boxed{(A)}", "wrong", "wrong"),
    (r"the answer is (B), \boxed{x y}", "unparsed", "unparsed"),
    ("(A) (B) (C)", "unparsed", "unparsed"),
    ("The answer is option C: the red ball.", "unparsed", "wrong"),
    ("The answer is B, Bob's ball.", "unparsed", "correct"),
    ("The answer is the ball in B.", "unparsed", "unparsed"),
    ("The answer is Bob's.", "unparsed", "unparsed"),
    ("The answer is neither A nor B.", "unparsed", "unparsed"),
    ("The answer is (B), not (A).", "unparsed", "correct"),
    ("The answer is the red ball (B).", "unparsed", "correct"),
    ("The answer is f(B).", "unparsed", "unparsed"),
    (r"\boxed{option b}", "unparsed", "correct"),
    (r"\boxed{the ball of (b)}", "unparsed", "correct"),
    (r"\boxed{not (B)}", "unparsed", "unparsed"),
    (r"\boxed{(B)" + " " * 200 + "}", "correct", "correct"),
    (r"\boxed{(B)" + " is Bob's" * 40 + "}", "unparsed", "unparsed"),
    ("<think>\\boxed{(B)}</think>", "correct", "unparsed"),
]


@pytest.mark.parametrize(("text", "strict", "lenient"), CASES)
def test_each_reading_gives_its_outcome_and_names_its_rule(
    text: str, strict: str, lenient: str
) -> None:
    for marking, outcome in (("strict", strict), ("lenient", lenient)):
        mark = mark_letter(text, "(B)", marking, truncated=False)
        assert mark == mark_letter(text, "B", marking, truncated=False), "the gold may be bare"
        assert mark.outcome == outcome
        assert (mark.extracted is None) == (mark.rule == "no-answer")
        assert mark.reward == float(outcome == "correct")


NUMBER_CASES = [
    # text, value and rule of the lenient reading
    (r"\boxed{18.0 eggs}", "18", "boxed"),
    (r"\boxed{\frac{3}{4}}", "3/4", "boxed"),
    (r"\boxed{-\frac{3}{4}}", "-3/4", "boxed"),
    (r"\boxed{\dfrac34}", "3/4", "boxed"),
    (r"\boxed{3 1/2}", "7/2", "boxed"),
    (r"\boxed{1\,000\,000}", "1000000", "boxed"),
    (r"\boxed{\$1,234.50}", "2469/2", "boxed"),
    (r"\boxed{1 000 000}", "1000000", "boxed"),
    (r"\boxed{1,23}", None, None),
    (r"\boxed{1/0}", None, None),
    (r"\boxed{5 + 13}", "18", "boxed"),
    (r"\boxed{1.8 \text{ million}}", "1800000", "boxed"),
    (r"\boxed{18\%}", "18%", "boxed"),
    (r"\boxed{\text{negative }18}", "-18", "boxed"),
    ('{"answer": 18}', "18", "json"),
    ("18", "18", "line"),
    ("So it is 9 each.\nThe result is $18$.", "18", "line"),
    ("答案是18", "18", "stated"),
    (r"\boxed{x} \n#### 18", None, None),
    ("#### 18\n", "18", "hash"),
    ("#### 1,000\nI hope it helps.", "1000", "hash"),
    ("#### 17\n#### $18 in all", "18", "hash"),
    ("#### 18 or 19\n", None, None),
    ("#### 2. Count\nThe answer is 18", "18", "stated"),
    ("The answer is 18 (9 boxes with 2 pens each).", "18", "stated"),
    ("The answer is 5 + 13, which equals 18.", "18", "stated"),
    ("The answer is minus 18.", "-18", "stated"),
    ("The answer is 1.8.", "9/5", "stated"),
    ("The answer is x = 5, y = 18.", None, None),
    ("The answer is at least 18.", None, None),
    ("The answer is 18?", None, None),
    ("The answer is x. It is **18** eggs.", "18", "bold"),
    ("**Step 1:** add.\nIt is **18**.", "18", "bold"),
    ("It is **18**, not **17**.", None, None),
    ("It is **18** because the other two boxes are empty.", None, None),
    ("He has 18.", None, None),
    (r"\boxed{5\text{ crore}}", "50000000", "boxed"),
    ("The answer is 5. Hmm, actually 18.", None, None),
    ("The wrong answer is 18.", None, None),
    ("A common mistake is that the answer is 18.", None, None),
    ("The answer is the square root of 18.", None, None),
]


@pytest.mark.parametrize(("text", "value", "place"), NUMBER_CASES)
def test_a_number_is_read_from_its_place(text: str, value: str | None, place: str | None) -> None:
    mark = mark_number(text, (value or "18").strip("%"), "lenient", truncated=False)
    if value is None:
        assert mark[:3] == ("unparsed", None, "no-answer")
    else:
        assert mark[:3] == ("correct", value, f"lenient:{place}-number")
        other = mark_number(text, "123", "lenient", truncated=False)
        assert other[:3] == ("wrong", value, f"lenient:{place}-number")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("so 7 and 18", "18"),
        ("He has $1,800.50 left", "3601/2"),
        ("he is at -$18", "-18"),
        ("it fell to −18 degrees", "-18"),
        ("18 of " + "them " * 30, "18"),
        ("none", None),
    ],
)
def test_the_last_number_counts_where_a_task_allows_it(text: str, value: str | None) -> None:
    mark = mark_number(text, value or "18", "lenient", truncated=False, last_number=True)
    assert mark.extracted == value
    assert mark.rule == ("no-answer" if value is None else "lenient:last-number")
    cut = mark_number(text, value or "18", "lenient", truncated=True, last_number=True)
    assert cut.outcome == "truncated", "the number may go on"
    assert mark_number(text, "18", "lenient", truncated=False).outcome == "unparsed"


@pytest.mark.parametrize(
    ("gold", "outcome"),
    [("3", "correct"), ("3.0", "correct"), ("6/2", "correct"), ("7/2", "wrong"), ("-3", "wrong")],
)
def test_a_strict_integer_is_compared_by_value(gold: str, outcome: str) -> None:
    mark = mark_number(r"It is \boxed{3}", gold, "strict", truncated=False)
    assert mark[:3] == (outcome, "3", "strict:boxed-integer")
    for other in (r"\boxed{3.0}", r"\boxed{}", "#### 3"):
        assert mark_number(other, gold, "strict", truncated=False).outcome == "unparsed"


def test_truncated_completions_without_an_answer_are_truncated() -> None:
    assert mark_letter("and then", "(A)", "strict", truncated=True).outcome == "truncated"
    assert mark_letter("so it is\nA", "(A)", "lenient", truncated=True).outcome == "truncated"
    assert mark_letter(r"\boxed{(A)} and", "(A)", "strict", truncated=True).outcome == "correct"


def test_a_megabyte_of_braces_is_unparsed() -> None:
    assert last_box("\\boxed{" * 20_000) is None
    assert mark_letter("{" * 1_000_000, "(A)", "lenient", truncated=False).outcome == "unparsed"


@settings(max_examples=50)
@given(
    before=st.text(max_size=40),
    letter=st.sampled_from("ABCDEFG"),
    marking=st.sampled_from(["strict", "lenient"]),
)
def test_a_box_is_read_after_any_text(before: str, letter: str, marking: str) -> None:
    mark = mark_letter(f"{before} \\boxed{{({letter})}}", "(B)", marking, truncated=False)
    assert mark.extracted == f"({letter})"
    assert mark.outcome == ("correct" if letter == "B" else "wrong")


PIECES = [r"\boxed{", "}", r"\boxed{(B)}", r"\text{", "(", ")", "B", "a", ".", " the answer is "]


@settings(max_examples=100)
@given(
    text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    truncated=st.booleans(),
    marking=st.sampled_from(["strict", "lenient"]),
)
def test_any_text_has_one_outcome_and_lenient_agrees_with_every_strict_answer(
    text: str, truncated: bool, marking: str
) -> None:
    mark = mark_letter(text, "(B)", marking, truncated)
    assert mark.outcome in OUTCOMES
    assert (mark.outcome == "correct") == (mark.extracted == "(B)")
    assert mark.outcome != ("unparsed" if truncated else "truncated")
    strict = mark_letter(text, "(B)", "strict", truncated)
    if strict.extracted is not None:
        assert mark_letter(text, "(B)", "lenient", truncated)[:2] == strict[:2]


def test_the_rule_names_the_reading_and_the_location() -> None:
    rules = {
        (r"\boxed{B}", "strict"): "strict:boxed-letter",
        (r"\boxed{B}", "lenient"): "lenient:boxed-letter",
        (r"\boxed{(B) the ball}", "lenient"): "lenient:boxed-option",
        ("the answer is (B)", "lenient"): "lenient:stated-letter",
        ("B", "lenient"): "lenient:line-letter",
        ("the answer is (B)", "strict"): "no-answer",
    }
    for (text, marking), rule in rules.items():
        assert mark_letter(text, "(B)", marking, truncated=False).rule == rule


def test_an_error_has_no_reward() -> None:
    assert {o: Mark(o, None, "r").reward for o in OUTCOMES} == {
        **{"correct": 1.0, "wrong": 0.0, "unparsed": 0.0, "truncated": 0.0, "error": None},
        "unlabelled": None,
    }


def test_a_box_may_hold_one_level_of_braces() -> None:
    assert last_box(r"\boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert last_box(r"\boxed{ 7 }") == "7"
    assert last_box(r"\boxed{a} \boxed{b") == "a"
    assert last_box(r"\boxed{3} \fbox{}", ("boxed", "fbox")) == "", "the last one, though empty"
    for text in ("no box", "{7}", "}", r"\text{7}", r"\boxed{a"):
        assert last_box(text) is None
    assert last_box(r"\boxed{{a}}") == "{a}"
    assert last_box(r"\boxed{a \boxed{b} c}") == "b"
    text = r"\boxed{5}, in \boxed{} or \boxed{ }"
    assert (last_box(text), last_filled_box(text)) == ("", "5")
    assert last_filled_box(r"\boxed{}") is None
    assert last_filled_box(r"\fbox{5}") == "5"
    assert last_filled_box(r"\boxed{6} \fbox{5}") == "6", "only without \\boxed"


@pytest.mark.parametrize(
    ("text", "aloud"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a", ""),
        ("a<think>b", "a"),
        ("<think>a</think>b<think>c</think>d", "d"),
    ],
)
def test_thinking_is_removed(text: str, aloud: str) -> None:
    assert without_thinking(text) == aloud


def test_a_backslash_escapes_a_brace_but_not_a_command() -> None:
    assert last_box(r"\\boxed{5}") == "5"
    assert last_box(r"\\boxed{\{5\}}") == r"\{5\}"
    assert last_box(r"\boxed{a \\} b}") == "a \\\\"


def test_conditional_and_unfinished_statements_do_not_count() -> None:
    assert (
        find_statement("The answer is 5. If the answer is 6, no.") == "5. If the answer is 6, no."
    )
    assert find_statement("Answer: 5\n\nAnswer:") == "5\n\nAnswer:"
    assert first_sentence("5 because 2 + 3. Yes", truncated=False) == "5"
    assert first_sentence("5", truncated=True) is None
    assert first_sentence("1.", truncated=True) is None
    assert first_sentence("5?", truncated=False) is None


def test_a_hash_line_is_an_answer_and_a_numbered_heading_is_not() -> None:
    assert find_hash_line("#### 18\nbabble", truncated=True) == "18"
    assert find_hash_line("#### 18", truncated=True) == ""
    assert find_hash_line("#### 2. Count", truncated=False) is None


@pytest.mark.parametrize(
    ("span", "value"),
    [
        ("18 eggs", 18),
        ("18 m^2", 18),
        ("x = 5", 5),
        ("step 3", None),
        ("x = 5, y = 3", None),
        ("5 y", None),
        ("5²", 25),
        ("sqrt(5)", None),
        ("at least 5", None),
        ("5 dozen", 60),
        ("5 " + "and so on " * 20, None),
    ],
)
def test_a_span_with_exactly_one_number_gives_it(span: str, value: int | None) -> None:
    number = number_in(span)
    assert (None if number is None else number.value) == value


NUMBERS = [r"\boxed{", "}", r"\boxed{18}", "18", "_", "1", "+", "-", " ", "١٨", r"\fbox{5}"]
NUMBERS += [r"\boxed{}", "{", "\\", " the answer is 5.", "#### 7"]


@settings(max_examples=300)
@given(text=st.lists(st.sampled_from(NUMBERS), max_size=12).map("".join), truncated=st.booleans())
def test_a_number_that_is_correct_in_strict_is_correct_in_lenient(
    text: str, truncated: bool
) -> None:
    boxes = filled_boxes(text)
    if outer_boxes(boxes) != boxes or "_" in text:
        return  # of nested boxes, lenient reads the outer one; 1_8 is Python's 18
    if mark_number(text, "18", "strict", truncated).outcome == "correct":
        assert mark_number(text, "18", "lenient", truncated).outcome == "correct"


MEGABYTE = 1_000_000
# One after the other: boxes, braces, numbers, backslashes, bold, statements, hash lines, thoughts.
DEGENERATE = ["\\boxed{", "\\boxed{}", "\\fbox{}", "{", "{}", "1", "1,000,", "1/", " ", "\\"]
DEGENERATE += ["\\a  ", "**", "**1** ", "answer is ", "if answer is 1", "answer  ", "####"]
DEGENERATE += ["#### 1. a\n", "\n", "<think>", "</think>", "$", "(a) ", "B or ", "- ", "a", "²"]


BEFORE = ["", "\\boxed{", "answer is ", "#### "]


@pytest.mark.parametrize(
    ("piece", "before"),
    some([(p, BEFORE[(i + j) % 4]) for j in range(4) for i, p in enumerate(DEGENERATE)], 27),
)
def test_a_degenerate_text_is_read_in_linear_time(before: str, piece: str) -> None:
    text = before + piece * (MEGABYTE // len(piece)) + "}"
    with hang_limit():  # a quadratic reader takes hours
        mark_letter(text, "(B)", "lenient", truncated=True)
        mark_number(text, "5", "lenient", truncated=False, last_number=True)
        mark_number(text, "5", "strict", truncated=False)


def test_tasks_of_users_import_markers_from_where_they_stood() -> None:
    from tasks.marking import letters, marks, numbers

    assert marks.mark_number is numbers.mark_number and marks.mark_letter is letters.mark_letter
    with pytest.raises(AttributeError, match="mark_word"):
        _ = marks.mark_word
