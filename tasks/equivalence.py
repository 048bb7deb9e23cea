r"""Marking of mathematical expressions: by text where that is enough, else by math-verify.

strict: the last box holds the gold's own text, up to spelling (`\dfrac`, spaces, `\left`, units).
lenient: a box of any kind, or a stated answer, that means the same as the gold. math-verify runs
in child processes under a time limit, so no answer can hang, crash or starve who asks.
"""

import os
import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from tasks.base import Answer
from tasks.children import Children
from tasks.marking import Mark, decided, no_answer
from tasks.reading import REACH, last_box, only_number, stated

LIMIT = 5.0  # seconds for one comparison
LONGEST = 2_000  # characters; a longer answer is no answer that anybody meant
CHILDREN = 2

_SPELLING = [
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"\\sqrt\s*(\w)"), r"\\sqrt{\1}"),
    (re.compile(r"\\(?:left|right|displaystyle|limits)\b|\\[,;:! ]|\\q?quad\b|~"), ""),
    (re.compile(r"(?<=\d)\s*\\(?:text|mbox|mathrm)\s*\{\s*[a-z. ]*\}(?:\^\{?\d\}?)?$"), ""),
    (re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\?[$%]|\^\s*(?:\\circ|\{\\circ\})|°|\\degree\b"), ""),
    (re.compile(r"^\*\*(.*)\*\*$"), r"\1"),
    (re.compile(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<!\d)\.(?=\d)"), "0."),
    (re.compile(r"^(-?\d+)/(\d+)$"), r"\\frac{\1}{\2}"),
    (re.compile(r"^[a-zA-Z]\s*=(?!.*=)"), ""),
    (re.compile(r"\s+|\.$"), ""),
]
_STATED = re.compile(r"\s*(?:\\\(|\\\[|\$\$?)(.+?)(?:\\\)|\\\]|\$)")


class _Open(NamedTuple):
    """An answer that text alone does not decide."""

    place: int
    gold: str
    answer: str
    rule: str


def mark_expression(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    """Mark one expression; `answer` is the gold in LaTeX, without delimiters."""
    return mark_expressions([Answer(completion, answer, truncated)], marking)[0]


def mark_expressions(answers: Sequence[Answer], marking: str) -> list[Mark]:
    """Mark many; what needs math-verify is compared by several children at once."""
    marks: list[Mark] = []
    undecided: list[_Open] = []
    for place, answer in enumerate(answers):
        mark = _mark_text(answer, marking)
        if isinstance(mark, _Open):
            undecided.append(mark._replace(place=place))
            mark = Mark("error", mark.answer, "pending")
        marks.append(mark)
    for question, mark in zip(undecided, _compare(undecided), strict=True):
        marks[question.place] = mark
    return marks


def _mark_text(answer: Answer, marking: str) -> Mark | _Open:
    """The mark that the text alone gives, or what has to be compared."""
    found = _find(answer.completion, marking)
    if found is None:
        return no_answer(answer.truncated)
    text, place = found
    same = bool(spelled(text)) and spelled(text) == spelled(answer.answer)
    if marking == "strict" or same:
        return decided(same, text, f"{marking}:{place}-text")
    if len(text) > LONGEST:
        return Mark("error", None, "lenient:too-long")
    left, right = _plain(text), _plain(answer.answer)
    if left is not None and right is not None:
        return decided(left == right, text, f"lenient:{place}-number")
    return _Open(-1, answer.answer, text, f"lenient:{place}")


def _find(text: str, marking: str) -> tuple[str, str] | None:
    """The answer's LaTeX and the place it stands in."""
    if marking == "strict":
        box = last_box(text)
        return (box, "boxed") if box else None
    box = last_box(text, ("boxed", "fbox"))
    if box is not None:
        return (box, "boxed") if box else None
    if (rest := stated(text)) is None:
        return None
    inside = _STATED.match(rest)
    bare = rest.partition(". ")[0].strip().strip("*").rstrip(".").strip()
    latex = inside[1].strip() if inside else bare
    return (latex, "stated") if latex else None


def spelled(latex: str) -> str:
    r"""One spelling for what LaTeX can write in many: `\dfrac12` is `\frac{1}{2}`."""
    latex = latex.strip()[: LONGEST + 1]
    for pattern, replacement in _SPELLING:
        latex = pattern.sub(replacement, latex)
    letter = re.fullmatch(r"\(([A-Z])\)", latex)
    return letter[1] if letter else latex


_PLAIN = re.compile(r"-?(?:\d+(?:\.\d+)?|\\frac\{-?\d+\}\{\d+\})")


def _plain(latex: str) -> object:
    """The value of an expression that is one number and nothing else."""
    text = latex.strip() if "%" in latex else spelled(latex)  # 20 % may be meant as 0.2
    return only_number(text) if len(text) < REACH and _PLAIN.fullmatch(text) else None


def _compare(questions: Sequence[_Open]) -> list[Mark]:
    if not questions:
        return []
    replies = _children(os.getpid()).map([(q.gold, q.answer) for q in questions])
    return [
        Mark("error", q.answer, f"{q.rule}-{reply.failure}")
        if reply.failure
        else decided(bool(reply.value), q.answer, f"{q.rule}-math-verify")
        for q, reply in zip(questions, replies, strict=True)
    ]


@cache
def _children(pid: int) -> Children:
    """This process's verifiers, begun when first needed; a forked process begins its own."""
    return Children("tasks.math_verifier:equivalent", CHILDREN, LIMIT)
