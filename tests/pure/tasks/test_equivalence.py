r"""Expressions: equal by text or by what they say, in any process and thread."""

import gzip
import json
import threading

import pytest
from data import data
from processes import hang_limit

from orchestrator.probing.checks import BOMBS
from tasks import Answer, get_task
from tasks.marking.comparison import same, same_text, tree
from tasks.marking.equivalence import is_readable, mark_expression, mark_expressions
from tasks.marking.latex import Node

SAME = [
    (r"\frac{1}{2}", r"\dfrac12"),
    ("(1,2)", "(1, 2)"),
    ("12", r"12\text{ cm}"),
    ("12", r"12^\circ"),
    ("5", "x = 5"),
    (r"\text{Evelyn}", "Evelyn"),
    (r"\sqrt2", r"\sqrt{2}"),
    ("1000", "1,000"),
    (r"\text{(C)}", "C"),
    (r"6{:}30", "6:30"),
    ("10{,}000", "10000"),
    (r"\frac1{20}", r"\frac{1}{20}"),
    (r"a \quad b", "a b"),
    ("**5**", "5."),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_spellings_of_one_expression_are_equal(one: str, two: str) -> None:
    assert mark_expression(rf"\boxed{{{two}}}", one, "strict", truncated=False).outcome == "correct"


def unit_of(latex: str) -> tuple[Node, str]:
    """The value and the unit of an answer."""
    node = tree(latex)
    if node.kind in ("percent", "degree"):
        return node.args[0], node.kind
    return node.args if node.kind == "quantity" else (node, "")


@pytest.mark.parametrize(
    ("latex", "value", "unit"),
    [
        (r"5\text{ cm}", "5", "centimeter"),
        (r"5\text{ cm}^{3}", "5", "centimeter^3"),
        ("5m^3", "5m^3", ""),
        (r"5\text{ sq ft}", "5", "foot^2"),
        ("7 men", "7", "man"),
        (r"5\text{ percent}", "5", "percent"),
        (r"10\ \mathrm{m\,s^{-1}}", "10", "meter second^-1"),
        (r"10\,\frac{\text{m}}{\text{s}}", "10", "meter second^-1"),
        (r"10\ \text{N}\cdot\text{m}", "10", "meter newton"),
        (r"10\,\Omega", "10", "ohm"),
        (r"10^{\circ}C", "10", "celsius"),
        (r"30\text{ duck eggs per day}", "30", "duck egg/day"),
        ("4 boxes of pens", "4", "boxe/pen"),
        (r"2+3\mathrm{i}", r"2+3\mathrm{i}", ""),
        ("0.5°", "0.5", "degree"),
        ("x", "x", ""),
        (r"\$5", "5", "dollar"),
        (r"\text{€}10", "10", "euro"),
        (r"42^\circ", "42", "degree"),
        (r"5\text{ million}", r"5\cdot 1000000", ""),
        (r"5\text{ million dollars}", r"5\cdot 1000000", "dollar"),
        ("2 ab", "2 ab", ""),
        (r"10\,\mu\text{m}", "10", "micrometer"),
        ("10元", "10", "yuan"),
        ("10€", "10", "euro"),
        (r"20\text{ m}", "20", "meter"),
        ("20 m", "20 m", ""),  # a variable, perhaps
    ],
)
def test_units_are_read(latex: str, value: str, unit: str) -> None:
    assert unit_of(latex) == (tree(value), unit)


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        (r"\frac{1}{2}", "0.5", "correct"),
        ("8+4i", "4i+8", "correct"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", "correct"),
        ("x^2-1", "(x-1)(x+1)", "correct"),
        ("[1,2)", "[1,2]", "wrong"),
        ("(1,2)", "(2,1)", "wrong"),
        (r"\{1,2\}", r"\{2,1\}", "correct"),
        ("(1,2)", r"\{1,2\}", "wrong"),
        ("[1,2]", r"\{1,2\}", "wrong"),
        ("(1,2)", r"(1,\frac{4}{2})", "correct"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}\frac22\\2\end{pmatrix}", "correct"),
        ("1", r"1\\2", "unparsed"),
        (r"\binom{10}{3}", r"\frac{10!}{3!\,7!}", "correct"),
        ("11", "5 6", "unparsed"),
        (r"x \neq 3", "x=3", "wrong"),
        ("12", "at least 12", "unparsed"),
        ("20", r"20\%", "correct"),
        (r"20\%", r"20^\circ", "wrong"),
        ("30kg", "30", "correct"),
        ("30kg", r"30\text{ cm}", "wrong"),
        ("10cm^2", r"10\text{ cm}^2", "correct"),
        ("3kx", "3kx", "correct"),
        ("5", r"5 \text{ minus one}", "unparsed"),
        ("5", r"5 \text{ k dollars}", "wrong"),
        (r"x>2 \text{ or } x<-2", r"x>2 \text{ and } x<-2", "wrong"),
        (r"(2,5)", r"x>2 \text{ and } x<5", "correct"),
        (r"x<-2, x>2", r"x<-2 \text{ or } x>2", "correct"),
        ("8", "-8", "wrong"),
        ("4t", r"4\text{ units}", "wrong"),
        (r"\frac{12}{5,\!525}", r"\frac{12}{5525}", "correct"),
    ],
)
def test_expressions_with_different_texts_are_compared_by_value(
    gold: str, answer: str, outcome: str
) -> None:
    mark = mark_expression(rf"So it is \boxed{{{answer}}}.", gold, "lenient", truncated=False)
    assert (mark.outcome, mark.extracted) == (outcome, None if outcome == "unparsed" else answer)


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        (r"x^2\text{ cm}", r"x^2\text{ m}", "wrong"),
        (r"x^2\text{ cm}", "x^2", "correct"),
        ("x = 3y", "z = 3y", "wrong"),
        ("3y", "z = 3y", "correct"),
        (r"7\text{th}", r"7^{\text{th}}", "correct"),
        ("7", r"7^{th}", "correct"),
        ("7", r"7^{t}", "wrong"),
        ("42", "m+n = 42", "correct"),
        ("42", "2x = 42", "wrong"),
        ("42", "42 = m+n+1", "wrong"),
        ("m+n = 42", "42", "wrong"),  # a line
        ("y = 2x+3", r"x = \frac{y-3}{2}", "correct"),  # the same line, for another letter
        ("1011_2", "1011_3", "wrong"),
        ("1011_2", "1011", "correct"),
        ("11", "11_2", "wrong"),  # 3
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
        "centimeter cm centimetres",
        "inch in",
        "foot ft feet",
        "kilogram kg kilograms",
        "second s sec seconds",
        "minute min minutes",
        "hour h hr hours",
    ],
)
def test_a_unit_is_the_same_by_any_of_its_names(names: str) -> None:
    full = names.split()[0]
    for name in names.split():
        assert unit_of(rf"5\text{{ {name}}}^2") == (tree("5"), f"{full}^2"), name


