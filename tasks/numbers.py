r"""The number that a span of text means, as a fair teacher reads it."""

import re
from fractions import Fraction

from tasks.reading import REACH, bold, hashes, sentence, spoken_box, stated

# Digits, in groups of three or not. Possessive, so that no run of groups is tried twice.
_DIGITS = r"(?:\d{1,3}(?:,\d{3})++(?![\d,]*\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = re.compile(rf"(?<![\w.])(?:[-+]\s?)?(?:{_DIGITS})")
_NUMBER = re.compile(rf"{_SIGNED.pattern}(?:\s?/\s?\d+(?!\d))?(?: \d+/\d+)?")
_VALUE = re.compile(rf"([-+]?)\s*((?:{_DIGITS})(?:\s?/\s?\d+)?)(?: (\d+/\d+))?")
_LAST_DIGIT = re.compile(r"\d(?=\D*\Z)")

_MINUS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "\u00a0": " ", "\u202f": " "})
_THOUSANDS = re.compile(r"(?<=\d)(?:,?\\[,;:!]|\\ |~|[\u00a0\u2009\u202f])(?=\d{3}(?!\d))")
_NEGATIVE = re.compile(r"\b(?:minus|negative)\s+(?=[\d.$])", re.IGNORECASE)
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)(\d))")
_DECORATION = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|boldsymbol|left|right|q?quad|degree)\b"
    r"|\\?[$%]|[£€¥]|\^\\circ|\^\{\\circ\}|°"  # money, percent, degrees
    r"|\\[,;:!]|\\(?= )|~|\\[()\[\]]|\*\*|__|[{}]"
)
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])\s*(?:\^\s*[23]\b|[²³])")  # cm^2; what 5x^2 is, x tells

_EQUALS = re.compile(r"(?<![<>!])=|\\approx\b|≈")
_NEXT_EQUATION = re.compile(r"[,;](?!\d{3})|\b(?:or|and)\b")  # x = 5, y = 3
_WHICH_IS = re.compile(
    r",?\s+(?:which|that)\s+(?:is|makes|gives|equals)\b|\s+equals\b", re.IGNORECASE
)
_REMARK = re.compile(r"(?<=\S)\s+[(—].*", re.DOTALL)  # 18 (9 boxes with 2 pens each)

# What may stand around a number: words, hyphened or as in km/h, and the signs of prose.
_PROSE = re.compile(r"(?:[^\W\d_]|(?<=[^\W\d_])-(?=[^\W\d_])|/(?=[^\W\d_])|[\s.,:;'\"()\[\]?])*")
# Letters that stand alone are variables, but for units (5 m, 5 h) and the article.
_VARIABLE = re.compile(r"(?<![^\W\d_])(?<!')(?![aAmghlsLVWJNKCF]\b)[A-Za-zα-ω](?![^\W\d_]|')")
_FUNCTION = re.compile(r"\w\($")  # sqrt(5)
_POINTER = re.compile(
    r"\b(?:step|example|case|part|question|problem|section|option|equation|line|page)\s+\(?$",
    re.IGNORECASE,
)
CHANGED = re.compile(
    r"\b(?:not|never|cannot|isn't|neither|nor"  # a denial
    r"|than|at (?:least|most)|up to|or (?:more|less|fewer)"  # a bound
    r"|half|(?:third|quarter) of|twice|double"  # a part or a multiple of it
    r"|dozens?|(?:hundred|thousand|(?:m|b|tr)illion)s?)\b",
    re.IGNORECASE,
)
"""Words that change what the number beside them says."""


def clean(text: str) -> str:
    r"""A short span without money signs, percent, degrees, bold, LaTeX's wrappers and unit powers.

    `{,}` and `\,` between digits join them, as in `224{,}000` and `1\,000`.
    """
    text = _THOUSANDS.sub("", text.replace("{,}", ",")).translate(_MINUS)
    text = _FRACTION.sub(lambda m: f" {m[1] or m[3]}/{m[2] or m[4]}", _NEGATIVE.sub("-", text))
    return _UNIT_POWER.sub("", _DECORATION.sub(" ", text)).strip()


def integer(text: str) -> int | None:
    """The strict reading: what Python's `int` reads, and nothing else."""
    try:
        return int(text)
    except ValueError:  # also more digits than Python reads
        return None


def to_number(text: str) -> Fraction | None:
    """The value of one number: `-1,234.50`, `3/4`, `3 1/2`. None where it is none."""
    match = _VALUE.fullmatch(text.strip())
    if match is None:
        return None
    sign, whole, part = match.groups()
    try:
        value = Fraction("".join(whole.replace(",", "").split())) + Fraction(part or 0)
    except (ValueError, ZeroDivisionError):  # more digits than Python reads; nothing over 0
        return None
    return -value if sign == "-" else value


def only_number(span: str) -> Fraction | None:
    """The value of the one number in a short span; words and units may stand around it.

    Behind an equals sign only the last side counts. Two numbers, variables, powers, operators,
    bounds, denials and words that are part of a number are no number.
    """
    span = span.strip()
    if len(span) > REACH:
        return None
    *others, side = _EQUALS.split(clean(span))
    numbers = list(_NUMBER.finditer(side))
    if len(numbers) != 1 or any(_NEXT_EQUATION.search(other) for other in others[1:]):
        return None
    before, behind = side[: numbers[0].start()], side[numbers[0].end() :]
    return to_number(numbers[0][0]) if _says_nothing(before, behind) else None


def _says_nothing(before: str, behind: str) -> bool:
    """Whether what stands around a number leaves its value alone."""
    if _FUNCTION.search(before) or _POINTER.search(before):
        return False
    return not any(
        _VARIABLE.search(part)
        or CHANGED.search(part)
        or not _PROSE.fullmatch(part)
        or any(sign.isnumeric() for sign in part)  # ½, ², ①, 万 are letters to `re`
        for part in (before, behind)
    )


def last_number(text: str) -> Fraction | None:
    """The value of the last number anywhere in the text."""
    if (last := _LAST_DIGIT.search(text)) is None:
        return None
    window = text[max(0, last.end() - REACH) : last.end()]
    numbers = _SIGNED.findall(window.translate(_MINUS).replace("$", " ").replace("**", " "))
    return to_number(numbers[-1]) if numbers else None


def find_number(text: str, *, anywhere: bool, truncated: bool) -> tuple[Fraction, str] | None:
    """The number a spoken text ends on, as a fair teacher reads it, with the rule that found it.

    A box decides alone. Without one: `#### N`, "the answer is N", a bold number in the last line,
    and, with `anywhere`, the last number of all.
    """
    if (box := spoken_box(text)) is not None:
        value = integer(box)
        return _by("boxed", only_number(box) if value is None else Fraction(value))
    if (line := hashes(text, truncated)) is not None:
        return _by("hash", only_number(line))
    if (found := _by("stated", _stated_number(text, truncated))) is not None:
        return found
    span = None if truncated else bold(text)
    if span is not None and (found := _by("bold", only_number(span))) is not None:
        return found
    return _by("last", last_number(text)) if anywhere and not truncated else None


def _by(place: str, value: Fraction | None) -> tuple[Fraction, str] | None:
    return None if value is None else (value, f"{place}-number")


def _stated_number(text: str, truncated: bool) -> Fraction | None:
    rest = stated(text)
    said = None if rest is None else sentence(rest, truncated)
    return None if said is None else only_number(_WHICH_IS.sub(" = ", _REMARK.sub("", said)))
