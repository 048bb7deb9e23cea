"""Marks a completion under two readings, and names the rule that decided.

strict is the paper's rule: the last box, exactly in the requested form. lenient accepts what a fair
teacher would, outside of thinking blocks. Both see the completion alone.
"""

import re
from typing import Literal, NamedTuple

from tasks.letters import find_letter
from tasks.numbers import find_number, parse_integer, parse_number
from tasks.reading import last_box, without_thinking

Outcome = Literal["correct", "wrong", "unparsed", "truncated", "error"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "wrong", "unparsed", "truncated", "error")

_STRICT_LETTER = re.compile(r"\(?([A-Z])\)?")


class Mark(NamedTuple):
    """One mark: the outcome, the extracted answer (None without one), and the rule."""

    outcome: Outcome
    extracted: str | None
    rule: str

    @property
    def reward(self) -> float | None:
        """1.0 for correct, 0.0 for wrong, unparsed or truncated, None where marking failed."""
        return None if self.outcome == "error" else float(self.outcome == "correct")


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
    number = find_number(without_thinking(completion), anywhere=last_number, truncated=truncated)
    if number is None:
        return no_answer_mark(truncated)
    value, rule = number
    return answer_mark(value == parse_number(answer), str(value), f"lenient:{rule}")


def mark_letter(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    r"""Mark a lettered choice. `answer` is the gold letter, bare or in round brackets.

    strict: the last `\boxed{}` holds exactly `(X)` or `X`. lenient: see `letters.find_letter`.
    """
    if marking == "strict":
        box = last_box(completion)
        match = _STRICT_LETTER.fullmatch(box) if box is not None else None
        option = (match[1], "boxed-letter") if match else None
    else:
        option = find_letter(without_thinking(completion), truncated=truncated)
    if option is None:
        return no_answer_mark(truncated)
    letter, rule = option
    return answer_mark(letter == answer.strip("()"), f"({letter})", f"{marking}:{rule}")
