"""Values of scalars: rationals exactly, other numbers to a precision that follows their size.

Two scalars with symbols are equal if they have the same values at a few points. Nothing is
simplified, so the work is bounded by the length of a text and the limits below; it does not depend
on the machine.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from mpmath import MPContext
from mpmath.libmp import ComplexResult

from tasks.marking.latex import SCALARS, TRIGONOMETRIC, Node, TooLarge
from tasks.marking.tokens import OF_SEVERAL, Unreadable

MAX_BITS = 200_000  # of an exact number
MAX_WORK = 4_000_000  # total bits of all exact numbers and functions' values
ROOT_WORK = 60  # of an exact root, for each bit of its radicand
FUNCTION_WORK = 20  # exact numbers of this precision, about
MAX_FACTORIAL = 20_000
MIN_PRECISION, MAX_PRECISION = 256, 16_000  # bits
CONFIRMED = 2_048, 12_000  # bits at which values that seem equal are compared again
TOTAL_WORK = 16_000_000  # as MAX_WORK, for all points together
MAX_EXPONENT = 64  # arguments of functions are below 2 to this
POINTS = 8  # points at which scalars with symbols are compared
STEPPED_POINTS = 24  # points for functions that are constant or piecewise on intervals
STEPPED = OF_SEVERAL | {"abs", "floor", "ceil", "bracket"}
SCALES = (4, 4, 60, 60, 4, 4, 2_000, 2_000)  # of the values at one point after the other
DIVISIBLE = 30_030  # divisible by all products of different primes up to 13
_WHOLE = frozenset("nkmjNM")  # letters that stand for positive integers
_local = threading.local()


class Undefined(ArithmeticError):
    """There is no value: a division by zero, the logarithm of zero."""


Value = Any  # a Fraction, or a real or complex number of mpmath


def equal(one: Node, two: Node) -> bool:
    """Whether two scalars are equal, the first as the gold. Raises Unreadable and TooLarge.

    With symbols: whether they are equal at points that a hash of both chooses. Two different
    polynomials of degree d agree at all of them with a probability below (d / 400) ** 4. Scalars
    with a function of `STEPPED` that differ on a fraction p of the points pass with probability (1
    - p) ** 12.
    """
    used = {n.args[0] for n in applications(one)}  # an answer alone has one meaning
    plain_logarithms = any(n.args[0] == "log" and len(n.args) == 2 for n in applications(one))
    _local.work = 0  # counted for this comparison alone: marks do not depend on earlier ones
    try:
        return any(
            _equal_in(one, two, Reading(base, bracket))
            for base in (("e", "10") if plain_logarithms else ("e",))
            for bracket in (("", "floor") if used & {"bracket", "floor"} else ("",))
        )
    finally:
        _local.work = None


class Reading(NamedTuple):
    """The readings of ambiguous notation: `log` by its base, and `[x]` as x or as its floor."""

    base: str = "e"
    bracket: str = ""


USUAL = Reading()


def _equal_in(one: Node, two: Node, reading: Reading) -> bool:
    used = {n.args[0] for n in applications(one, two)}
    names = symbols(one) | symbols(two)
    imaginary = any(n.kind == "constant" and n.args[0] == "i" for n in _nodes(one, two))
    points = STEPPED_POINTS if used & STEPPED else POINTS
    if not names:
        points = 1
    key = _key_of(one, two) if names else ""
    compared = list[Point]()
    complex_results = []
    too_large = None
    for trial in range(points):
        _local.complex = False
        try:
            point = Point(key, trial)
            pair = values(one, two, point, reading)
        except Undefined:
            continue
        except TooLarge as error:  # 2^n at a large n; the first points are small
            if trial < 2:
                raise
            too_large = error
            continue
        same = _same(*pair)
        if not imaginary and names and _local.complex:
            complex_results.append(same)  # usually outside the intended domain: the root of -2
            continue
        if not same:
            return False
        compared.append(point)
    if len(compared) < 2 and too_large is not None:
        raise too_large
    if not compared and complex_results:
        return all(complex_results)
    if not compared:
        raise Unreadable("it has no value")
    return _is_confirmed(one, two, compared[0], reading)


def _key_of(one: Node, two: Node) -> str:
    """A hash of both scalars, in any order: it chooses the points."""
    return hashlib.sha256("".join(sorted((repr(one), repr(two)))).encode()).hexdigest()


class Point(NamedTuple):
    """A choice of a value for every symbol: its key and its number."""

    key: str = ""
    trial: int = 0

    def value(self, name: str) -> Fraction:
        """The value of a symbol. In pairs of points, symbols have both orders and parities."""
        digest = hashlib.sha256(f"{name}/{self.key}/{self.trial // 2}".encode()).digest()
        scale = SCALES[self.trial % len(SCALES)]
        second = self.trial % 2
        number = int.from_bytes(digest[:4], "big")
        if name in _WHOLE:
            if self.trial >= len(SCALES) and self.trial % 8 == 7:
                return Fraction(DIVISIBLE * (1 + digest[4] % 7))
            whole = 2 + number % (3 * scale)
            return Fraction(whole if not second else 2 * (1 + 3 * scale) + 1 - whole)
        value = Fraction(1 + number % (400 * scale), 401)
        if second:
            value = scale + Fraction(1, 401) - value
        # Half of the points have random signs, the others are positive.
        return -value if self.trial % 4 > 1 and digest[5] % 2 != second else value


ANY = Point()


def _is_confirmed(one: Node, two: Node, point: Point, reading: Reading) -> bool:
    """Whether two seemingly equal values are equal at a higher precision: e^200 is not e^200 + 1.

    Raises TooLarge if that takes too much work, so that the answer is unknown.
    """
    pair = values(one, two, point, reading)
    if all(isinstance(value, Fraction) for value in pair):
        return bool(pair[0] == pair[1])
    context = _context()
    sizes = [context.mag(v) for v in pair if not isinstance(v, Fraction)]
    size = max((abs(int(size)) for size in sizes if context.isfinite(size)), default=0)
    precision = min(CONFIRMED[1], max(CONFIRMED[0], 4 * size))
    return _same(*values(one, two, point, reading, precision))


def constant(node: Node) -> Value:
    """The value of a scalar without symbols. Raises Unreadable."""
    if symbols(node):
        raise Unreadable("it has symbols")
    try:
        return values(node, node)[0]
    except Undefined as error:
        raise Unreadable("it has no value") from error


def distance(one: Value, two: Value) -> Value:
    """The absolute difference of two values."""
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return abs(one - two)
    context = _context()
    return abs(_number(one, context) - _number(two, context))


def order(node: Node) -> Fraction:
    """The sort key of a real scalar: its value, to 200 bits. Raises Unreadable."""
    value = constant(node)
    if isinstance(value, Fraction):
        return value
    if _is_complex(value) or not _context().isfinite(value):
        raise Unreadable("it is not among the real numbers")
    real = value.real
    mantissa, exponent = int(real.man), int(real.exp)  # of the absolute value
    if (excess := mantissa.bit_length() - 200) > 0:  # equal values differ in the last bits
        mantissa = (mantissa + (1 << (excess - 1))) >> excess
        exponent = exponent + excess
    return Fraction(mantissa if real > 0 else -mantissa) * Fraction(2) ** exponent


def first_digits(node: Node) -> str:
    """The first digits of a scalar at the first point at which scalars are compared.

    Scalars with different digits are not equal; "" if that is not certain. Raises Undefined,
    Unreadable and TooLarge.
    """
    many_digits = node.kind == "number" and (node.args[0] * 10**5).denominator > 1
    if node.kind not in SCALARS - {"percent", "based"} or many_digits:
        return ""
    if any(n.args[0] in ("log", "bracket") for n in applications(node)):  # of two readings
        return ""
    value = Evaluation(MIN_PRECISION).of(node)
    if not isinstance(value, Fraction):
        value = values(node, node)[0]
        if _is_complex(value) and not any(n == Node("constant", ("i",)) for n in _nodes(node)):
            return ""
    try:
        digits = [
            float(part) if abs(part) > abs(value) * 2.0**-100 else 0.0
            for part in (value.real, value.imag)
        ]
    except OverflowError:
        return ""
    exact = all(not part or 1e-300 < abs(part) < math.inf for part in digits)
    return " ".join(f"{part:.5e}" for part in digits) if exact else ""


def ratio(one: Node, two: Node) -> Fraction | int | None:
    """The sign of the constant c with one = c × two, or None if there is none, or it is 0.

    If there is one, both have the same zeros.
    """
    sign = None
    key = _key_of(one, two)
    for trial in range(POINTS):
        try:
            (x, y), (p, q) = (values(one, two, Point(key, t)) for t in (trial, trial + 1))
        except Undefined:
            continue
        if any(_is_complex(v) for v in (x, y, p, q)) or _is_zero(y) or _is_zero(q):
            continue
        if _is_zero(x) or _is_zero(p) or not _same(_times(x, q), _times(p, y)):
            return None
        sign = 1 if (x > 0) == (y > 0) else -1
    return sign


def values(
    one: Node,
    two: Node,
    point: Point = ANY,
    reading: Reading = USUAL,
    precision: int = MIN_PRECISION,
) -> tuple[Value, Value]:
    """Both values at a point, with the precision that their size requires."""
    while True:
        evaluation = Evaluation(precision, point, reading)
        result = evaluation.of(one), evaluation.of(two)
        inexact = [value for value in result if not isinstance(value, Fraction)]
        if not inexact or precision >= 3 * evaluation.bits + MIN_PRECISION:
            break
        precision = 3 * evaluation.bits + MIN_PRECISION
        if precision > MAX_PRECISION:
            raise TooLarge("too large")
    x, y = result
    x = _settled(x, one, precision, point, reading)
    return x, _settled(y, two, precision, point, reading)


def _settled(value: Value, node: Node, precision: int, point: Point, reading: Reading) -> Value:
    """A value near 0 is 0 if a higher precision brings it nearer."""
    if isinstance(value, Fraction) or abs(value) > 2.0 ** -min(900, precision // 2) or value == 0:
        return value
    again = Evaluation(2 * precision, point, reading).of(node)
    _context().prec = precision
    if isinstance(again, Fraction) or abs(again) * 2 ** (precision // 2) > abs(value):
        return again
    return Fraction(0)


def _same(x: Value, y: Value) -> bool:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x == y
    context = _context()
    if not isinstance(x, Fraction) and not isinstance(y, Fraction) and x == y:
        return True  # also infinities
    precision = context.prec
    x, y = (_number(v, context) for v in (x, y))
    if context.isinf(x) or context.isinf(y):
        return bool(x == y)
    return bool(abs(x - y) <= max(abs(x), abs(y)) * context.mpf(2) ** -(2 * precision // 3))


def _times(x: Value, y: Value) -> Value:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    context = _context()
    return _number(x, context) * _number(y, context)


def _is_zero(x: Value) -> bool:
    return bool(x == 0)


def _is_complex(x: Value) -> bool:
    return not isinstance(x, Fraction) and bool(abs(x.imag) > abs(x) * 2.0**-100)


def _number(value: Value, context: Any) -> Any:
    if isinstance(value, Fraction):
        return context.mpf(value.numerator) / value.denominator
    return value


def _context() -> Any:
    """The mpmath context of this thread: mpmath's own is shared by all threads."""
    if not hasattr(_local, "context"):
        _local.context = MPContext()
    return _local.context


