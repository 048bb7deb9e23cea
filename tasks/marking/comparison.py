r"""Compares two answers: as values, equations, sets of numbers, tuples, lists or words.

What may be left out of an answer, or added to it, is the name of a value (the `x =` of `x = 5`),
and how a collection is written; order counts in tuples, not in sets and lists.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from tasks.marking.latex import SCALARS, Node, TooLarge, Unreadable, clean, read
from tasks.marking.values import constant, equal, order, ratio, signs, symbols, with_sign

_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{([^{}\\]{2,})\}")
_COLLECTIONS = ("list", "or", "set")
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_INFINITY = Node("constant", ("infinity",))
_MINUS_INFINITY = Node("negate", (_INFINITY,))


_read = lru_cache(1_000)(read)  # a prompt's answers, and its gold, are compared several times


def same(gold: str, answer: str) -> bool | None:
    """Whether two LaTeX texts are equal answers; None if `answer` cannot be read, but `gold` can.

    A gold that cannot be read equals no other text. Raises TooLarge.
    """
    try:
        expected = _read(gold)
    except Unreadable:
        return False
    if _is_text(gold) or _is_text(answer):
        one, two = (_plain(clean(_TEXT.sub(r"\1", text))) for text in (gold, answer))
        if one == two:
            return True
    try:
        if alike(expected, _read(answer)):
            return True
        if expected.kind in (*_COLLECTIONS, "tuple", "relation"):  # 18,150 may be two numbers
            return alike(expected, read(answer, grouped=False))
    except TooLarge:
        raise
    except Unreadable:
        return None
    return False


def _is_text(latex: str) -> bool:
    """Whether an answer is a word or two in `\\text{}`."""
    return _TEXT.fullmatch(latex.strip()) is not None


def alike(gold: Node, answer: Node) -> bool:
    """Whether an answer is equal to the gold. Raises Unreadable."""
    gold, answer = _spread(gold), _spread(answer)
    named_gold, named_answer = named(gold), named(answer)
    if named_gold and named_answer:
        if named_gold.name == named_answer.name:
            return alike(named_gold.value, named_answer.value)
        return _same_relation(gold, answer)
    if named_answer and gold.kind != "relation":
        return alike(gold, named_answer.value)
    if gold.kind in SCALARS and (total := _total(answer)) is not None:
        return alike(gold, total)
    if named_gold and answer.kind != "relation":
        return alike(named_gold.value, answer)
    if "based" in (gold.kind, answer.kind):
        return gold == answer or _same_based(gold, answer)
    if gold.kind == answer.kind == "negate" and "based" in (gold.args[0].kind, answer.args[0].kind):
        return alike(gold.args[0], answer.args[0])
    if gold.kind in SCALARS and answer.kind in SCALARS:
        return _same_scalar(gold, answer)
    if (one := _record(gold)) or _record(answer):
        return _same_record(one, gold, answer)
    region, other = _region(gold), _region(answer)
    if region is not None and other is not None and (region.definite or other.definite):
        return _same_region(region, other)
    return _same_structure(gold, answer)


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
        return _in_order(gold.args, answer.args)
    if gold.kind == "matrix":
        return len(gold.args) == len(answer.args) and all(
            _in_order(*rows) for rows in zip(gold.args, answer.args, strict=True)
        )
    if gold.kind == "word":
        return _plain(gold.args[0]) == _plain(answer.args[0])
    return gold.kind in ("dots", "reals", "numbers") and gold == answer


def _plain(word: str) -> str:
    return " ".join(word.casefold().split()).strip(".,;:!")


def _in_order(one: Sequence[Node], two: Sequence[Node]) -> bool:
    return len(one) == len(two) and all(alike(a, b) for a, b in zip(one, two, strict=True))


def _same_items(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    """Whether two lists have equal items; in any order, but of a sequence with dots."""
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
    if _is_infinite(gold) or _is_infinite(answer):
        return gold == answer
    return equal(gold, answer) or _rounded_gold(gold, answer)


def _is_infinite(node: Node) -> bool:
    return node in (_INFINITY, _MINUS_INFINITY)


def _rounded_gold(gold: Node, answer: Node) -> bool:
    """Whether the gold is a decimal of seven digits or more that rounds an irrational answer."""
    if gold.kind != "number" or symbols(answer):
        return False
    value, exact = gold.args[0], constant(answer)
    digits = next((n for n in range(6, 20) if (value * 10**n).denominator == 1), None)
    if digits is None or (value * 10**5).denominator == 1 or isinstance(exact, Fraction):
        return False
    return bool(abs(exact - float(value)) <= 0.5 * 10.0**-digits)


def _same_based(gold: Node, answer: Node) -> bool:
    """A base may be left out of an answer; without one in the gold, the values are compared."""
    based, other = (gold, answer) if gold.kind == "based" else (answer, gold)
    if other.kind != "number":
        return False
    if gold.kind == "based":
        return bool(str(other.args[0]) == based.args[0])
    digits, base = based.args
    if not 2 <= base <= 10 or any(int(digit) >= base for digit in digits):
        raise Unreadable("digits that the base does not have")
    return bool(int(digits, int(base)) == other.args[0])


# Names: x = 5


class Name(NamedTuple):
    name: Node | None
    value: Node


def named(node: Node) -> Name | None:
    """The name and the value of `x = 5`, `x = 2 + 3 = 5`, `x ∈ {1, 2}`, or `2 + 3 = 5`.

    Of `π/2 ≈ 1.57` the exact value.
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
    if _is_name(first):
        others = [other for other in others if not _is_name(other)]
        return Name(first, last) if all(alike(other, last) for other in others) else None
    if first.kind in SCALARS and last.kind in SCALARS and not symbols(first) and not symbols(last):
        sides = [first, *others]
        return Name(None, last) if all(alike(side, last) for side in sides) else None
    return None


