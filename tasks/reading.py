r"""Finding an answer in a text: boxes, stated answers, letters and numbers. Linear on any text."""

import re
from collections import deque
from fractions import Fraction
from typing import NamedTuple

_TOKEN = re.compile(r"\\[a-z]+\s*\{|\\.|[{}]", re.DOTALL)
_OPENING = re.compile(r"\\([a-z]+)\s*\{")
_UNWRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|boldsymbol)\b\s*")
_SQUARED = re.compile(r"\\(?:text|mathrm)\s*\{[^{}\d]*\}\s*\^\s*\{?[23]\}?")  # m^2
_SPACES = re.compile(r"\\[,;:!]|\\(?= )|\\q?quad\b|~|\{,\}(?!\d)")
_MONEY = re.compile(r"\\?\$|[£€¥]")
_PERCENT = re.compile(r"\\?%|\^\\circ|\^\{\\circ\}|°|\\degree\b")
_DELIMITERS = re.compile(r"\\left\b|\\right\b|\\[()\[\]]|\*\*|__")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)(\d))")

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?![\d,]*\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = rf"(?<![\w.])(?:[-+]\s?)?(?:{_DIGITS})"
_NUMBER = rf"{_SIGNED}(?:\s?/\s?\d+(?!\d))?(?: \d+/\d+)?"
_VALUE = re.compile(rf"([-+]?)\s*((?:{_DIGITS})(?:\s?/\s?\d+)?)(?: (\d+/\d+))?")
_WORDS = r"[^\W\d_]|[\s.,:;'\"()\[\]\-?]"
_ONLY = re.compile(rf"(?:{_WORDS})*?({_NUMBER})(?![xyzn]\b)(?:{_WORDS})*")
_FIRST = re.compile(
    rf"\s*\(?\s*({_NUMBER})(?![xyzn]\b)(?!\s*[*/^_\\+×÷-]\s*\d|\s*[*/^_\\+×÷]|,?\d)"
)
_ANY = re.compile(_SIGNED)
_MINUS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "\u00a0": " ", "\u202f": " "})

_STATED = re.compile(r"\banswer\b(?:\s+is\b|\s*[:=])\s*:?", re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*\)?\s*[.:]?")
_OPTION = re.compile(r"\(([A-Za-z])\)(?!.*\([A-Za-z]\)).*", re.DOTALL)
_STATED_LETTER = re.compile(
    r"\s*(?:option\b|choice\b)?\s*(?:\*\*|\$|\\text\{)?\s*(?:\(([A-Za-z])\)|([A-Z])(?=\W*$|[.,;]\s))",
    re.IGNORECASE,
)
_LINE_LETTER = re.compile(r"(?:\*\*)?(?:\(([A-Z])\)|([A-Z]))\.?(?:\*\*)?\.?")
REACH = 200  # characters behind "the answer is" that can hold the answer


class Read(NamedTuple):
    """An answer that was found, and where."""

    text: str
    rule: str


def last_box(text: str, commands: tuple[str, ...] = ("boxed",)) -> str | None:
    r"""The content of the last closed `\boxed{...}`, braces matched at any depth, or None."""
    start = text.rfind("\\boxed{")
    if start >= 0 and commands == ("boxed",):
        end = text.find("}", start)
        inner = text[start + 7 : end]
        if end > 0 and "{" not in inner and "\\" not in inner:
            return inner.strip()
    return _matched_box(text, commands)


def _matched_box(text: str, commands: tuple[str, ...]) -> str | None:
    """One pass with a stack of open braces; the box that begins last among the closed ones."""
    stack: list[int] = []
    best, found = -1, None
    for token in _TOKEN.finditer(text):
        shape = token[0]
        if shape == "}":
            begun = stack.pop() if stack else -1
            if begun > best:
                best, found = begun, text[begun : token.start()]
        elif shape == "{":
            stack.append(-1)
        elif shape[-1] == "{" and (opening := _OPENING.match(shape)):
            stack.append(token.end() if opening[1] in commands else -1)
    return None if found is None else found.strip()


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None


