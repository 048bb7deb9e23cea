r"""Reads an answer, LaTeX or plain text, into a tree. An answer is read as a whole or not at all.

A grammar of final answers: numbers, expressions, equations, inequalities, tuples, intervals, sets,
lists, matrices, ratios, congruences and words. Any other command or sign, and any remaining text,
raises `Unreadable`: an answer is never read from a part of its text.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from tasks.marking.spelling import MAX_LENGTH, clean, names
from tasks.marking.tokens import (
    BOUNDARIES,
    FUNCTIONS,
    OF_SEVERAL,
    RELATIONS,
    Token,
    Unreadable,
    tokens,
)
from tasks.marking.units import CURRENCIES, MEASURES, read_unit


class TooLarge(Unreadable):
    """The value is too large, or needs too much work: whether it equals another is unknown."""


class Node(NamedTuple):
    """A part of an answer: its kind, and its parts.

    Scalars: number, symbol, constant, add, multiply, divide, power, negate, apply, factorial, sign
    (±), percent, degree, based (digits in a base), range (5-6, also a difference). Others: quantity
    (a value and its unit), tuple (with its brackets), set, list, or (statements of which one
    holds), relation, given (a statement and the range of its parameter), union, intersection,
    difference, matrix, cases, word, dots, ratio, congruence, reals, numbers (any other set of
    numbers).
    """

    kind: str
    args: tuple[Any, ...] = ()


MAX_DEPTH = 40
SCALARS = names(
    r"""
    number symbol constant add multiply divide power negate apply factorial sign percent
    degree based range
    """
)
TRIGONOMETRIC = names(r"sin cos tan cot sec csc")
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_GREEK = names(
    r"""
    \alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \vartheta \iota \kappa
    \lambda \mu \nu \xi \rho \sigma \tau \phi \varphi \chi \psi \omega \Gamma \Delta \Theta
    \Lambda \Xi \Sigma \Phi \Psi \Omega \ell
    """
)
_ACCENTS = names(r"\vec \hat \bar \tilde \dot \overrightarrow \widehat")
_DOTS = names(r"\ldots \dots \cdots \dotsc \hdots")
_CLOSING = {"(": ")", "[": "]", "]": "["}
_MATRICES = frozenset(("matrix", "pmatrix", "bmatrix", "array", "smallmatrix"))
_BASES = [
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
]
_TEXT_SETS: dict[str, Node] = {
    **dict.fromkeys(("all real numbers", "all reals", "all real", "real numbers"), Node("reals")),
    **dict.fromkeys(
        ("no solution", "no solutions", "no real solution", "no real solutions", "empty set",
         "the empty set", "empty", "there is no solution", "there are no solutions"),
        Node("set"),
    ),
}  # fmt: skip
_CONDITIONS = names("if for when where otherwise else")
_VARIABLES = [frozenset(f) for f in ("abcdxyz", "mnk", "pqrst", "uvw", "ijk", "lwh")]


def read(latex: str, *, grouped: bool = True) -> Node:
    """The tree of an answer; `grouped` as for `tokens`. Raises Unreadable."""
    if len(latex) > MAX_LENGTH:
        raise Unreadable("too long")
    text = clean(latex)
    try:
        reader = Reader(tokens(text, grouped=grouped))
        node = reader.statements()
    except RecursionError as error:
        raise Unreadable("too deep") from error
    except ValueError as error:  # more digits than Python parses
        raise Unreadable(str(error)) from error
    if reader.token is not None:
        raise Unreadable(f"{reader.token.value!r} is not read")
    return node


def _is_parameter(node: Node) -> bool:
    """Whether it is `k ∈ ℤ`, which gives the range of another statement's parameter."""
    if node.kind != "relation" or node.args[0] != ("in",):
        return False
    name, numbers = node.args[1]
    return bool(name.kind == "symbol" and numbers.kind == "numbers")


def is_product(letters: str) -> bool:
    """Whether a run of letters such as `ab` may be a product, in any order; else it is a word."""
    if len(letters) > 2 and letters.isupper():
        return "".join(map(chr, range(ord(letters[0]), ord(letters[0]) + len(letters)))) == letters
    folded = set(letters.casefold())
    return folded.isdisjoint("aeiou") or any(folded <= family for family in _VARIABLES)


