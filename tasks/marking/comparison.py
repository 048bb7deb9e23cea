r"""Compares two answers: as values, equations, sets of numbers, tuples, lists or words.

An answer may leave out or add the name of a value (the `x =` of `x = 5`), and may write a
collection differently. Order counts in tuples, not in sets and lists.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from tasks.marking.latex import SCALARS, Node, TooLarge, is_product, read
from tasks.marking.regions import FLIPPED, is_infinite, region
from tasks.marking.spelling import MAX_LENGTH, clean, names_value, without_spaces
from tasks.marking.tokens import Unreadable
from tasks.marking.units import AMBIGUOUS, LETTERS, MEASURES, units_agree
from tasks.marking.values import (
    KNOWN,
    constant,
    distance,
    equal,
    order,
    ratio,
    signs,
    symbols,
    with_sign,
)

_COLLECTIONS = ("list", "or", "set")


@lru_cache(1_000)  # a prompt's gold and answers are compared several times
def tree(latex: str, *, grouped: bool = True) -> Node:
    """`latex.read`, kept. Raises Unreadable."""
    return read(latex, grouped=grouped)


def same_text(one: str, two: str) -> bool:
    """Whether two answers are the same text except for fonts, wrappers and spaces."""
    if one == two:
        return bool(one.strip())
    if max(len(one), len(two)) > MAX_LENGTH:
        return False
    one, two = (without_spaces(clean(text)) for text in (one, two))
    return one == two != ""


def same(gold: str, answer: str) -> bool | None:
    """Whether two LaTeX texts are equal answers; None if one of them cannot be read.

    A text longer than MAX_LENGTH is not read. Raises TooLarge.
    """
    try:
        expected, given = tree(gold), tree(answer)
        if (
            given.kind == "word"
            and expected.kind != "word"
            and any(map(str.isdigit, given.args[0]))
        ):
            return None  # a number among words
        if alike(expected, given):
            return True
        if expected.kind in (*_COLLECTIONS, "tuple", "relation"):  # 18,150 may be two numbers
            return alike(expected, tree(answer, grouped=False))
    except TooLarge:
        raise
    except Unreadable:
        return None
    return False


def alike(gold: Node, answer: Node) -> bool:
    """Whether an answer is equal to the gold. Raises Unreadable."""
    gold, answer = _spread(gold), _spread(answer)
    gold, answer = _ordered(gold), _ordered(answer)
    if "given" in (gold.kind, answer.kind):
        return _same_given(gold, answer)
    if "quantity" in (gold.kind, answer.kind) or (gold.kind in SCALARS and not symbols(gold)):
        gold, answer = with_unit(gold), with_unit(answer)  # a letter that is not a variable
    named_gold, named_answer = named(gold), named(answer)
    if named_gold and named_answer:
        if named_gold.name == named_answer.name:
            return alike(named_gold.value, named_answer.value)
        return _same_relation(gold, answer)
    if gold.kind == "tuple" and (point := _equal_coordinates(answer)) is not None:
        return alike(gold, point)
    if named_answer and gold.kind != "relation":
        is_list = named_answer.value.kind in _COLLECTIONS  # x = 1, 2 is not a point
        return not (gold.kind == "tuple" and is_list) and alike(gold, named_answer.value)
    if gold.kind in SCALARS and (total := _total(answer)) is not None:
        return alike(gold, total)
    if named_gold and answer.kind != "relation":
        return alike(named_gold.value, answer)
    if "quantity" in (gold.kind, answer.kind):
        return _same_quantity(gold, answer)
    if "based" in (gold.kind, answer.kind):
        return gold == answer or _same_based(gold, answer)
    if gold.kind == answer.kind == "negate" and "based" in (gold.args[0].kind, answer.args[0].kind):
        return alike(gold.args[0], answer.args[0])
    if gold.kind == "range":
        return gold == answer
    if len(one := letters(gold)) > 1 and (two := letters(answer)) and not is_product(one):
        return one.casefold() == two.casefold()
    if gold.kind in SCALARS and answer.kind in SCALARS:
        return _same_scalar(gold, answer)
    if (vector := _unit_vectors(gold, answer)) is not None:
        return equal(*vector)
    if (one_record := _record(gold)) or _record(answer):
        return _same_record(one_record, gold, answer)
    set_one = region(gold, is_name)
    set_two = region(answer, is_name)
    if set_one is not None and set_two is not None and (set_one.definite or set_two.definite):
        return set_one.equals(set_two)
    return _same_structure(gold, answer)


def _ordered(node: Node) -> Node:
    """`(y, x) = (1, 2)` as `(x, y) = (2, 1)`."""
    if node.kind != "relation" or node.args[0] != ("=",):
        return node
    names, values = node.args[1]
    if {names.kind, values.kind} != {"tuple"} or len(names.args[2]) != len(values.args[2]):
        return node
    if not is_name(names):
        return node
    pairs = sorted(
        zip(names.args[2], values.args[2], strict=True), key=lambda pair: pair[0].args[0]
    )
    first, second = zip(*pairs, strict=True)
    sides = Node("tuple", ("(", ")", first)), Node("tuple", ("(", ")", second))
    return Node("relation", (("=",), sides))


def letters(node: Node) -> str:
    """The letters of `no`, which is read as a product; "" for anything else."""
    if node.kind == "multiply":
        parts = [letters(part) for part in node.args]
        return "".join(parts) if all(parts) else ""
    single = node.kind in ("symbol", "constant") and len(node.args[0]) == 1
    return node.args[0] if single else ""


def _same_given(gold: Node, answer: Node) -> bool:
    """The range of a parameter may be left out: `kπ`, k ∈ ℤ."""
    (one, range_one), (two, range_two) = (
        node.args if node.kind == "given" else (node, None) for node in (gold, answer)
    )
    if range_one is not None and range_two is not None and not alike(range_one, range_two):
        return False
    return alike(one, two)


def with_unit(node: Node) -> Node:
    """`5 m` and `5 m^2` as five metres and square metres."""
    if node.kind != "multiply":
        return node
    *factors, letter = node.args
    unit, power = letter, ""
    if letter.kind == "power" and letter.args[1].kind == "number":
        unit = letter.args[0]
        power = f"^{letter.args[1].args[0]}"
    value = factors[0] if len(factors) == 1 else Node("multiply", tuple(factors))
    if unit.kind != "symbol" or unit.args[0] not in LETTERS or symbols(value):
        return node
    return Node("quantity", (value, MEASURES[unit.args[0]] + power))


def _same_quantity(gold: Node, answer: Node) -> bool:
    """A unit may be left out but not differ; degree and percent signs count as units."""
    (one, unit), (two, other) = (
        node.args if node.kind == "quantity" else (node, "") for node in (gold, answer)
    )
    if other in AMBIGUOUS and not unit:
        raise Unreadable("a unit that may be a magnitude")
    if {gold.kind, answer.kind} & {"percent", "degree"} or not units_agree(unit, other):
        return False
    return alike(one, two)


def _equal_coordinates(node: Node) -> Node | None:
    """The point of `x = y = 5`."""
    if node.kind != "relation" or set(node.args[0]) != {"="} or len(node.args[0]) < 2:
        return None
    *axes, value = node.args[1]
    is_point = all(axis.kind == "symbol" for axis in axes)
    return Node("tuple", ("(", ")", (value,) * len(axes))) if is_point else None


def _unit_vectors(gold: Node, answer: Node) -> tuple[Node, Node] | None:
    r"""Both as sums of **i**, **j** and **k**, if one is a tuple and the other has a **j**."""
    for one, two in ((gold, answer), (answer, gold)):
        if one.kind == "tuple" and two.kind in SCALARS and "j" in symbols(two):
            items = one.args[2]
            if (
                one.args[:2] != ("(", ")")
                or len(items) > 3
                or any(i.kind not in SCALARS for i in items)
            ):
                return None
            axes = Node("constant", ("i",)), Node("symbol", ("j",)), Node("symbol", ("k",))
            terms = [Node("multiply", pair) for pair in zip(items, axes, strict=False)]
            return Node("add", tuple(terms)), two
    return None


def _same_structure(gold: Node, answer: Node) -> bool:
    kinds = gold.kind, answer.kind
    if all(kind in _COLLECTIONS for kind in kinds):
        return _same_items(gold.args, answer.args)
    if gold.kind in _COLLECTIONS and len(gold.args) == 1:
        return alike(gold.args[0], answer)
    if answer.kind in _COLLECTIONS and len(answer.args) == 1:
        return alike(gold, answer.args[0])
    if kinds == ("tuple", "tuple"):
        return gold.args[:2] == answer.args[:2] and _in_order(gold.args[2], answer.args[2])
    if "matrix" in kinds and "tuple" in kinds:  # a vector and the coordinates of a point
        point, column = (gold, answer) if gold.kind == "tuple" else (answer, gold)
        is_column = all(len(row) == 1 for row in column.args)
        coordinates = [row[0] for row in column.args]
        return is_column and point.args[:2] == ("(", ")") and _in_order(coordinates, point.args[2])
    if gold.kind == "tuple" and answer.kind == "list":
        return gold.args[:2] == ("(", ")") and _in_order(gold.args[2], answer.args)
    if kinds == ("relation", "relation"):
        return _same_relation(gold, answer)
    if gold.kind == "congruence" or answer.kind == "congruence":
        return kinds[0] == kinds[1] and _same_congruence(gold, answer)
    if kinds[0] != kinds[1]:
        return False
    if gold.kind == "ratio":
        return _in_order(gold.args, answer.args) or _proportional(gold.args, answer.args)
    if gold.kind == "cases":
        return _same_items(gold.args, answer.args)
    if gold.kind == "matrix":
        return len(gold.args) == len(answer.args) and all(
            _in_order(*rows) for rows in zip(gold.args, answer.args, strict=True)
        )
    if gold.kind == "word":
        return _plain(gold.args[0]) == _plain(answer.args[0])
    return gold.kind in ("dots", "reals", "numbers") and gold == answer


def _plain(word: str) -> str:
    return re.sub(r"^(?:an?|the) |(?<=[a-z])-(?=[a-z])", lambda m: " "[: m[0] == "-"], word)


def _proportional(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    """Whether 6:8 is 3:4. A time of day, such as 6:30, is not a ratio."""
    if any(node.kind != "number" for node in (*gold, *answer)) or len(gold) != len(answer):
        return False
    one, two = ([node.args[0] for node in nodes] for nodes in (gold, answer))
    if len(one) == 2 and 10 <= one[1] < 60 and one[0] <= 24:
        return False
    return all(a * two[0] == b * one[0] for a, b in zip(one, two, strict=True)) and all(two)


def _in_order(one: Sequence[Node], two: Sequence[Node]) -> bool:
    return len(one) == len(two) and all(alike(a, b) for a, b in zip(one, two, strict=True))


def _same_items(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    """Whether two lists have equal items, in any order, except for sequences with dots."""
    if any(node.kind == "dots" for node in (*gold, *answer)):
        return _in_order(gold, answer)
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for item in gold:
        place = next((i for i, other in enumerate(left) if alike(item, other)), None)
        if place is None:
            return False
        del left[place]
    return True


# Values


def _same_scalar(gold: Node, answer: Node) -> bool:
    if gold.kind == "percent" and answer.kind == "percent":
        return equal(gold.args[0], answer.args[0])
    if {gold.kind, answer.kind} == {"percent", "degree"}:
        return False
    for percent, other in ((gold, answer), (answer, gold)):
        if percent.kind == "percent" and not symbols(other) and not symbols(percent):
            # 20 % of a whole is 0.2 of it, or 20 of a hundred; 0.2 % is not 0.2
            literal = percent.args[0].kind in ("number", "negate")
            as_written = literal and abs(order(other)) > 1 and equal(percent.args[0], other)
            return as_written or equal(percent, other)
    if is_infinite(gold) or is_infinite(answer):
        return gold == answer
    if equal(gold, answer) or _is_rounded(answer, gold, significant=16, unit=Fraction(2)):
        return True
    # A gold with more digits than a price is rounded.
    return answer.kind != "number" and _is_rounded(gold, answer, significant=7, unit=Fraction(1, 2))


def _is_rounded(rounded: Node, exact: Node, significant: int, unit: Fraction) -> bool:
    """Whether a decimal with at least this many significant digits is another number, rounded.

    `unit`: their maximum distance, in units of the last digit.
    """
    if rounded.kind not in ("number", "multiply") or symbols(rounded) or symbols(exact):
        return False
    value = constant(rounded)
    if not isinstance(value, Fraction):
        return False
    digits = next((n for n in range(40) if (value * 10**n).denominator == 1), 0)
    written = len(str(abs(int(value * 10**digits)))) if digits else 0
    if written < significant:
        return False
    number = constant(exact)
    if isinstance(number, Fraction) and (significant > 7 or written < 12):
        return False  # 0.3333333333333333 is not a third
    return bool(distance(number, value) <= float(unit) * 10.0**-digits)


def _same_based(gold: Node, answer: Node) -> bool:
    """A base may be left out of an answer; if the gold has no base, the values are compared."""
    based, other = (gold, answer) if gold.kind == "based" else (answer, gold)
    if other.kind != "number":
        return False
    if gold.kind == "based":
        return bool(str(other.args[0]) == based.args[0])
    return equal(based, other)


# Names: x = 5


class Name(NamedTuple):
    name: Node | None
    value: Node


def named(node: Node) -> Name | None:
    """The name and the value of `x = 5`, `x = 2 + 3 = 5`, `x ∈ {1, 2}`, or `2 + 3 = 5`.

    For `π/2 ≈ 1.57`, the exact value.
    """
    if node.kind != "relation":
        return None
    operators, sides = node.args
    if operators[-1] == "~" and "~" not in operators[:-1]:
        return _approximated(operators[:-1], sides)
    if len(set(operators)) != 1 or operators[0] not in ("=", "in"):
        return None
    first, *others, last = sides
    if node.args[0][0] == "in":
        return None if others or first.kind != "symbol" else Name(first, last)
    if not others and is_name(last) and not is_name(first):
        first, last = last, first  # 2 = x
    if is_name(first):
        others = [other for other in others if not is_name(other)]
        return Name(first, last) if all(alike(other, last) for other in others) else None
    if first.kind in SCALARS and last.kind in SCALARS and not symbols(first) and not symbols(last):
        sides = [first, *others]
        return Name(None, last) if all(alike(side, last) for side in sides) else None
    return None


def _total(node: Node) -> Node | None:
    """The value of `m + n = 42`, the sum of several symbols."""
    if node.kind != "relation" or set(node.args[0]) != {"="}:
        return None
    left, *between, right = node.args[1]
    if any(side.kind not in SCALARS or not alike(right, side) for side in between):
        return None
    if left.kind not in SCALARS or right.kind not in SCALARS or symbols(right):
        return None
    terms = left.args if left.kind == "add" else ()
    names = {term for term in terms if term.kind == "symbol"}
    return right if len(names) == len(terms) > 1 else None


def _approximated(operators: Sequence[str], sides: Sequence[Node]) -> Name | None:
    """The name and value of a relation whose last side is an approximation."""
    *exact, last = sides
    name = named(Node("relation", (tuple(operators), tuple(exact)))) if operators else None
    if name is None and not operators:
        name = Name(exact[0], last) if is_name(exact[0]) else Name(None, exact[0])
    if name is None or name.value.kind not in SCALARS or last.kind not in SCALARS:
        return None
    value, rounded = order(name.value), order(last)
    return name if abs(value - rounded) <= abs(value) / 100 else None


def is_name(node: Node) -> bool:
    """Whether an equation may define it: x, f(x), AB, |S|, `Area`, dy/dx."""
    if node.kind == "apply" and node.args[0] == "abs":  # of a set, or the length of AB
        return _is_points(node.args[1])
    if node.kind == "ratio" or (node.kind == "divide" and all(map(_is_points, node.args))):
        return all(map(_is_points, node.args))
    if node.kind == "apply":
        return node.args[0] not in KNOWN and len(node.args) <= 4
    if node.kind == "tuple":
        return node.args[:2] == ("(", ")") and all(part.kind == "symbol" for part in node.args[2])
    if node.kind == "word":
        return names_value(node.args[0])
    return node.kind == "symbol" or _is_derivative(node) or _is_segment(node)


def _is_derivative(node: Node) -> bool:
    """Whether it is dy/dx."""
    if node.kind != "divide":
        return False
    return all(
        part.kind == "multiply" and part.args[0] == Node("symbol", ("d",)) and len(part.args) == 2
        for part in node.args
    )


def _is_points(node: Node) -> bool:
    """Whether it is named by a capital letter, or is the length AB."""
    return _is_segment(node) or (node.kind == "symbol" and node.args[0][:1].isupper())


def _is_segment(node: Node) -> bool:
    """Whether it is the length AB or the point set ABC."""
    parts = list(node.args) if node.kind == "multiply" else []
    while parts and parts[0].kind == "multiply":
        parts[:1] = parts[0].args
    return bool(parts) and all(p.kind == "symbol" and p.args[0][:1].isupper() for p in parts)


def _record(node: Node) -> list[Name] | None:
    """The named values of `x = 2, y = 3`."""
    if node.kind != "list" or len(node.args) < 2:
        return None
    names = [named(item) for item in node.args]
    if any(name is None or name.name is None for name in names):
        return None
    return sorted((name for name in names if name is not None), key=lambda name: repr(name.name))


def _same_record(record: list[Name] | None, gold: Node, answer: Node) -> bool:
    other = _record(answer)
    if record and other:
        return _same_items(gold.args, answer.args)
    if record is None:
        assert other is not None
        values: Sequence[Node] = [name.value for name in other]
        if gold.kind == "tuple" and gold.args[:2] == ("(", ")"):
            return _in_order(gold.args[2], values)
        return gold.kind in _COLLECTIONS and _same_items(gold.args, values)
    values = [name.value for name in record]
    if answer.kind == "tuple" and answer.args[:2] == ("(", ")"):
        return _in_order(values, answer.args[2])
    return answer.kind == "list" and _in_order(values, answer.args)


def _spread(node: Node) -> Node:
    """A list of values for one with ±, and for `n = 2, 3, 4` or `a = 1 or a = -2`."""
    if node.kind in SCALARS and signs(node):
        return Node("list", (with_sign(node, 1), with_sign(node, -1)))
    if node.kind == "relation" and any(
        side.kind in SCALARS and signs(side) for side in node.args[1]
    ):
        operators, sides = node.args
        if operators == ("=",) and is_name(sides[0]):
            return Node("relation", (operators, (sides[0], _spread(sides[1]))))
        raise Unreadable("± in a relation")
    if node.kind not in _COLLECTIONS or len(node.args) < 2:
        return node
    items: list[Node] = []
    for item in node.args:
        spread = _spread(item) if item.kind in SCALARS and signs(item) else item
        items += spread.args if spread is not item else [item]
    names = [named(item) for item in items]
    first = names[0]
    if first is None or first.name is None or node.kind == "set":
        return Node(node.kind, tuple(items))
    if all(name is None for name in names[1:]) and all(i.kind in SCALARS for i in items[1:]):
        return _equation(first.name, [first.value, *items[1:]])
    if all(name is not None and name.name == first.name for name in names[1:]):
        values = [name.value for name in names if name is not None]
        return _equation(first.name, values)
    return Node(node.kind, tuple(items))


def _equation(name: Node, values: Sequence[Node]) -> Node:
    return Node("relation", (("=",), (name, Node("list", tuple(values)))))


# Relations


def _same_relation(gold: Node, answer: Node) -> bool:
    """Whether two relations with two sides each are equivalent, up to a constant factor."""
    if gold.kind != "relation" or answer.kind != "relation":
        return False
    if (one := region(gold, is_name)) is not None and (two := region(answer, is_name)) is not None:
        return one.equals(two)
    if len(gold.args[0]) != 1 or len(answer.args[0]) != 1:
        signs_alike = gold.args[0] == answer.args[0]
        return signs_alike and _in_order(gold.args[1], answer.args[1])
    (sign,), (other_sign,) = gold.args[0], answer.args[0]
    if _is_constant(gold) or _is_constant(answer):  # 3 > 2 is a different statement than 5 > 4
        sides = answer.args[1] if sign == other_sign else answer.args[1][::-1]
        return other_sign in (sign, FLIPPED.get(sign)) and _in_order(gold.args[1], sides)
    left, right = (_difference(node) for node in (gold, answer))
    if left is None or right is None:
        return sign == other_sign and _in_order(gold.args[1], answer.args[1])
    factor = ratio(left, right)
    if factor is None:
        return False
    return bool(other_sign == (sign if factor > 0 else FLIPPED.get(sign)))


def _is_constant(relation: Node) -> bool:
    return all(side.kind in SCALARS and not symbols(side) for side in relation.args[1])


def _difference(relation: Node) -> Node | None:
    left, right = relation.args[1]
    if left.kind not in SCALARS or right.kind not in SCALARS:
        return None
    return Node("add", (left, Node("negate", (right,))))


def _same_congruence(gold: Node, answer: Node) -> bool:
    name, value, modulus = gold.args
    other_name, other, other_modulus = answer.args
    if name is not None and other_name is not None and not alike(name, other_name):
        return False
    if not equal(modulus, other_modulus):
        return False
    x = constant(value)
    y = constant(other)
    m = constant(modulus)
    if not all(isinstance(number, Fraction) for number in (x, y, m)) or m == 0:
        raise Unreadable("a congruence of numbers that are not rational")
    return bool(((x - y) / m).denominator == 1)
