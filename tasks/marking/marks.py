"""Marks a completion under two readings, and names the rule that decided; reads gold answers.

strict is the paper's rule: the last box, exactly in the requested form. lenient accepts what a fair
teacher would, outside of thinking blocks. Both see the completion alone.
"""

import re
from typing import Literal, NamedTuple, Self, get_args

from tasks.marking.numbers import (
    find_number,
    normalize_number,
    parse_integer,
    parse_number,
    strip_markup,
)
from tasks.marking.reading import (
    REACH,
    final_text,
    find_statement,
    first_sentence,
    last_box,
    last_filled_box,
    last_hash_line,
    last_line,
)

_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*\)?\s*[.:]?")
_IN_BRACKETS = re.compile(r"(?<!\w)\(([A-Za-z])\)")
# A letter on its own; "a" and "I" are words, and so is a capital before a word ("A red ball").
_BARE = re.compile(r"(?<![\w'(])(?!a\b|I\b)([A-Za-z])(?![\w'])(?!\s+(?!(?:or|and|nor)\b)[A-Za-z])")
_LEADING = re.compile(
    r"(?:(?:option|choice)\s+)?\(?([A-Za-z])(?=[\W]*$|[.:,;)]\s|\s+\()", re.IGNORECASE
)
_DENIED = re.compile(r"\b(?:not|never|neither|nor|isn't|wrong|incorrect)\b", re.IGNORECASE)
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
        span = strip_markup(find_statement(span) or span)
        if match := _LETTER.fullmatch(span):
            return match[1].upper(), f"{place}-letter"
        option = one_option(span)
        return None if option is None else (option, f"{place}-option")
    rest = find_statement(text)
    statement = None if rest is None else first_sentence(rest, truncated)
    if statement is not None and (letter := one_option(strip_markup(statement))) is not None:
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


Outcome = Literal["correct", "wrong", "unparsed", "truncated", "error", "unlabelled"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

_STRICT_LETTER = re.compile(r"\(?([A-Z])\)?")


class _Mark(NamedTuple):
    outcome: Outcome
    extracted: str | None
    rule: str
    score: float | None


class Mark(_Mark):
    """One mark: the outcome, the extracted answer (None without one), the rule, and the score.

    The score is from 0 to 1: 1.0 for a correct answer and 0.0 for any other unless the marker gives
    another one, and None where marking failed (`error`) or an answer was read and there is no gold
    answer (`unlabelled`).
    """

    __slots__ = ()

    def __new__(
        cls, outcome: Outcome, extracted: str | None, rule: str, score: float | None = None
    ) -> Self:
        if outcome in ("error", "unlabelled"):
            score = None
        elif score is None:
            score = 1.0 if outcome == "correct" else 0.0
        return super().__new__(cls, outcome, extracted, rule, score)

    @property
    def reward(self) -> float | None:
        """The score: what training rewards unless the experiment says otherwise."""
        return self.score


def score_mark(score: float, extracted: str | None, rule: str, threshold: float = 1.0) -> Mark:
    """The mark of an answer with a score from 0 to 1: correct from the threshold on, else wrong."""
    return Mark("correct" if score >= threshold else "wrong", extracted, rule, float(score))


def answer_mark(correct: bool, extracted: str, rule: str) -> Mark:
    """The mark of an extracted answer."""
    return Mark("correct" if correct else "wrong", extracted, rule)


def no_answer_mark(truncated: bool) -> Mark:
    """The mark of a text without an answer: truncated by the token limit, or unparsed."""
    return Mark("truncated" if truncated else "unparsed", None, "no-answer")


def mark_number(
    completion: str, answer: str, marking: str, truncated: bool, *, last_number: bool = False
) -> Mark:
    r"""Mark a number. `answer` is the gold: an integer, decimal or fraction.

    strict: the last `\boxed{}` is a Python integer equal to the gold. lenient: see
    `numbers.find_number`; `last_number` also accepts the last number of a complete text.
    """
    if marking == "strict":
        box = last_box(completion)
        integer = None if box is None else parse_integer(box)
        if integer is None:
            return no_answer_mark(truncated)
        gold = parse_integer(answer)  # faster than parse_number
        correct = integer == (parse_number(answer) if gold is None else gold)
        return answer_mark(correct, str(integer), "strict:boxed-integer")
    text, tagged = final_text(completion)
    number = find_number(text, tagged=tagged, anywhere=last_number, truncated=truncated)
    if number is None:
        return no_answer_mark(truncated)
    value, rule = number
    return answer_mark(value == parse_number(answer), str(value), f"lenient:{rule}")


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


Marker = Literal["number", "letter", "expression", "text"]
_LETTER_ANSWER = re.compile(r"[A-Z]|\([A-Z]\)")
_HASH_LINE = re.compile(r"(?<!\S)####[ \t]*(\S.*)\Z")


def final_answer(text: str) -> str:
    r"""The answer of a worked solution: after `####` in its last line, or in its last `\boxed{}`.

    Any other text is an answer already.
    """
    if line := _HASH_LINE.search(text):
        return line[1].strip()
    return (last_box(text) or text) if "\\boxed" in text else text


def read_gold(answer: str, marker: Marker) -> str | None:
    """The gold that an answer of a file gives, or None if the marker needs another form."""
    answer = final_answer(answer)
    if marker == "number":
        return normalize_number(answer)
    if marker == "letter":
        return f"({answer.strip('()')})" if _LETTER_ANSWER.fullmatch(answer) else None
    return answer
