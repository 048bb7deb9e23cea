"""Locates the answer in a text: boxes, statements, `####` lines, bold spans, the last line.

Nothing here interprets an answer. Every function takes linear time on any text.
"""

import re
from collections import deque

# A backslash before a command's own backslash does not belong to it: `\\boxed{1}` is a box.
_TOKEN = re.compile(r"\\[a-z]+\s*\{|\\\\(?![a-z])|\\[{}]|[{}]")
_OPENING = re.compile(r"\\([a-z]+)\s*\{")

_STATEMENT = re.compile(
    r"\b(?:answer|(?:correct|right|best)\s+(?:option|choice))\b"
    r"(?:\s+(?:is|(?:must|should|would|will|has to)\s+be)\b|\*{0,2}\s*[:=])\s*:?",
    re.IGNORECASE,
)
# "If the answer is 5, …"; a comma ends the condition: "If he sells all, the answer is 5"
_HYPOTHETICAL = re.compile(
    r"\b(?:if|whether|suppos\w*|assum\w*|doubt|unless|maybe|perhaps)\b[^.,;:!?\n]*$", re.IGNORECASE
)
_CODE = re.compile(r"(?<!`)`(?!`)")
_TAG = re.compile(r"</?[a-z]+>", re.IGNORECASE)
_END = re.compile(r"[.!?](?=\s|\*|$)|\n")
_REASON = re.compile(
    r"(?<=\S)(?:,?\s+(?:because|since|as)\b|(?:,|\s+and|\s+but)\s+not\b).*", re.DOTALL
)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_NUMERIC = re.compile(r"[-+−$€£₹¥\\\d.½⅓⅔¼¾]")
_HEADING = re.compile(r"\d+[.):]\s+\S")  # Markdown: "#### 2. Count the pens"
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_DIGIT = re.compile(r"\d")
_UNIT_AFTER = re.compile(r"[\s.!|]*(?:[a-z]+\b[\s.!|]*){0,3}")  # and the rest of a table row

TOKEN_LENGTH = 40  # characters of an end-of-turn token, at most
_END_OF_TURN = re.compile(
    r"(?:<\|[\w-]{1,30}\|>|<｜[^<>｜]{1,30}｜>|</s>|<eos>|<end_of_turn>|<pad>)\Z"
)

REACH = 200  # characters after "the answer is" that can hold the answer
STATEMENTS = 20  # how many of the last statements are examined
CLAUSE = 60  # characters before "answer is" in which a condition can begin


def without_thinking(text: str) -> str:
    """The text without its thinking: after the last `</think>` and before an open `<think>`."""
    return text.rpartition("</think>")[2].partition("<think>")[0]


def final_text(text: str) -> tuple[str, bool]:
    """The text without its thinking and end-of-turn tokens; whether it is inside `<answer>` tags.

    The tags count where no box follows them.
    """
    text = without_thinking(text).rstrip()
    while end := _END_OF_TURN.search(text[-TOKEN_LENGTH:]):
        text = text[: len(text) - len(end[0])].rstrip()
    before, closing, after = text.rpartition("</answer>")
    _, opening, inside = before.rpartition("<answer>")
    if not closing or not opening or last_filled_box(after) is not None:
        return text, False
    return inside.strip(), True


def last_box(text: str, commands: tuple[str, ...] = ("boxed",)) -> str | None:
    r"""The content of the last closed `\boxed{...}`, braces matched at any depth, or None."""
    start = text.rfind("\\boxed")
    if start >= 0 and text.startswith("{", start + 6) and commands == ("boxed",):
        end = text.find("}", start)
        inner = text[start + 7 : end]
        if end > 0 and "{" not in inner and "\\" not in inner:
            return inner.strip()
    return _matched_box(text, commands, empty=True)


def last_filled_box(text: str) -> str | None:
    r"""The content of the last closed box that is not empty, or None.

    An empty box mostly repeats the instruction. `\fbox` counts if there is no `\boxed`.
    """
    box = _matched_box(text, ("boxed",), empty=False)
    return _matched_box(text, ("fbox",), empty=False) if box is None and "\\fbox" in text else box


def _matched_box(text: str, commands: tuple[str, ...], *, empty: bool) -> str | None:
    """The box that begins last among the closed ones; one pass with a stack of open braces."""
    stack: list[int] = []
    best, content = -1, None
    for token in _TOKEN.finditer(text):
        shape = token[0]
        if shape == "}":
            start = stack.pop() if stack else -1
            inside = text[start : token.start()].strip() if start > best else ""
            if start > best and (empty or inside):
                best, content = start, inside
        elif shape == "{":
            stack.append(-1)
        elif shape[-1] == "{" and (opening := _OPENING.match(shape)):
            stack.append(token.end() if opening[1] in commands else -1)
    return content


def find_statement(text: str) -> str | None:
    """The text after the last "answer is" or "answer:" that is not hypothetical, or None."""
    for match in reversed(deque(_STATEMENT.finditer(text), maxlen=STATEMENTS)):
        before = text[max(0, match.start() - CLAUSE) : match.start()]
        rest = text[match.end() : match.end() + REACH].lstrip(" \t\n*")
        if rest and not _HYPOTHETICAL.search(before):
            return _CODE.sub("", _TAG.sub("", rest))
    return None


def first_sentence(rest: str, truncated: bool) -> str | None:
    """The first sentence of a statement, without the reason given for it.

    None for a question, and if the sentence may continue: cut by the token limit, or by REACH.
    """
    end = _END.search(rest)
    if end is None:
        return None if truncated or len(rest) >= REACH else _REASON.sub("", rest)
    if end[0] == "?" or (truncated and end[0] == "." and end.end() == len(rest)):
        return None  # where the text is cut, a full stop may be a decimal point
    return _REASON.sub("", rest[: end.start()])


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return text.rstrip()[-REACH:].rpartition("\n")[2].strip()


def find_hash_line(text: str, truncated: bool) -> str | None:
    """The text of the last `#### N` (GSM8K's form); "" if the limit cut it, None without one."""
    for line in reversed(_HASHES.findall(text)):
        if _NUMERIC.match(line) and not _HEADING.match(line):
            return "" if truncated and text.endswith(line) else str(line)
    return None


def last_hash_line(text: str) -> str | None:
    """What follows `####` in the last line; a heading of Markdown has text below it."""
    match = _HASHES.fullmatch(last_line(text))
    return match[1].strip() if match else None


def find_bold(text: str) -> str | None:
    """The only bold span with a digit in the last line, if the line ends on it, or None."""
    line = last_line(text)
    spans = [span for span in _BOLD.finditer(line) if _DIGIT.search(span[1])]
    if len(spans) != 1 or not _UNIT_AFTER.fullmatch(line, spans[0].end()):
        return None
    return None if spans[0][1].endswith(":") else spans[0][1]  # "**Step 4:**" is a heading