def _total(node: Node) -> Node | None:
    """The value of `m + n = 42`: of several symbols, none is what the equation is solved for."""
    if node.kind != "relation" or node.args[0] != ("=",):
        return None
    left, right = node.args[1]
    if left.kind not in SCALARS or right.kind not in SCALARS or symbols(right):
        return None
    return right if len(symbols(left)) > 1 else None


def _approximated(operators: Sequence[str], sides: Sequence[Node]) -> Name | None:
    """The name and value of a relation whose last side is an approximation."""
    *exact, last = sides
    name = named(Node("relation", (tuple(operators), tuple(exact)))) if operators else None
    if name is None and not operators:
        name = Name(exact[0], last) if _is_name(exact[0]) else Name(None, exact[0])
    if name is None or name.value.kind not in SCALARS or last.kind not in SCALARS:
        return None
    value, rounded = order(name.value), order(last)
    return name if abs(value - rounded) <= abs(value) / 100 else None


def _is_name(node: Node) -> bool:
    if node.kind == "apply":
        return node.args[0] not in ("root", "binom", "abs") and len(node.args) <= 4
    if node.kind == "tuple":
        return node.args[:2] == ("(", ")") and all(part.kind == "symbol" for part in node.args[2])
    return node.kind in ("symbol", "word") or _is_derivative(node) or _is_segment(node)


def _is_derivative(node: Node) -> bool:
    """Whether it is dy/dx."""
    if node.kind != "divide":
        return False
    return all(
        part.kind == "multiply" and part.args[0] == Node("symbol", ("d",)) and len(part.args) == 2
        for part in node.args
    )


def _is_segment(node: Node) -> bool:
    """Whether it is the length AB, the point sets ABC."""
    parts = list(node.args) if node.kind == "multiply" else []
    while parts and parts[0].kind == "multiply":
        parts[:1] = parts[0].args
    return bool(parts) and all(p.kind == "symbol" and p.args[0][:1].isupper() for p in parts)


def _record(node: Node) -> list[Name] | None:
    """The named values of `x = 2, y = 3`."""
    if node.kind not in ("list", "or") or len(node.args) < 2:
        return None
    names = [named(item) for item in node.args]
    if any(name is None or name.name is None for name in names):
        return None
    return [name for name in names if name is not None]


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
    """A list of values instead of one with ±, and of `n = 2, 3, 4` or `a = 1 or a = -2`."""
    if node.kind in SCALARS and signs(node):
        return Node("list", (with_sign(node, 1), with_sign(node, -1)))
    if node.kind == "relation" and any(
        side.kind in SCALARS and signs(side) for side in node.args[1]
    ):
        operators, sides = node.args
        if operators == ("=",) and _is_name(sides[0]):
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
    """Whether two relations between two sides each say the same, up to a constant factor."""
    if gold.kind != "relation" or answer.kind != "relation":
        return False
    if (region := _region(gold)) is not None and (other := _region(answer)) is not None:
        return _same_region(region, other)
    if len(gold.args[0]) != 1 or len(answer.args[0]) != 1:
        signs_alike = gold.args[0] == answer.args[0]
        return signs_alike and _in_order(gold.args[1], answer.args[1])
    (sign,), (other_sign,) = gold.args[0], answer.args[0]
    one, two = (_difference(node) for node in (gold, answer))
    if one is None or two is None:
        return sign == other_sign and _in_order(gold.args[1], answer.args[1])
    factor = ratio(one, two)
    if factor is None:
        return False
    return bool(other_sign == (sign if factor > 0 else _FLIPPED.get(sign)))


