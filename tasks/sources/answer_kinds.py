"""The forms of gold answers, the marker that each needs, and whether a model could give one."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

from tasks.errors import TaskError
from tasks.marking.digits import normalize_number
from tasks.marking.golds import Marker, final_answer
from tasks.sources.choices import choices_of
from tasks.sources.files import Row, cell
from tasks.sources.row_corrections import RowEdit, row_id
from tasks.sources.texts import NO_ANSWERS, PLACEHOLDERS, one_answer, plain_answer, read_texts
from tasks.sources.values import TRUTH_WORDS, json_object_of, literal_of

Kind = Literal[Marker, "none"]
"""The marker that an answer needs; `none` if it is not an answer."""
KINDS: tuple[Kind, ...] = get_args(Kind)

# The form of an answer, as a plural -> its kind.
KIND_OF_FORM: Mapping[str, Kind] = {
    "integers": "number",
    "decimals": "number",
    "fractions": "number",
    "letters": "letter",
    "numbers with a unit": "expression",
    "numbers with a comma": "expression",
    "LaTeX or formulas": "expression",
    "dates": "text",
    "ranges or estimates": "text",
    "yes or no": "text",
    "single words": "text",
    "free text": "text",
    "placeholders": "none",
    "JSON objects": "none",
    "data structures": "none",
}
# Kinds that one marker can read.
FAMILIES: tuple[tuple[Kind, ...], ...] = (("number", "expression"), ("letter",), ("text",))
ONE_SPELLING = ("dates", "ranges or estimates")  # forms without a marker that reads other spellings
MOST = 0.9  # the share of answers that decides the marker
MIN_PART = 20  # the fewest rows of each for numbers and expressions to be two parts of a mix

_LETTER = re.compile(r"\(?([A-Z])\)?")
_UNIT = re.compile(r"[-+]?\\?[$€£¥]?\s?\d[\d,]*(?:\.\d+)?\s?(?:\\?%|°|[A-Za-zµ]+[²³]?)?")
# Two numbers, or a decimal comma as in many countries; not thousands.
_COMMA = re.compile(r"(?!\D?\d{1,3},\d{3}(?!\d))[-+]?\d+,\d+(?:\s?(?:\\?%|°|[A-Za-zµ]+[²³]?))?")
_DATE = re.compile(
    r"\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|"
    r"(?:[A-Z][a-z]{2,8}\.? \d{1,2},?|\d{1,2}\.? [A-Z][a-z]{2,8}\.?) \d{4}"
)
_NUMBER = r"[-+]?[$€£]?\d[\d.,]*(?:\s?%)?"
_RANGE = re.compile(
    rf"(?:(?:from\s+)?{_NUMBER}\s*(?:-|–|—|to|±|\+/-)\s*{_NUMBER}|"
    rf"between\s+{_NUMBER}\s+and\s+{_NUMBER}|"
    rf"(?:about|around|approximately|approx\.?|roughly|nearly|almost|ca\.?|circa|over|under|"
    rf"at least|at most|(?:more|less|fewer) than|~|≈)\s*{_NUMBER})(?:\s+[A-Za-z°]+)?",
    re.IGNORECASE,
)
_LATEX = re.compile(r"\\[A-Za-z]|\$|[\^_]\{?\w")
_FORMULA = re.compile(r"(?=.*\d)(?!.*[A-Za-z]{3})[\w\s.,:;+*/^=()\[\]{}<>|!√π·×≤≥∞-]+")
_BRACKETED = re.compile(r"[\[(<{]([^\[\](){}<>]*)[\])>}]")
_TEST = re.compile(r"\s*assert\s+\S.*(?:==|!=|\(|\bin\b|\bis\b)")
# For Arrow: whether an answer may be a data structure.
STRUCTURES = r"""^\s*[\[{]|^\s*\(\s*["']|^\s*assert\s"""
_STRUCTURE = re.compile(STRUCTURES)
LONG_TEXT = 10  # words; models do not repeat longer texts verbatim
LONG_ANSWER = 200  # the most characters that the marker of expressions compares by value
NO_EDITS: Mapping[str, RowEdit] = MappingProxyType({})
MANY_DIGITS = 6  # after the point, beyond which a model rounds


def answer_form(answer: str) -> str:
    """The form of one answer, as a plural."""
    answer = answer.replace("\N{MINUS SIGN}", "-")
    if stands_for_none(answer, PLACEHOLDERS):
        return "placeholders"
    if json_object_of(answer) is not None:
        return "JSON objects"
    if structure_of(answer):
        return "data structures"
    if number := normalize_number(answer):
        if "/" in number:
            return "fractions"
        return "decimals" if "." in number else "integers"
    if answer.lower() in TRUTH_WORDS:
        return "yes or no"
    for form, pattern in (("letters", _LETTER), ("dates", _DATE), ("ranges or estimates", _RANGE)):
        if pattern.fullmatch(answer):
            return form
    if _COMMA.fullmatch(answer):
        return "numbers with a comma"
    if _UNIT.fullmatch(answer):
        return "numbers with a unit"
    if _LATEX.search(answer) or _FORMULA.fullmatch(answer):
        return "LaTeX or formulas"
    return "free text" if len(answer.split()) > 1 else "single words"


def kind_of(answer: str) -> Kind:
    """The kind of one answer; `none` for an empty text."""
    return KIND_OF_FORM[answer_form(answer)] if answer else "none"


def row_kind(row: Row, answer: str | None, edits: Mapping[str, RowEdit] = NO_EDITS) -> Kind:
    """The kind of a row's answer, as corrected by the user's list.

    If choices have columns of their own, the answer is a letter, whatever the file contains.
    """
    if not isinstance(row, Mapping):
        return "none"
    try:
        if choices_of(row) is not None:
            return "letter"
    except TaskError:  # unreadable choices, for which the row is rejected
        return "letter"
    if edits and (edit := edits.get(row_id(row))) is not None and edit.keep:
        return kind_of(plain_answer(final_answer(edit.answer.strip())))
    try:
        value, _ = one_answer(cell(row, answer or ""))
        text = read_texts({"": "", "answer": value}, "", "answer").answer
    except TaskError:
        return "none"
    return kind_of(plain_answer(final_answer(text.strip())))


def structure_of(answer: str) -> str:
    """The name of a data structure in a text, such as "an object"; "" for an answer.

    Lists of numbers, and lists of equally long lists of numbers, are answers: coordinates and
    matrices.
    """
    if _TEST.match(answer):
        return "a test of a program"
    if not _STRUCTURE.match(answer):
        return ""
    value = literal_of(answer)
    if isinstance(value, Mapping):
        return "an object"
    if not isinstance(value, list | tuple):
        return ""
    if not value:
        return "an empty list"
    if any(isinstance(each, Mapping) for each in value):
        return "a list of objects"
    texts = [each for each in value if isinstance(each, str)]
    if any(map(_TEST.match, texts)):
        return "a list of tests"
    if any(isinstance(each, list | tuple) for each in value):
        return "" if _is_matrix(value) else "a nested list"
    return "a list of texts" if len(texts) > 1 else ""


def _is_matrix(value: Sequence[Any]) -> bool:
    """Whether a list holds equally long lists of numbers."""
    rows = [each for each in value if isinstance(each, list | tuple) and each]
    if len(rows) < len(value) or len({len(row) for row in rows}) > 1:
        return False
    return all(type(number) in (int, float) for row in rows for number in row)


def stands_for_none(answer: str, words: Sequence[str]) -> bool:
    """Whether an answer is a word for a missing answer, also as `[TBD]` or `<unknown>`."""
    inside = match[1] if (match := _BRACKETED.fullmatch(answer)) else answer
    return inside.strip().lower() in words


def why_no_answer(answer: str, marker: str) -> str:
    """Why this marker could not compare a text with a model's answer; "" if it could.

    Words such as `unknown` and `none` may be answers if the marker is `text`.
    """
    if stands_for_none(answer, NO_ANSWERS if marker == "text" else PLACEHOLDERS):
        return "stands for a missing one"
    if structure := structure_of(answer):
        return f"is {structure}, which is not a form that models answer in"
    return ""


def choose_marker(forms: Mapping[str, int], *, optional: bool = False) -> Marker:
    """The marker that fits answers of these forms. TaskError if answers are optional and absent.

    For numbers and letters, a tenth of the answers may have a different form: such rows cannot be
    used. Expressions and text accept any answer. If half of the answers are mathematical, the
    marker is expression, because text would compare them letter by letter. Texts that are not
    answers do not count.
    """
    counts = kind_counts(forms)
    total = sum(counts.values()) - counts["none"]
    if not total and optional:
        raise TaskError(
            "without any answer, the marker cannot be recognized: write --marker number, letter, "
            "expression or text"
        )
    if not total:
        return "text"
    if counts["letter"] >= MOST * total:
        return "letter"
    if counts["number"] >= MOST * total and not counts["expression"]:
        return "number"
    maths = counts["number"] + counts["expression"]
    return "expression" if 2 * maths >= total else "text"


def kind_counts(forms: Mapping[str, int]) -> dict[Kind, int]:
    """The answers of each kind, from those of each form."""
    counts: dict[Kind, int] = dict.fromkeys(KINDS, 0)
    for form, count in forms.items():
        counts[KIND_OF_FORM[form]] += count
    return counts


def mixed_kinds(counts: Mapping[Kind, int], most: float = MOST) -> list[tuple[Kind, ...]]:
    """The kinds of each data set of a mix that covers all answers; empty if one marker fits.

    A marker fits if it reads a share of at least `most` of the answers. Texts that are not answers
    join the most frequent kind, so that every row is in one data set.
    """
    total = sum(counts.values()) - counts["none"]
    families = [sum(counts[kind] for kind in family) for family in FAMILIES]
    if not total or max(families) >= most * total:
        return []
    parts: list[tuple[Kind, ...]] = [(kind,) for kind in KINDS if counts[kind] and kind != "none"]
    if 0 < min(counts["number"], counts["expression"]) < MIN_PART:
        parts = [part for part in parts if part[0] not in ("number", "expression")]
        parts.insert(0, ("number", "expression"))
    if counts["none"]:
        sizes = [sum(counts[kind] for kind in part) for part in parts]
        largest = sizes.index(max(sizes))
        parts[largest] = (*parts[largest], "none")
    return parts


def with_other_kinds(
    mix: Sequence[tuple[Kind, ...]], counts: Mapping[Kind, int]
) -> list[tuple[Kind, ...]]:
    """The data sets of a mix, and those of further kinds of answers."""
    parts = [*mix]
    for kind, count in counts.items():
        if not count or any(kind in part for part in parts):
            continue
        if kind == "none":
            parts[0] = (*parts[0], kind)
        elif kind in ("number", "expression") and (beside := _beside(parts)) is not None:
            parts[beside] = tuple(sorted({*parts[beside], kind}, key=KINDS.index))
        else:
            parts.append((kind,))
    return parts


def _beside(parts: Sequence[tuple[Kind, ...]]) -> int | None:
    """The data set of numbers or expressions, which the marker of expressions reads together."""
    maths = (i for i, part in enumerate(parts) if {"number", "expression"} & {*part})
    return next(maths, None)


def marker_of(kinds: Sequence[Kind]) -> Marker:
    """The marker that reads answers of all these kinds."""
    if "expression" in kinds:  # that marker also reads numbers
        return "expression"
    return next(kind for kind in kinds if kind != "none")


def why_unlikely(answer: str, question: str, form: str) -> str:
    """Why no model would give a gold answer that is marked correct by itself; "" if it could.

    answer: in the task's form; question: as asked.
    """
    if form == "letters" and not _has_option(question, answer.strip("()")):
        return f"the question has no option {answer}"
    if form == "placeholders":
        return f"{answer!r:.40} may stand for a missing answer"
    if form == "ranges or estimates":
        return f"{answer!r:.40} is a range or an estimate: only the same text is correct"
    if form == "decimals" and len(answer.partition(".")[2]) > MANY_DIGITS:
        return f"{answer:.40} has more than {MANY_DIGITS} digits after the point"
    if form == "free text" and len(answer.split()) > LONG_TEXT:
        return f"more than {LONG_TEXT} words: only the same text is correct"
    if form == "LaTeX or formulas" and len(answer) > LONG_ANSWER:
        return f"more than {LONG_ANSWER} characters: only the same text is correct"
    return ""


def _has_option(question: str, letter: str) -> bool:
    """Whether a question has an option with this letter: `(C)`, `C.`, `C:` or a lone C."""
    if re.search(rf"(?<![\w']){letter}\s*[).:\]]|[(\[]{letter}\b", question):
        return True
    # A lone A or I may be a word: the adjacent option decides.
    beside = {"A": "B", "I": "H"}.get(letter, letter)
    return all(re.search(rf"(?<![\w']){each}(?![\w'])", question) for each in {letter, beside})
