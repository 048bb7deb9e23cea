"""Compares two LaTeX answers as text: normalized spelling, with label and unit split off.

Splits the unit from an answer, and normalizes its spelling.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from tasks.marking.units import split_unit

MAX_LENGTH = 2_000  # characters; a longer text is not compared
_PLAIN = re.compile(r"[\w.()-]*")  # numbers, letters and words have one spelling

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


class AnswerComparison(NamedTuple):
    """How a marker tells whether two extracted answers are the same.

    key: answers with different keys are not, unless one of the keys is empty; same: whether two
    others are, the first one as the gold. Without it, answers with equal keys are the same.
    """

    key: Callable[[str], str]
    same: Callable[[str, str], bool] | None = None


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


def spelling_key(answer: str) -> str:
    """What answers share that differ in case or LaTeX's spelling only."""
    plain = len(answer) > MAX_LENGTH or _PLAIN.fullmatch(answer)
    return (answer.strip() if plain else normalize_latex(answer)).casefold()


def split_answer(latex: str) -> AnswerParts:
    r"""The parts of `x = 5\text{ cm}`: label, value and unit."""
    latex = _WRAPPED.sub(r"\1", latex.strip()[: MAX_LENGTH + 1])
    latex, unit = split_unit(latex)
    label = _LABEL.match(latex)
    value = normalize_latex(latex[label.end() :] if label else latex)
    return AnswerParts(label[1] if label else "", value, unit, latex)


def same_text(one: AnswerParts, two: AnswerParts) -> bool:
    """Whether both are the same text up to spelling; a label or unit may be absent, not differ."""
    labels_agree = not one.label or not two.label or one.label == two.label
    return bool(one.value) and one.value == two.value and labels_agree and units_agree(one, two)


def units_agree(one: AnswerParts, two: AnswerParts) -> bool:
    """Whether the units are equal if both answers have one."""
    return not one.unit or not two.unit or one.unit == two.unit
