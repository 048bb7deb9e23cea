r"""What an answer says: for each gold, answers that are it, that are not, and that cannot be read.

A line of a table holds the gold, then answers after `=` (correct), `!` (wrong) and `?` (unparsed).
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from processes import hang_limit

from orchestrator.probing.checks import check_marker
from tasks import get_task
from tasks.marking.comparison import tree
from tasks.marking.equivalence import mark_expression
from tasks.marking.letters import mark_letter
from tasks.marking.numbers import Number, mark_number, number_in
from tasks.marking.values import constant
from tasks.question_file import QuestionFile

OUTCOMES = {"=": "correct", "!": "wrong", "?": "unparsed"}

EXPRESSIONS = r"""
relations without symbols
e^{\pi} > \pi^{e}  = \pi^{e} < e^{\pi}  ! 5>4  ! 3 < 5
\log 100 = 2       = 2  ! 3=5  ! \log 1000 = 7
\pi < 4            = 4 > \pi  ! 2 < 3
\sqrt{2}\approx 1.414  = \sqrt{2}  ! \pi\approx 3.1  ! \sqrt{5}\approx 2.2

points
|a-b|              = |b-a|  ! b-a  ! a-b
\max(a,b)          = \max(b,a)  ! b  ! a
(-1)^N             = (-1)^{N+2}  ! 1  ! -1
\lfloor\log_2 n\rfloor  ! \lfloor\sqrt n\rfloor
\lfloor m/7\rfloor ! \lfloor m/8\rfloor
0                  ! \lfloor |x|/5\rfloor
1                  ! \gcd(n,13)
\binom{n}{2}       = \frac{n(n-1)}{2}  = \frac{n!}{2(n-2)!}
\sin(90^{\circ}-x) = \cos x  ! \sin x

an equation is the answer as name = value
5  = x=5  = f(2) = 5  = \text{Area} = 5  = |S| = 5  = |AB| = 5  = 5 = x  = m+n = 5
5  = \frac{AB}{CD} = 5
5  ! 2x=5  ! x^2=5  ! \sqrt{x}=5  ! xy=5  ! 2x+3y=5  ! x^2+y^2=5  ! 3=5  ! |x| = 5

units
20\%    = \frac{1}{5}  = 20\text{ percent}  = 20  ! 20\text{ cm}  ! \$20  ! 20^\circ
\$40    = 40  = 40\text{ dollars}  ! 40\%  ! 40\text{ cents}  ! 40€
5  = \text{5 cm}  = \mathrm{5 cm}  = \textrm{5 cm}  = 5m  = 5\,\mathrm{m}  = \$5
5  ! 5\text{ million}
10\,\mu\text{m}  = 10  = 10 \text{ micrometers}  ! 10\text{ m}
10\text{ m}  = 10 m  = 10m  ! 10\text{ cm}
20\text{ miles}  ! 20m  ! 20\text{ miles}^2
10  = 10元  = 10€  = 10\text{ boxes of pens}  ! 10 dozen  ! 10 and a quarter  ? 10\text{ in debt}
300\text{ K}  = 300  ! 300\text{ N}
300     ? 300\text{ K}
30      = 30\text{ duck eggs per day}  = 30 in all
$18$ cm  = 18\text{ cm}  = 18  ! 18\text{ m}
$90^\circ$  = 90  = 90^\circ  = 90\text{ degrees}  ! 90\text{ radians}
$0.06 \text{ yuan}$  = 0.06  = 0.06 元

words
no      = No  = \text{no}  ! on  ! yes
ATG     = atg  = \mathrm{ATG}  ! GTA
ab      = ba  = a b  = \mathbf{ab}
Yes     = yes  = \textbf{YES}  ! no
New York  = new york  = \text{New York}  ! New Jersey
\text{empty set}  = \emptyset  = \{\}  ! 0
x=-1 \text{ or } x=1  = \pm 1  ? \min\text{ at }x=-1, \max\text{ at }x=1
\text{B,E}  = \text{B and E}  = E, B  ! B  ! B,D

dates and ranges
2024-01-15  = 2024-01-15  ! 2024-02-14  ! 2008  ! 2024-1-15
5-6     = 5 - 6  ! -1  ! 6-5
13      = 17-4  ! 5-6

factors
(n+1)2^n  = 2^n(n+1)  = n2^{n}+2^n
n2^{n-1}  = 2^{n-1}n
2^6 3^5   = 2^6\cdot 3^5  = 15552
x^2 3^x   = 3^x x^2
4\pi      = \pi 4
11        ? 5 6

inequalities
x \ge 5   = x>=5  = x \geq 5  = [5,\infty)  ! x>5
x <= 1    = x \le 1  ! x<1
x != 3    = x \neq 3  = \mathbb{R}\setminus\{3\}
120       = 5! = 120  = 5!