def stated(text: str) -> str | None:
    """The rest of the line behind the last "answer is" or "answer:", or None."""
    if (last := _last(_STATED, text)) is None:
        return None
    rest = text[last.end() : last.end() + REACH].lstrip(" \t*")
    return rest.lstrip("\n").partition("\n")[0]


def last_line(text: str) -> str:
    """The last line that holds anything."""
    return text.rstrip()[-REACH:].rpartition("\n")[2].strip()


def clean(text: str) -> str:
    r"""A short span without money signs, percent, degrees, bold, and LaTeX's wrappers and spaces.

    `{,}` and `\,` between digits join them, as in `224{,}000` and `1\,000`.
    """
    text = text.translate(_MINUS).replace("{,}", ",")
    text = re.sub(r"(?<=\d)(?:\\[,;:!]|\\ )(?=\d{3})", "", text)
    text = _FRACTION.sub(lambda m: f" {m[1] or m[3]}/{m[2] or m[4]}", text)
    for pattern in (_SQUARED, _UNWRAPPED, _SPACES, _MONEY, _PERCENT, _DELIMITERS):
        text = pattern.sub(" ", text)
    return text.replace("{", " ").replace("}", " ").strip()


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

    Behind an equals sign only the last side counts. Two numbers, variables, powers or operators
    are no number.
    """
    side = re.split(r"=|\\approx\b|≈", clean(span[:REACH]))[-1]
    match = _ONLY.fullmatch(side.strip())
    return to_number(match[1]) if match else None


def first_number(span: str) -> Fraction | None:
    """The value of the number that a span begins with, unless an expression goes on behind it."""
    match = _FIRST.match(clean(span[:REACH]))
    return to_number(match[1]) if match else None


def last_number(text: str) -> Fraction | None:
    """The value of the last number anywhere in the text."""
    last = _last(_ANY, text.translate(_MINUS).replace("$", " ").replace("**", " "))
    return to_number(last[0]) if last else None


def find_number(text: str, *, anywhere: bool) -> tuple[Fraction, str] | None:
    """The number a text ends on, as a fair teacher reads it, with the rule that found it.

    A box decides alone. Without one: `#### N`, "the answer is N", a bold number in the last line,
    and, with `anywhere`, the last number of all.
    """
    box = last_box(text, ("boxed", "fbox"))
    if box is not None:
        value = only_number(box)
        return None if value is None else (value, "boxed-number")
    if hashes := _HASHES.findall(text):
        value = only_number(hashes[-1])
        return None if value is None else (value, "hash-number")
    if (rest := stated(text)) is not None:
        value = only_number(rest) if first_number(rest) is None else first_number(rest)
        if value is not None:
            return value, "stated-number"
    for bold in reversed(_BOLD.findall(last_line(text))):
        if (value := only_number(bold)) is not None:
            return value, "bold-number"
    value = last_number(text) if anywhere else None
    return None if value is None else (value, "last-number")


def find_letter(text: str) -> Read | None:
    """The option letter a text ends on, as a fair teacher reads it, with the rule that found it.

    A box decides alone. Without one: "the answer is (X)", or a last line that is nothing else.
    """
    box = last_box(text, ("boxed", "fbox"))
    if box is not None:
        return _boxed_letter(clean(box[:REACH]))
    if (rest := stated(text)) is not None and (match := _STATED_LETTER.match(rest)):
        return Read((match[1] or match[2]).upper(), "stated-letter")
    if match := _LINE_LETTER.fullmatch(last_line(text)):
        return Read(match[1] or match[2], "line-letter")
    return None


def _boxed_letter(box: str) -> Read | None:
    if match := _LETTER.fullmatch(box):
        return Read(match[1].upper(), "boxed-letter")
    if match := _OPTION.fullmatch(box):
        return Read(match[1].upper(), "boxed-option")
    return None