@pytest.mark.parametrize("of", ["{} today", "{} each", "square {}"])
@pytest.mark.parametrize(
    ("one", "other"), [("am", "pm"), ("dollars", "cents"), ("days", "hours"), ("units", "degrees")]
)
def test_units_differ_whatever_stands_beside_them(of: str, one: str, other: str) -> None:
    units = [unit_of(rf"5\text{{ {of.format(name)}}}")[1] for name in (one, other)]
    assert units[0] != units[1] and "" not in units


STATED = [
    # text, gold, outcome; a gold that would be read from a wrong place
    (r"The answer is \(\frac12\).", r"\frac{1}{2}", "correct"),
    ("The answer is $$5$$, because $2+3=5$.", "5", "correct"),
    ("So the answer is **x+1**.", "1+x", "correct"),
    ("The answer is $x$ = 5", "5", "correct"),
    ("The answer is $5$ or $6$.", "5", "wrong"),
    ("The answer is 5, since 5 is prime.", "5", "correct"),
    ("The answer is not $5$.", "5", "unparsed"),
    ("The answer is $5$ - x.", "5", "wrong"),
    ("The answer is $5$ - a prime number.", "5", "correct"),
    ("The answer is $5$ at most.", "5", "unparsed"),
    ("The answer is $5", "5", "correct"),  # five dollars
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
    unread = ("no-answer", f"lenient:{place}-unreadable")
    assert mark.rule.startswith(unread if outcome == "unparsed" else f"lenient:{place}-")
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
        (r"\boxed{\frac{1} 2}", "lenient:boxed-text"),
        (r"\boxed{\mathbf{\frac{1}{2}}}", "lenient:boxed-text"),
        (r"\boxed{0.50}", "lenient:boxed-value"),
        (r"\boxed{2^{-1}}", "lenient:boxed-value"),
        ("The answer is 0.50", "lenient:stated-value"),
        ("<answer>0.50</answer>", "lenient:tagged-value"),
        ("#### 0.50", "lenient:hash-value"),
    ):
        mark = mark_expression(text, r"\frac{1}{2}", "lenient", truncated=False)
        assert (mark.outcome, mark.rule) == ("correct", rule)
    strict = mark_expression(r"\boxed{0.50}", r"\frac{1}{2}", "strict", truncated=False)
    assert strict[:3] == ("wrong", "0.50", "strict:boxed-text")
    long = mark_expression(rf"\boxed{{{'1+' * 1000}1}}", "1001", "lenient", truncated=False)
    assert long[:3] == ("unparsed", None, "lenient:boxed-too-long")


