"""Questions with choices in separate columns: asked with a letter before each choice."""

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from string import ascii_uppercase
from typing import Any, NamedTuple

from tasks.errors import TaskError
from tasks.marking.digits import normalize_number
from tasks.sources.values import literal_of

COLUMNS = ("choices", "options", "endings", "answer_choices", "answer_options", "alternatives")
# With one column per choice: the text before its letter, or before its number.
PREFIXES = ("", "option_", "option", "choice_", "choice", "op", "answer")
NUMBERED_PREFIXES = ("option_", "option", "choice_", "choice", "ending_", "ending", "sol")
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ARRAY = re.compile(rf"\[\s*(?:{_QUOTED})(?:\s+(?:{_QUOTED}))*\s*\]")  # as numpy prints texts
# The label before a choice in one text: (A), A), "a )", A. or A:, and (1) or 1).
_MARKS = (r"\(\s*{}\s*\)", r"(?<![\w(]){}\s*\)", r"(?<![\w.]){}[.:](?=\s)")
_MARKUP = re.compile(r"\\[()]|[$\s]")
_QUANTITY = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?=\s*(?:[^\W\d_]+[²³]?|\\?%|°)\Z)")
_FORMS = (
    'a list of texts or numbers (["…", "…"]), an object of letters ({"A": "…", "B": "…"}) or a '
    'text "(A) … (B) …"'
)
FROM_ONE = "the answers number the choices from 1"


class Numbering(NamedTuple):
    """The number of the first choice in a file's answers; None without such numbers."""

    first: int | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """A note if it is 1: counting from 0 is usual."""
        return (FROM_ONE,) if self.first == 1 else ()


class Choices(NamedTuple):
    """The choices of a question in order, their labels in the data set, and their column."""

    values: Sequence[Any]
    labels: Sequence[str]
    column: str = ""

    def asked(self, question: str) -> str:
        """The question with a line for each choice, unless it already has them."""
        pairs = [*zip(ascii_uppercase, map(str, self.values), strict=False)]
        if all(re.search(rf"\b{a}\b\W{{0,4}}{re.escape(text)}", question) for a, text in pairs):
            return question
        return "\n".join([question.rstrip(), *(f"({letter}) {text}" for letter, text in pairs)])

    def stand_in(self, question: str) -> bool:
        """Whether a question has the texts of all choices."""
        return all(str(value).strip() in question for value in self.values)

    def check_asked(self, question: str, answer: str) -> None:
        """Raise TaskError if a question lacks the choices that its answer refers to.

        The texts of choices may be anywhere in the question. If the answer is a letter or number,
        the question must have these before the texts.
        """
        if self._is_name(answer):
            in_question = self.asked(question) == question
        else:
            in_question = self.stand_in(question)
        if not in_question:
            raise TaskError(
                f"the choices in column {self.column!r} are not part of the question: write "
                "marker: letter, with which they are asked, or remove the column"
            )

    def _is_name(self, answer: str) -> bool:
        """Whether an answer is the label or the number of a choice, not its text."""
        text = answer.strip()
        if text in {str(value).strip() for value in self.values}:
            return False
        label = match[1] if (match := _LETTER.fullmatch(text)) else text
        if label.lower() in map(str.lower, self.labels):
            return True
        return self.number(text) is not None and not self.named(text)

    def number(self, answer: Any) -> int | None:
        """The answer as the number of a choice; None otherwise, or if numbers are labels."""
        number = str(answer).strip().removesuffix(".0")
        if not number.isdecimal() or len(number) > 2 or any(map(str.isdecimal, self.labels)):
            return None
        return int(number)

    def named(self, answer: Any) -> set[int]:
        """The choices with this answer as label or text; the loosest comparison comes last."""
        text = str(answer).strip()
        label = match[1] if (match := _LETTER.fullmatch(text)) else text
        named = {i for i, own in enumerate(self.labels) if own.lower() == label.lower()}
        named |= {
            i for i, own in enumerate(self.values) if type(own) is type(answer) and own == answer
        }
        for equal in (_equal_texts, _equal_values, _equal_amounts):
            named = named or {i for i, own in enumerate(self.values) if equal(str(own), text)}
        return named

    def letter(self, answer: Any, first: int | None = 0) -> str:
        """The letter of the choice that an answer names: by label, number, or text.

        `first` is the number of the first choice; None if unknown. Raises TaskError if the answer
        matches no choice, or several.
        """
        named, number = self.named(answer), self.number(answer)
        if number is not None:
            firsts = (0, 1) if first is None else (first,)
            named |= {number - one for one in firsts} & {*range(len(self.values))}
        if len(named) != 1:
            listed = ", ".join(
                f"({a}) {v!s:.40}" for a, v in zip(ascii_uppercase, self.values, strict=False)
            )
            how = "several" if named else "none"
            raise TaskError(
                f"the answer {answer!r:.80} matches {how} of the choices {listed}: "
                f"write the letter of one, its number from {first or 0}, or its text"
            )
        return ascii_uppercase[named.pop()]


