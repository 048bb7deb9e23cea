r"""Reads an answer, LaTeX or plain text, into a tree. What is not read whole is not read at all.

A grammar of what final answers consist of: numbers, expressions, equations, inequalities, tuples,
intervals, sets, lists, matrices, ratios, congruences and words. Any other command or sign, and
anything left over, raises `Unreadable`: no answer is read from a part of its text.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple


class Unreadable(ValueError):
    """The text is not wholly an expression of the grammar, or has no value."""


class TooLarge(Unreadable):
    """The value is too large, or needs too much work: its equality to another is not known."""


class Node(NamedTuple):
    """A part of an answer: its kind, and its parts.

    Scalars: number, symbol, constant, add, multiply, divide, power, negate, apply, factorial, sign
    (±), percent, degree, based (digits in a base). Others: tuple (with its brackets), set, list,
    or (statements of which one holds), relation, union, intersection, difference, matrix, word,
    dots, ratio, congruence, reals, numbers (another set of numbers).
    """

    kind: str
    args: tuple[Any, ...] = ()


MAX_DEPTH = 40


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


SCALARS = _names(
    r"""
    number symbol constant add multiply divide power negate apply factorial sign percent
    degree based
    """
)
RELATIONS = {
    "=": "=", "<": "<", ">": ">", r"\lt": "<", r"\gt": ">", r"\le": "<=", r"\leq": "<=",
    r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\ne": "!=",
    r"\neq": "!=", r"\in": "in", r"\approx": "~",
}  # fmt: skip
FUNCTIONS = _names(
    r"""
    sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln log exp gcd lcm max min
    Re Im
    """
)
TRIGONOMETRIC = _names(r"sin cos tan cot sec csc")
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_GREEK = _names(
    r"""
    \alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \vartheta \iota \kappa
    \lambda \mu \nu \xi \rho \sigma \tau \phi \varphi \chi \psi \omega \Gamma \Delta \Theta
    \Lambda \Xi \Sigma \Phi \Psi \Omega \ell
    """
)
_ACCENTS = _names(r"\vec \hat \bar \tilde \dot \overrightarrow \widehat")
_DOTS = _names(r"\ldots \dots \cdots \dotsc \hdots")
_CLOSING = {"(": ")", "[": "]", "]": "["}
_MATRICES = frozenset(("matrix", "pmatrix", "bmatrix", "array", "smallmatrix"))
_BASES = [
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
]
_CONNECTIVES = {"or": "or", "and": "and", ", and": "and", ", or": "or", "&": "and", ",": ","}
_TEXT_SETS = {
    "all real numbers": Node("reals"),
    "all reals": Node("reals"),
    "all real": Node("reals"),
    "no solution": Node("set"),
    "no solutions": Node("set"),
}

_COMMANDS = _table(
    """× times ÷ div ∞ infty ≤ le ⩽ le ≥ ge ⩾ ge ≠ ne ± pm ∓ mp ∪ cup ∩ cap ∈ in ∅ emptyset √ surd
    ≡ equiv ≈ approx ∖ setminus · cdot ∙ cdot ⋅ cdot • cdot … ldots ⋯ ldots π pi θ theta α alpha
    β beta γ gamma φ phi λ lambda μ mu ω omega ρ rho σ sigma"""
)
_VULGAR = _table(
    "½ 12 ⅓ 13 ⅔ 23 ¼ 14 ¾ 34 ⅕ 15 ⅖ 25 ⅗ 35 ⅘ 45 ⅙ 16 ⅚ 56 ⅛ 18 ⅜ 38 ⅝ 58 ⅞ 78"
)  # fmt: skip
_UNICODE = str.maketrans(
    {
        **dict.fromkeys("−–﹣‐‑", "-"),
        **dict.fromkeys("\u00a0\u202f\u2009\u2002\u2003\u3000", " "),
        **{sign: rf"\{name} " for sign, name in _COMMANDS.items()},
        **{sign: rf"\frac{{{digits[0]}}}{{{digits[1]}}}" for sign, digits in _VULGAR.items()},
        **{letter: rf"\mathbb{{{name}}}" for letter, name in zip("ℝℤℕℚℂ", "RZNQC", strict=True)},
        **{chr(0xFF00 + code - 0x20): chr(code) for code in range(0x21, 0x7F)},  # full width
        **{"∗": "*", "′": "'", "″": "''", "、": ",", "。": ".", "º": "°"},
    }
)
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n", strict=True))
_SCRIPTS = re.compile(f"([{''.join(_RAISED)}]+)|([{''.join(_LOWERED)}]+)")

_STYLES = _names(
    r"""
    displaystyle textstyle limits nolimits left right middle big Big bigg Bigg bigl bigr
    Bigl Bigr biggl biggr Biggl Biggr large Large LARGE huge Huge small normalsize rm bf it
    sf tt mathbf boldsymbol bm pmb mathsf mathtt mathit mathnormal ensuremath underline
    uline fbox checkmark quad qquad thinspace textcolor cancel
    """
)
_TEXT_COMMAND = r"text|textbf|textit|textrm|textsf|texttt|textnormal|mathrm|mbox|operatorname\*?"
_ORDINAL = rf"(?:\\(?:{_TEXT_COMMAND})\s*\{{\s*)?(?:st|nd|rd|th)\b(?:\s*\}})?"
_REMOVED = re.compile(
    r"\\(?:color|textcolor)\s*(?:\[[a-zA-Z]*\])?\s*\{[\w!.,]*\}|\\h?phantom\s*\{[^{}]*\}"
    r"|\\h?phantom\s*[^\\{\s]|\\(?:label|tag)\s*\{[^{}]*\}"
    rf"|(?<=\d)\s*\^\s*(?:{_ORDINAL}|\{{\s*{_ORDINAL}\s*\}})"
    rf"|\\(?:{_TEXT_COMMAND})(?=\s*\{{[^{{}}]*[\\{{]|\s+[a-zA-Z])"  # \mathrm{{\frac12}}, \rm e
    rf"|\\(?:{'|'.join(sorted(_STYLES))})(?![a-zA-Z])"
    r"|^\s*(?:=|\\(?:therefore|implies|Rightarrow|approx)(?![a-zA-Z]))"
    r"|(?<!\\)\\(?:[,;:! ]|\Z)|(?<!\\)~|(?<!\\)\\[()\[\]]|(?<!\\)\$"
)
_SPELLINGS = {"...": r"\ldots ", r"\langle": "(", r"\rangle": ")"}
_PYTHON_POWER = re.compile(r"(?<=[\w)])\*\*(?=[\w(-])")
THOUSANDS = re.compile(  # (1,\,234) is a pair
    r"(?<=\d)(?:\{,\}|,\s*\\!\s*|\\[!,;: ]\s*|~|[\u00a0\u202f\u2009])(?=\d{3}(?!\d))"
)
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])|\{°\}")
_PRIMES = re.compile(r"\^\s*(?:\{\s*((?:\\prime\s*)+)\}|(\\prime)(?![a-zA-Z]))")
_PLAIN_TEXT = re.compile(
    rf"\\(?:{_TEXT_COMMAND})\s*\{{\s*([-+\d.,/:%()\s]*\d[-+\d.,/:%()\s]*|[a-zA-Z])\s*\}}"
)
_TOKEN = re.compile(
    rf"""\s+
    |(?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*\{{\s*\d+\s*\}})
    |(?P<number>(?:(?:1|\d+\.\d+)[eE][-+]?|\d+[eE])\d{{1,3}}(?!\d)|\d+(?:\.\d+)?|\.\d+)
    |\\(?:{_TEXT_COMMAND})\s*\{{(?P<text>[^{{}}\\$]*)\}}
    |\\begin\s*\{{(?P<begin>[a-z]+)\*?\}}(?:\s*\{{[clr|]*\}})?|\\end\s*\{{(?P<end>[a-z]+)\*?\}}
    |\\mathbb\s*(?:\{{\s*)?(?P<numbers>[A-Z])(?:\s*\}})?
    |(?P<command>\\[a-zA-Z]+|\\[{{}}%|]|\\\\)
    |(?P<letters>[a-zA-Z]+)
    |(?P<sign>[-+*/^_!'=<>()\[\]{{}}|,;:&%°])""",
    re.VERBOSE,
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d]|,\d)")
_WORDS = {
    **{name: "\\" + name for name in FUNCTIONS},
    **{name: rf"\arc{name[1:]}" for name in ("asin", "acos", "atan")},
    **{"sqrt": r"\surd", "pi": r"\pi", "infinity": r"\infty", "inf": r"\infty"},
    **{"or": "or", "and": "and", "mod": r"\mod"},
}
_INTRODUCTION = re.compile(
    r"^\s*\\text\s*\{\s*(?:(?:[a-z]+ ){0,4}(?:is|are|equals)|[a-z ]{1,30}[:=])\s*\}\s*:?",
    re.IGNORECASE,
)


