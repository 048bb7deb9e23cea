"""Counts with their nouns, as every message writes them. Imports nothing of Decile."""

import re

_SINGULAR = {"are": "is", "have": "has", "were": "was", "do": "does", "differ": "differs"}
_PLURAL = re.compile(r"((?:[a-z]+ )?[a-z]+?)s( with [a-z]+)?(?: (are|have|were|do|differ))?\b")


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 seed`, `2 seeds`; `plural` is for nouns with an irregular plural."""
    return f"{number:,} {noun_for(number, noun, plural)}"


def noun_for(number: int, noun: str, plural: str = "") -> str:
    """The noun alone, in the form for a number."""
    return noun if number == 1 else plural or f"{noun}s"


def counted_label(number: int, label: str) -> str:
    """`1 row has no text`, `2 rows have no text`: a label that begins with a noun in the plural."""
    if number == 1 and (match := _PLURAL.match(label)):
        noun, more, verb = match.groups(default="")
        label = f"{noun}{more}{verb and ' ' + _SINGULAR[verb]}{label[match.end() :]}"
    return f"{number:,} {label}"