def _equal_texts(one: str, other: str) -> bool:
    return one.strip() == other


def _equal_values(one: str, other: str) -> bool:
    """Equal up to math delimiters, spaces, case, and zeros at the end of a decimal."""
    return bool(other) and _value(one) == _value(other)


def _equal_amounts(one: str, other: str) -> bool:
    """One text is a number, the other the same number with a unit."""
    one, other = _MARKUP.sub(" ", one).strip(), _MARKUP.sub(" ", other).strip()
    pairs = ((one, _QUANTITY.match(other)), (other, _QUANTITY.match(one)))
    return any(
        match and normalize_number(number) is not None and _value(number) == _value(match[0])
        for number, match in pairs
    )


def _value(text: str) -> str:
    text = _MARKUP.sub("", text).casefold().removesuffix(".")
    number = normalize_number(text)
    if number is None or "/" in number or "." not in number:
        return number or text
    return number.rstrip("0").removesuffix(".")


def numbering_of(pairs: Iterable[tuple[Mapping[str, Any], Any]]) -> Numbering:
    """How the answers of a file number the choices, from pairs of a row and its answer.

    Answers that are texts of choices do not count. Raises TaskError if the numbers fit both
    readings, or neither.
    """
    zeros = lasts = others = 0
    for row, answer in pairs:
        with suppress(TaskError):  # the row is rejected with its place when it is read
            if (choices := choices_of(row)) is None or choices.named(answer):
                continue
            if (number := choices.number(answer)) is not None:
                zeros += number == 0
                lasts += number == len(choices.values)
                others += 0 < number < len(choices.values)
    if not zeros and not lasts and not others:
        return Numbering()
    if max(zeros, lasts) >= 10 * min(zeros, lasts) and zeros + lasts > 0:
        return Numbering(int(lasts > zeros))
    rows = f"{zeros:,} of them are 0, and {lasts:,} the number of choices"
    raise TaskError(
        "the answers may number the choices from 0 (0 is the first) or from 1 (1 is the first): "
        f"{rows}; write letters (A, B, …) or the texts of the choices as answers"
    )


def _families() -> list[list[str]]:
    """The names of one column per choice, for each way to name them."""
    letters = [[p + (a.lower() if p else a) for a in ascii_uppercase] for p in PREFIXES]
    numbers = [
        [f"{prefix}{number}" for number in range(first, first + len(ascii_uppercase))]
        for prefix in NUMBERED_PREFIXES
        for first in (0, 1)
    ]
    return [*letters, *numbers]


_FAMILIES = _families()


def has_choices(names: Collection[str]) -> bool:
    """Whether some of a file's columns may hold choices."""
    known = {*names} | {name.lower() for name in names}
    return not known.isdisjoint(COLUMNS) or any(known >= {*keys[:2]} for keys in _FAMILIES)


