r"""Marks lettered choices: `(B)`, `B`, "the answer is (B)"."""

import re

from tasks.marking.boxes import last_box, last_filled_box
from tasks.marking.digits import REACH
from tasks.marking.marks import Mark, answer_mark, no_answer_mark
from tasks.marking.reading import (
    final_text,
    find_statement,
    first_sentence,
    last_hash_line,
    last_line,
)
from tasks.marking.spelling import plain

_STRICT_LETTER = re.compile(r"\(?([A-Z])\)?")
_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*\)?\s*[.:]?")
_IN_BRACKETS = re.compile(r"(?<!\w)\(([A-Za-z])\)")
# A letter on its own; "a" and "I" are words, and so is a capital before a word ("A red ball").
_BARE = re.compile(r"(?<![\w'(])(?!a\b|I\b)([A-Za-z])(?![\w'])(?!\s+(?!(?:or|and|nor)\b)[A-Za-z])")
_LEADING = re.compile(
    r"(?:(?:option|choice)\s+)?\(?([A-Za-z])(?=[\W]*$|[.:,;)]\s|\s+\()", re.IGNORECASE
)
_DENIED = re.compile(
    r"\b(?:not|never|neither|nor|isn't|wrong|incorrect|false|but|except|other)\b", re.IGNORECASE
)
_LAST_LINE = re.compile(r"(?:\*\*)?(?:\(([A-Z])\)|([A-Z]))\.?(?:\*\*)?\.?")


def find_letter(text: str, *, tagged: bool, truncated: bool) -> tuple[str, str] | None:
    """The option letter of a `reading.final_text`, in upper case, with the rule that applied.

    A box takes precedence, then `<answer>` tags. Without them: "the answer is (X)", or a last line
    with only a letter, or `#### X`.
    """
    box = last_filled_box(text)
    if box is not None or tagged:
        place, span = ("tagged", text) if box is None else ("boxed", box)
        if len(span) > REACH:
            return None
        span = plain(find_statement(span) or span)
        if match := _LETTER.fullmatch(span):
            return match[1].upper(), f"{place}-letter"
        option = one_option(span)
        return None if option is None else (option, f"{place}-option")
    rest = find_statement(text)
    statement = None if rest is None else first_sentence(rest, truncated)
    if statement is not None and (letter := one_option(plain(statement))) is not None:
        return letter, "stated-letter"
    final = last_hash_line(text) or last_line(text)
    if not truncated and (match := _LAST_LINE.fullmatch(final)):
        return match[1] or match[2], "line-letter"
    return None


def one_option(span: str) -> str | None:
    """The only option in a short span: `(B)` anywhere, or `B` at its beginning."""
    bracketed: set[str] = {letter.upper() for letter in _IN_BRACKETS.findall(span)}
    named = bracketed | {letter.upper() for letter in _BARE.findall(span)}
    if len(named) != 1 or _DENIED.search(span):
        return None
    leading = _LEADING.match(span)
    if bracketed or (leading and leading[1].upper() in named):
        return named.pop()
    return None


def mark_letter(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    r"""Mark a lettered choice. `answer` is the gold letter, bare or in round brackets.

    strict: the last `\boxed{}` holds exactly `(X)` or `X`. lenient: see `find_letter`.
    """
    if marking == "strict":
        box = last_box(completion)
        match = _STRICT_LETTER.fullmatch(box) if box is not None else None
        option = (match[1], "boxed-letter") if match else None
    else:
        text, tagged = final_text(completion)
        option = find_letter(text, tagged=tagged, truncated=truncated)
    if option is None:
        return no_answer_mark(truncated)
    letter, rule = option
    return answer_mark(letter == answer.strip("()"), f"({letter})", f"{marking}:{rule}")
