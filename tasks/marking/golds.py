"""Reads the gold answers of a file."""

import re
from collections.abc import Mapping
from typing import Literal

from tasks.marking.boxes import filled_boxes, joined_boxes, outer_boxes
from tasks.marking.digits import normalize_number

Marker = Literal["number", "letter", "expression", "text"]
# Gold answers by marker; the first two of each serve as wrong answers.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "number": ("170009", "-3", "1200"),
    "letter": ("(A)", "(B)"),
    "expression": ("\\frac{17}{1009}", "x^{17} - 1009", "12\\sqrt{3}"),
    "text": ("Seventeen owls", "New York"),
}
_LETTER_ANSWER = re.compile(r"[A-Z]|\([A-Z]\)")
_HASH_LINE = re.compile(r"(?<!\S)####[ \t]*(\S.*)\Z")


def final_answer(text: str) -> str:
    r"""The answer of a worked solution: after `####` in its last line, or in its last `\boxed{}`.

    Any other text is an answer already.
    """
    if line := _HASH_LINE.search(text):
        return line[1].strip()
    boxes = filled_boxes(text) if "\\boxed" in text else []
    return joined_boxes(text, outer_boxes(boxes)).content if boxes else text


def read_gold(answer: str, marker: Marker) -> str | None:
    """The gold that an answer of a file gives, or None if the marker needs a different form."""
    answer = final_answer(answer)
    if marker == "number":
        return normalize_number(answer)
    if marker == "letter":
        return f"({answer.strip('()')})" if _LETTER_ANSWER.fullmatch(answer) else None
    return answer
