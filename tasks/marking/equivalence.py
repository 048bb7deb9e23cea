r"""Marks mathematical expressions: by text where that is enough, else by what they say.

strict: the last box holds the gold's own text, up to spelling (`\dfrac`, spaces, `\left`, units).
lenient: a box of any kind, or a stated answer, that is equal to the gold. The work for an answer is
bounded (`tasks.marking.values`), so no answer can hang, crash or starve the calling process.
"""

import re
from collections.abc import Sequence

from tasks.base import Answer
from tasks.marking.comparison import same
from tasks.marking.latex import Node, TooLarge, read
from tasks.marking.marks import Mark, answer_mark, no_answer_mark, one_option
from tasks.marking.numbers import strip_markup
from tasks.marking.reading import (
    final_text,
    find_hash_line,
    find_statement,
    first_sentence,
    last_box,
    last_filled_box,
)
from tasks.marking.spelling import (
    MAX_LENGTH,
    AnswerComparison,
    same_text,
    split_answer,
    units_agree,
)
from tasks.marking.units import MODIFIERS
from tasks.marking.values import first_digits

LONGEST = 200  # characters of an answer that is compared with other answers by its value
_DELIMITER = re.compile(r"(?<!\\)\$")
_INSIDE = re.compile(r"(?:\\\(|\\\[|\$\$?)(.+?)(?:\\\)|\\\]|(?<!\\)\$\$?)", re.DOTALL)
_CONTINUES = re.compile(  # $5$ or $6$; $x$ = 5; $1$ + x
    r"\s*(?:[=+*/^<>]|-\s*(?:\d|\\|[a-zA-Z]\b(?! \w\w))"
    r"|(?:or|and|plus|minus|times|divided|multiplied)\b)"
    r"|[^$]*\$|.*\\\(",
    re.DOTALL,
)
_OPTION = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{\s*\(?([A-Z])\)?\s*\}|\(([A-Z])\)")


def mark_expression(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    """Mark one expression; `answer` is the gold in LaTeX, without delimiters."""
    if marking == "strict":
        box = last_box(completion)
        if not box:
            return no_answer_mark(truncated)
        correct = same_text(split_answer(box), split_answer(answer))
        return answer_mark(correct, box, "strict:boxed-text")
    extracted = _extract_lenient(*final_text(completion), truncated)
    if extracted is None:
        return no_answer_mark(truncated)
    text, place = extracted
    mark = _compared(text, place, answer)
    return mark or no_answer_mark(truncated)._replace(rule=f"lenient:{place}-unreadable")


def _compared(text: str, place: str, answer: str) -> Mark | None:
    """The mark of an extracted answer; None if it cannot be read."""
    one, two = split_answer(text), split_answer(answer)
    if ("%" in text) == ("%" in answer) and same_text(one, two):
        return answer_mark(True, text, f"lenient:{place}-text")
    if len(text) > MAX_LENGTH:
        return Mark("error", None, "lenient:too-long")
    if option := _OPTION.fullmatch(answer.strip()):
        letter = one_option(strip_markup(text))
        return answer_mark(letter == (option[1] or option[2]), text, f"lenient:{place}-option")
    try:
        equal = same(two.latex, one.latex)
    except TooLarge:
        return Mark("error", text, f"lenient:{place}-too-large")
    except Exception as error:  # noqa: BLE001 a fault of the reader concerns this answer alone
        return Mark("error", text, f"lenient:{place}-{type(error).__name__}")
    if equal is None:
        return None
    return answer_mark(equal and units_agree(one, two), text, f"lenient:{place}-value")


def expression_comparison(marking: str) -> AnswerComparison:
    """How answers are compared. The work for each, and for a pair, is bounded."""
    if marking == "strict":
        return AnswerComparison(
            lambda answer: split_answer(answer).value,
            lambda one, two: same_text(split_answer(two), split_answer(one)),
        )
    return AnswerComparison(_value_key, _same_answer)


def _same_answer(one: str, two: str) -> bool:
    """Whether `two` is correct where `one` is the gold."""
    mark = _compared(two, "", one)
    return mark is not None and mark.outcome == "correct"


def _value_key(text: str) -> str:
    """The first digits of a number, or of several in any order; empty for other answers.

    A long answer is only the same as one of the same spelling: comparing it may take seconds.
    """
    if len(text) > MAX_LENGTH:
        return text
    parts = split_answer(text)
    if len(text) > LONGEST:
        return parts.value
    if _OPTION.fullmatch(text.strip()):  # (B) is b
        return ""
    try:
        digits = [first_digits(item) for item in _items(read(parts.latex))]
    except TooLarge:
        return parts.value
    except Exception:  # noqa: BLE001 as above; Unreadable and Undefined among them
        return ""
    several = "," in text and len(digits) == 1  # 18,150 may be two numbers
    return "" if several or "%" in text or not all(digits) else " ".join(sorted(digits))


def _items(node: Node) -> Sequence[Node]:
    """The parts that are compared one by one."""
    if node.kind == "matrix":
        return [item for row in node.args for item in row]
    if node.kind == "tuple":
        return list(node.args[2])
    return node.args if node.kind in ("list", "set") else [node]


def mark_expressions(answers: Sequence[Answer], marking: str) -> list[Mark]:
    """Mark many."""
    return [mark_expression(a.completion, a.answer, marking, a.truncated) for a in answers]


def _extract_lenient(text: str, tagged: bool, truncated: bool) -> tuple[str, str] | None:
    """The LaTeX of a text's answer, without delimiters, and the kind of place it is in.

    A statement may have its answer in delimiters or not; None for a denial or a bound.
    """
    if (box := last_filled_box(text)) is not None:
        return _DELIMITER.sub("", box), "boxed"
    if tagged:
        return _DELIMITER.sub("", text).strip(), "tagged"
    if line := find_hash_line(text, truncated):
        return _DELIMITER.sub("", line).strip(), "hash"
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
