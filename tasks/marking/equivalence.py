r"""Marks mathematical expressions: by text where that is enough, else by math-verify.

strict: the last box holds the gold's own text, up to spelling (`\dfrac`, spaces, `\left`, units).
lenient: a box of any kind, or a stated answer, that is equivalent to the gold. math-verify runs in
child processes under a time limit, so no answer can hang, crash or starve the calling process.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
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
_VERIFIERS = Children("tasks.marking.math_verifier:equivalent", 2, LIMIT)

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
    by_text = [_mark_text(answer, marking) for answer in answers]
    pairs = [(mark.gold, mark.answer) for mark in by_text if isinstance(mark, _Comparison)]
    replies = iter(_VERIFIERS.map(pairs) if pairs else [])
    marks = []
    for mark in by_text:
        if isinstance(mark, Mark):
            marks.append(mark)
            continue
        reply = next(replies)
        if reply.failure:
            marks.append(Mark("error", mark.extracted, f"{mark.rule}-{reply.failure}"))
        elif reply.value is None:  # math-verify cannot read the answer
            unreadable = no_answer_mark(mark.truncated)
            marks.append(unreadable._replace(rule=f"{mark.rule}-unreadable"))
        else:
            marks.append(answer_mark(reply.value, mark.extracted, f"{mark.rule}-math-verify"))
    return marks


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
    """The LaTeX of a text's answer, without delimiters, and the kind of place it is in.

    A statement may have its answer in delimiters or not; None for a denial or a bound.
    """
    if (box := last_filled_box(text)) is not None:
        return _DELIMITER.sub("", box), "boxed"
    if (rest := find_statement(text)) is None:
        return None
    inside = _INSIDE.match(rest)
    after = first_sentence(rest[inside.end() :] if inside else rest, truncated)
    if after is None:
        return None
    if inside and not _CONTINUES.match(after) and not MODIFIERS.search(after):
        latex = inside[1].strip()
    else:
        statement = (inside[0] if inside else "") + after
        if MODIFIERS.search(statement) or len(_DELIMITER.findall(statement)) % 2:
            return None
        latex = _DELIMITER.sub("", statement).strip(" \t\n*.")
    return (latex, "stated") if latex else None


def _single_number(latex: str, parts: AnswerParts) -> Fraction | None:
    """The value of an expression that is one number, apart from its label and unit."""
    text = latex.strip() if "%" in latex else parts.value  # 20 % may be meant as 0.2
    return only_number(text) if len(text) < REACH and _PLAIN.fullmatch(text) else None