def test_an_answer_that_cannot_be_read_is_unparsed() -> None:
    for truncated, outcome in ((False, "unparsed"), (True, "truncated")):
        mark = mark_expression(r"\boxed{???}", "5", "lenient", truncated)
        assert mark[:3] == (outcome, None, "lenient:boxed-unreadable")


TOO_LARGE = [
    "9^{9^{9^{9}}}",
    r"10^{10^{10}}!",
    r"e^{e^{e^{9}}}",
    r"\sqrt{2^{99999}+1}",
    r"\binom{10^{9}}{5000000}",
    "x^{99999999}",
    "(1+x)^{9999}" * 90,
    r"\sin(x)" * 200 + "+2^{4000}",
    r"f(2^{99999})",
    "2e9999949",
    ",".join(rf"\sin {i}" for i in range(200)),
]


@pytest.mark.parametrize("answer", TOO_LARGE)
def test_the_work_for_an_answer_is_bounded(answer: str) -> None:
    """By its own size, not by time: the mark is the same on a busy machine."""
    with hang_limit():
        mark = mark_expression(rf"\boxed{{{answer}}}", "7+x", "lenient", truncated=False)
    assert mark.outcome in ("unparsed", "wrong")
    if mark.outcome == "unparsed":
        assert mark[1:3] in [(None, f"lenient:boxed-{why}") for why in ("too-large", "unreadable")]
    assert same_text(answer, answer), "text needs no value"


def test_bombs_are_handled_and_marking_continues() -> None:
    answers = [Answer(bomb, "7") for bomb in BOMBS] + [Answer(r"\boxed{x+7}", "7+x")]
    with hang_limit():
        *bombs, last = mark_expressions(answers, "lenient")
    assert {mark.outcome for mark in bombs} == {"unparsed"}
    assert [m.rule for m in bombs[:2]] == ["lenient:boxed-too-large"] * 2
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