forms
120       = {10 \choose 3}  = \binom{10}{3}  = C_{10}^3
3         = \lg 1000  = \emph{3}  = \hbox{3}  = 3\square  = \mathbf{3}  = x = 3  = approximately 3
\lfloor x\rfloor  = [x]  ! x
k\pi\ (k\in\mathbb Z)  = k\pi, k \in \mathbb{Z}  = k\pi  ! k\pi\ (k\in\mathbb N)
\begin{pmatrix}1\\2\end{pmatrix}  = \begin{pmatrix}1\\[4pt]2\end{pmatrix}
\begin{pmatrix}1\\2\end{pmatrix}  ! \begin{pmatrix}2\\1\end{pmatrix}
\begin{cases}x&x\ge 0\\-x&x<0\end{cases}  = \begin{cases}-x&\text{if }x<0\\x&x\ge 0\end{cases}
\langle 1,-2,3\rangle  = \mathbf{i}-2\mathbf{j}+3\mathbf{k}  ! \mathbf{i}+2\mathbf{j}+3\mathbf{k}
(1,1,1)   = x=y=z=1
3:4       = 6:8  ! 4:3
6:30      ! 1:5
1234567   = 12,34,567  = 1 234 567  = 1\,234\,567
\frac{1}{2}  = \\frac{1}{2}  = \\dfrac12
7         = 7^{\text{th}}  = 7th
\sqrt{2}  = 1.4142135623730951  ! 1.414214
2         = 10_2  ! 10_3

