r"""Expressions: equal by text, by value or by math-verify, in any process and thread."""

import gzip
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from data import data
from processes import hang_limit

from orchestrator.probing.checks import BOMBS
from tasks import Answer, get_task
from tasks.children import Children
from tasks.marking import equivalence
from tasks.marking.equivalence import mark_expression, mark_expressions
from tasks.marking.spelling import normalize_latex, same_text, split_answer, split_unit

SAME = [
    (r"\frac{1}{2}", r"\dfrac12"),
    (r"\frac{1}{2}", r"\tfrac{1}{2}"),
    ("(1,2)", "(1, 2)"),
    (r"\left(1,2\right)", "(1,2)"),
    ("12", r"12\text{ cm}"),
    ("12", r"12^\circ"),
    ("5", "x = 5"),
    (r"\text{Evelyn}", "Evelyn"),
    (r"\sqrt2", r"\sqrt{2}"),
    ("1000", "1,000"),
    (r"\text{(C)}", "C"),
    ("x_{1}", "x_1"),
    (r"6{:}30", "6:30"),
    ("10{,}000", "10000"),
    (".5", "0.5"),
    ("3/4", r"\frac34"),
    (r"\frac1{20}", r"\frac{1}{20}"),
    (r"a \quad b", "a b"),
    ("**5**", "5."),
    (r"\text{5 cm}", r"5\text{ cm}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_spellings_of_one_expression_are_equal(one: str, two: str) -> None:
    assert same_text(split_answer(one), split_answer(two))
    assert mark_expression(rf"\boxed{{{two}}}", one, "strict", truncated=False).outcome == "correct"


def test_normalization_removes_differences_of_spelling() -> None:
    assert normalize_latex(r"\dfrac12") == normalize_latex(r"\frac{1}{2}")
    assert normalize_latex("5 6") != normalize_latex("56")
    assert normalize_latex("1,234,567") == "1234567"
    assert normalize_latex("(1,234)") == "(1,234)"
    assert normalize_latex("2, 100") == "2,100"


@pytest.mark.parametrize(
    ("latex", "value", "unit"),
    [
        (r"5\text{ cm}", "5", "centimeter"),
        (r"5\,\mathrm{~cm}^2", "5", "square centimeter"),
        (r"5\text{ cm}^{3}", "5", "cubic centimeter"),
        ("5 m^3", "5 m^3", ""),
        (r"5\text{ sq ft}", "5", "square foot"),
        (r"5\text{ men and women}", r"5\text{ men and women}", ""),
        ("7 men", "7", "men"),
        (r"5 \%", r"5 \%", "percent"),
        ("0.5°", "0.5°", "degree"),
        ("x", "x", ""),
        (r"\frac{1}{2}\text{ hr}.", r"\frac{1}{2}", "hour"),
        ("5 square feet", "5", "square foot"),
        ("7 distinct integers", "7", "integer"),
        (r"\$5", r"\$5", "dollar"),
        (r"42^\circ", r"42^\circ", "degree"),
        (r"5\text{ million}", r"5\text{ million}", ""),
        (r"5\text{ if }", r"5\text{ if }", ""),
        ("2 ab", "2 ab", ""),
        (r"5\text{-}", "5", ""),
        (r"\text{Alice}\text{ Bob}", r"\text{Alice}\text{ Bob}", ""),
    ],
)
def test_units_are_split_off(latex: str, value: str, unit: str) -> None:
    assert split_unit(latex) == (value, unit)


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        (r"\frac{1}{2}", "0.5", "correct"),
        ("8+4i", "4i+8", "correct"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", "correct"),
        ("x^2-1", "(x-1)(x+1)", "correct"),
        ("[1,2)", "[1,2]", "wrong"),
        ("(1,2)", "(2,1)", "wrong"),
        (r"\sqrt{2}", "1.41", "wrong"),
        (r"\sqrt{2}", "1.414214", "wrong"),  # all that math-verify compares
        (r"\pi", "3.141593", "wrong"),
        ("3.141593", r"\pi", "correct"),
        (r"\frac{x}{4}", "0.25x", "correct"),
        (r"\frac{1}{4}+\frac{1}{4}", "0.5", "correct"),
        (r"\{1,2\}", r"\{2,1\}", "correct"),
        ("(1,2)", r"\{1,2\}", "wrong"),
        ("[1,2]", r"\{1,2\}", "wrong"),
        ("(1,2)", r"(1,\frac{4}{2})", "correct"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}\frac22\\2\end{pmatrix}", "correct"),
        ("1", r"1\\2", "wrong"),
        ("11", "5 6", "wrong"),
        (r"x \neq 3", "x=3", "wrong"),
        (r"x \neq 3", r"x \ne 3", "correct"),
        ("12", "at least 12", "wrong"),
        ("20", r"20\%", "correct"),
        ("0.05", r"5\%", "correct"),
        ("x > 5", r"(5,\infty)", "correct"),
        ("5{,}525+x", "x+5525", "correct"),
        (r"\text{Bob}", "x+1", "wrong"),
        ("8", "-8", "wrong"),
        ("2ab", "2", "wrong"),
        ("4t", r"4\text{ units}", "wrong"),
        ("a+b+c", "a + b + c", "correct"),
        (r"\frac{12}{5,\!525}", r"\frac{12}{5525}", "correct"),
    ],
)
def test_expressions_with_different_texts_are_compared_by_value(
    gold: str, answer: str, outcome: str
) -> None:
    mark = mark_expression(rf"So it is \boxed{{{answer}}}.", gold, "lenient", truncated=False)
    assert (mark.outcome, mark.extracted) == (outcome, answer)


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        (r"x^2\text{ cm}", r"x^2\text{ m}", "wrong"),
        (r"x^2\text{ cm}", "x^2", "correct"),
        ("x = 3y", "z = 3y", "wrong"),
        ("3y", "z = 3y", "correct"),
        ("y = 2x+3", r"x = \frac{y-3}{2}", "correct"),  # the same line, for another letter
        ("1011_2", "1011_3", "wrong"),
        ("1011_2", "1011", "correct"),
        ("-1011_2", "-1011", "correct"),
        ("11", "11_2", "wrong"),  # 3
        ("-11", "-11_2", "wrong"),
        (r"1011_{\text{two}}", "1011_2", "correct"),
    ],
)
def test_a_label_a_unit_or_a_base_may_be_left_out_but_not_changed(
    gold: str, answer: str, outcome: str
) -> None:
    mark = mark_expression(rf"\boxed{{{answer}}}", gold, "lenient", truncated=False)
    assert mark.outcome == outcome