def scalar(node: Node) -> Node:
    """The node. Raises Unreadable unless it is a scalar."""
    if node.kind not in SCALARS:
        raise Unreadable(f"a {node.kind} is not a number")
    return node


class Reader:
    """A recursive-descent reader: one method for each rule of the grammar."""

    def __init__(self, pieces: list[Token]) -> None:
        self.pieces = pieces
        self.at = 0
        self.depth = 0
        self.bars = 0

    @property
    def token(self) -> Token | None:
        """The next token."""
        return self.pieces[self.at] if self.at < len(self.pieces) else None

    def peek(self, *signs: str, ahead: int = 0) -> bool:
        """Whether the next token is one of these signs."""
        place = self.at + ahead
        if place >= len(self.pieces):
            return False
        token = self.pieces[place]
        return token.kind == "sign" and token.value in signs

    def take(self, *signs: str) -> str | None:
        """The next token, if it is one of these signs."""
        if not self.peek(*signs):
            return None
        self.at += 1
        return str(self.pieces[self.at - 1].value)

    def expect(self, *signs: str) -> None:
        """Take one of these signs. Raises Unreadable."""
        if self.take(*signs) is None:
            raise Unreadable(f"{signs[0]!r} is missing")

    def inside(self, rule: Callable[[], Node], *closing: str) -> Node:
        """The result of a rule up to a closing sign."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("too deep")
        node = rule()
        self.expect(*closing)
        self.depth -= 1
        return node

    # Lists and relations

    def statements(self) -> Node:
        """Statements, separated by commas, semicolons, "and" or "or"."""
        items = [self.statement()]
        separators = set[str]()
        before = list[Node]()
        while (separator := self.take(",", ";", "and", "or")) is not None:
            self.take("and", "or") if separator == "," else None
            if separator == ";" and (before or (separators == {","} and len(items) > 1)):
                before.append(Node("list", tuple(items)))  # p = 5, q = 2; p = 7, q = 2
                items = []
            separators.add(separator)
            items.append(self.statement())
        if before:
            return Node("list", (*before, Node("list", tuple(items))))
        if len(items) == 1:
            return items[0]
        if separators <= {",", ";"} and len(items) == 2 and _is_parameter(items[1]):
            return Node("given", (items[0], items[1]))
        relations = [item.args[0] for item in items if item.kind == "relation"]
        unequal = len(relations) == len(items) and not any(
            {"=", "in", "~"} & {*signs} for signs in relations
        )
        if separators == {"and"} and unequal:
            return Node("intersection", tuple(items))  # x < -2 and x > 2 is not a number
        return Node("or" if "or" in separators else "list", tuple(items))

    def statement(self) -> Node:
        """An expression, ratio, relation or congruence."""
        if self.take(*_DOTS):
            return Node("dots")
        sides, signs = [self.ratio()], []
        while (
            self.token is not None and self.token.value in RELATIONS and self.token.kind == "sign"
        ):
            signs.append(RELATIONS[self.token.value])
            self.at += 1
            sides.append(self.ratio())
        if self.take(r"\equiv"):
            if signs:
                raise Unreadable("a congruence in a relation")
            sides.append(self.ratio())
            return self.congruence(sides)
        if self.peek(r"\pmod", r"\mod", r"\bmod") or self.peek_modulus():
            if signs:
                raise Unreadable("a congruence in a relation")
            return self.congruence(sides)
        node = Node("relation", (tuple(signs), tuple(sides))) if signs else sides[0]
        if not self.peek_parameter():
            return node
        self.at += 1
        parameter = self.inside(self.statement, ")")
        return Node("given", (node, parameter))

    def peek_parameter(self) -> bool:
        """Whether `(k ∈ ℤ)` follows."""
        pieces = self.pieces[self.at : self.at + 4]
        values = [piece.value for piece in pieces]
        return (
            len(pieces) == 4
            and values[0] == "("
            and pieces[1].kind == "letter"
            and values[2] == r"\in"
            and pieces[3].kind == "set"
        )

    def peek_modulus(self) -> bool:
        """Whether `(mod 12)` follows."""
        return self.peek("(") and self.peek(r"\mod", ahead=1)

    def congruence(self, sides: list[Node]) -> Node:
        """The modulus of a congruence, whose sides are read: (side, value, modulus)."""
        if self.take("("):
            self.expect(r"\mod")
            modulus = self.inside(self.expression, ")")
        elif self.take(r"\pmod", r"\mod", r"\bmod"):
            modulus = self.expression()
        else:
            raise Unreadable("a congruence has no modulus")
        name = sides[0] if len(sides) > 1 else None
        return Node("congruence", (name, scalar(sides[-1]), scalar(modulus)))

    def ratio(self) -> Node:
        """An expression, or several with colons between them."""
        items = [self.union()]
        if self.take(r"\over"):
            return Node("divide", (scalar(items[0]), scalar(self.expression())))
        if self.take(r"\choose"):
            return Node("apply", ("binom", scalar(items[0]), scalar(self.expression())))
        while self.take(":"):
            items.append(Node("dots") if self.take(*_DOTS) else self.union())
        return Node("ratio", tuple(items)) if len(items) > 1 else items[0]

    def union(self) -> Node:
        """An expression, or sets and combinations of them."""
        node = self.expression()
        while sign := self.take(r"\cup", r"\cap", r"\setminus", r"\backslash"):
            kind = {r"\cup": "union", r"\cap": "intersection"}.get(sign, "difference")
            node = Node(kind, (node, self.expression()))
        return node

    # Arithmetic

    def expression(self) -> Node:
        """Terms with signs between them and the unit after them, or words."""
        if (words := self.words()) is not None:
            return words
        start = self.at
        sign = self.take("+", "-", r"\pm", r"\mp")
        currency = self.currency()
        if currency is not None and sign is None:
            sign = self.take("-")
        node = self._signed(sign, self.term())
        terms = [node]
        while sign := self.take("+", "-", r"\pm", r"\mp"):
            terms.append(self._signed(sign, self.term()))
        if len(terms) > 1:
            if all(term.kind == "matrix" for term in terms):
                raise Unreadable("a sum of matrices")
            node = Node("add", tuple(map(scalar, terms)))
        if self._is_range(start):
            node = Node("range", terms[0].args + terms[1].args[0].args)
        unit = read_unit(self.pieces, self.at)
        if unit is None:
            return node if currency is None else Node("quantity", (scalar(node), currency))
        self.at = unit.end
        if unit.factor != 1:
            node = Node("multiply", (scalar(node), Node("number", (unit.factor,))))
        if currency not in (None, unit.name) and unit.name:
            raise Unreadable("two units")
        if unit.name == "percent":
            return Node("percent", (scalar(node),))
        if unit.name == "degree":
            return Node("degree", (scalar(node),))
        return (
            Node("quantity", (scalar(node), unit.name or currency))
            if unit.name or currency
            else node
        )

    def currency(self) -> str | None:
        """The name of a currency before its amount, if one follows."""
        token = self.token
        if token is None or token.text not in CURRENCIES:
            return None
        self.at += 1
        return CURRENCIES[token.text]

    def _is_range(self, start: int) -> bool:
        """Whether an expression, just read, is two positive integers and a hyphen: 5-6."""
        pieces = self.pieces[start : self.at]
        return (
            [piece.kind for piece in pieces] == ["number", "sign", "number"]
            and pieces[1].value == "-"
            and all(p.value.denominator == 1 for p in (pieces[0], pieces[2]))
            and self.depth == 0
        )

    def words(self) -> Node | None:
        """Words up to the end of the item; None for possible numbers, products and units."""
        end = self.at
        while end < len(self.pieces) and (
            self.pieces[end].kind in ("letter", "letters", "number", "date")
            or self.pieces[end].value in ("-", "'", "/")
            or (self.pieces[end].text.isalpha() and self.pieces[end].value not in BOUNDARIES)
        ):
            end += 1
        run = self.pieces[self.at : end]
        if not run or run[0].text in CURRENCIES:
            return None
        long = [piece for piece in run if piece.kind == "letters"]
        is_text = any(len(piece.text) > 3 for piece in long) or (
            sum(not is_product(piece.text) for piece in long) > 1
        )
        is_date = len(run) == 1 and run[0].kind == "date"
        if not (is_text or is_date) or not (
            end == len(self.pieces) or self.pieces[end].value in BOUNDARIES
        ):
            return None
        if any(read_unit(self.pieces, at) for at in range(self.at + 1, end)):
            numbers = [piece for piece in run if piece.kind == "number"]
            if run[0].kind != "letters" and numbers:
                return None
        self.at = end
        text = "".join(
            (" " if i and piece.start > run[i - 1].end else "") + piece.text
            for i, piece in enumerate(run)
        ).casefold()
        return _TEXT_SETS[text] if text in _TEXT_SETS else Node("word", (text,))

    @staticmethod
    def _signed(sign: str | None, node: Node) -> Node:
        if sign in (None, "+") and node.kind not in ("set", "list"):
            return node
        if sign is None:
            return node
        if sign == "-":
            return (
                scale(Node("number", (Fraction(-1),)), node)
                if node.kind == "matrix"
                else Node("negate", (scalar(node),))
            )
        return Node("sign", (1 if sign == r"\pm" else -1, scalar(node)))

    def term(self) -> Node:
        """Factors, with signs of multiplication and division between them or none."""
        node = last = self.factor()
        while True:
            if self.take(r"\cdot", r"\times", "*"):
                last = self.signed_factor()
                node = times(node, last)
            elif self.take("/", r"\div"):
                last = self.divisor()
                node = Node("divide", (scalar(node), scalar(last)))
            elif self.begins_factor(last):
                last = self.factor()
                node = times(node, last)
            else:
                return node

    def signed_factor(self) -> Node:
        """A factor after a sign of multiplication: it may have a minus sign."""
        if self.take("-"):
            return Node("negate", (scalar(self.factor()),))
        return self.factor()

    def divisor(self) -> Node:
        """A factor after a slash, with the letters that follow a letter: dy/dx, but 1/2 x."""
        node = self.signed_factor()
        last = self.pieces[self.at - 1]
        while (token := self.token) is not None and "letter" == token.kind == last.kind:
            if token.start != last.start:
                break
            node, last = times(node, self.factor()), token
        return node

    def begins_factor(self, last: Node) -> bool:
        """Whether a factor follows the last one without a sign between them."""
        token = self.token
        if token is None or self.peek_modulus() or self.peek_parameter():
            return False
        if token.kind in ("letter", "letters"):
            return len(token.text) <= 3 and read_unit(self.pieces, self.at) is None
        if token.kind == "number":  # 2^n 3^m and (n+1)2^n, but not 5 6
            return last.kind not in ("number", "degree", "percent") and (
                last.kind != "symbol" or self.peek("^", "!", ahead=1)
            )
        if token.kind == "begin":
            return True
        if token.kind != "sign" or read_unit(self.pieces, self.at) is not None:
            return False
        return (
            (token.value == "[" and not self.depth)  # in brackets, it may be the end of ]a, b[
            or (token.value == "|" and not self.bars)
            or token.value in ("(", "{", r"\frac", r"\surd", r"\sqrt", r"\pi", r"\infty", r"\binom")
            or token.value in _GREEK | _ACCENTS
            or token.value.removeprefix("\\") in FUNCTIONS
            or token.value
            in (r"\angle", r"\triangle", r"\lfloor", r"\lceil", r"\lvert", r"\imath", r"\overline")
        )

    def factor(self) -> Node:
        """An atom with powers, factorials, percent or degree signs after it."""
        node = self.atom()
        while True:
            if self.take("^"):
                node = Node("power", (scalar(node), scalar(self.exponent())))
                if self.peek("^"):
                    raise Unreadable("a double exponent")
            elif self.take("!"):
                double = self.take("!") is not None
                if self.peek("!"):
                    raise Unreadable("three factorial signs")
                node = Node("factorial", (scalar(node), double))
            elif self.take("%", r"\%"):
                node = Node("percent", (scalar(node),))
            elif self.take("°"):
                node = Node("degree", (scalar(node),))
                if self.token is not None and self.token.text in ("C", "F"):
                    self.at += 1
                    return Node(
                        "quantity", (node.args[0], MEASURES["°" + self.pieces[self.at - 1].text])
                    )
            else:
                return node

    def argument(self) -> Node:
        """The argument of a command or `^`: a group, one digit, a letter or a command."""
        if self.take("{"):
            return self.inside(self.expression, "}")
        token = self.token
        if token is not None and token.kind == "number":
            return self.digit()
        return self.atom(plain=True)

    def exponent(self) -> Node:
        """The exponent after `^`; 2^10 is read as typed."""
        sign = self.take("-")
        token = self.token
        if token is not None and token.kind == "number":
            self.at += 1
            node = Node("number", (token.value,))
        else:
            node = self.argument()
        return node if sign is None else Node("negate", (scalar(node),))

    def digit(self) -> Node:
        """One digit, as TeX takes it: `\\frac12`."""
        token = self.pieces[self.at]
        text = str(token.value)
        if token.value.denominator != 1 or len(text) != token.end - token.start:
            raise Unreadable("an argument without braces")
        first, rest = text[0], text[1:]
        if rest:
            self.pieces[self.at] = Token("number", Fraction(rest), rest, token.start + 1, token.end)
        else:
            self.at += 1
        return Node("number", (Fraction(first),))

    def atom(self, *, plain: bool = False) -> Node:
        """One value. `plain`: without a continuation after a letter, as in `\\frac f2`."""
        token = self.token
        if token is None:
            raise Unreadable("something is missing")
        if token.kind == "number":
            return self.number()
        if token.kind == "letters" and len(token.text) <= 3:
            if self.at and not is_product(token.text) and self._stands_alone():
                raise Unreadable("a word among factors")
            self.pieces[self.at : self.at + 1] = [
                token._replace(kind="letter", value=letter, text=letter) for letter in token.text
            ]
            token = self.pieces[self.at]
        self.at += 1
        if token.kind == "letter":
            return self.letter(token.value, plain=plain)
        if token.kind == "begin":
            return self.matrix(token.value)
        if token.kind == "set":
            return Node("reals") if token.value == "R" else Node("numbers", (token.value,))
        if token.kind != "sign":
            raise Unreadable(f"{token.value!r} is not read")
        return self.command(token.value, plain=plain)

    def _stands_alone(self) -> bool:
        """Whether there is a space on both sides of the next token, as in `max at x`."""
        before = self.pieces[self.at - 1]
        token = self.pieces[self.at]
        after = self.pieces[self.at + 1 : self.at + 2]
        if before.value in BOUNDARIES:
            return False
        return before.end < token.start and (not after or token.end < after[0].start)

    def number(self) -> Node:
        """A number, also mixed (`3\\frac12`, `3 1/2`) or with a base (`101_2`)."""
        token = self.pieces[self.at]
        self.at += 1
        node = Node("number", (token.value,))
        if self.take("_"):
            digits = token.text.replace(",", "")
            words = [piece.text for piece in self.pieces[self.at : self.at + 3]]
            if len(words) == 3 and words[1] in _BASES:  # 101_{two}
                self.at += 3
                return Node("based", (digits, Fraction(_BASES.index(words[1]))))
            base = self.argument()
            if not digits.isdecimal() or base.kind != "number":
                raise Unreadable("a base")
            return Node("based", (digits, base.args[0]))
        if self.peek("'"):
            raise Unreadable("minutes or seconds of arc")
        if token.value.denominator == 1 and (part := self.proper_fraction()) is not None:
            return Node("number", (token.value + part,))
        return node

    def proper_fraction(self) -> Fraction | None:
        """The fraction of a mixed number, if one follows; a product if it is not a mixed number."""
        start, pieces = self.at, list(self.pieces)
        part = None
        if self.token is not None and self.token.kind == "number":
            above = self.token.value
            self.at += 1
            if self.take("/") and self.token is not None and self.token.kind == "number":
                below, part = self.token.value, None
                self.at += 1
                part = (above, below)
            if part is None:
                raise Unreadable("two numbers side by side")
        elif self.take(r"\frac"):
            nodes = self.argument(), self.argument()
            if all(node.kind == "number" for node in nodes):
                part = tuple(node.args[0] for node in nodes)
        if part is not None and all(x.denominator == 1 for x in part) and 0 < part[0] < part[1]:
            if self.peek("^", "!"):
                raise Unreadable("a power of a mixed number")
            return Fraction(part[0], part[1])
        if part is not None:
            raise Unreadable("a mixed number with an improper fraction")
        self.at, self.pieces = start, pieces
        return None

    def letter(self, letter: str, *, plain: bool = False) -> Node:
        """A symbol or constant; a function's value if a letter stands for a function."""
        if plain:
            return Node("constant", (letter,)) if letter in "ei" else Node("symbol", (letter,))
        start = self.at - 1
        name = letter + self.subscript()
        if letter == "C" and (binomial := self._binomial(start + 1)) is not None:
            return binomial
        primes = 0
        while self.take("'"):
            primes += 1
        name += "'" * primes
        if letter in "fghFGH" and self.peek("^") and self._inverse():
            name += "^-1"
        if self.peek("(") and (letter in "fghFGH" or primes or self._labels(start)):
            self.at += 1
            arguments = self.inside(self.statements, ")")
            items = arguments.args if arguments.kind == "list" else (arguments,)
            return Node("apply", (name, *map(scalar, items)))
        if name in ("e", "i"):
            return Node("constant", (name,))
        return Node("symbol", (name,))

    def _binomial(self, subscript: int) -> Node | None:
        """`C_{10}^3`, after its subscript was read; None for a power of a constant."""
        numbers = [p.value for p in self.pieces[subscript : self.at] if p.kind == "number"]
        if len(numbers) != 1 or not self.peek("^"):
            return None
        start = self.at
        self.at += 1
        above = self.exponent()
        if above.kind != "number" or not 1 < numbers[0] >= above.args[0]:
            self.at = start
            return None
        return Node("apply", ("binom", Node("number", (numbers[0],)), above))

    def _inverse(self) -> bool:
        """Take `^{-1}` before an argument."""
        values = [t.value for t in self.pieces[self.at : self.at + 6]]
        if values == ["^", "{", "-", 1, "}", "("]:
            self.at += 5
            return True
        return False

    def _labels(self, start: int) -> bool:
        """Whether a letter before brackets is a function that an equation defines: `P(x) = …`."""
        if start > 0 and self.pieces[start - 1].value not in (",", "and", "or"):
            return False
        depth = 0
        for i in range(self.at, len(self.pieces)):
            value = self.pieces[i].value
            depth += {"(": 1, ")": -1}.get(value, 0) if isinstance(value, str) else 0
            if depth == 0:
                after = self.pieces[i + 1] if i + 1 < len(self.pieces) else None
                return after is not None and after.value == "="
        return False

    def subscript(self) -> str:
        """`_n` or `_{n+1}` as text, or ""."""
        if not self.take("_"):
            return ""
        if not self.take("{"):
            token = self.token
            if token is None or token.kind not in ("letter", "letters", "number", "sign"):
                raise Unreadable("a subscript")
            if token.kind == "number":
                return f"_{self.digit().args[0]}"
            self.at += 1
            return f"_{token.value}"
        parts: list[str] = []
        while not self.peek("}"):
            if self.token is None or self.peek("{", "^", "_"):
                raise Unreadable("a subscript")
            parts.append(str(self.token.value))
            self.at += 1
        self.at += 1
        return "_" + "".join(parts)

    def command(self, sign: str, *, plain: bool = False) -> Node:
        """A command, or a bracket with its content."""
        if sign == r"\frac":
            return Node("divide", (scalar(self.argument()), scalar(self.argument())))
        if sign in (r"\sqrt", r"\surd"):
            return self.root(sign)
        if sign in (r"\binom", r"\dbinom", r"\tbinom"):
            return Node("apply", ("binom", scalar(self.argument()), scalar(self.argument())))
        if sign == r"\pi":
            return Node("constant", ("pi",))
        if sign in (r"\imath",):
            return Node("constant", ("i",))
        if sign == r"\infty":
            return Node("constant", ("infinity",))
        if sign in (r"\emptyset", r"\varnothing"):
            return Node("set")
        if sign in _GREEK:
            if plain:
                return self.letter(sign, plain=True)
            name = sign + self.subscript()
            while self.take("'"):
                name += "'"
            return Node("symbol", (name,))
        if sign in _ACCENTS or sign == r"\overline":
            return self.accent(sign)
        if sign in (r"\angle", r"\triangle", r"\measuredangle"):
            return Node("symbol", (sign + " " + self.points(),))
        if sign.removeprefix("\\") in FUNCTIONS and sign.startswith("\\"):
            return self.function(sign[1:])
        return self.bracket(sign)

    def points(self) -> str:
        """The letters of an angle, triangle or segment."""
        braced = self.take("{") is not None
        letters = ""
        while self.token is not None and self.token.kind in ("letter", "letters"):
            letters += str(self.token.value)
            self.at += 1
        if not letters or (braced and not self.take("}")):
            raise Unreadable("points")
        return letters

    def accent(self, sign: str) -> Node:
        """A symbol with an accent; a segment becomes its end points."""
        letters = self.points()
        if sign == r"\overline" and len(letters) > 1 and letters.isupper():
            return Node("multiply", tuple(Node("symbol", (letter,)) for letter in letters))
        return Node("symbol", (f"{sign} {letters}",))

    def root(self, sign: str) -> Node:
        """A root: `\\sqrt[n]{x}`; √15 and sqrt(15) take a whole number or a group."""
        degree = Node("number", (Fraction(2),))
        if sign == r"\sqrt" and self.take("["):
            degree = scalar(self.inside(self.expression, "]"))
        if self.peek("("):
            return Node("apply", ("root", scalar(self.atom()), degree))
        token = self.token
        if sign == r"\surd" and token is not None and token.kind == "number":
            self.at += 1
            return Node("apply", ("root", Node("number", (token.value,)), degree))
        return Node("apply", ("root", scalar(self.argument()), degree))

    def function(self, name: str) -> Node:
        """A named function and its argument."""
        exponent = base = None
        while self.peek("^", "_"):
            if self.take("^"):
                exponent = self.argument()
            else:
                self.expect("_")
                base = scalar(self.argument())
        if exponent is not None and exponent == Node("negate", (Node("number", (Fraction(1),)),)):
            if name not in _INVERSES:
                raise Unreadable("an inverse function")
            name, exponent = _INVERSES[name], None
        if base is not None and name != "log":
            raise Unreadable("a subscript of a function")
        arguments = self.function_arguments()
        if len(arguments) > 1 and name not in OF_SEVERAL:
            raise Unreadable("several arguments")
        node = Node("apply", (name, *map(scalar, arguments), *([base] if base is not None else [])))
        return node if exponent is None else Node("power", (node, scalar(exponent)))

    def function_arguments(self) -> tuple[Node, ...]:
        """A group, or the factors up to the next sign or function: `\\sin 2x \\cos x`."""
        if self.take("("):
            arguments = self.inside(self.statements, ")")
            return arguments.args if arguments.kind == "list" else (arguments,)
        if self.take("{"):
            return (self.inside(self.expression, "}"),)
        node = self.factor()
        last = node
        while self.begins_factor(last) and not self._function_follows():
            last = self.factor()
            node = times(node, last)
        return (node,)

    def _function_follows(self) -> bool:
        token = self.token
        return token is not None and str(token.value).removeprefix("\\") in FUNCTIONS

    def bracket(self, sign: str) -> Node:
        """The content of brackets: a value, tuple, interval, set, absolute value, or similar."""
        if sign == "{":
            node = self.inside(self.statements, "}")
            return Node("set", node.args) if node.kind == "list" else node
        if sign in (r"\{", r"\lbrace"):
            if self.take(r"\}", r"\rbrace"):
                return Node("set")
            if (length := self.set_builder()) is not None:
                self.at += length
                return self.inside(self.statements, r"\}", r"\rbrace")
            node = self.inside(self.statements, r"\}", r"\rbrace")
            return Node("set", node.args if node.kind == "list" else (node,))
        if sign in ("|", r"\lvert", r"\vert"):
            self.bars += 1
            node = self.inside(self.expression, "|", r"\rvert", r"\vert")
            self.bars -= 1
            return Node("apply", ("abs", scalar(node)))
        if sign in (r"\lfloor", r"\lceil"):
            node = self.inside(self.expression, sign.replace("\\l", "\\r"))
            return Node("apply", ({r"\lfloor": "floor"}.get(sign, "ceil"), scalar(node)))
        if sign in _CLOSING:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise Unreadable("too deep")
            node = self.statements()
            closing = self.take(")", "]", "[")
            if closing is None or (sign == "(" and closing == "["):
                raise Unreadable("a bracket is not closed")
            self.depth -= 1
            if node.kind == "list":
                return Node("tuple", (sign, closing, node.args))
            if closing != _CLOSING[sign] or sign == "]" or node.kind in ("or", "dots"):
                raise Unreadable("brackets")
            if sign == "[" and node.kind in SCALARS:  # a bracket, or the floor
                return Node("apply", ("bracket", node))
            return node
        raise Unreadable(f"{sign!r} is not read")

    def set_builder(self) -> int | None:
        """The number of tokens of `x |`, `x :` or `x ∈ ℝ |`; None for any other set."""
        pieces = self.pieces[self.at : self.at + 4]
        if not pieces or pieces[0].kind != "letter":
            return None
        values = [piece.value for piece in pieces[1:]]
        if values[:2] == [r"\in", "R"]:
            values = values[2:]
        bar = values[:1] and values[0] in (r"\mid", "|", ":", r"\colon")
        return len(pieces) - len(values) + 1 if bar else None

    def matrix(self, name: str) -> Node:
        """The rows of a matrix, without its brackets; of cases, in any order."""
        if name not in _MATRICES and name != "cases":
            raise Unreadable(f"{name} is not read")
        rows: list[tuple[Node, ...]] = []
        while True:
            row = [self.cell(name)]
            while self.take("&"):
                row.append(self.cell(name))
            rows.append(tuple(row))
            broken = self.take("\\\\")
            token = self.token
            if token is not None and token.kind == "end" and token.value == name:
                self.at += 1
                break
            if not broken:
                raise Unreadable("a matrix is not closed")
        if len({len(row) for row in rows}) > 1:
            raise Unreadable("rows of different lengths")
        if name == "cases" and len(rows[0]) == 1:  # a system
            return Node("list", tuple(row[0] for row in rows))
        if name == "cases":
            return Node("cases", tuple(Node("tuple", ("(", ")", row)) for row in rows))
        return Node("matrix", tuple(rows))

    def cell(self, name: str) -> Node:
        """A cell of a matrix; a cell of cases may be a statement after `if` or `for`."""
        if name != "cases":
            return scalar(self.expression())
        if self.token is not None and self.token.text.lower() in _CONDITIONS:
            self.at += 1
            if self.token is None or self.token.value in ("\\\\", "cases"):
                return Node("word", ("otherwise",))
        node = self.statement()
        self.take(",")
        return node


def times(one: Node, two: Node) -> Node:
    """A product of scalars, or of a scalar and a matrix. Raises Unreadable for other products."""
    if two.kind == "matrix" and one.kind != "matrix":
        return scale(scalar(one), two)
    return Node("multiply", (scalar(one), scalar(two)))


def scale(factor: Node, matrix: Node) -> Node:
    """A matrix times a scalar."""
    return Node(
        "matrix",
        tuple(tuple(Node("multiply", (factor, cell)) for cell in row) for row in matrix.args),
    )
