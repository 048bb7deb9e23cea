"""Reads the option letter that a text gives, as a fair teacher would."""

import re

from tasks.numbers import strip_markup
from tasks.reading import REACH, find_statement, first_sentence, last_filled_box, last_line

_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*\)?\s*[.:]?")
_IN_BRACKETS = re.compile(r"(?<!\w)\(([A-Za-z])\)")
# A letter on its own; "a" and "I" are words, and so is a capital before a word ("A red ball").
_BARE = re.compile(r"(?<![\w'(])(?!a\b|I\b)([A-Za-z])(?![\w'])(?!\s+(?!(?:or|and|nor)\b)[A-Za-z])")
_LEADING = re.compile(r"(?:(?:option|choice)\s+)?\(?([A-Za-z])(?=[\W]*$|[.:,;)]\s)", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:not|never|neither|nor|isn't|wrong|incorrect)\b", re.IGNORECASE)
_LAST_LINE = re.compile(r"(?:\*\*)?(?:\(([A-Z])\)|([A-Z]))\.?(?:\*\*)?\.?")


def find_letter(text: str, *, truncated: bool) -> tuple[str, str] | None:
    """The option letter of a text without thinking, in upper case, with the rule that applied.

    A box takes precedence. Without one: "the answer is (X)", or a last line with only a letter.
    """
    if (box := last_filled_box(text)) is not None:
        return _boxed(box)
    rest = find_statement(text)
    statement = None if rest is None else first_sentence(rest, truncated)
    if statement is not None and (letter := one_option(strip_markup(statement))) is not None:
        return letter, "stated-letter"
    if not truncated and (match := _LAST_LINE.fullmatch(last_line(text))):
        return match[1] or match[2], "line-letter"
    return None


def _boxed(box: str) -> tuple[str, str] | None:
    if len(box) > REACH:
        return None
    span = strip_markup(box)
    if match := _LETTER.fullmatch(span):
        return match[1].upper(), "boxed-letter"
    letter = one_option(span)
    return None if letter is None else (letter, "boxed-option")


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
