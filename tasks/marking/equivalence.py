r"""Marks mathematical expressions by meaning, under the same readings as numbers and letters.

Every completion is marked under both readings. The setting `marking` names the reading that rewards
and accuracy use; the mark of the other reading is stored as `other_outcome`. Only the completion is
marked, and each mark names the rule that decided it, such as `lenient:boxed-number`.

* `strict` reads the last closed `\boxed{…}`, which must hold the answer in the requested form: an
  integer, a letter (`(X)` or `X`), or the expression of the gold answer. Spelling does not count
  (`\dfrac12`, `1/2`, fonts, spaces, a missing unit or name); nothing is calculated.
* `lenient` accepts what a human grader would accept: common notations of numbers and letters
  (`28.00`, `224,000`, `20\%`, `1.8 million`, `\text{(A)}`, `3\frac{1}{2}`), answers outside a box
  (`<answer>18</answer>`, `{"answer": 18}`, `#### 18`, "the answer is 18", a bold number at the end,
  a last line that is only an answer), and any equal expression. It ignores text inside `<think>`
  and empty boxes. For nested boxes, the outer one counts.
* Several numbers, bounds, negated answers, answers that the text takes back, and answers that may
  continue past the token limit count as no answer.
* Commas between groups of three digits separate thousands; `2,3` is not a number. A unit may be
  missing, but must not differ. Units are not converted.

An expression is read as a whole or not at all: an unknown command, text around a formula, more than
2,000 characters or a value that is too large make the answer `unparsed`. A gold answer that cannot
be read equals only the same text. The work for an answer is bounded by its length and the size of
its numbers, so that no answer hangs a marker. Expressions are equal in these cases:

* Rational numbers: exactly, also decimals and `0.\overline{6}`; `0.333` is not a third. Other
  numbers: at 256 bits, and again at 2,048 or more.
* Expressions with symbols: at 8 points, or at 24 with `\lfloor`, `\max`, `\gcd` or the like, which
  a hash of both answers chooses.
* Equations and inequalities: up to a constant factor. `x = 5`, `f(2) = 5` and `Area = 5` also equal
  `5`; `2x = 5` does not.
* Intervals, unions and inequalities in one variable: as sets of real numbers.
* Tuples, matrices and ratios: in order. Sets, lists of solutions and cases: in any order.
* Words: without regard to case. A plural noun after a number (`6 duck eggs`) may be left out.
"""

import re
from collections.abc import Sequence

from tasks.marking.boxes import last_box
from tasks.marking.comparison import letters, same, same_text, tree
from tasks.marking.latex import Node, TooLarge, is_product
from tasks.marking.letters import one_option
from tasks.marking.marks import Mark, Outcome, answer_mark, no_answer_mark
from tasks.marking.reading import find_answer
from tasks.marking.spelling import MAX_LENGTH, AnswerComparison, plain, spelling_key
from tasks.marking.tokens import Unreadable
from tasks.marking.values import first_digits
from tasks.prompts import Answer

LONGEST = 200  # characters of an answer that is compared with other answers by its value
_OPTION = re.compile(r"\(([A-Z])\)")


