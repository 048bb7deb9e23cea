"""Is this completion right? Two readings side by side, and the rule that decided.

strict is the paper's rule: the last box, exactly in the form asked for. lenient is what a fair
teacher reads, in what was said aloud: no thought is an answer. Both see the completion alone.
"""

import re
from typing import Literal, NamedTuple

from tasks.letters import find_letter
from tasks.numbers import find_number, integer, to_number
from tasks.reading import last_box, spoken

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
    `numbers.find_number`; `last_number` also allows the last number of a text that was not cut.
    """
    if marking == "strict":
        return _mark_integer(completion, answer, truncated)
    found = find_number(spoken(completion), anywhere=last_number, truncated=truncated)
    if found is None:
        return no_answer(truncated)
    value, rule = found
    return decided(value == to_number(answer), str(value), f"lenient:{rule}")


def _mark_integer(completion: str, answer: str, truncated: bool) -> Mark:
    box = last_box(completion)
    value = None if box is None else integer(box)
    if value is None:
        return no_answer(truncated)
    gold = integer(answer)  # quicker than what reads every number
    right = value == (to_number(answer) if gold is None else gold)
    return decided(right, str(value), "strict:boxed-integer")


def mark_letter(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    r"""Mark a lettered choice. `answer` is the gold letter, bare or in round brackets.

    strict: the last `\boxed{}` holds exactly `(X)` or `X`. lenient: see `letters.find_letter`.
    """
    if marking == "strict":
        box = last_box(completion)
        match = _STRICT_LETTER.fullmatch(box) if box is not None else None
        found = (match[1], "boxed-letter") if match else None
    else:
        found = find_letter(spoken(completion), truncated=truncated)
    if found is None:
        return no_answer(truncated)
    letter, rule = found
    return decided(letter == answer.strip("()"), f"({letter})", f"{marking}:{rule}")