@pytest.mark.parametrize(
    "names",
    [
        "millimeter mm millimeters millimetre",
        "centimeter cm centimetres",
        "meter m metre",
        "kilometer km kilometres",
        "inch in",
        "foot ft feet",
        "yard yd yards",
        "mile mi miles",
        "gram g grams",
        "kilogram kg kilograms",
        "ounce oz ounces",
        "pound lb pounds",
        "second s sec seconds",
        "minute min minutes",
        "hour h hr hours",
        "liter l litres",
    ],
)
def test_a_unit_is_the_same_by_any_of_its_names(names: str) -> None:
    full = names.split()[0]
    for name in names.split():
        assert split_unit(rf"5\text{{ {name}}}^2") == ("5", f"square {full}"), name


@pytest.mark.parametrize("of", ["{} today", "{} each", "square {}"])
@pytest.mark.parametrize(
    ("one", "other"), [("am", "pm"), ("dollars", "cents"), ("days", "hours"), ("units", "degrees")]
)
def test_units_differ_whatever_stands_beside_them(of: str, one: str, other: str) -> None:
    units = [split_unit(rf"5\text{{ {of.format(name)}}}")[1] for name in (one, other)]
    assert units[0] != units[1] and "" not in units


STATED = [
    # text, gold, outcome; a gold that would be read from a wrong place
    (r"The answer is \(\frac12\).", r"\frac{1}{2}", "correct"),
    ("The answer is $$5$$, because $2+3=5$.", "5", "correct"),
    (r"The answer is \[5\]", "5", "correct"),
    ("So the answer is **x+1**.", "1+x", "correct"),
    ("The answer is $x$ = 5", "5", "correct"),
    ("The answer is $5$ or $6$.", "5", "wrong"),
    (r"The answer is \(x\) = 5", "5", "correct"),
    (r"The answer is \(5\) or \(6\).", "5", "wrong"),
    ("The answer is 5, since 5 is prime.", "5", "correct"),
    ("The answer is not $5$.", "5", "unparsed"),
    ("The answer is $5$ at most.", "5", "unparsed"),
    ("The answer is $5", "5", "unparsed"),
    ("The answer is $5$?", "5", "unparsed"),
    ("The answer is", "5", "unparsed"),
    (r"\boxed{$5$}", "5", "correct"),
    (r"\boxed{\$5}", r"\$5.00", "correct"),
    (r"The answer is 6. \boxed{5}", "5", "correct"),
    ("<think>The answer is 6</think>The answer is 5.", "5", "correct"),
]