def mark_expression(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    """Mark one expression; `answer` is the gold, in LaTeX or plain text."""
    if marking == "strict":
        box = last_box(completion)
        if not box:
            return no_answer_mark(truncated)
        return answer_mark(_is_spelled_alike(box, answer), box, "strict:boxed-text")
    place = find_answer(completion, truncated, is_answer, several=True)
    if place is None:
        return no_answer_mark(truncated)
    outcome, how = _compared(place.text, answer)
    rule = f"lenient:{place.name}-{how}"
    if outcome == "unparsed":
        return no_answer_mark(truncated)._replace(rule=rule)
    return Mark(outcome, place.text, rule)


def is_answer(text: str) -> bool:
    """Whether a text is an answer by itself: values, without other words."""
    try:
        return not has_words(tree(text))
    except Unreadable:
        return False


def has_words(node: Node) -> bool:
    """Whether a tree has words, including short ones that are read as products."""
    if node.kind in ("word", "dots") or (len(text := letters(node)) > 1 and not is_product(text)):
        return True
    stack = list(node.args)
    while stack:
        part = stack.pop()
        if isinstance(part, Node):
            if has_words(part):
                return True
        elif isinstance(part, tuple):
            stack += part
    return False


def is_readable(gold: str) -> bool:
    """Whether other spellings of a gold can be correct; if not, only its own text is."""
    try:
        tree(gold)
    except Unreadable:
        return False
    return True


def _compared(text: str, gold: str) -> tuple[Outcome, str]:
    """Whether an answer is the gold, and the deciding rule; unparsed if that is unknown."""
    if same_text(text, gold):
        return "correct", "text"
    if len(text) > MAX_LENGTH:
        return "unparsed", "too-long"
    if len(gold) > MAX_LENGTH:
        return "unparsed", "unreadable-gold"
    try:
        if option := _OPTION.fullmatch(plain(gold)):
            letter = one_option(plain(text))
            return "correct" if letter == option[1] else "wrong", "option"
        equal = same(gold, text)
    except TooLarge:
        return "unparsed", "too-large"
    except Exception as error:  # noqa: BLE001 a fault of the reader concerns this answer alone
        return "error", type(error).__name__
    if equal is None:
        return "unparsed", "unreadable" if is_readable(gold) else "unreadable-gold"
    return "correct" if equal else "wrong", "value"


def _is_spelled_alike(one: str, two: str) -> bool:
    """Whether two answers differ in spelling only; a name or unit may be absent, not differ."""
    if same_text(one, two):
        return True
    try:
        (name, value, unit), (other_name, other_value, other_unit) = (
            _parts(tree(one)),
            _parts(tree(two)),
        )
    except Unreadable:
        return False
    names_agree = name is None or other_name is None or name == other_name
    units_agree = not unit or not other_unit or unit == other_unit
    return value == other_value and names_agree and units_agree


def _parts(node: Node) -> tuple[Node | None, Node, str]:
    """The name, value and unit of `x = 5 cm`."""
    name = None
    if node.kind == "relation" and node.args[0] == ("=",) and node.args[1][0].kind == "symbol":
        name, node = node.args[1]
    if node.kind == "quantity":
        return name, *node.args
    if node.kind in ("degree", "percent"):
        return name, node.args[0], node.kind
    return name, node, ""


def expression_comparison(marking: str) -> AnswerComparison:
    """How answers are compared. The work for each answer and each pair is bounded."""
    if marking == "strict":
        return AnswerComparison(lambda answer: "", _is_spelled_alike)
    return AnswerComparison(_value_key, lambda one, two: _compared(two, one)[0] == "correct")


def _value_key(text: str) -> str:
    """The first digits of a number, or of several numbers in any order; empty for other answers.

    A long answer only equals one with the same spelling: comparing values may take seconds.
    """
    if len(text) > LONGEST:
        return spelling_key(text)
    if _OPTION.fullmatch(plain(text)):  # (B) is b
        return ""
    try:
        digits = [first_digits(item) for item in _items(tree(text))]
    except TooLarge:
        return spelling_key(text)
    except Exception:  # noqa: BLE001 as above; Unreadable and Undefined among them
        return ""
    several = "," in text and len(digits) == 1  # 18,150 may be two numbers
    return "" if several or "%" in text or not all(digits) else " ".join(sorted(digits))


def _items(node: Node) -> Sequence[Node]:
    """The parts that are compared one by one."""
    if node.kind == "matrix":
        return [item for row in node.args for item in row]
    if node.kind == "tuple":
        return list(node.args[2])
    return node.args if node.kind in ("list", "set") else [node]


def mark_expressions(answers: Sequence[Answer], marking: str) -> list[Mark]:
    """Mark many."""
    return [mark_expression(a.completion, a.answer, marking, a.truncated) for a in answers]
