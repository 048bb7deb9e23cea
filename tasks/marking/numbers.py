"""Reads the number that a span of text gives, as a fair teacher would."""

import re
from fractions import Fraction

from tasks.marking.comparison import named
from tasks.marking.latex import SCALARS, THOUSANDS, Unreadable, read
from tasks.marking.reading import (
    REACH,
    find_bold,
    find_hash_line,
    find_statement,
    first_sentence,
    last_filled_box,
)
from tasks.marking.units import MODIFIERS, split_unit
from tasks.marking.values import constant

# Digits, in groups of three or not. Possessive, so that no run of groups is tried twice.
_DIGITS = r"(?:\d{1,3}(?:,\d{3})++(?![\d,]*\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = re.compile(rf"(?<![\w.])(?:[-+]\s?)?(?:{_DIGITS})")
_NUMBER = re.compile(rf"{_SIGNED.pattern}(?:\s?/\s?\d+(?!\d))?(?: \d+/\d+)?")
_VALUE = re.compile(rf"([-+]?)\s*((?:{_DIGITS})(?:\s?/\s?\d+)?)(?: (\d+/\d+))?")
_SPACED = re.compile(r"[-+−]?\d{1,3}(?: \d{3})+(?:\.\d+)?")  # 1 234 567
_GOLD = re.compile(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+|\d+/0*[1-9]\d*)", re.ASCII)
BITS = 10_000  # of a number that is a power, at most; Python writes up to 4,300 digits
_LAST_DIGIT = re.compile(r"\d(?=\D*\Z)")

_MINUS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "\u00a0": " ", "\u202f": " "})
_NEGATIVE = re.compile(r"\b(?:minus|negative)\s+(?=[\d.$])", re.IGNORECASE)
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)(\d))")
_DECORATION = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|boldsymbol|left|right|q?quad|degree)\b"
    r"|\\?[$%]|[£€¥₹]|\\pounds\b|\bUSD\b|\^\\circ|\^\{\\circ\}|°"  # money, percent, degrees
    r"|\\[,;:!]|\\(?= )|~|\\[()\[\]]|\*\*|__|[{}]"
)
_NOT_WHOLE = re.compile(  # ≠ 6; 0.3… and 18...; 6K
    r"\\not\b|\d\s*(?:\.\.|…|\\l?dots\b)|\d[kK]\b"
)
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])\s*(?:\^\s*[23]\b|[²³])")  # cm^2; x in 5x^2 is a variable

_EQUALS = re.compile(r"(?<![<>!])=|\\approx\b|≈")
_NEXT_EQUATION = re.compile(r"[,;](?!\d{3})|\b(?:or|and)\b")  # x = 5, y = 3
_WHICH_IS = re.compile(
    r",?\s+(?:which|that)\s+(?:is|makes|gives|equals)\b|\s+equals\b", re.IGNORECASE
)
_REMARK = re.compile(r"(?<=\S)\s+[(—].*", re.DOTALL)  # 18 (9 boxes with 2 pens each)

# What may surround a number: words, hyphenated or as in km/h, and punctuation.
_PROSE = re.compile(r"(?:[^\W\d_]|(?<=[^\W\d_])-(?=[^\W\d_])|/(?=[^\W\d_])|[\s.,:;'\"()\[\]?])*")
# Single letters are variables, except units (5 m, 5 h) and the article.
_VARIABLE = re.compile(r"(?<![^\W\d_])(?<!')(?![aAmghlsLVWJNKCF]\b)[A-Za-zα-ω](?![^\W\d_]|')")
_FUNCTION = re.compile(r"\w\($")  # sqrt(5)
_POINTER = re.compile(
    r"\b(?:step|example|case|part|question|problem|section|option|equation|line|page)\s+\(?$",
    re.IGNORECASE,
)


def strip_markup(text: str) -> str:
    r"""A short span without money signs, percent, degrees, bold, LaTeX's wrappers and unit powers.

    `{,}` and `\,` between digits join them, as in `224{,}000` and `1\,000`.
    """
    text = THOUSANDS.sub("", text.replace("{,}", ",")).translate(_MINUS)
    text = _FRACTION.sub(lambda m: f" {m[1] or m[3]}/{m[2] or m[4]}", _NEGATIVE.sub("-", text))
    return _UNIT_POWER.sub("", _DECORATION.sub(" ", text)).strip()


def parse_integer(text: str) -> int | None:
    """The strict reading: exactly what Python's `int` accepts, else None."""
    try:
        return int(text)
    except ValueError:  # also for more digits than Python parses
        return None