def _nodes(*roots: Node) -> Iterator[Node]:
    stack = list(roots)
    while stack:
        node = stack.pop()
        yield node
        stack += [part for part in node.args if isinstance(part, Node)]


def symbols(node: Node) -> set[str]:
    """The names of the symbols in a scalar, and of its unknown functions."""
    return {n.args[0] for n in _nodes(node) if n.kind == "symbol"} | {
        f"apply:{n.args[0]}" for n in applications(node) if n.args[0] not in KNOWN
    }


def applications(*roots: Node) -> list[Node]:
    """The functions' values in scalars."""
    return [node for node in _nodes(*roots) if node.kind == "apply"]


def signs(node: Node) -> bool:
    """Whether a scalar has a ± sign."""
    return any(n.kind == "sign" for n in _nodes(node))


def with_sign(node: Any, sign: int) -> Any:
    """The scalar for the upper (1) or lower (-1) signs."""
    if not isinstance(node, Node):
        return node
    args = tuple(with_sign(part, sign) for part in node.args)
    if node.kind == "sign":
        return args[1] if args[0] * sign > 0 else Node("negate", (args[1],))
    return Node(node.kind, args)


class Evaluation:
    """Evaluates scalars with one precision, at one point."""

    def __init__(self, precision: int, point: Point = ANY, reading: Reading = USUAL) -> None:
        self.context = _context()
        self.context.prec = precision
        self.point, self.reading = point, reading
        self.bits = 0  # bits of the exact numbers that were rounded
        self.work = 0
        self.degree: Value = Fraction(1)  # π/180 in the argument of a function

    def of(self, node: Node) -> Value:
        """The value of a scalar. Raises Undefined, Unreadable and TooLarge."""
        try:
            return self._exact(getattr(self, f"_{node.kind}")(*node.args))
        except (ZeroDivisionError, ComplexResult) as error:
            raise Undefined from error
        except OverflowError as error:
            raise TooLarge("too large") from error

    def _exact(self, value: Value) -> Value:
        if isinstance(value, Fraction):
            bits = value.numerator.bit_length() + value.denominator.bit_length()
            self._count(bits)
            if bits > MAX_BITS:
                raise TooLarge("too large")
        elif self.context.isnan(value):
            raise Undefined
        elif _is_complex(value):
            _local.complex = True
        return value

    def _count(self, bits: int) -> None:
        self.work += bits
        total = getattr(_local, "work", None)
        if total is not None:
            _local.work = total = total + bits
        if self.work > MAX_WORK or (total is not None and total > TOTAL_WORK):
            raise TooLarge("too much work")

    def _rounded(self, value: Value) -> Any:
        if isinstance(value, Fraction):
            bits = value.numerator.bit_length() + value.denominator.bit_length()
            self.bits = max(self.bits, bits)
            if bits > MAX_PRECISION:
                raise TooLarge("too large")
        return _number(value, self.context)

    def _both(self, one: Value, two: Value, operation: Callable[[Any, Any], Any]) -> Value:
        if isinstance(one, Fraction) and isinstance(two, Fraction):
            return operation(one, two)
        if any(not isinstance(x, Fraction) and self.context.isinf(x) for x in (one, two)):
            raise Unreadable("infinity is not a number")
        return operation(self._rounded(one), self._rounded(two))

    def _number(self, value: Fraction) -> Value:
        return value

    def _based(self, digits: str, base: Fraction) -> Value:
        if (
            not 2 <= base <= 10
            or base.denominator != 1
            or any(int(digit) >= base for digit in digits)
        ):
            raise Unreadable("digits that the base does not have")
        return Fraction(int(digits, int(base)))

    def _symbol(self, name: str) -> Value:
        return self.point.value(name)

    def _range(self, one: Fraction, two: Fraction) -> Value:
        return one - two

    def _constant(self, name: str) -> Value:
        context = self.context
        return {"pi": +context.pi, "e": +context.e, "i": context.j, "infinity": context.inf}[name]

    def _add(self, *terms: Node) -> Value:
        total: Value = Fraction(0)
        for term in terms:
            total = self._both(total, self.of(term), lambda x, y: x + y)
        return total

    def _multiply(self, *factors: Node) -> Value:
        product: Value = Fraction(1)
        for factor in factors:
            product = self._exact(self._both(product, self.of(factor), lambda x, y: x * y))
        return product

    def _divide(self, above: Node, below: Node) -> Value:
        x, y = self.of(above), self.of(below)
        if y == 0:
            raise Undefined
        return self._both(x, y, lambda x, y: x / y)

    def _negate(self, node: Node) -> Value:
        return -self.of(node)

    def _percent(self, node: Node) -> Value:
        return self._both(self.of(node), Fraction(100), lambda x, y: x / y)

    def _degree(self, node: Node) -> Value:
        return self._both(self.of(node), self.degree, lambda x, y: x * y)

    def _sign(self, sign: int, node: Node) -> Value:
        raise Unreadable("several values")

    def _power(self, base: Node, exponent: Node) -> Value:
        return self._raised(self.of(base), self.of(exponent))

    def _raised(self, x: Value, y: Value) -> Value:
        if isinstance(x, Fraction) and isinstance(y, Fraction):
            if x == 0 and y <= 0:
                raise Undefined
            if y.denominator == 1:
                size = max(x.numerator.bit_length(), x.denominator.bit_length())
                if abs(x) != 1 and x != 0 and size * abs(y) > MAX_BITS:
                    raise TooLarge("too large")
                return x ** int(y) if abs(x) != 1 or abs(y) < 2 else x ** int(y % 2 or 2)
            if x > 0 and y.denominator > 2:
                self._count(ROOT_WORK * sum(map(int.bit_length, x.as_integer_ratio())))
            if x > 0 and (root := exact_root(x, y.denominator)) is not None:
                return self._raised(root, Fraction(y.numerator))
        x, y = self._rounded(x), self._rounded(y)
        if x == 0:
            raise Undefined
        self._count(FUNCTION_WORK * self.context.prec)
        self._limit(y * self.context.log(x))
        return x**y

    def _limit(self, value: Any) -> None:
        if not self.context.isinf(value) and value != 0 and self.context.mag(value) > MAX_EXPONENT:
            raise TooLarge("too large")

    def _factorial(self, node: Node, double: bool) -> Value:
        n = self.of(node)
        if not isinstance(n, Fraction) or n.denominator != 1 or n < 0:
            raise Undefined
        if n > MAX_FACTORIAL:
            raise TooLarge("too large")
        return Fraction(math.prod(range(int(n), 0, -2)) if double else math.factorial(int(n)))

    def _apply(self, name: str, *arguments: Node) -> Value:
        if name in TRIGONOMETRIC and any(n.kind == "degree" for n in _nodes(*arguments)):
            self.degree = self.context.pi / 180
            angle = self.of(arguments[0])
            self.degree = Fraction(1)
            return self._function(name, [angle])
        values = [self.of(argument) for argument in arguments]
        if name == "bracket":
            return self._function("floor", values) if self.reading.bracket else values[0]
        if name in KNOWN:
            return self._function(name, values)
        if name.startswith("\\"):
            raise Unreadable(name)
        texts = []
        for value in values:
            if isinstance(value, Fraction):  # decimal digits would be limited
                texts.append(f"{value.numerator:x}/{value.denominator:x}")
            else:
                texts.append(self.context.nstr(value, 30))
        return self._symbol(f"{name}({','.join(texts)})")

    def _function(self, name: str, values: list[Value]) -> Value:
        if name == "binom" and all(isinstance(value, Fraction) for value in values):
            bits = sum(map(int.bit_length, values[0].as_integer_ratio()))
            terms = min(abs(int(values[1])), 2_000)
            self._count(bits * (terms if values[0].denominator == 1 else terms**2))
        elif name == "root" and isinstance(values[0], Fraction):
            self._count(ROOT_WORK * sum(map(int.bit_length, values[0].as_integer_ratio())))
        exact = _EXACT.get(name)
        if exact is not None and all(isinstance(value, Fraction) for value in values):
            result = exact(*values)
            if result is not None:
                return result
        if name not in _ROUNDED:
            raise Undefined
        numbers = [self._rounded(value) for value in values]
        self._count(FUNCTION_WORK * self.context.prec)
        if name in _GROWING:
            self._limit(numbers[0])
        if name == "log" and len(numbers) == 1 and self.reading.base == "10":
            numbers.append(self.context.mpf(10))
        if name in ("log", "ln", "lg") and any(number == 0 for number in numbers):
            raise Undefined
        return _ROUNDED[name](self.context, *numbers)


