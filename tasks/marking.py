"""Is this completion right? Two readings side by side, and the rule that decided.

strict is the paper's rule: the last box, exactly in the form asked for. lenient is what a fair
teacher reads. Both look at the completion alone.
"""

import re
from fractions import Fraction
from typing import Literal, NamedTuple

from tasks.reading import find_letter, find_number, last_box, to_number

Outcome = Literal["correct", "wrong", "unparsed", "truncated", "error"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "wrong", "unparsed", "truncated", "error")

_STRICT_LETTER = re.compile(r"\(?([A-Z])\)?")


class Mark(NamedTuple):
    """One judgement: the outcome, the answer that was read (None where there is none), the rule."""

    outcome: Outcome
    extracted: str | None
    rule: str

    @property
    def reward(self) -> float | None:
        """1.0 for correct, 0.0 for wrong, unparsed or truncated, None where marking failed."""
        return None if self.outcome == "error" else float(self.outcome == "correct")


def decided(right: bool, extracted: str, rule: str) -> Mark:
    """The mark of an answer that was found."""
    return Mark("correct" if right else "wrong", extracted, rule)


def no_answer(truncated: bool) -> Mark:
    """The mark of a text without an answer: cut by the limit, or ended without one."""
    return Mark("truncated" if truncated else "unparsed", None, "no-answer")


def mark_number(
    completion: str, answer: str, marking: str, truncated: bool, *, last_number: bool = False
) -> Mark:
    r"""Mark a number. `answer` is the gold: an integer, decimal or fraction.

    strict: the last `\boxed{}` is a Python integer equal to the gold. lenient: see
    `reading.find_number`; `last_number` also allows the last number of a text that was not cut.
    """
    if marking == "strict":
        return _mark_integer(completion, answer, truncated)
    found = find_number(completion, anywhere=last_number and not truncated)
    if found is None:
        return no_answer(truncated)
    value, rule = found
    return decided(value == to_number(answer), _shown(value), f"lenient:{rule}")


def _mark_integer(completion: str, answer: str, truncated: bool) -> Mark:
    box = last_box(completion)
    if box is None:
        return no_answer(truncated)
    try:
        value = int(box)
    except ValueError:  # also more digits than Python reads
        return no_answer(truncated)
    return decided(str(value) == answer or value == to_number(answer), str(value),
                   "strict:boxed-integer")  # fmt: skip


def _shown(value: Fraction) -> str:
    """An integer, or a fraction in lowest terms."""
    return str(value)


def mark_letter(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    r"""Mark a lettered choice. `answer` is the gold letter, bare or in round brackets.

    strict: the last `\boxed{}` holds exactly `(X)` or `X`. lenient: see `reading.find_letter`.
    """
    if marking == "strict":
        box = last_box(completion)
        match = _STRICT_LETTER.fullmatch(box) if box is not None else None
        found = (match[1], "boxed-letter") if match else None
    else:
        found = find_letter(completion)
    if found is None:
        return no_answer(truncated)
    letter, rule = found
    return decided(letter == answer.strip("()"), f"({letter})", f"{marking}:{rule}")