class Token(NamedTuple):
    """A piece of the text: kind (number, text, word, letter, sign, …), value, and its place."""

    kind: str
    value: Any
    start: int = 0
    end: int = 0


def clean(latex: str) -> str:
    """The text with one spelling of what does not change its meaning: styles, spaces, signs."""
    latex = THOUSANDS.sub("", _SCRIPTS.sub(_script, latex)).translate(_UNICODE)
    for spelling, usual in _SPELLINGS.items():
        latex = latex.replace(spelling, usual)
    latex = _PYTHON_POWER.sub("^", _INTRODUCTION.sub("", latex)).replace("**", "")
    latex = _REMOVED.sub(" ", latex)
    latex = _PRIMES.sub(lambda m: "'" * (m[1] or m[2]).count("prime"), _DEGREES.sub("°", latex))
    while (plain := _PLAIN_TEXT.sub(r" \1 ", latex)) != latex:
        latex = plain
    return latex.strip().rstrip(".,; ")


def _script(match: re.Match[str]) -> str:
    table, sign = (_RAISED, "^") if match[1] else (_LOWERED, "_")
    return f"{sign}{{{''.join(table[c] for c in match[0])}}}"


def tokens(latex: str, *, grouped: bool = True) -> list[Token]:
    """The pieces of a cleaned text. Raises Unreadable for a character that none begins with.

    `grouped`: commas between groups of three digits are those of thousands, but in brackets.
    """
    result: list[Token] = []
    at, lists = 0, 0  # how many brackets are open in which a comma separates
    while at < len(latex):
        thousands = _GROUPED.match(latex, at) if grouped and not lists else None
        if thousands and (at == 0 or latex[at - 1] not in ",0123456789."):
            value = Fraction(thousands[0].replace(",", ""))
            result.append(Token("number", value, at, thousands.end()))
            at = thousands.end()
            continue
        match = _TOKEN.match(latex, at)
        if match is None:
            raise Unreadable(f"{latex[at]!r} is not read")
        end = match.end()
        if match.lastgroup is not None:
            text = match[match.lastgroup]
            result += [t._replace(start=at, end=end) for t in _tokens_of(match.lastgroup, text)]
            lists += {"(": 1, "[": 1, r"\{": 1, r"\lbrace": 1}.get(text, 0)
            lists -= {")": 1, "]": 1, r"\}": 1, r"\rbrace": 1}.get(text, 0)
        at = end
    return result