@pytest.mark.parametrize(("text", "gold", "outcome"), STATED)
def test_an_expression_is_read_from_a_box_or_a_statement(
    text: str, gold: str, outcome: str
) -> None:
    mark = mark_expression(text, gold, "lenient", truncated=False)
    assert mark.outcome == outcome
    place = "boxed" if "boxed" in text else "stated"
    assert mark.rule.startswith("no-answer" if outcome == "unparsed" else f"lenient:{place}-")
    if "boxed" not in text:
        assert mark_expression(text, gold, "strict", truncated=False).outcome == "unparsed"


def test_a_statement_that_the_limit_may_have_cut_is_no_answer() -> None:
    for text, outcome in (
        ("The answer is $5$", "truncated"),
        ("The answer is $5$. But", "correct"),
    ):
        assert mark_expression(text, "5", "lenient", truncated=True).outcome == outcome


def test_the_rule_names_the_place_and_what_decided() -> None:
    for text, rule in (
        (r"\boxed{\tfrac12}", "lenient:boxed-text"),
        (r"\boxed{0.50}", "lenient:boxed-number"),
        (r"\boxed{2^{-1}}", "lenient:boxed-math-verify"),
        ("The answer is 0.50", "lenient:stated-number"),
    ):
        mark = mark_expression(text, r"\frac{1}{2}", "lenient", truncated=False)
        assert (mark.outcome, mark.rule) == ("correct", rule)
    strict = mark_expression(r"\boxed{0.50}", r"\frac{1}{2}", "strict", truncated=False)
    assert strict[:3] == ("wrong", "0.50", "strict:boxed-text")
    long = mark_expression(rf"\boxed{{{'1+' * 1000}1}}", "1001", "lenient", truncated=False)
    assert long[:3] == ("error", None, "lenient:too-long")


