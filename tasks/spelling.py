r"""When two LaTeX answers are the same text: one spelling for each, labels and units set apart."""

import re
from collections.abc import Callable
from typing import NamedTuple

from tasks.numbers import CHANGED
from tasks.units import split_unit

LONGEST = 2_000  # characters; a longer answer is no answer that anybody meant

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


class Parts(NamedTuple):
    """An answer: the letter it is said to be, its value in one spelling, its unit; or ""."""

    label: str
    value: str
    unit: str
    latex: str
    """As it was written, but for the unit's words."""


def spelled(latex: str) -> str:
    r"""One spelling for what LaTeX can write in many: `\dfrac12` is `\frac{1}{2}`."""
    latex = latex.strip()[: LONGEST + 1]
    for pattern, replacement in _SPELLING:
        latex = pattern.sub(replacement, latex)
    return latex


def parts(latex: str) -> Parts:
    r"""What `x = 5\text{ cm}` says, piece by piece."""
    latex = _WRAPPED.sub(r"\1", latex.strip()[: LONGEST + 1])
    latex, unit = split_unit(latex)
    label = _LABEL.match(latex)
    value = spelled(latex[label.end() :] if label else latex)
    return Parts(label[1] if label else "", value, unit, latex)


def same(one: Parts, two: Parts) -> bool:
    """The same text, up to spelling; a label or a unit may be left out, not changed."""
    return bool(one.value) and one.value == two.value and agree(one, two)


def agree(one: Parts, two: Parts) -> bool:
    """Whether labels and units are the same where both answers have them."""
    pairs = ((one.label, two.label), (one.unit, two.unit))
    return all(not a or not b or a == b for a, b in pairs)


def differs(one: Parts, two: Parts) -> bool:
    """Whether text shows a difference that math-verify does not see.

    It drops bases, words and `≠`, takes the first of several lines, adds numbers
    that stand side by side, and takes a set for a point or an interval.
    """
    answer, gold = one.latex, two.latex
    return (
        (one.value == two.value and not agree(one, two))
        or bool(_DENIAL.search(answer)) != bool(_DENIAL.search(gold))
        or _words(answer) != _words(gold)
        or _other_base(one.value, two.value)
        or ("\\\\" in answer and "\\begin" not in answer)
        or _SEVERAL.fullmatch(one.value) is not None
        or (one.value.startswith("\\{") and two.value.startswith(("(", "[")))
    )


def _words(latex: str) -> set[str]:
    return {word.lower() for word in CHANGED.findall(latex)}


def _other_base(one: str, two: str) -> bool:
    """A base may be left out of an answer, but not changed, and not added to plain digits."""
    ours, theirs = _BASE.fullmatch(one), _BASE.fullmatch(two)
    if ours is None:
        return False
    return ours[1] != theirs[1] if theirs else two.removeprefix("-").isalnum()