too much
5  ? 2^{10^{10}}  ? 9^{9^{9}}
"""

NUMBERS = r"""
5  = \text{5}  = 5\text{ km}  = x = 5  = 25/5  = 2+3  = 101_2  ! 1_5  ! -5
5  ? \text{square root of }5  ? \text{all but }5  ? anything but 5  ? \text{reciprocal of }5
5  ? one over 5  ? ten to the 5  ? 5 point five  ? 5 below zero  ? 5\text{ in debt}  ? 5 or 6
5  ? 5,6
5  ? 2x=5  ? x^2=5  ? 1/x=5  ? 3=5  ? xy=5  ? > 5  ? at least 5  ? 5 and a quarter  ? 5 K  ? 5x
5  ! \text{negative }5  ! 5 bn  ! 5 lakh  ! 5 crore  ! 5\text{ million}  ! 5\text{ hundred}
1430000  = 1.43\text{ million}  = 1.43\times 10^6  = 1,430,000  = 1{,}430{,}000
0.75  = 75\%  = \frac34  ! 75
75    = 75\%  ! 0.75
"""

STATED = r"""
5  = The answer is 5.  = **Answer: 5**  = Answer: $5$  = 答案是5  = {"answer": 5}
5  = {"final_answer": "5"}
5  = 5  = So:<br>x = 5  = The result is $5$  = Thus $x = 5$ is our answer.  = It is \boxed 5.
5  ? The answer is 5. Hmm, actually 6.  ? The wrong answer is 5.  ? Nobody says the answer is 5.
5  ? A common mistake is that the answer is 5  ? Some might say the answer is 5. It is actually 6.
5  ? The answer is 5 (wrong).  ? The answer is 5. This is incorrect; it should be 6.
5  ? Let $x = 5$.  ? The answer is $\boxed{5  ? \boxed{5  ? We make 5 of them.
5  ! \boxed{5} would be wrong, as she eats one; the answer is 6.
5  = First \boxed{6}, but \boxed{5}
"""


def cases(table: str) -> list[tuple[str, str, str]]:
    """The gold, answer and outcome of each pair of a table."""
    found = []
    for line in table.splitlines():
        gold, *answers = re.split(r"\s{2,}(?=[=!?] )", line.strip())
        found += [(gold, answer[2:].strip(), OUTCOMES[answer[0]]) for answer in answers]
    return found


def test_an_expression_says_what_its_table_says() -> None:
    task = QuestionFile(path="none", marker="expression")
    problems = []
    for gold, answer, outcome in cases(EXPRESSIONS):
        mark = task.mark(rf"So it is $\boxed{{{answer}}}$.", task.read_answer(gold) or "")
        if mark.outcome != outcome:
            problems.append((gold, answer, outcome, mark.outcome, mark.rule))
    assert problems == []


def test_a_number_says_what_its_table_says() -> None:
    marks = [
        (gold, answer, outcome, mark_number(rf"\boxed{{{answer}}}", gold, "lenient", False).outcome)
        for gold, answer, outcome in cases(NUMBERS)
    ]
    assert [mark for mark in marks if mark[2] != mark[3]] == []


@pytest.mark.parametrize("mark", [mark_number, mark_expression])
def test_an_answer_is_found_in_its_place(mark) -> None:
    marks = []
    for gold, text, outcome in cases(STATED):
        got = mark(text.replace("<br>", "\n"), gold, "lenient", False).outcome
        marks.append((gold, text, outcome, got))
    assert [mark for mark in marks if mark[2] != mark[3]] == []


def test_several_boxes_are_one_answer_where_only_commas_stand_between_them() -> None:
    for text, outcome in (
        (r"\boxed{1}, \boxed{2} and $\boxed{3}$", "correct"),
        (r"\boxed{1} \text{ and } \boxed{2}, \boxed{3}", "correct"),
        (r"\boxed{1}, so \boxed{2}, \boxed{3}", "wrong"),
    ):
        assert mark_expression(text, "1,2,3", "lenient", False).outcome == outcome, text
    assert mark_expression(r"\boxed{3}, \boxed{3}", "3", "lenient", False).outcome == "correct"
    assert mark_number(r"\boxed{1}, \boxed{3}", "3", "lenient", False).outcome == "correct"


def test_long_answers_are_equal_as_texts_alone() -> None:
    digits = "1234567890" * 300
    matrix = r"\begin{pmatrix}" + r"\\".join(["&".join("1" * 50)] * 50) + r"\end{pmatrix}"
    polynomial = "+".join(f"x^{{{n}}}" for n in range(500))
    for gold in (digits, matrix, polynomial):
        other = gold[:-20].replace("1", "2", 1) + gold[-20:]
        changed_end = gold[::-1].replace("1", "2", 1)[::-1]
        assert mark_expression(rf"\boxed{{{gold}}}", gold, "lenient", False).outcome == "correct"
        for answer in (other, changed_end, gold + "+1"):
            mark = mark_expression(rf"\boxed{{{answer}}}", gold, "lenient", False)
            assert (mark.outcome, mark.rule) == ("unparsed", "lenient:boxed-too-long")


def test_a_gold_that_cannot_be_read_leaves_other_spellings_unparsed() -> None:
    gold = r"\sum_{k} F_k"
    for answer, outcome, rule in (
        (gold, "correct", "text"),
        (rf"\mathbf{{{gold}}}", "correct", "text"),
        (r"\sum_{j} F_j", "unparsed", "unreadable-gold"),
        ("5", "unparsed", "unreadable-gold"),
    ):
        mark = mark_expression(rf"\boxed{{{answer}}}", gold, "lenient", False)
        assert (mark.outcome, mark.rule) == (outcome, f"lenient:boxed-{rule}")


@pytest.mark.parametrize(("unread", "shown"), [(1, 1), (5, 3)])
def test_golds_that_cannot_be_read_are_counted_and_named(
    tmp_path: Path, unread: int, shown: int
) -> None:
    golds = [rf"\sum_{{{n}}} F" for n in range(unread)] + ["1/2", "2/3", "3/4"]
    rows = [{"question": f"q{n}?", "answer": gold} for n, gold in enumerate(golds)]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = get_task("file", path=str(tmp_path / "q.jsonl"), marker="expression", test_share=0.0001)
    prompts = task.train()
    [note] = task.notes
    assert note.startswith(f"train: {unread} of {unread + 3} ") and note.count("sum") == shown
    assert f"{unread} of {unread + 3} " in check_marker(task, prompts)
    assert task.unread_golds(["1/2"]) is None and task.unread_golds([]) is None


def test_a_letter_is_read_in_bold_and_in_chinese() -> None:
    for text in (
        "The correct option is **B**",
        "答案是B",
        r"\boxed{\mathrm{B}}",
        r"\boxed{\textnormal{B}}",
    ):
        assert mark_letter(text, "(B)", "lenient", False).outcome == "correct", text


HEDGES = r"""
what hedges between two answers
17  ! 17+2[0.5](25-17)  ! 17+8(\lfloor\log 10\rfloor-1)
2   ! [2.83]  ! [\pi]  ! 2.0000000000000001
x   ! x+2[0.5]  ! x+e^{-700}

what differs far behind the point
(2+\sqrt3)^{100}+(2-\sqrt3)^{100}  ! (2+\sqrt3)^{100}
e^{200}  ! e^{200}+1
\sinh 100  ! \cosh 100
\pi^{400}  ! \pi^{400}+7
\frac{1}{3}  ! 0.3333333333333333

names
5  ! \ln x=5  ! \lfloor x\rfloor=5  ! \gcd(4,6)=5  ! \text{Wrong answer}=5  = m+n = 2+3 = 5
(1,2)  = (x,y)=(1,2)  = x=1, y=2  ! (y,x)=(1,2)  ! y=1, x=2  ! x=1 \text{ or } y=2  ! x=1,2
(2,3)  = \begin{cases}x=2\\y=3\end{cases}

spaces and brackets
42  = \left.42\right.  ? 4 2  ? 4\quad 2  ? \text{4}\text{2}  ? \cancel{42}
5   ! -\boxed{5}  ! \boxed{5}+1  ? 5+\frac{1}{\infty}
\text{Level -3}  ! \text{Level 3}

words after a number
\$5  ! 5 Million dollars  ? 5 Canadian dollars
5   ? 5 factorial ways  ? 5 squared apples  ? 5 half apples  ? 5 percent votes  ? 5 not apples
5   ? 5 twelfths  ? 5 tenths inches  ? 5 light years  = 5 red apples
5\text{ m}^2  = 5 squared meters  = 5 meters squared  = 5\text{ m}^2  ! 5\text{ m}
12\text{ red marbles}  = 12 marbles  ! 12\text{ blue marbles}
60\text{ words per minute}  = 60  ! 60\text{ words per hour}
5\text{ mg}  ! 5\text{ g}
"""

DENIED = r"""
42  ? The answer isn't \boxed{42}.  ? It is less than \boxed{42}  ? anything but \boxed{42}
42  ? \boxed{42} is not correct  ? \boxed{42} (incorrect)  ? \boxed{42}? No, it's 41.
42  ? The square of the answer is 42  ? Twice the answer is 42  ? It is false that the answer is 42
42  ? The answer is 42. Hold on, it's 43.  ? The answer is 42. Sorry, I meant 43.
42  ? We need to find $42$  ? It isn't $42$  ? This contradicts $42$
42  ! \boxed{42}. Wait, that is wrong. The correct answer is 41.
42  = The answer is therefore 42.  = Therefore, x = 42.
"""


def test_hedges_and_other_values_are_not_the_gold() -> None:
    task = QuestionFile(path="none", marker="expression")
    problems = []
    for gold, answer, outcome in cases(HEDGES):
        mark = task.mark(rf"\boxed{{{answer}}}", task.read_answer(gold) or "")
        if mark.outcome != outcome and (mark.outcome, outcome) != ("wrong", "unparsed"):
            problems.append((gold, answer, outcome, mark.outcome, mark.rule))
    assert problems == []


@pytest.mark.parametrize("mark", [mark_number, mark_expression])
def test_an_answer_that_is_denied_or_taken_back_is_none(mark) -> None:
    marks = [(text, out, mark(text, gold, "lenient", False)) for gold, text, out in cases(DENIED)]
    assert [m for m in marks if (m[2].outcome == "correct") != (m[1] == "correct")] == []


SLOW = [
    '{"answer":' + " " * 20_000 + "x",
    "'answer':x " * 3_000,
    r"\boxed{[x]+" + "+".join([r"\binom{x}{1999}"] * 10) + r"+\frac1{x-x}}",
    r"\boxed{" + "+".join([r"\binom{x+\frac1{1000000}}{1999}"] * 30) + "}",
    r"\boxed{" + "+".join([r"(3^{9900})^{\frac1{63}}"] * 20) + r"+|x|+[x]+\log1+\frac1{x-x}}",
    r"\boxed{" + "+".join([r"\sqrt[63]{2^{15900}}"] * 80) + "}",
    r"\boxed{[x]+\log(-|x|)" + (r"+\ln(x^2+1." + "7" * 400 + ")") * 3 + "}",
    r"\boxed{" + "+".join([r"\binom{\frac1{999999937}}{1999}"] * 45) + "}",
    r"\boxed{1e5_2}",
    r"\boxed{" + r"\text{" * 20_000 + "a" + "}" * 20_001,
]


@pytest.mark.parametrize("text", SLOW, ids=range(len(SLOW)))
def test_work_that_no_text_shows_is_bounded(text: str) -> None:
    with hang_limit():
        for marker in ("number", "expression", "text"):
            mark = QuestionFile(path="none", marker=marker).mark(text, "42")
            assert mark.outcome in ("unparsed", "wrong"), mark


def test_no_mark_depends_on_how_much_was_marked_before() -> None:
    """Work is counted for each comparison, not for the life of a process."""
    for n in range(2, 4_002):  # 20 million bits of work together
        constant(tree(rf"\sqrt{{{n}}}+\pi"))
        if n % 500 == 0:
            number_in(rf"2^{{{n}}}")
    assert number_in(r"\frac{6}{2}\cdot 6") == Number(Fraction(18))
    assert mark_number(r"\boxed{2^{4}+2}", "18", "lenient", False).outcome == "correct"


def test_trees_are_kept_for_many_threads_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        nodes = list(pool.map(lambda n: tree(str(n % 1_500 + 0.5)), range(20_000)))
    assert nodes[7] == tree("7.5")