def _difference(relation: Node) -> Node | None:
    left, right = relation.args[1]
    if left.kind not in SCALARS or right.kind not in SCALARS:
        return None
    return Node("add", (left, Node("negate", (right,))))


def _same_congruence(gold: Node, answer: Node) -> bool:
    (name, value, modulus), (other_name, other, other_modulus) = gold.args, answer.args
    if name is not None and other_name is not None and not alike(name, other_name):
        return False
    if not equal(modulus, other_modulus):
        return False
    x, y, m = constant(value), constant(other), constant(modulus)
    if not all(isinstance(number, Fraction) for number in (x, y, m)) or m == 0:
        raise Unreadable("a congruence of other than rational numbers")
    return bool(((x - y) / m).denominator == 1)


# Sets of real numbers


class _End(NamedTuple):
    """A finite end of an interval: where it lies, and the scalar."""

    place: Fraction
    node: Node


class _Part(NamedTuple):
    """An interval: ends, and whether each belongs to it; an end of None is infinite."""

    low: _End | None
    low_closed: bool
    high: _End | None
    high_closed: bool


class _Region(NamedTuple):
    """A union of intervals in order, the name of its variable, and if it can be nothing else."""

    name: Node | None
    parts: tuple[_Part, ...]
    definite: bool


_EVERYTHING = _Part(None, False, None, False)


def _region(node: Node) -> _Region | None:
    """The set of real numbers that a node says; None if it says none, or one without numbers."""
    try:
        return _region_of(node)
    except Unreadable:
        return None


def _region_of(node: Node) -> _Region | None:
    if node.kind == "reals":
        return _Region(None, (_EVERYTHING,), True)
    if node.kind == "tuple" and len(node.args[2]) == 2:
        return _interval(*node.args)
    if node.kind == "set" and all(item.kind in SCALARS and not symbols(item) for item in node.args):
        points = [_End(order(item), item) for item in node.args]
        return _Region(None, _joined([_Part(p, True, p, True) for p in points]), not points)
    if node.kind == "relation":
        return _relation_region(node)
    if node.kind in ("union", "intersection", "difference"):
        return _combined(node.kind, [_region_of(part) for part in node.args])
    if node.kind in ("or", "list") and all(item.kind == "relation" for item in node.args):
        regions = [_region_of(item) for item in node.args]
        if any(region is None or not region.definite for region in regions):
            return None
        if node.kind == "or":
            return _combined("union", regions)
        both = _combined("intersection", regions)
        return both if both is not None and both.parts else _combined("union", regions)
    return None


def _interval(opening: str, closing: str, ends: Sequence[Node]) -> _Region | None:
    if any(end.kind not in SCALARS for end in ends):
        return None
    if ends[0] == _INFINITY or ends[1] == _MINUS_INFINITY:
        return None
    low, high = (None if _is_infinite(end) else _End(order(end), end) for end in ends)
    part = _Part(low, opening == "[" and low is not None, high, closing == "]" and high is not None)
    if _is_empty(part):
        return None
    unbounded = low is None or high is None
    return _Region(None, (part,), unbounded or (opening, closing) not in (("(", ")"), ("[", "]")))


def _relation_region(node: Node) -> _Region | None:
    operators, sides = node.args
    if operators == ("in",) and sides[0].kind == "symbol":
        inner = _region_of(sides[1])
        return None if inner is None else _Region(sides[0], inner.parts, True)
    places = [i for i, side in enumerate(sides) if side.kind in SCALARS and symbols(side)]
    if len(places) != 1 or any(side.kind not in SCALARS for side in sides):
        return None
    (place,) = places
    name, regions = sides[place], []
    for i, operator in enumerate(operators):
        if place not in (i, i + 1) or operator in ("=", "in"):
            return None
        regions.append(
            _half_line(operator, sides[i + 1])
            if i == place
            else _half_line(_FLIPPED[operator], sides[i])
        )
    both = _combined("intersection", regions)
    if both is None or not both.parts:
        return None
    if name.kind == "apply" and name.args[0] == "abs" and name.args[1].kind == "symbol":
        return _absolute(name.args[1], both)
    return _Region(name, both.parts, True) if _is_name(name) else None


