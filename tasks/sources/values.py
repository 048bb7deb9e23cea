"""Values of cells, read alike from all files.

* Numbers may be text: `0.5`, and `0,5` with a decimal comma. `1,250` is not a number.
* Booleans are `true` and `false`, `yes` and `no`, `correct` and `incorrect`, `1` and `0`, or the
  grades `C` and `I` of Inspect, with `P` as one half.
* Missing values are null, NaN, empty text, and the texts `nan`, `null`, `none` and `n/a` in columns
  of numbers.
* A whole number is the same source, tier, group or answer whether a file writes it as 1 or as 1.0.
* Completions may be a list in JSON or Python text, in a column with a plural name.
* In CSV and TSV, the first row names the columns, quotes are those of RFC 4180, and an empty field
  is missing. A first line `sep=;` names the separator.
"""

import ast
import json
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tasks.errors import TaskError

# The grades of inspect_ai's value_to_float, and words for true and false in lower case.
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
TRUTH_WORDS = {"yes": 1.0, "true": 1.0, "correct": 1.0, "no": 0.0, "false": 0.0, "incorrect": 0.0}
# Decimal commas: 0,125 and 2,5. 1,250 may be a thousand and does not count.
_DECIMAL_COMMA = re.compile(r"([-+]?)(0,\d+|\d+,\d{1,2})")
_MISSING = frozenset(("", "nan", "null", "none", "n/a"))
_SHARE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: null, NaN, or a text that means it."""
    if isinstance(value, str):
        return value.strip().lower() in _MISSING
    return value is None or bool(value != value)


def number_of(value: Any) -> float | None:
    """A number or a boolean, also as text (`0.5`, `0,5`, `yes`, `C`); None for other values.

    NaN is also None: no command computes with it.
    """
    if is_missing(value):
        return None
    if isinstance(value, str):
        text = value.strip()
        grade = GRADES.get(text, TRUTH_WORDS.get(text.lower()))
        if grade is not None:
            return grade
        if _DECIMAL_COMMA.fullmatch(text):
            text = text.replace(",", ".")
        value = text if text.isascii() and "_" not in text else ""
    elif not isinstance(value, bool | int | float | Decimal) and not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if number != number else number


def share_of(value: Any, place: str, name: str) -> float | None:
    """A score from 0 to 1; None if there is none. Raises TaskError for any other value."""
    if is_missing(value):
        return None
    number = number_of(value)
    if number is None:
        raise TaskError(
            f"{place}: {name} is {value!r:.60}: write true, false or a number from 0 to 1"
        )
    if not 0 <= number <= 1:
        raise TaskError(
            f"{place}: {name} is {value}, outside [0, 1]: divide by the largest possible score, "
            "or name a different one"
        )
    return number


def truth_of(value: Any, place: str, name: str) -> bool | None:
    """True or false; None if there is no value. Raises TaskError for any other value."""
    if is_missing(value):
        return None
    number = number_of(value)
    if number not in (0, 1):
        raise TaskError(f"{place}: {name} is {value!r:.60}: write true or false")
    return number == 1


def counts_of(value: Any) -> tuple[int, int] | None:
    """The two numbers of a text such as "7/8"; None for any other value."""
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    return (int(match[1]), int(match[2])) if match else None


def parse_count(value: Any, place: str, name: str) -> int | None:
    """An integer from 0, also as a float or text, or None if there is none.

    Raises TaskError for any other value.
    """
    if is_missing(value):
        return None
    number = None if isinstance(value, bool) else number_of(value)
    if isinstance(value, str) and not re.search(r"\d", value):  # words for true or false
        number = None
    if number is None or not 0 <= number < 2**31 or int(number) != number:
        raise TaskError(f"{place}: invalid {name} {value!r:.60}: write an integer ≥ 0")
    return int(number)


def valid_count(value: Any) -> int | None:
    """As `parse_count`, with None for any other value."""
    try:
        return parse_count(value, "", "")
    except TaskError:
        return None


def whole(value: Any) -> Any:
    """The value; a float such as 1.0 becomes an integer, because columns with null store floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def value_text(value: Any) -> str:
    """A value as text without spaces around it; "" for null and NaN."""
    return "" if value is None or value != value else str(whole(value)).strip()


def json_text(value: Any) -> str:
    """A file's value as JSON text; dates and decimals become text. Raises TypeError for bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_as_text)


def _as_text(value: Any) -> str:
    if isinstance(value, date | time | timedelta | Decimal | UUID):
        return str(value)
    raise TypeError(f"has {type(value).__name__}, which JSON does not have")


def literal_of(text: str) -> Any:
    """The value of a text in JSON or Python notation; None for any other text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about backslashes in texts, as in LaTeX
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                return read(text.strip())
    return None


def json_object_of(text: str) -> Mapping[str, Any] | None:
    """The object in a JSON text; None for any other text."""
    if not text.startswith("{"):
        return None
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        return value if isinstance(value, Mapping) else None
    return None


def row_text(columns: Mapping[str, Any], place: str, remedy: str) -> str:
    """Columns of a row as JSON text. Raises TaskError, with the remedy, for other values."""
    try:
        return json_text(columns)
    except TypeError:
        for name, value in columns.items():
            try:
                json_text(value)
            except TypeError as error:
                raise TaskError(f"{place}: column {name!r:.80} {error}: {remedy}") from error
        raise
