r"""Marking of mathematical expressions: by text where that is enough, else by math-verify.

strict: the last box holds the gold's own text, up to spelling (`\dfrac`, spaces, `\left`, units).
lenient: a box of any kind, or a stated answer, that means the same as the gold. math-verify runs
in child processes under a time limit, so no answer can hang, crash or starve who asks.
"""

import os
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from tasks.base import Answer
from tasks.children import Children
from tasks.marking import Mark, decided, no_answer
from tasks.numbers import CHANGED, only_number
from tasks.reading import REACH, last_box, sentence, spoken, spoken_box, stated
from tasks.spelling import LONGEST, Parts, agree, differs, parts, same, spelled

__all__ = ["mark_expression", "mark_expressions", "spelled"]

LIMIT = 5.0  # seconds for one comparison
CHILDREN = 2

_DELIMITER = re.compile(r"(?<!\\)\$")
_INSIDE = re.compile(r"(?:\\\(|\\\[|\$\$?)(.+?)(?:\\\)|\\\]|\$\$?)", re.DOTALL)
_GOES_ON = re.compile(r"\s*(?:=|(?:or|and)\b)|[^$]*\$|.*\\\(", re.DOTALL)  # $5$ or $6$; $x$ = 5
_PLAIN = re.compile(r"-?(?:\d+(?:\.\d+)?|\\frac\{-?\d+\}\{\d+\})")


class _Open(NamedTuple):
    """An answer that text alone does not decide."""

    place: int
    gold: str
    answer: str  # without its unit
    extracted: str
    rule: str
    truncated: bool


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
            mark = Mark("error", mark.extracted, "pending")
        marks.append(mark)
    for question, mark in zip(undecided, _compare(undecided), strict=True):
        marks[question.place] = mark
    return marks


def _mark_text(answer: Answer, marking: str) -> Mark | _Open:
    """The mark that the text alone gives, or what has to be compared."""
    completion, gold, truncated = answer
    found = _strict(completion) if marking == "strict" else _lenient(spoken(completion), truncated)
    if found is None:
        return no_answer(truncated)
    text, place = found
    one, two = parts(text), parts(gold)
    if marking == "strict" or same(one, two):
        return decided(same(one, two), text, f"{marking}:{place}-text")
    if len(text) > LONGEST:
        return Mark("error", None, "lenient:too-long")
    left, right = _plain(text, one), _plain(gold, two)
    if left is not None and right is not None:
        return decided(left == right and agree(one, two), text, f"lenient:{place}-number")
    if differs(one, two):
        return decided(False, text, f"lenient:{place}-text")
    return _Open(-1, two.latex, one.latex, text, f"lenient:{place}", truncated)


def _strict(text: str) -> tuple[str, str] | None:
    """The last box, where it holds anything."""
    box = last_box(text)
    return (box, "boxed") if box else None


def _lenient(text: str, truncated: bool) -> tuple[str, str] | None:
    """The LaTeX a spoken text ends on, without delimiters, and the place it stands in."""
    if (box := spoken_box(text)) is not None:
        return _DELIMITER.sub("", box), "boxed"
    rest = stated(text)
    latex = None if rest is None else _stated_latex(rest, truncated)
    return (latex, "stated") if latex else None


def _stated_latex(rest: str, truncated: bool) -> str | None:
    """What a statement gives, in LaTeX's delimiters or in none; None for a denial or a bound."""
    inside = _INSIDE.match(rest)
    behind = sentence(rest[inside.end() :] if inside else rest, truncated)
    if behind is None:
        return None
    if inside and not _GOES_ON.match(behind) and not CHANGED.search(behind):
        return inside[1].strip()
    said = (inside[0] if inside else "") + behind
    if CHANGED.search(said) or len(_DELIMITER.findall(said)) % 2:
        return None
    return _DELIMITER.sub("", said).strip(" \t\n*.")


def _plain(latex: str, spelling: Parts) -> Fraction | None:
    """The value of an expression that is one number and nothing else, but for label and unit."""
    text = latex.strip() if "%" in latex else spelling.value  # 20 % may be meant as 0.2
    return only_number(text) if len(text) < REACH and _PLAIN.fullmatch(text) else None


def _compare(questions: Sequence[_Open]) -> list[Mark]:
    if not questions:
        return []
    replies = _children(os.getpid()).map([(q.gold, q.answer) for q in questions])
    return [
        Mark("error", question.extracted, f"{question.rule}-{reply.failure}")
        if reply.failure
        else _meant(question, reply.value)
        for question, reply in zip(questions, replies, strict=True)
    ]


def _meant(question: _Open, equivalent: bool | None) -> Mark:
    """The mark by math-verify; an answer that it cannot read is none."""
    if equivalent is None:
        return no_answer(question.truncated)._replace(rule=f"{question.rule}-unreadable")
    return decided(equivalent, question.extracted, f"{question.rule}-math-verify")


@cache
def _children(pid: int) -> Children:
    """This process's verifiers, begun when first needed; a forked process begins its own."""
    return Children("tasks.math_verifier:equivalent", CHILDREN, LIMIT)