def _half_line(operator: str, bound: Node) -> _Region:
    if _is_infinite(bound):
        return _Region(None, (_EVERYTHING,), True)
    end, closed = _End(order(bound), bound), operator in ("<=", ">=")
    below, above = _Part(None, False, end, closed), _Part(end, closed, None, False)
    if operator == "!=":
        return _Region(None, (below, above), True)
    return _Region(None, (above if operator in (">", ">=") else below,), True)


def _absolute(name: Node, region: _Region) -> _Region:
    """The region of x, of that of |x|."""
    zero = _half_line(">=", Node("number", (Fraction(0),)))
    positive = _combined("intersection", [region, zero])
    assert positive is not None

    def mirrored(end: _End | None) -> _End | None:
        return None if end is None else _End(-end.place, Node("negate", (end.node,)))

    others = [
        _Part(mirrored(part.high), part.high_closed, mirrored(part.low), part.low_closed)
        for part in positive.parts
    ]
    return _Region(name, _joined([*others, *positive.parts]), True)


def _combined(kind: str, regions: Sequence[_Region | None]) -> _Region | None:
    known = [region for region in regions if region is not None]
    names = {region.name for region in known if region.name is not None}
    if len(known) < len(regions) or len(names) > 1:
        return None
    name = names.pop() if names else None
    if kind == "union":
        return _Region(name, _joined([part for region in known for part in region.parts]), True)
    parts = known[0].parts
    for region in known[1:]:
        others = region.parts if kind == "intersection" else _complement(region.parts)
        parts = tuple(part for a in parts for b in others if not _is_empty(part := _meet(a, b)))
    return _Region(name, _joined(parts), True)


def _is_empty(part: _Part) -> bool:
    if part.low is None or part.high is None:
        return False
    gap = part.high.place - part.low.place
    return gap < 0 or (gap == 0 and not (part.low_closed and part.high_closed))


def _by_low(part: _Part) -> tuple[Any, ...]:
    return (0,) if part.low is None else (1, part.low.place, not part.low_closed)


def _by_high(part: _Part) -> tuple[Any, ...]:
    return (1,) if part.high is None else (0, part.high.place, part.high_closed)


def _joined(parts: Sequence[_Part]) -> tuple[_Part, ...]:
    """The same set in order, of intervals that do not touch."""
    result: list[_Part] = []
    for part in sorted(parts, key=_by_low):
        last = result[-1] if result else None
        if last is None or _is_gap(last, part):
            result.append(part)
        elif _by_high(part) > _by_high(last):
            result[-1] = last._replace(high=part.high, high_closed=part.high_closed)
    return tuple(result)


def _is_gap(one: _Part, two: _Part) -> bool:
    if one.high is None or two.low is None:
        return False
    gap = two.low.place - one.high.place
    return gap > 0 or (gap == 0 and not (one.high_closed or two.low_closed))


def _meet(a: _Part, b: _Part) -> _Part:
    low, high = max(a, b, key=_by_low), min(a, b, key=_by_high)
    return _Part(low.low, low.low_closed, high.high, high.high_closed)


def _complement(parts: Sequence[_Part]) -> list[_Part]:
    result: list[_Part] = []
    rest = _EVERYTHING
    for part in parts:
        if part.low is not None:
            result.append(rest._replace(high=part.low, high_closed=not part.low_closed))
        if part.high is None:
            return result
        rest = _Part(part.high, not part.high_closed, None, False)
    return [*result, rest]


def _same_region(one: _Region, two: _Region) -> bool:
    if one.name is not None and two.name is not None and one.name != two.name:
        return False
    return len(one.parts) == len(two.parts) and all(
        a.low_closed == b.low_closed
        and a.high_closed == b.high_closed
        and _same_end(a.low, b.low)
        and _same_end(a.high, b.high)
        for a, b in zip(one.parts, two.parts, strict=True)
    )


def _same_end(one: _End | None, two: _End | None) -> bool:
    if one is None or two is None:
        return one is two
    return equal(one.node, two.node)
