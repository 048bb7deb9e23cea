"""The normalized words of a question, by which questions are compared."""

import re
import unicodedata

SHINGLE = 3  # words of a run: what two near duplicates share

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_UNSPACED = r"[\u3040-\u30ff\u3400-\u9fff]"  # kana, Chinese: each character counts as a word
_WORD = re.compile(
    r"\.?\d+(?:\.\d+)*"  # a number
    r"|\\[^\W\d_]+"  # a LaTeX command
    rf"|{_UNSPACED}|(?:(?!{_UNSPACED})[^\W\d_])+"  # a word
    r"|(?<![^\W\d_]{2})!"  # a factorial, where no word of letters ends
    r"|[^\s.,;:?!'\"`$\\{}\u2018-\u201d]"  # any other sign
)


def words(question: str) -> list[str]:
    """The normalized words of a question, in order."""
    text = unicodedata.normalize("NFKC", question).casefold().replace("\u2212", "-")
    return _WORD.findall(_THOUSANDS.sub("", text))