def choices_of(row: Mapping[str, Any]) -> Choices | None:
    """The choices in a row's columns; None if it has none.

    They may be a list, an object of letters or numbers, or ARC's {text: […], label: […]}, each also
    as JSON text or in Python's notation; a text "(A) … (B) …"; or one column per choice (A, B, …;
    option_a, …; option1, …). Raises TaskError for fewer than 2 or more than 26 choices, and for any
    other form.
    """
    names = {str(name).lower(): name for name in row}
    for name in COLUMNS:
        if name in names and (value := row[names[name]]) not in (None, "", [], {}):
            column = str(names[name])
            return _checked(_listed(value), column)
    for keys in _FAMILIES:
        own = names if len(keys[0]) > 1 else {str(name): name for name in row}  # a, b differ
        if keys[0] not in own or keys[1] not in own:
            continue
        values = [row[own[key]] for key in keys if key in own]
        while values and values[-1] in (None, ""):  # fewer choices than in other rows
            values.pop()
        if values:
            choices = Choices(values, ascii_uppercase[: len(values)])
            return _checked(choices, str(own[keys[0]]))
    return None


def _listed(value: Any) -> Choices | None:
    """The choices in one value; None for any other form."""
    if isinstance(value, str):
        if (parsed := _parsed(value)) is None:
            return _lettered(value)
        value = parsed
    if isinstance(value, Mapping) and isinstance(texts := value.get("text"), list):
        labels = value.get("label")
        labels = labels if isinstance(labels, list) and len(labels) == len(texts) else None
        return Choices(texts, [*map(str, labels or ascii_uppercase[: len(texts)])])
    if isinstance(value, Mapping):
        filled = {str(key).upper(): text for key, text in value.items() if text is not None}
        numbers = [*map(str, range(len(filled) + 1))]
        for labels in ([*ascii_uppercase[: len(filled)]], numbers[:-1], numbers[1:]):
            if len(filled) > 0 and filled.keys() == {*labels}:
                return Choices([filled[label] for label in labels], labels)
        return None
    if isinstance(value, list | tuple) and value and all(isinstance(v, Mapping) for v in value):
        if all("text" in choice and "label" in choice for choice in value):
            return Choices([v["text"] for v in value], [str(v["label"]) for v in value])
        return None
    if isinstance(value, list | tuple) and value:
        return Choices([*value], ascii_uppercase[: len(value)])
    return None


def _parsed(text: str) -> Any:
    """The list or object in a text, as JSON, Python or numpy writes it; else None."""
    text = text.strip()
    if not text.startswith(("[", "{", "(")):
        return None
    if _ARRAY.fullmatch(text):
        return [ast.literal_eval(quoted) for quoted in re.findall(_QUOTED, text)]
    value = literal_of(text)
    return value if isinstance(value, Mapping | list | tuple) else None


def _lettered(text: str) -> Choices | None:
    """The choices in a text that has a letter or a number before each."""
    text = text.strip()
    for mark in _MARKS:
        for labels in (ascii_uppercase, ascii_uppercase.lower(), "123456789"):
            if "." in mark and labels[0] == "1":  # decimals
                continue
            places = [[*re.finditer(mark.format(label), text)] for label in labels]
            count = next((i for i, found in enumerate(places) if not found), len(places))
            starts = [match for found in places for match in found]
            # Each label once, in order, without gaps, the first at the start.
            if count < 2 or len(starts) != count or starts[0].start() != 0:
                continue
            if starts != sorted(starts, key=lambda match: match.start()):
                continue
            ends = [*(match.start() for match in starts[1:]), len(text)]
            parts = [text[m.end() : end].strip() for m, end in zip(starts, ends, strict=True)]
            for separator in (",", ";"):
                if all(part.endswith(separator) for part in parts[:-1]):
                    parts = [part.removesuffix(separator).rstrip() for part in parts]
            return Choices(parts, [label.upper() for label in labels[:count]])
    return None


def _checked(choices: Choices | None, column: str) -> Choices:
    values = choices.values if choices else ()
    if (
        choices is None
        or not 2 <= len(values) <= len(ascii_uppercase)
        or any(
            isinstance(v, Mapping | list | tuple) or v is None or v != v or not str(v).strip()
            for v in values
        )
    ):
        raise TaskError(
            f"column {column!r} does not hold 2 to {len(ascii_uppercase)} readable choices: "
            f"write {_FORMS}, or rename or remove the column"
        )
    return choices._replace(column=column)