def _tokens_of(kind: str, text: str) -> list[Token]:
    if kind == "number":
        return [Token("number", Fraction(text))]
    if kind == "repeating":
        return [Token("number", _repeating(text))]
    if kind == "letters":
        if text in _WORDS:
            return [Token("sign", _WORDS[text])]
        if len(text) > 3:
            return [Token("word", text)]
        return [Token("letter", letter) for letter in text]
    if kind == "text":
        text = " ".join(text.replace("~", " ").split())
        if text.lower() in _CONNECTIVES:
            return [Token("sign", _CONNECTIVES[text.lower()])]
        if text in _WORDS:
            return [Token("sign", _WORDS[text])]
        return [Token("word", text)] if text else []
    return [Token({"command": "sign"}.get(kind, kind), text)]


def _repeating(text: str) -> Fraction:
    whole, _, period = text.replace("}", "").partition("\\")
    period = period.partition("{")[2].strip()
    before, _, after = whole.partition(".")
    shift = 10 ** len(after)
    return Fraction(int((before + after) or 0), shift) + Fraction(
        int(period), shift * (10 ** len(period) - 1)
    )


def read(latex: str, *, grouped: bool = True) -> Node:
    """The tree of an answer; `grouped` as for `tokens`. Raises Unreadable."""
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


def _is_inequality(node: Node) -> bool:
    return node.kind == "relation" and not {"=", "in", "~"} & {*node.args[0]}


def scalar(node: Node) -> Node:
    """The node, if it is a scalar. Raises Unreadable."""
    if node.kind not in SCALARS:
        raise Unreadable(f"a {node.kind} is no number")
    return node