SAME_VALUES = [
    (r"\sqrt{2}", "1.414214", False),
    (r"\sqrt{2}", r"\frac{2}{\sqrt{2}}", True),
    ("1.414214", r"\sqrt{2}", True),  # the gold is rounded
    (r"\sqrt{4}", "2.0", True),
    (r"\sqrt{0}", "0", True),
    ("(1,2)", "(1.0,2)", True),
    ("5,\\!525", "5525", True),
    ("5525 .", "5{,}525,", True),
    ("x > 5", r"(5,\infty)", True),
    ("2ab", "2", False),
    (r"\text{Bob}", r"\text{Bob}", True),
    ("7", "?", None),
    ("7", r"\text{seven}", False),
    ("?", "?", None),  # equal texts are compared before
    ("7", "", None),
    # rationals exactly, other numbers to a precision that follows their size
    (r"6.63\times10^{-34}", r"1.05\times10^{-34}", False),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", False),
    (r"\sqrt{2^{200}+1}", "2^{100}", False),
    (r"\sqrt{2^{200}}", "2^{100}", True),
    (r"e^{-1000}", "0", False),
    (r"\sqrt{(2^{8000}-1)^2}", "2^{8000}-1", True),  # the longest whose root is exact
    (r"\sin\pi", "0", True),
    (r"e^{i\pi}", "-1", True),
    (r"\sin 30^\circ", r"\frac12", True),
    (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2", True),
    ("3000", "3e3", True),
    ("42!!", r"42\cdot 40!!", True),
    # with symbols: at points of both signs
    ("x", r"\sqrt{x^2}", False),
    (r"\frac{1}{\sqrt{n}}", r"\frac{\sqrt{n}}{n}", True),
    ("(-1)^n", "(-1)^{n+1}", False),
    (r"\sin 2x", r"2\sin x\cos x", True),
    ("f(2x)", "f(x+x)", True),
    ("f(2x)", "f(x+2)", False),
    ("x^{-1}(2)", r"\frac{2}{x}", True),
    ("P(x) = 2x", "2x", True),
    ("3P(x) = 9", "Px = 3", True),  # a factor, no name
    ("a_1+a_n", "a_n+a_{1}", True),
    # what is added to a value, or missing from a collection
    ("42", "> 42", None),
    ("42", r"42\mathbb{Z}", None),
    ("2", r"2 \mid n", None),
    ("7", r"6 \to 7", None),
    ("7", r"1, 2, \ldots, 7", False),
    ("6", r"6.\overline{3}", False),
    ("f''(2)", "f'(2)", False),
    (r"\frac{dy}{dx}=2", r"\frac{dx}{dy}=2", False),
    (r"\operatorname{Re}(z)=3", r"\operatorname{Im}(z)=3", False),
    (r"3^\circ", "3'", None),
    ("a=3,b=4", "4,3", False),
    # collections
    (r"\{18,150\}", "18,150", True),
    ("18150", "18,150", True),
    (r"(1,2), (3,4)", r"\{(3,4),(1,2)\}", True),
    ("-3<x<5", "5>x>-3", True),
    ("a<b<c", r"a<b<\frac{2c}{2}", True),
    (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x>3", True),
    (r"(-\infty,2)\cup(3,\infty)", r"]-\infty,2[\,\cup\,]3,\infty[", True),
    (r"\mathbb{R}\setminus\{3\}", r"x \ne 3", True),
    ("|x|>2", "x>2, x<-2", True),
    (r"\pm 3", "3, -3", True),
    (r"\frac{\pi}{2}", r"\frac{\pi}{2} \approx 1.57", True),
    (r"\frac{\pi}{2}", r"\frac{\pi}{2} \approx 3", False),
]


@pytest.mark.parametrize(("gold", "answer", "equal"), SAME_VALUES)
def test_answers_are_compared_by_what_they_say(gold: str, answer: str, equal: bool | None) -> None:
    assert same(gold, answer) is equal


@pytest.mark.parametrize(
    "piece", ["1,000", " ", "{", "\\", "\\frac", "a ", "1 ", r"\text{ cm}", ".", "~"]
)
def test_a_long_answer_is_normalized_in_linear_time(piece: str) -> None:
    with hang_limit():  # a quadratic reader takes hours
        mark_expression(r"\boxed{" + piece * (1_000_000 // len(piece)) + "}", "5", "strict", False)


@pytest.fixture(scope="module")
def golds() -> list[str]:
    from tasks.marking.boxes import last_box

    boxed = []
    for split in ("train", "test"):
        with gzip.open(data("raw", "math", f"{split}.jsonl.gz"), "rt", encoding="utf-8") as file:
            boxes = [last_box(json.loads(line)["solution"], ("boxed", "fbox")) for line in file]
            boxed += [box for box in boxes if box]
    return boxed


@pytest.mark.parametrize("marking", ["strict", "lenient"])
def test_every_gold_of_math_is_correct(golds: list[str], marking: str) -> None:
    assert len(golds) == 12_498
    answers = [Answer(rf"\boxed{{{gold}}}", gold) for gold in golds]
    assert {mark.outcome for mark in mark_expressions(answers, marking)} == {"correct"}


def test_the_reader_reads_the_golds_of_math(golds: list[str]) -> None:
    unread = {g for g in set(golds) if not is_readable(g)}
    assert len(unread) <= 2, unread