def test_an_answer_that_math_verify_cannot_parse_is_unparsed() -> None:
    for truncated, outcome in ((False, "unparsed"), (True, "truncated")):
        mark = mark_expression(r"\boxed{???}", "5", "lenient", truncated)
        assert mark[:3] == (outcome, None, "lenient:boxed-unreadable")


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["1,000", " ", "{", "\\", "\\frac", "a ", "1 ", r"\text{ cm}", ".", "~"]
)
def test_a_long_answer_is_normalized_in_linear_time(piece: str) -> None:
    with hang_limit():  # a quadratic reader takes hours
        mark_expression(r"\boxed{" + piece * (1_000_000 // len(piece)) + "}", "5", "strict", False)


@pytest.mark.slow
def test_expressions_that_exceed_the_time_limit_are_errors_and_marking_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(equivalence._VERIFIERS, "limit", 2.0)
    answers = [Answer(bomb, "7") for bomb in BOMBS] + [Answer(r"\boxed{x+7}", "7+x")]
    *bombs, last = mark_expressions(answers, "lenient")
    assert {mark.outcome for mark in bombs} <= {"error", "unparsed", "wrong"}
    assert [m.rule for m in bombs[:2]] == ["lenient:boxed-time-limit"] * 2
    assert last.outcome == "correct"


def test_expressions_can_be_marked_in_a_thread() -> None:
    outcomes: list[str] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(
            mark_expression(r"\boxed{4i+8}", "8+4i", "lenient", truncated=False).outcome
        )
    )
    thread.start()
    thread.join()
    assert outcomes == ["correct"]


def test_only_the_completion_is_marked() -> None:
    task = get_task("math", prompt={"preset": "paper"})
    [turn] = task.messages(r"What is $1+1$? For example \boxed{2}.")
    assert r"\boxed{2}" in turn["content"]
    assert task.mark("I do not know.", "2").outcome == "unparsed"


@pytest.fixture(scope="module")
def golds() -> list[str]:
    from tasks.marking.reading import last_box

    boxed = []
    for split in ("train", "test"):
        with gzip.open(data("raw", "math", f"{split}.jsonl.gz"), "rt", encoding="utf-8") as file:
            boxes = [last_box(json.loads(line)["solution"], ("boxed", "fbox")) for line in file]
            boxed += [box for box in boxes if box]
    return boxed


@pytest.mark.parametrize("marking", ["strict", "lenient"])
@pytest.mark.slow
def test_every_gold_of_math_is_correct(golds: list[str], marking: str) -> None:
    assert len(golds) == 12_498
    answers = [Answer(rf"\boxed{{{gold}}}", gold) for gold in golds]
    assert {mark.outcome for mark in mark_expressions(answers, marking)} == {"correct"}


@pytest.mark.slow
def test_math_verify_parses_every_tenth_gold(golds: list[str]) -> None:
    verifiers = Children("tasks.marking.math_verifier:equivalent", 2, 10.0)
    some = golds[::10]
    replies = verifiers.map([(gold, gold) for gold in some])
    verifiers.close()
    assert [g for g, reply in zip(some, replies, strict=True) if reply.value is not True] == []


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        (r"\frac{1}{2}", "0.5", True),
        (r"\sqrt{2}", "1.414214", False),
        (r"\sqrt{2}", r"\frac{2}{\sqrt{2}}", True),
        ("1.414214", r"\sqrt{2}", True),  # the gold is rounded
        (r"\sqrt{4}", "2.0", True),
        ("(1,2)", "(1.0,2)", True),
        ("5,\\!525", "5525", True),
        ("5{,}525", "5525", True),
        ("5525 .", "5{,}525,", True),
        ("x > 5", r"(5,\infty)", True),
        ("2ab", "2ba", True),
        ("2ab", "2", False),
        (r"\text{Bob}", r"\text{Bob}", True),
        (r"\text{Bob}", "7", False),
        ("7", "?", None),
        ("7", r"\text{seven}", False),
        ("?", "?", True),
        ("?", "5", False),
        ("7", "", None),
    ],
)
def test_math_verify_compares_by_value_but_not_by_rounding(
    gold: str, answer: str, equal: bool | None
) -> None:
    """In this process, where there is no time limit."""
    from tasks.marking.math_verifier import equivalent

    assert equivalent(gold, answer) is equal


def test_a_gold_that_cannot_be_parsed_is_an_error() -> None:
    from tasks.marking.math_verifier import equivalent

    with pytest.raises(ValueError, match="gold '' cannot be parsed"):
        equivalent("", "5")


TWICE = """
import sys
from antlr4.atn.PredictionMode import PredictionMode
from tasks.marking import math_verifier
latex = [line.strip() for line in sys.stdin]
def read():
    math_verifier._parsed.cache_clear()
    results = []
    for text in latex:
        try:
            results.append(repr(math_verifier._parsed(text)))
        except Exception as error:
            results.append(type(error).__name__)
    return results
two = read()
math_verifier.PredictionMode = type("Full", (), {"SLL": PredictionMode.LL, "LL": PredictionMode.LL})
print([text for text, a, b in zip(latex, two, read()) if a != b])
"""


@pytest.mark.slow
def test_two_stage_parsing_agrees_with_the_full_parser(golds: list[str]) -> None:
    some = [gold.replace("\n", " ") for gold in golds[::25]]
    run = subprocess.run(
        [sys.executable, "-c", TWICE],
        input="\n".join(some),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert run.stdout.strip() == "[]"
