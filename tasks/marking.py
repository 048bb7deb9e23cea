"""Is this completion right? Finding the answer in a text, and naming the rule that found it."""

import re
from typing import Literal, NamedTuple

Outcome = Literal["correct", "wrong", "unparsed", "truncated", "error"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "wrong", "unparsed", "truncated", "error")

_BOX = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_STRICT_LETTER = re.compile(r"\(?([A-Z])\)?")
# No two optional runs of spaces stand side by side: reading stays linear on any text.
_LENIENT_LETTER = re.compile(r"(?:\\text\{)?\s*(?:\(\s*)?([A-Za-z])\s*(?:\)\s*)?(?:\.\s*)?\}?")
_STATED = re.compile(r"\banswer\s+is:?\s*(?:\*\*\s*)?\(([A-Za-z])\)", re.IGNORECASE)


class Mark(NamedTuple):
    """One judgement: the outcome, the answer that was read (None where there is none), the rule."""

    outcome: Outcome
    extracted: str | None
    rule: str

    @property
    def reward(self) -> float | None:
        """1.0 for correct, 0.0 for wrong, unparsed or truncated, None where marking failed."""
        return None if self.outcome == "error" else float(self.outcome == "correct")


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, one level of inner braces allowed."""
    found = _BOX.findall(text)
    return found[-1].strip() if found else None


def read_letter(text: str, marking: str) -> tuple[str, str] | None:
    r"""The option letter that a text ends on, with the rule that read it, or None.

    strict: the last `\boxed{}` holds exactly `(X)` or `X`. lenient: also lower case, `\text{(X)}`,
    a full stop, and, where nothing is boxed, the last "the answer is (X)".
    """
    box = last_box(text)
    if box is not None:
        pattern = _STRICT_LETTER if marking == "strict" else _LENIENT_LETTER
        match = pattern.fullmatch(box)
        return (match[1].upper(), f"{marking}:boxed-letter") if match else None
    if marking == "lenient" and (stated := _STATED.findall(text)):
        return stated[-1].upper(), "lenient:stated-letter"
    return None


def mark_letter(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    """Mark a lettered choice. `answer` is the gold letter, bare or in round brackets."""
    found = read_letter(completion, marking)
    if found is None:
        return Mark("truncated" if truncated else "unparsed", None, "no-answer")
    letter, rule = found
    return Mark("correct" if letter == answer.strip("()") else "wrong", f"({letter})", rule)
