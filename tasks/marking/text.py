"""Marks answers that are words: the content of a box, a statement or a last line."""

import re
import unicodedata

from tasks.marking.boxes import last_box, last_filled_box
from tasks.marking.marks import Mark, answer_mark, no_answer_mark
from tasks.marking.reading import final_text, find_statement, first_sentence, last_hash_line
from tasks.marking.spelling import MAX_LENGTH, UPRIGHT, UPRIGHT_END, AnswerComparison, unwrap

_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"'})
_QUOTED = re.compile(r"""\A(?:"|``|')(.*?)(?:"|''|')\Z""", re.DOTALL)
_SPACES = re.compile(r"\\[,;:! ]|(?<!\\)~")
_BRACED = re.compile(r"\{([,:.])\}")  # 11{:}45
_ESCAPED = re.compile(r"\\([&%_#$])")


def mark_text(completion: str, answer: str, marking: str, truncated: bool) -> Mark:
    """Compare the last box, a stated answer or a last line `#### …` with the gold text."""
    if marking == "strict":
        box = last_box(completion)
        if box is None:
            return no_answer_mark(truncated)
        return answer_mark(box.strip() == answer.strip(), box, "strict:boxed-text")
    text, tagged = final_text(completion)
    box = last_filled_box(text)
    place = "tagged" if tagged else "stated"
    if box is not None:
        place = "boxed"
    if box is None and tagged:
        box = text
    if box is None and (statement := find_statement(text)) is not None:
        box = first_sentence(statement, truncated)
    if box is None and not truncated and (line := last_hash_line(text)):
        box, place = line, "hash"
    if not box:
        return no_answer_mark(truncated)
    correct = normalize_text(box) == normalize_text(answer)
    return answer_mark(correct, box, f"lenient:{place}-text")


def text_comparison(marking: str) -> AnswerComparison:
    """How answers are compared."""
    return AnswerComparison(str.strip if marking == "strict" else normalize_text)


def normalize_text(text: str) -> str:
    """The text without LaTeX's escapes, wrappers and spaces, quotation marks and case."""
    text = unicodedata.normalize("NFC", text).translate(_QUOTES)
    if len(text) <= MAX_LENGTH:
        text = unwrap(text).replace(UPRIGHT, "").replace(UPRIGHT_END, "")
    text = _BRACED.sub(r"\1", text)
    text = _ESCAPED.sub(r"\1", _SPACES.sub(" ", text)).replace("**", "")
    text = " ".join(text.split()).removesuffix(".").rstrip()
    return (_QUOTED.sub(r"\1", text)).removesuffix(".").rstrip().casefold()
