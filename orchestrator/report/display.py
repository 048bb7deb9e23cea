"""Stored texts as people can read them: of bounded length, control characters spelled out."""

import re

COMPLETION_LIMIT = 1_500  # characters of a completion or question on a page
LINE_LIMIT = 160  # characters of a text in one line
# C0 and C1 controls but tab and newline, marks that reorder text, surrogates, noncharacters
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str, limit: int = COMPLETION_LIMIT) -> str:
    """The text, the middle of a long one left out; a control character becomes ⟨U+001B⟩."""
    if len(text) > limit:
        head, tail = 2 * limit // 3, limit // 3
        left_out = f"\n[… {len(text) - head - tail:,} characters left out …]\n"
        text = text[:head] + left_out + text[-tail:]
    return _UNSEEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """The text in one line, its end cut off."""
    line = " ".join(text[: 4 * limit].split())
    cut = len(line) > limit or len(text) > 4 * limit
    return visible(f"{line[:limit].rstrip()}…" if cut else line, 2 * limit)