def exact_root(value: Fraction, degree: int) -> Fraction | None:
    """The root of a positive rational, if it is rational."""
    if degree > 64:
        return None
    parts = [_integer_root(part, degree) for part in value.as_integer_ratio()]
    return None if None in parts else Fraction(*parts)  # type: ignore[arg-type]


def _integer_root(value: int, degree: int) -> int | None:
    if value.bit_length() > MAX_PRECISION:
        return None
    if degree == 2:
        root = math.isqrt(value)
    else:
        low, high = 0, 1 << (value.bit_length() // degree + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
        root = low
    return root if root**degree == value else None


def _exact_root(x: Fraction, degree: Fraction) -> Fraction | None:
    if degree.denominator != 1 or degree < 1 or (x < 0 and degree % 2 == 0):
        return None
    root = exact_root(abs(x), int(degree)) if x else Fraction(0)
    return -root if root is not None and x < 0 else root


def _binomial(n: Fraction, k: Fraction) -> Fraction | None:
    if k.denominator != 1 or not 0 <= k <= 2_000 or n.numerator.bit_length() > 64:
        return None
    if n.denominator == 1 and n >= 0:
        if n.numerator.bit_length() * int(k) > MAX_BITS:
            raise TooLarge("too large")
        return Fraction(math.comb(int(n), int(k)))
    product = Fraction(1)
    for i in range(int(k)):
        product *= (n - i) / (i + 1)
    return product


def _integers(function: Callable[..., int]) -> Callable[..., Fraction]:
    def exact(*values: Fraction) -> Fraction:
        if any(value.denominator != 1 for value in values):
            raise Undefined
        return Fraction(function(*map(int, values)))

    return exact


def _root(context: Any, x: Any, degree: Any) -> Any:
    if degree == 0:
        raise Undefined
    odd = context.isint(degree) and int(degree) % 2
    return -((-x) ** (1 / degree)) if odd and context.im(x) == 0 and x < 0 else x ** (1 / degree)


_EXACT: Mapping[str, Callable[..., Fraction | None]] = {
    "root": _exact_root,
    "abs": abs,
    "floor": lambda x: Fraction(math.floor(x)),
    "ceil": lambda x: Fraction(math.ceil(x)),
    "binom": _binomial,
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "max": lambda *x: max(x),
    "min": lambda *x: min(x),
    "Re": lambda x: x,
    "Im": lambda x: Fraction(0),
    "ln": lambda x: Fraction(0) if x == 1 else None,
}
_ROUNDED: Mapping[str, Callable[..., Any]] = {
    "root": _root,
    "abs": lambda context, x: abs(x),
    "floor": lambda context, x: context.floor(x),
    "ceil": lambda context, x: context.ceil(x),
    "max": lambda context, *x: max(x),
    "min": lambda context, *x: min(x),
    "Re": lambda context, x: context.re(x),
    "Im": lambda context, x: context.im(x),
    "exp": lambda context, x: context.exp(x),
    "ln": lambda context, x: context.log(x),
    "lg": lambda context, x: context.log(x, 10),
    "log": lambda context, x, base=None: context.log(x) / (context.log(base) if base else 1),
    **{
        name: lambda context, x, f=function: getattr(context, f)(x)
        for name, function in {
            "arcsin": "asin", "arccos": "acos", "arctan": "atan",
            **{n: n for n in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
        }.items()
    },
}  # fmt: skip
_GROWING = frozenset(
    ["exp", "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "floor", "ceil"]
)
KNOWN = frozenset(["bracket"]) | frozenset(_EXACT) | frozenset(_ROUNDED)