def parse_number(text: str) -> Fraction | None:
    """The value of one number: `-1,234.50`, `3/4`, `3 1/2`. None for any other text."""
    match = _VALUE.fullmatch(text.strip())
    if match is None:
        return None
    sign, whole, part = match.groups()
    try:
        value = Fraction("".join(whole.replace(",", "").split())) + Fraction(part or 0)
    except (ValueError, ZeroDivisionError):  # more digits than Python parses; division by 0
        return None
    return -value if sign == "-" else value


def normalize_number(text: str) -> str | None:
    """A gold: an integer, decimal or fraction, without commas between groups of three digits.

    None for any other text: `2,3` is a list, or a decimal in some countries.
    """
    bare = text.strip()
    return bare.replace(",", "") if _GOLD.fullmatch(bare) else None


def only_number(span: str) -> Fraction | None:
    """The value of the only number in a short span, which words and units may surround.

    Of an equation only the last side counts. None for two numbers, variables, powers, operators,
    bounds, denials, and words that are part of a number.
    """
    span = span.strip()
    if len(span) > REACH or _NOT_WHOLE.search(span):
        return None
    *others, side = _EQUALS.split(strip_markup(span))
    numbers = list(_NUMBER.finditer(side))
    if len(numbers) != 1 or any(_NEXT_EQUATION.search(other) for other in others[1:]):
        return None
    before, after = side[: numbers[0].start()], side[numbers[0].end() :]
    if _FUNCTION.search(before) or _POINTER.search(before):
        return None
    changes_value = any(
        _VARIABLE.search(part)
        or MODIFIERS.search(part)
        or not _PROSE.fullmatch(part)
        or any(sign.isnumeric() for sign in part)  # ½, ², ①, 万 are letters to `re`
        for part in (before, after)
    )
    return None if changes_value else parse_number(numbers[0][0])


def number_in(span: str) -> Fraction | None:
    r"""The value of a short span: of its only number, or of LaTeX such as `9.5 \times 10^3`."""
    if _SPACED.fullmatch(span.strip()):
        span = "".join(span.split())
    value = only_number(span)
    return _latex_number(span) if value is None and len(span) <= REACH else value


def _latex_number(span: str) -> Fraction | None:
    """The value of a number, power or quotient; None for sums and products, but with powers."""
    if MODIFIERS.search(span):
        return None
    try:
        node = read(split_unit(span)[0])
        if (name := named(node)) is not None:
            node = name.value
        if node.kind == "percent":
            (node,) = node.args
        is_worked_out = node.kind != "add" and (
            node.kind != "multiply" or any(part.kind == "power" for part in node.args)
        )
        value = constant(node) if node.kind in SCALARS and is_worked_out else None
    except (Unreadable, ArithmeticError, TypeError):  # a fault of the reader, too
        return None
    if not isinstance(value, Fraction) or max(map(int.bit_length, value.as_integer_ratio())) > BITS:
        return None
    return value


def last_number(text: str) -> Fraction | None:
    """The value of the last number anywhere in the text."""
    if (last := _LAST_DIGIT.search(text)) is None:
        return None
    window = text[max(0, last.end() - REACH) : last.end()]
    numbers = _SIGNED.findall(window.translate(_MINUS).replace("$", " ").replace("**", " "))
    return parse_number(numbers[-1]) if numbers else None


def find_number(
    text: str, *, tagged: bool, anywhere: bool, truncated: bool
) -> tuple[Fraction, str] | None:
    """The number of a `reading.final_text`, with the rule that applied.

    A box takes precedence, then `<answer>` tags. Without them: `#### N`, "the answer is N", a bold
    number in the last line, and, with `anywhere`, the last number of the text.
    """
    if (box := last_filled_box(text)) is not None:
        value = parse_integer(box)
        return _with_rule("boxed", number_in(box) if value is None else Fraction(value))
    if tagged:
        return _with_rule("tagged", number_in(text))
    if (line := find_hash_line(text, truncated)) is not None:
        return _with_rule("hash", number_in(line))
    rest = find_statement(text)
    statement = None if rest is None else first_sentence(rest, truncated)
    if statement is not None:
        number = number_in(_WHICH_IS.sub(" = ", _REMARK.sub("", statement)))
        if number is not None:
            return _with_rule("stated", number)
    span = None if truncated else find_bold(text)
    if span is not None and (number := number_in(span)) is not None:
        return _with_rule("bold", number)
    return _with_rule("last", last_number(text)) if anywhere and not truncated else None


def _with_rule(place: str, value: Fraction | None) -> tuple[Fraction, str] | None:
    return None if value is None else (value, f"{place}-number")
