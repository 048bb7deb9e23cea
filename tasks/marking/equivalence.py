r"""Marks mathematical expressions: by text where that is enough, else by math-verify.

strict: the last box holds the gold's own text, up to spelling (`\dfrac`, spaces, `\left`, units).
lenient: a box of any kind, or a stated answer, that is equivalent to the gold. math-verify runs in
child processes under a time limit, so no answer can hang, crash or starve the calling process.
"""

import os
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from tasks.base import Answer
from tasks.children import Children
from tasks.marking.marks import Mark, answer_mark, no_answer_mark
from tasks.marking.numbers import MODIFIERS, only_number
from tasks.marking.reading import (
    REACH,
    find_statement,
    first_sentence,
    last_box,
    last_filled_box,
    without_thinking,
)
from tasks.marking.spelling import (
    MAX_LENGTH,
    AnswerParts,
    labels_agree,
    same_text,
    split_answer,
    text_differs,
)

LIMIT = 5.0  # seconds for one comparison
CHILDREN = 2

_DELIMITER = re.compile(r"(?<!\\)\$")
_INSIDE = re.compile(r"(?:\\\(|\\\[|\$\$?)(.+?)(?:\\\)|\\\]|\$\$?)", re.DOTALL)
_CONTINUES = re.compile(r"\s*(?:=|(?:or|and)\b)|[^$]*\$|.*\\\(", re.DOTALL)  # $5$ or $6$; $x$ = 5
_PLAIN = re.compile(r"-?(?:\d+(?:\.\d+)?|\\frac\{-?\d+\}\{\d+\})")


class _Comparison(NamedTuple):
    """An answer that text alone does not decide, for math-verify."""

    gold: str
    answer: str  # without its unit
    extracted: str
    rule: str
    truncated: bool


def mark_expression(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    """Mark one expression; `answer` is the gold in LaTeX, without delimiters."""
    return mark_expressions([Answer(completion, answer, truncated)], marking)[0]


def mark_expressions(answers: Sequence[Answer], marking: str) -> list[Mark]:
    """Mark many; those that need math-verify are compared by several children at once."""
    marks = [_mark_text(answer, marking) for answer in answers]
    compared = iter(_compare([mark for mark in marks if isinstance(mark, _Comparison)]))
    return [next(compared) if isinstance(mark, _Comparison) else mark for mark in marks]


def _mark_text(answer: Answer, marking: str) -> Mark | _Comparison:
    """The mark that the text alone gives, or the comparison that it needs."""
    completion, gold, truncated, *_ = answer
    if marking == "strict":
        box = last_box(completion)
        extracted = (box, "boxed") if box else None
    else:
        extracted = _extract_lenient(without_thinking(completion), truncated)
    if extracted is None:
        return no_answer_mark(truncated)
    text, place = extracted
    one, two = split_answer(text), split_answer(gold)
    if marking == "strict" or same_text(one, two):
        return answer_mark(same_text(one, two), text, f"{marking}:{place}-text")
    if len(text) > MAX_LENGTH:
        return Mark("error", None, "lenient:too-long")
    left, right = _single_number(text, one), _single_number(gold, two)
    if left is not None and right is not None:
        correct = left == right and labels_agree(one, two)
        return answer_mark(correct, text, f"lenient:{place}-number")
    if text_differs(one, two):
        return answer_mark(False, text, f"lenient:{place}-text")
    return _Comparison(two.latex, one.latex, text, f"lenient:{place}", truncated)


def _extract_lenient(text: str, truncated: bool) -> tuple[str, str] | None:
    """The LaTeX of a text's answer, without delimiters, and the kind of place it is in."""
    if (box := last_filled_box(text)) is not None:
        return _DELIMITER.sub("", box), "boxed"
    rest = find_statement(text)
    latex = None if rest is None else _statement_latex(rest, truncated)
    return (latex, "stated") if latex else None


def _statement_latex(rest: str, truncated: bool) -> str | None:
    """The answer of a statement, with or without delimiters; None for a denial or a bound."""
    inside = _INSIDE.match(rest)
    after = first_sentence(rest[inside.end() :] if inside else rest, truncated)
    if after is None:
        return None
    if inside and not _CONTINUES.match(after) and not MODIFIERS.search(after):
        return inside[1].strip()
    statement = (inside[0] if inside else "") + after
    if MODIFIERS.search(statement) or len(_DELIMITER.findall(statement)) % 2:
        return None
    return _DELIMITER.sub("", statement).strip(" \t\n*.")


def _single_number(latex: str, parts: AnswerParts) -> Fraction | None:
    """The value of an expression that is one number, apart from its label and unit."""
    text = latex.strip() if "%" in latex else parts.value  # 20 % may be meant as 0.2
    return only_number(text) if len(text) < REACH and _PLAIN.fullmatch(text) else None


def _compare(comparisons: Sequence[_Comparison]) -> list[Mark]:
    if not comparisons:
        return []
    marks = []
    replies = _children(os.getpid()).map([(c.gold, c.answer) for c in comparisons])
    for item, reply in zip(comparisons, replies, strict=True):
        if reply.failure:
            marks.append(Mark("error", item.extracted, f"{item.rule}-{reply.failure}"))
        elif reply.value is None:  # math-verify cannot read the answer
            mark = no_answer_mark(item.truncated)
            marks.append(mark._replace(rule=f"{item.rule}-unreadable"))
        else:
            marks.append(answer_mark(reply.value, item.extracted, f"{item.rule}-math-verify"))
    return marks


@cache
def _children(pid: int) -> Children:
    """This process's verifiers, started when first needed; a forked process starts its own."""
    return Children("tasks.marking.math_verifier:equivalent", CHILDREN, LIMIT)
