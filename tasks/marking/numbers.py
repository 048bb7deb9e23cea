"""Reads the number in an answer with the reader of expressions."""

from fractions import Fraction
from typing import NamedTuple

from tasks.marking.boxes import last_box
from tasks.marking.comparison import named, tree, with_unit
from tasks.marking.digits import REACH, parse_integer, read_last_number
from tasks.marking.latex import SCALARS, Node
from tasks.marking.marks import Mark, answer_mark, no_answer_mark
from tasks.marking.reading import final_text, find_answer
from tasks.marking.tokens import Unreadable
from tasks.marking.units import AMBIGUOUS
from tasks.marking.values import constant, symbols

BITS = 10_000  # of a number; Python writes up to 4,300 digits


class Number(NamedTuple):
    """A number in an answer: its value, and whether it has a percent sign."""

    value: Fraction
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.value}%" if self.percent else str(self.value)

    def equals(self, gold: Fraction | None) -> bool:
        """75% equals 75, and also three quarters."""
        hundred = 100 if self.percent else 1
        return gold is not None and self.value in (gold, hundred * gold)


def mark_number(
    completion: str, answer: str, marking: str, truncated: bool, *, last_number: bool = False
) -> Mark:
    r"""Mark a number. `answer` is the gold: an integer, decimal or fraction.

    strict: the last `\boxed{}` is a Python integer equal to the gold. lenient: the answer of the
    text (`reading.find_answer`) has this value; `last_number` also accepts the last number of a
    complete text.
    """
    gold = _gold(answer)
    if marking == "strict":
        box = last_box(completion)
        integer = None if box is None else parse_integer(box)
        if integer is None:
            return no_answer_mark(truncated)
        return answer_mark(integer == gold, str(integer), "strict:boxed-integer")
    place = find_answer(completion, truncated, lambda text: number_in(text) is not None)
    number = None if place is None else number_in(place.text)
    name = "" if place is None else place.name
    soft = name not in ("boxed", "tagged", "json", "hash")
    if number is None and soft and last_number and not truncated:
        value = read_last_number(final_text(completion)[0])
        number = None if value is None else Number(value)
        name = "last"
    if number is None:
        return no_answer_mark(truncated)
    return answer_mark(number.equals(gold), str(number), f"lenient:{name}-number")


def _gold(answer: str) -> Fraction | None:
    try:
        return Fraction(answer)
    except (ValueError, ZeroDivisionError):
        number = number_in(answer)
        return None if number is None else number.value


def number_in(span: str) -> Number | None:
    r"""The number in a short text: `18`, `x = 18`, `18 eggs`, `9.5 \times 10^3`, `\$18`.

    None for any other text, also for two numbers, variables, bounds and numbers among other words.
    """
    if len(span) > REACH:
        return None
    if (integer := parse_integer(span)) is not None and "_" not in span:
        return Number(Fraction(integer))
    try:
        node = _value(tree(span))
        percent = node.kind == "percent"
        value = constant(node.args[0] if percent else node)
    except (Unreadable, ArithmeticError, TypeError):  # also for a bug of the reader
        return None
    if not isinstance(value, Fraction) or max(map(int.bit_length, value.as_integer_ratio())) > BITS:
        return None
    return Number(value, percent)


def _value(node: Node) -> Node:
    """The scalar in an answer: 18 for `x = 18 cm`. Raises Unreadable."""
    if (name := named(node)) is not None:
        node = name.value
    node = with_unit(node)
    if node.kind == "quantity" and node.args[1] not in AMBIGUOUS:
        node = node.args[0]
    if node.kind == "based":
        return node
    if node.kind not in SCALARS - {"range"} or symbols(node):
        raise Unreadable("it is not a number")
    return node
