"""Reads numbers that are written in digits, without the reader of expressions."""

import re
from fractions import Fraction

REACH = 200  # characters after "the answer is" that can hold the answer
# Digits, in groups of three or not. Possessive, so that no run of groups is tried twice.
_DIGITS = r"(?:\d{1,3}(?:,\d{3})++(?![\d,]*\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = re.compile(rf"(?<![\w.])(?:[-+]\s?)?(?:{_DIGITS})")
_GOLD = re.compile(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+|\d+/0*[1-9]\d*)", re.ASCII)
_LAST_DIGIT = re.compile(r"\d(?=\D*\Z)")
_MINUS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "\u00a0": " ", "\u202f": " "})


def parse_integer(text: str) -> int | None:
    """The strict reading: text that Python's `int` accepts, else None."""
    try:
        return int(text)
    except ValueError:  # also for more digits than Python parses
        return None


def normalize_number(text: str) -> str | None:
    """A gold: an integer, decimal or fraction, without commas as thousands separators.

    None for any other text: `2,3` is a list, or a decimal in some countries.
    """
    bare = text.strip()
    return bare.replace(",", "") if _GOLD.fullmatch(bare) else None


def read_last_number(text: str) -> Fraction | None:
    """The value of the last number anywhere in the text."""
    if (last := _LAST_DIGIT.search(text)) is None:
        return None
    window = text[max(0, last.end() - REACH) : last.end()]
    numbers = _SIGNED.findall(window.translate(_MINUS).replace("$", " ").replace("**", " "))
    try:
        return Fraction("".join(numbers[-1].replace(",", "").split())) if numbers else None
    except ValueError:  # more digits than Python parses
        return None
