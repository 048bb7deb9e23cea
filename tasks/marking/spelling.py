"""Compares two LaTeX answers as text: normalized spelling, with label and unit split off.

Splits the unit from an answer, and normalizes its spelling.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from tasks.marking.numbers import MODIFIERS

_TEXT = re.compile(  # 5\text{ cm}^2, also after \, and with a full stop
    r"(?<=[\w})])(?:\s|\\[,;: ]|~)*\\(?:text|textrm|mbox|mathrm)\s*\{([A-Za-z.\s~/-]*)\}"
    r"(?:\s*\^\s*\{?([23])\}?)?[\s.]*$"
)
# Bare words are long or well known: 2 ab is a product.
_BARE = re.compile(
    r"(?<=[\d}])\s+((?:[a-z]{4,}|[ckmd]m|ft|in|mi|yd|kg|lb|oz|hr|min|sec|men)(?: [a-z]+)*)"
    r"(?:\s*\^\s*\{?([23])\}?)?[\s.]*$"
)
_SIGNS = {
    "dollar": re.compile(r"\\?\$\s*\.?\d"),
    "percent": re.compile(r".*\d\s*\\?%$", re.DOTALL),
    "degree": re.compile(r".*(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|°|\\degree)$", re.DOTALL),
}
_CONNECTIVE = re.compile(r"\b(?:and|or|if|for|when|where|is|are)\b")
_WORD = re.compile(r"[a-z]+")
_POWERS = {None: "", "2": "square ", "3": "cubic "}
_MEASURES = {
    spelling: measure
    for measure, spellings in {
        "millimeter": "mm millimetre",
        "centimeter": "cm centimetre",
        "meter": "m metre",
        "kilometer": "km kilometre",
        "inch": "in inches",
        "foot": "ft feet",
        "yard": "yd",
        "mile": "mi",
        "gram": "g",
        "kilogram": "kg",
        "ounce": "oz",
        "pound": "lb",
        "second": "s sec",
        "minute": "min",
        "hour": "h hr",
        "liter": "l litre",
        "square": "sq",
        "cubic": "cu",
        "unit": "",
        "dollar": "",
        "cent": "",
        "degree": "deg",
        "day": "",
        "am": "",
        "pm": "",
    }.items()
    for spelling in (measure, *spellings.split())
}


def split_unit(latex: str) -> tuple[str, str]:
    r"""An answer without its unit in words, and the unit's name: "dollar", "square meter", or "".

    Currency, percent and degree signs also give a unit, but stay in the answer.
    """
    match = _TEXT.search(latex) or _BARE.search(latex)
    if match is None:
        return latex, next((name for name, sign in _SIGNS.items() if sign.match(latex)), "")
    value = latex[: match.start()]
    more = MODIFIERS.search(match[1]) or _CONNECTIVE.search(match[1])  # 5 million, 5 if x > 0
    if more or not re.search(r"\d", value):
        return latex, ""
    singular = [re.sub(r"(?<=..)s$", "", word) for word in _WORD.findall(match[1].lower())]
    names = [_MEASURES.get(word, word) for word in singular]
    if any(name in _MEASURES for name in names):
        return value, _POWERS[match[2]] + " ".join(names)
    return value, names[-1] if names else ""  # of counted things the noun


MAX_LENGTH = 2_000  # characters; a longer text is not compared

_SPELLING: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r",\s*\\!\s*"), ","),  # MATH's 10,\!080
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"\\sqrt\s*(\w)"), r"\\sqrt{\1}"),
    # not the second backslash of a matrix's line break
    (re.compile(r"\\(?:left|right|displaystyle|limits)\b|(?<!\\)\\[,;:! ]|~"), ""),
    (re.compile(r"\\q?quad\b"), " "),
    (re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\?[$%]|\^\s*(?:\\circ|\{\\circ\})|°|\\degree\b"), ""),
    (re.compile(r"^\*\*(.*)\*\*$"), r"\1"),
    (re.compile(r"\{([,:])\}"), r"\1"),  # 10{,}000 and 6{:}30
    # separators of thousands, but in brackets the comma of a pair or list
    (
        re.compile(r"(?<![(\[{\d,])\d{1,3}(?:,\d{3})++(?![\d)\]}\\,])"),
        lambda m: m[0].replace(",", ""),
    ),
    (re.compile(r"_\{(\w)\}"), r"_\1"),
    (re.compile(r"(?<!\d)\.(?=\d)"), "0."),
    (re.compile(r"^(-?\d+)/(\d+)$"), r"\\frac{\1}{\2}"),
    (re.compile(r"\s+"), " "),
    (re.compile(r"(?<!\d) | (?!\d)"), ""),  # 5 6 is not 56
    (re.compile(r"\.$"), ""),
    (re.compile(r"^\(([A-Z])\)$"), r"\1"),
]
_LABEL = re.compile(r"([a-zA-Z])\s*=(?!.*=)")
_WRAPPED = re.compile(r"^\\text\{(\d[^{}]*)\}$")  # \text{5 cm}
_DENIAL = re.compile(r"\\neq?\b|≠|\\not\b")
_BASE = re.compile(r"-?[0-9A-F]+_\{?(\d+)\}?")
_SEVERAL = re.compile(r"[\d.]+(?: [\d.]+)+")


class AnswerParts(NamedTuple):
    """An answer: its label (the x of x = 5), normalized value and unit; each may be ""."""

    label: str
    value: str
    unit: str
    latex: str
    """As written, without the words of the unit."""


def normalize_latex(latex: str) -> str:
    r"""One spelling of what LaTeX can write in several ways: `\dfrac12` is `\frac{1}{2}`."""
    latex = latex.strip()[: MAX_LENGTH + 1]
    for pattern, replacement in _SPELLING:
        latex = pattern.sub(replacement, latex)
    return latex


def split_answer(latex: str) -> AnswerParts:
    r"""The parts of `x = 5\text{ cm}`: label, value and unit."""
    latex = _WRAPPED.sub(r"\1", latex.strip()[: MAX_LENGTH + 1])
    latex, unit = split_unit(latex)
    label = _LABEL.match(latex)
    value = normalize_latex(latex[label.end() :] if label else latex)
    return AnswerParts(label[1] if label else "", value, unit, latex)


def same_text(one: AnswerParts, two: AnswerParts) -> bool:
    """Whether both are the same text up to spelling; a label or unit may be absent, not differ."""
    return bool(one.value) and one.value == two.value and labels_agree(one, two)


def labels_agree(one: AnswerParts, two: AnswerParts) -> bool:
    """Whether labels and units are equal if both answers have them."""
    pairs = ((one.label, two.label), (one.unit, two.unit))
    return all(not a or not b or a == b for a, b in pairs)


def text_differs(one: AnswerParts, two: AnswerParts) -> bool:
    """Whether the texts differ in a way that math-verify ignores.

    It drops bases, words and `≠`, takes the first of several lines, adds adjacent numbers, and
    takes a set for a point or an interval.
    """
    answer, gold = one.latex, two.latex
    return (
        (one.value == two.value and not labels_agree(one, two))
        or bool(_DENIAL.search(answer)) != bool(_DENIAL.search(gold))
        or _words(answer) != _words(gold)
        or _other_base(one.value, two.value)
        or ("\\\\" in answer and "\\begin" not in answer)
        or _SEVERAL.fullmatch(one.value) is not None
        or (one.value.startswith("\\{") and two.value.startswith(("(", "[")))
    )


def _words(latex: str) -> set[str]:
    return {word.lower() for word in MODIFIERS.findall(latex)}


def _other_base(one: str, two: str) -> bool:
    """A base may be left out of an answer, but not changed, and not added to plain digits."""
    ours, theirs = _BASE.fullmatch(one), _BASE.fullmatch(two)
    if ours is None:
        return False
    return ours[1] != theirs[1] if theirs else two.removeprefix("-").isalnum()
