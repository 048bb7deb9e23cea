"""The pieces of a cleaned answer: numbers, runs of letters, commands and signs."""

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from tasks.marking.spelling import UPRIGHT, UPRIGHT_END, names


class Unreadable(ValueError):
    """The text is not wholly an expression of the grammar, or has no value."""


class Token(NamedTuple):
    """A piece of the text: its kind, value and place.

    The kind is number, date, letter, letters, sign, begin, end or set.

    `text` is the original text; `upright` are letters in a font command, such as `\\text{m}`.
    """

    kind: str
    value: Any
    text: str
    start: int
    end: int
    upright: bool = False


HOLDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "!=": operator.ne,
}  # fmt: skip
"""The signs of inequalities."""
RELATIONS = {
    **{sign: sign for sign in (*HOLDS, "=")}, r"\lt": "<", r"\gt": ">", r"\le": "<=", r"\leq": "<=",
    r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\ne": "!=",
    r"\neq": "!=", r"\in": "in", r"\approx": "~",
}  # fmt: skip
BOUNDARIES = frozenset(RELATIONS) | names(r", ; and or ) ] } \} \rbrace : & \\ | \rvert")
"""Signs before which an item of an answer ends."""
OF_SEVERAL = names("gcd lcm max min")  # functions of several arguments
FUNCTIONS = OF_SEVERAL | names(
    "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln log lg exp Re Im"
)
_WORDS = {
    **{name: "\\" + name for name in FUNCTIONS},
    **{name: rf"\arc{name[1:]}" for name in ("asin", "acos", "atan")},
    **{"sqrt": r"\surd", "pi": r"\pi", "infinity": r"\infty", "inf": r"\infty"},
    **{"or": "or", "and": "and", "mod": r"\mod"},
    **{"minus": "-", "negative": "-", "plus": "+", "times": r"\times"},
}
_TOKEN = re.compile(
    rf"""[\s{UPRIGHT}{UPRIGHT_END}]+
    |(?P<date>(?<![\w.])(?:\d{{4}}[-/]\d{{1,2}}[-/]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{4}})(?![\w/]))
    |(?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*\{{\s*\d+\s*\}})
    |(?P<number>(?:(?:1|\d+\.\d+)[eE][-+]?|\d+[eE])\d{{1,3}}(?!\d)|\d+(?:\.\d+)?|\.\d+)
    |\\begin\s*\{{(?P<begin>[a-z]+)\*?\}}(?:\s*\{{[clr|]*\}})?|\\end\s*\{{(?P<end>[a-z]+)\*?\}}
    |\\mathbb\s*(?:\{{\s*)?(?P<set>[A-Z])(?:\s*\}})?
    |(?P<command>\\[a-zA-Z]+|\\[{{}}%$&_\#|]|\\\\)
    |(?P<letters>[a-zA-Z]+)
    |(?P<sign><=|>=|(?<=[a-zA-Z ])!=|[-+*/^_!'=<>()\[\]{{}}|,;:&%°$€£¥₹元円¢个個只本人天年岁])""",
    re.VERBOSE,
)
_GROUPED = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})+,\d{3})(?:\.\d+)?(?![\d]|,\d)")


def tokens(latex: str, *, grouped: bool = True) -> list[Token]:
    """The pieces of a cleaned text. Raises Unreadable for a character that begins no piece.

    `grouped`: commas between groups of three digits separate thousands, except in brackets.
    """
    result: list[Token] = []
    at, lists = 0, 0  # how many open brackets have separating commas
    upright = 0
    while at < len(latex):
        thousands = _GROUPED.match(latex, at) if grouped and not lists else None
        if thousands and (at == 0 or latex[at - 1] not in ",0123456789."):
            value = Fraction(thousands[0].replace(",", ""))
            result.append(Token("number", value, thousands[0], at, thousands.end()))
            at = thousands.end()
            continue
        match = _TOKEN.match(latex, at)
        if match is None:
            raise Unreadable(f"{latex[at]!r} is not read")
        kind = match.lastgroup
        text = match[0]
        end = match.end()
        if kind is None:
            upright += text.count(UPRIGHT) - text.count(UPRIGHT_END)
        else:
            result.append(_token(kind, match[kind], at, end)._replace(upright=upright > 0))
            lists += {"(": 1, "[": 1, r"\{": 1, r"\lbrace": 1}.get(text, 0)
            lists -= {")": 1, "]": 1, r"\}": 1, r"\rbrace": 1}.get(text, 0)
        at = end
    return result


def _token(kind: str, text: str, start: int, end: int) -> Token:
    if kind == "number":
        return Token("number", Fraction(text), text, start, end)
    if kind == "repeating":
        return Token("number", _repeating(text), text, start, end)
    if kind == "letters":
        if text in _WORDS:
            return Token("sign", _WORDS[text], text, start, end)
        return Token("letter" if end == start + 1 else "letters", text, text, start, end)
    if kind == "command":
        return Token("sign", {r"\$": "$", r"\&": "&"}.get(text, text), text, start, end)
    return Token(kind, text, text, start, end)


def _repeating(text: str) -> Fraction:
    whole, _, period = text.replace("}", "").partition("\\")
    period = period.partition("{")[2].strip()
    before, _, after = whole.partition(".")
    shift = 10 ** len(after)
    return Fraction(int((before + after) or 0), shift) + Fraction(
        int(period), shift * (10 ** len(period) - 1)
    )
