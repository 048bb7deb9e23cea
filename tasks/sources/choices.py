"""Questions whose choices stand in columns of their own: asked with a letter before each choice."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from string import ascii_uppercase
from typing import Any, NamedTuple

from tasks.base import TaskError

COLUMNS = ("choices", "options", "endings")
# Of one column per choice: what is before its letter.
PREFIXES = ("", "option_", "option", "choice_", "choice", "op")
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")


class Choices(NamedTuple):
    """The choices of a question in order, and what its data set calls them."""

    values: Sequence[Any]
    labels: Sequence[str]

    def asked(self, question: str) -> str:
        """The question with a line for each choice, unless it has them already."""
        pairs = [*zip(ascii_uppercase, map(str, self.values), strict=False)]
        if all(re.search(rf"\b{a}\b\W{{0,4}}{re.escape(text)}", question) for a, text in pairs):
            return question
        return "\n".join([question.rstrip(), *(f"({letter}) {text}" for letter, text in pairs)])

    def letter(self, answer: Any) -> str:
        """The letter of the choice that an answer names: by label, number from 0, or text.

        Raises TaskError where it names none of them, or several.
        """
        text = str(answer).strip()
        label = match[1] if (match := _LETTER.fullmatch(text)) else text
        named = {i for i, own in enumerate(self.labels) if own.lower() == label.lower()}
        named |= {
            i for i, own in enumerate(self.values) if type(own) is type(answer) and own == answer
        }
        named |= {i for i, own in enumerate(self.values) if str(own).strip() == text and not named}
        number = text.removesuffix(".0")
        if number.isdecimal() and number not in self.labels and len(number) < 3:
            named |= {int(number)} & {*range(len(self.values))}
        if len(named) != 1:
            listed = ", ".join(
                f"({a}) {v!s:.40}" for a, v in zip(ascii_uppercase, self.values, strict=False)
            )
            how = "several" if named else "none"
            raise TaskError(
                f"the answer {answer!r:.80} matches {how} of the choices {listed}: "
                "write the letter "
                "of one, its number from 0, or its text"
            )
        return ascii_uppercase[named.pop()]


def choices_of(row: Mapping[str, Any]) -> Choices | None:
    """The choices in a row's columns; None where it has none.

    They are a list, an object of letters, ARC's {text: […], label: […]}, each also as JSON text, or
    one column per choice (A, B, …; option_a, option_b, …). Raises TaskError for fewer than 2 or
    more than 26.
    """
    names = {str(name).lower(): name for name in row}
    for name in COLUMNS:
        if name in names and (choices := _listed(row[names[name]])) is not None:
            return _checked(choices, str(names[name]))
    for prefix in PREFIXES:
        own = names if prefix else {str(name): name for name in row}  # a and b are other columns
        keys = [prefix + (letter.lower() if prefix else letter) for letter in ascii_uppercase]
        values = [row[own[key]] for key in keys if key in own]
        if len(values) > 1 and keys[0] in own and keys[1] in own:
            while values and values[-1] in (None, ""):  # fewer choices than other rows have
                values.pop()
            return _checked(Choices(values, ascii_uppercase[: len(values)]), f"{prefix}A, …")
    return None


def _listed(value: Any) -> Choices | None:
    """The choices in one value."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, Mapping) and isinstance(texts := value.get("text"), list):
        labels = value.get("label")
        labels = labels if isinstance(labels, list) and len(labels) == len(texts) else None
        return Choices(texts, [*map(str, labels or ascii_uppercase[: len(texts)])])
    if isinstance(value, Mapping):
        filled = {key: text for key, text in value.items() if text is not None}
        expected = [*ascii_uppercase[: len(filled)]]
        if [str(key).upper() for key in filled] == expected and filled:
            return Choices([*filled.values()], expected)
        return None
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        if all("text" in choice and "label" in choice for choice in value):
            return Choices([v["text"] for v in value], [str(v["label"]) for v in value])
        return None
    if isinstance(value, list) and value:
        return Choices(value, ascii_uppercase[: len(value)])
    return None


def _checked(choices: Choices, column: str) -> Choices:
    values = choices.values
    if not 2 <= len(values) <= len(ascii_uppercase) or any(
        isinstance(v, Mapping | list) or v is None or not str(v).strip() for v in values
    ):
        raise TaskError(
            f"column {column!r} holds no 2 to {len(ascii_uppercase)} choices that are texts or "
            "numbers: correct them, or remove the column"
        )
    return choices