class Reader:
    """A recursive-descent reader: one method for each rule of the grammar."""

    def __init__(self, pieces: list[Token]) -> None:
        self.pieces, self.at, self.depth, self.bars = pieces, 0, 0, 0

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
        """What a rule reads up to a closing sign."""
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
        items, separators = [self.statement()], set()
        while (separator := self.take(",", ";", "and", "or")) is not None:
            self.take("and", "or") if separator == "," else None
            separators.add(separator)
            items.append(self.statement())
        if len(items) == 1:
            return items[0]
        if separators == {"and"} and all(_is_inequality(item) for item in items):
            return Node("intersection", tuple(items))  # x < -2 and x > 2 is no number
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
        return Node("relation", (tuple(signs), tuple(sides))) if signs else sides[0]

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
        while self.take(":"):
            items.append(Node("dots") if self.take(*_DOTS) else self.union())
        return Node("ratio", tuple(items)) if len(items) > 1 else items[0]

    def union(self) -> Node:
        """An expression, or sets and what is made of them."""
        node = self.expression()
        while sign := self.take(r"\cup", r"\cap", r"\setminus", r"\backslash"):
            kind = {r"\cup": "union", r"\cap": "intersection"}.get(sign, "difference")
            node = Node(kind, (node, self.expression()))
        return node

    # Arithmetic

    def expression(self) -> Node:
        """Terms with signs between them."""
        sign = self.take("+", "-", r"\pm", r"\mp")
        node = self._signed(sign, self.term())
        terms = [node]
        while sign := self.take("+", "-", r"\pm", r"\mp"):
            terms.append(self._signed(sign, self.term()))
        if len(terms) == 1:
            return node
        if all(term.kind == "matrix" for term in terms):
            raise Unreadable("a sum of matrices")
        return Node("add", tuple(map(scalar, terms)))

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
        node = self.factor()
        while True:
            token, last = self.token, self.pieces[self.at - 1]
            if self.take(r"\cdot", r"\times", "*"):
                node = times(node, self.signed_factor())
            elif self.take("/", r"\div"):
                node = Node("divide", (scalar(node), scalar(self.divisor())))
            elif self.begins_factor() or (last.value == "!" and token and token.kind == "number"):
                node = times(node, self.factor())
            else:
                return node

    def signed_factor(self) -> Node:
        """A factor after a sign of multiplication: it may have a minus sign."""
        if self.take("-"):
            return Node("negate", (scalar(self.factor()),))
        return self.factor()

    def divisor(self) -> Node:
        """A factor after a slash, with the letters that follow a letter: dy/dx, but 1/2 x."""
        node, last = self.signed_factor(), self.pieces[self.at - 1]
        while (token := self.token) is not None and "letter" == token.kind == last.kind:
            if token.start != last.start:
                break
            node, last = times(node, self.factor()), token
        return node

    def begins_factor(self) -> bool:
        """Whether a factor follows that needs no sign before it: not a number, as in `5 6`."""
        token = self.token
        if token is None or self.peek_modulus():
            return False
        if token.kind in ("letter", "begin"):
            return True
        if token.kind != "sign":
            return False
        return (
            (token.value == "[" and not self.depth)  # in brackets, it may be the end of ]a, b[
            or (token.value == "|" and not self.bars)
            or token.value in ("(", "{", r"\frac", r"\surd", r"\sqrt", r"\pi", r"\infty", r"\binom")
            or token.value in _GREEK | _ACCENTS
            or token.value.removeprefix("\\") in FUNCTIONS
            or token.value in _FRACTIONS
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
            else:
                return node

    def argument(self) -> Node:
        """What a command or `^` applies to: a group, one digit, a letter or a command."""
        if self.take("{"):
            return self.inside(self.expression, "}")
        token = self.token
        if token is not None and token.kind == "number":
            return self.digit()
        return self.atom(plain=True)

    def exponent(self) -> Node:
        """What `^` applies to; 2^10 is meant as it is typed."""
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
            self.pieces[self.at] = Token("number", Fraction(rest), token.start + 1, token.end)
        else:
            self.at += 1
        return Node("number", (Fraction(first),))

    def atom(self, *, plain: bool = False) -> Node:
        """One value. `plain`: without what may follow a letter, as in `\\frac f2`."""
        token = self.token
        if token is None:
            raise Unreadable("something is missing")
        if token.kind == "number":
            return self.number()
        self.at += 1
        if token.kind == "letter":
            return self.letter(token.value, plain=plain)
        if token.kind == "word":
            return _TEXT_SETS.get(token.value.lower(), Node("word", (token.value,)))
        if token.kind == "begin":
            return self.matrix(token.value)
        if token.kind == "numbers":
            return Node("reals") if token.value == "R" else Node("numbers", (token.value,))
        if token.kind != "sign":
            raise Unreadable(f"{token.value!r} is not read")
        return self.command(token.value, plain=plain)

    def number(self) -> Node:
        """A number, also mixed (`3\\frac12`, `3 1/2`) or with a base (`101_2`)."""
        token = self.pieces[self.at]
        self.at += 1
        node = Node("number", (token.value,))
        if self.take("_"):
            digits = str(token.value)
            base = self.argument()
            if base.kind == "word" and base.args[0] in _BASES:
                base = Node("number", (Fraction(_BASES.index(base.args[0])),))
            if token.value.denominator != 1 or base.kind != "number":
                raise Unreadable("a base")
            return Node("based", (digits, base.args[0]))
        if self.peek("'"):
            raise Unreadable("minutes or seconds of arc")
        if token.value.denominator == 1 and (part := self.proper_fraction()) is not None:
            return Node("number", (token.value + part,))
        return node

    def proper_fraction(self) -> Fraction | None:
        """The fraction of a mixed number, if one follows; a product if it is none."""
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
        elif self.take(*_FRACTIONS):
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
        """A symbol or constant; a function's value, where a letter stands for a function."""
        if plain:
            return Node("constant", (letter,)) if letter in "ei" else Node("symbol", (letter,))
        start = self.at - 1
        name = letter + self.subscript()
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

    def _inverse(self) -> bool:
        """Take `^{-1}` before an argument."""
        values = [t.value for t in self.pieces[self.at : self.at + 6]]
        if values == ["^", "{", "-", 1, "}", "("]:
            self.at += 5
            return True
        return False

    def _labels(self, start: int) -> bool:
        """Whether a letter before brackets names what an equation defines: `P(x) = …`."""
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
            if token is None or token.kind not in ("letter", "number", "sign", "word"):
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
        """A command, or a bracket and what it encloses."""
        if sign in _FRACTIONS:
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
            return self.letter(sign, plain=True) if plain else self._greek(sign)
        if sign in _ACCENTS or sign == r"\overline":
            return self.accent(sign)
        if sign in (r"\angle", r"\triangle", r"\measuredangle"):
            return Node("symbol", (sign + " " + self.points(),))
        if sign.removeprefix("\\") in FUNCTIONS and sign.startswith("\\"):
            return self.function(sign[1:])
        return self.bracket(sign)

    def _greek(self, sign: str) -> Node:
        name = sign + self.subscript()
        while self.take("'"):
            name += "'"
        return Node("symbol", (name,))

    def points(self) -> str:
        """The letters of an angle, triangle or segment."""
        braced = self.take("{") is not None
        letters = ""
        while self.token is not None and self.token.kind in ("letter", "word"):
            letters += str(self.token.value)
            self.at += 1
        if not letters or (braced and not self.take("}")):
            raise Unreadable("points")
        return letters

    def accent(self, sign: str) -> Node:
        """A symbol with an accent; a segment is its end points."""
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
        if len(arguments) > 1 and name not in ("gcd", "lcm", "max", "min"):
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
        while self.begins_factor() and not self._function_follows():
            node = times(node, self.factor())
        return (node,)

    def _function_follows(self) -> bool:
        token = self.token
        return token is not None and str(token.value).removeprefix("\\") in FUNCTIONS

    def bracket(self, sign: str) -> Node:
        """What brackets enclose: a value, tuple, interval, set, absolute value, or its like."""
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
            return node
        raise Unreadable(f"{sign!r} is not read")

    def set_builder(self) -> int | None:
        """How many tokens `x |`, `x :` or `x ∈ ℝ |` are; None for another set."""
        pieces = self.pieces[self.at : self.at + 4]
        if not pieces or pieces[0].kind != "letter":
            return None
        values = [piece.value for piece in pieces[1:]]
        if values[:2] == [r"\in", "R"]:
            values = values[2:]
        bar = values[:1] and values[0] in (r"\mid", "|", ":", r"\colon")
        return len(pieces) - len(values) + 1 if bar else None

    def matrix(self, name: str) -> Node:
        """The rows of a matrix, without its brackets."""
        if name not in _MATRICES:
            raise Unreadable(f"{name} is not read")
        rows: list[tuple[Node, ...]] = []
        while True:
            row = [scalar(self.expression())]
            while self.take("&"):
                row.append(scalar(self.expression()))
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
        return Node("matrix", tuple(rows))


_FRACTIONS = (r"\frac", r"\dfrac", r"\tfrac", r"\cfrac", r"\nicefrac", r"\sfrac")


def times(one: Node, two: Node) -> Node:
    """A product of scalars, or of a scalar and a matrix. Raises Unreadable for another."""
    if two.kind == "matrix" and one.kind != "matrix":
        return scale(scalar(one), two)
    return Node("multiply", (scalar(one), scalar(two)))


def scale(factor: Node, matrix: Node) -> Node:
    """A matrix times a scalar."""
    return Node(
        "matrix",
        tuple(tuple(Node("multiply", (factor, cell)) for cell in row) for row in matrix.args),
    )
