"""Sets of real numbers: intervals, inequalities, single points, and combinations of them.

A set is described by a few numbers that it does or does not contain: all of its ends, and one
number in each gap between them. Two sets are equal if they agree on the ends and gaps of both.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from tasks.marking.latex import SCALARS, Node
from tasks.marking.tokens import HOLDS, Unreadable
from tasks.marking.values import order, symbols

_MIRRORED = str.maketrans("<>", "><")
FLIPPED = {sign: sign.translate(_MIRRORED) for sign in (*HOLDS, "=")}  # with its sides swapped
INFINITY = Node("constant", ("infinity",))
MINUS_INFINITY = Node("negate", (INFINITY,))


class Region(NamedTuple):
    """A set of real numbers: its ends, which numbers it contains, and the name of its variable.

    `definite`: whether the answer can only be a set; (1, 2) may be a point.
    """

    ends: frozenset[Fraction]
    contains: Callable[[Fraction], bool]
    name: Node | None = None
    definite: bool = True

    def samples(self, other: "Region | None" = None) -> list[Fraction]:
        """All ends of this set and another, and a number in each gap."""
        ends = sorted(self.ends | (other.ends if other is not None else frozenset()))
        if not ends:
            return [Fraction(0)]
        gaps = [(a + b) / 2 for a, b in zip(ends, ends[1:], strict=False)]
        return [ends[0] - 1, *ends, *gaps, ends[-1] + 1]

    def equals(self, other: "Region") -> bool:
        """Whether both are the same set, with the same variable if both name one."""
        if self.name is not None and other.name is not None and self.name != other.name:
            return False
        return all(self.contains(x) == other.contains(x) for x in self.samples(other))

    @property
    def is_empty(self) -> bool:
        """Whether it contains no number."""
        return not any(map(self.contains, self.samples()))


REALS = Region(frozenset(), lambda x: True)


def region(node: Node, is_name: Callable[[Node], bool]) -> Region | None:
    """The set of real numbers in an answer; None if it has no set, or a set with symbols.

    `is_name`: whether a scalar names the variable of an inequality.
    """
    try:
        return _region(node, is_name)
    except Unreadable:
        return None


def is_infinite(node: Node) -> bool:
    """Whether it is ∞ or -∞."""
    return node in (INFINITY, MINUS_INFINITY)


def _region(node: Node, is_name: Callable[[Node], bool]) -> Region | None:
    if node.kind == "reals":
        return REALS
    if node.kind == "tuple" and len(node.args[2]) == 2:
        return _interval(*node.args)
    if node.kind == "set" and all(item.kind in SCALARS and not symbols(item) for item in node.args):
        points = frozenset(map(order, node.args))
        return Region(points, points.__contains__, definite=not points)
    if node.kind == "relation":
        return _inequality(node, is_name)
    if node.kind in ("union", "intersection", "difference"):
        return _combined(node.kind, [_region(part, is_name) for part in node.args])
    if node.kind in ("or", "list") and all(item.kind == "relation" for item in node.args):
        parts = [_region(item, is_name) for item in node.args]
        if any(part is None or not part.definite for part in parts):
            return None
        both = _combined("intersection", parts) if node.kind == "list" else None
        return _combined("union", parts) if both is None or both.is_empty else both
    return None


def _interval(opening: str, closing: str, ends: Sequence[Node]) -> Region | None:
    if (
        any(end.kind not in SCALARS for end in ends)
        or ends[0] == INFINITY
        or ends[1] == MINUS_INFINITY
    ):
        return None
    low, high = (None if is_infinite(end) else order(end) for end in ends)

    def contains(x: Fraction) -> bool:
        above = low is None or x > low or (x == low and opening == "[")
        return above and (high is None or x < high or (x == high and closing == "]"))

    unbounded = low is None or high is None
    definite = unbounded or (opening, closing) not in (("(", ")"), ("[", "]"))
    interval = Region(frozenset({low, high} - {None}), contains, definite=definite)  # type: ignore[arg-type]
    return None if interval.is_empty else interval


def _inequality(node: Node, is_name: Callable[[Node], bool]) -> Region | None:
    signs, sides = node.args
    if signs == ("in",) and sides[0].kind == "symbol":
        inner = _region(sides[1], is_name)
        return None if inner is None else inner._replace(name=sides[0], definite=True)
    places = [i for i, side in enumerate(sides) if side.kind in SCALARS and symbols(side)]
    if len(places) != 1 or any(side.kind not in SCALARS for side in sides):
        return None
    (place,) = places
    half_lines = []
    for i, sign in enumerate(signs):
        if place not in (i, i + 1) or sign not in HOLDS:
            return None
        sign, bound = (sign, sides[i + 1]) if i == place else (FLIPPED[sign], sides[i])
        half_lines.append(_half_line(sign, bound))
    both = _combined("intersection", half_lines)
    name = sides[place]
    if both is None or both.is_empty:
        return None
    if name.kind == "apply" and name.args[0] == "abs" and name.args[1].kind == "symbol":
        ends = frozenset(sign * end for end in both.ends for sign in (1, -1)) | {Fraction(0)}
        return Region(ends, lambda x: both.contains(abs(x)), name.args[1])
    return both._replace(name=name) if is_name(name) else None


def _half_line(sign: str, bound: Node) -> Region:
    if is_infinite(bound):
        return REALS
    end = order(bound)
    return Region(frozenset([end]), lambda x: HOLDS[sign](x, end))


def _combined(kind: str, regions: Sequence[Region | None]) -> Region | None:
    known = [part for part in regions if part is not None]
    variables = {part.name for part in known if part.name is not None}
    if len(known) < len(regions) or len(variables) > 1:
        return None
    first, *others = known

    def contains(x: Fraction) -> bool:
        if kind == "union":
            return any(part.contains(x) for part in known)
        return first.contains(x) and all(
            part.contains(x) == (kind == "intersection") for part in others
        )

    ends = frozenset[Fraction]().union(*(part.ends for part in known))
    return Region(ends, contains, variables.pop() if variables else None)
