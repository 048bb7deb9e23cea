"""Locates the answer in a text: boxes, statements, `####` lines, bold spans, the last line.

Nothing here interprets an answer. Every function takes linear time on any text.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tasks.marking.boxes import filled_boxes, joined_boxes, last_filled_box, outer_boxes
from tasks.marking.digits import REACH

_STATEMENT = re.compile(
    r"(?:\b(?:answer|(?:correct|right|best)\s+(?:option|choice))\b"
    r"(?:\s+(?:is|(?:must|should|would|will|has to)\s+be)\b|\*{0,2}\s*[:=])"
    r"|答案(?:是|为|為|：|:))\s*:?",
    re.IGNORECASE,
)
_JSON = re.compile(
    r"""["'](?:final[_ ])?answer["']\s{0,9}:\s{0,9}"""
    r"""(?:"((?:[^"\\]|\\.){0,500})"|([^,"}\n]{1,200}))\s{0,9}[,}](?!\d)""",
    re.IGNORECASE,
)
# "If the answer is 5, …"; a comma ends the condition: "If he sells all, the answer is 5"
_HYPOTHETICAL = re.compile(
    r"\b(?:if|whether|suppos\w*|assum\w*|doubt|unless|maybe|perhaps"
    r"|wrong|incorrect|mistakes?\s+(?:is|would|was)|nobody|guess\w*"
    r"|might\s+(?:say|think|guess|claim)|isn't|false)\b[^.,;:!?\n]*$",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(  # "Wait, no", "(wrong)", "This is incorrect", "5. It is actually 6"
    r"\b(?:wait(?=\s*[,.!…:-])|hmm+|oops|correction|hold on|sorry|i meant)\b"
    r"|[.…;]\s[^.]*\bactually\b|\(\s*(?:wrong|incorrect|or\b)"
    r"|\b(?:this|that|it|which)\s+(?:is|was)\s+(?:\w+\s+)?(?:wrong|incorrect|mistaken|a mistake)\b",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\s$.)\]\\]*(?:(?:would\s+be|is|was)\s+(?:\w+\s+)?(?:wrong|incorrect|not\s+(?:correct|right))"
    r"|\(\s*(?:wrong|incorrect)|\?)",
    re.IGNORECASE,
)
_DENIED_BEFORE = re.compile(  # not \boxed{5}, at most $\boxed{5}
    r"(?:\bnot|n't|\bnever|\banything but|\bat (?:most|least)|\b(?:less|more|greater|fewer) than)"
    r"(?:\s+be)?[\s$*:]*(?:\\[(\[])?\s*\Z",
    re.IGNORECASE,
)
_OF_THE_ANSWER = re.compile(  # a different quantity than the answer
    r"\b(?:of|twice|thrice|half|double|than|in|for|false\s+that)\s+(?:the\s+)?\Z", re.IGNORECASE
)
_ADVERB = re.compile(
    r"\A(?:therefore|thus|hence|then|so|simply|indeed|clearly|just)\b,?\s*", re.IGNORECASE
)
_DELIMITED = re.compile(r"(?:\\\(|\\\[|\$\$?)(.+?)(?:\\\)|\\\]|(?<!\\)\$\$?)", re.DOTALL)
_CONTINUES = re.compile(  # $5$ or $6$; $x$ = 5; $1$ + x
    r"\s*(?:[=+*/^<>]|-\s*(?:\d|\\|[a-zA-Z]\b(?! \w\w))"
    r"|(?:or|and|plus|minus|times|divided|multiplied)\b)"
    r"|[^$]*\$|.*\\\(",
    re.DOTALL,
)
_BOUND = re.compile(  # after an answer: it is not the answer, or not all of it
    r"\b(?:not|never|than|at (?:least|most)|up to|or (?:more|less|fewer|none|neither)|plus|minus"
    r"|divided|multiplied|times|half|thousand|(?:m|b|tr)illion|dozen|percent)\b",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"(?<=\S)\s+(?:\((?!\s*or\b)[^()]*\)[\s.*]*\Z|—.*)", re.DOTALL
)  # 18 (9 boxes with 2 pens each)
_CLAUSE = re.compile(r",\s[^\d=$\\]*\Z")  # 72 clips, altogether
_WHICH_IS = re.compile(
    r",?\s+(?:which|that)\s+(?:is|makes|gives|equals)\b|\s+equals\b", re.IGNORECASE
)
JSON = 4_000  # characters at the end of a text in which JSON is read
_PREMISE = re.compile(
    r"\b(?:let|suppos\w*|assum\w*|consider|if|when|given|for|not|wrong|incorrect|guess|example|check"
    r"|verify|contradict\w*|exceed\w*|than|(?:need|want|try|have) to)\b|n't\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"(?<!`)`(?!`)")
_TAG = re.compile(r"</?[a-z]+>", re.IGNORECASE)
_END = re.compile(r"[.!?](?=\s|\*|$)|[\n。]")
_REASON = re.compile(
    r"(?<=\S)(?:,?\s+(?:because|since|as)\b|(?:,|\s+and|\s+but)\s+not\b).*", re.DOTALL
)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_NUMERIC = re.compile(r"[-+−$€£₹¥\\\d.½⅓⅔¼¾]")
_HEADING = re.compile(r"\d+[.):]\s+\S")  # Markdown: "#### 2. Count the pens"
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_DIGIT = re.compile(r"\d")
_UNIT_AFTER = re.compile(r"[\s.!|]*(?:[a-z]+\b[\s.!|]*){0,3}")  # and the rest of a table row

TOKEN_LENGTH = 40  # the most characters of an end-of-turn token
_END_OF_TURN = re.compile(
    r"(?:<\|[\w-]{1,30}\|>|<｜[^<>｜]{1,30}｜>|</s>|<eos>|<end_of_turn>|<pad>)\Z"
)

STATEMENTS = 20  # how many of the last statements are examined
CLAUSE = 60  # characters before "answer is" in which a condition can begin


def without_thinking(text: str) -> str:
    """The text without its thinking: after the last `</think>` and before an open `<think>`."""
    return text.rpartition("</think>")[2].partition("<think>")[0]


def final_text(text: str) -> tuple[str, bool]:
    """The text without its thinking and end-of-turn tokens; whether it is inside `<answer>` tags.

    The tags count if no box follows them.
    """
    text = without_thinking(text).rstrip()
    while end := _END_OF_TURN.search(text[-TOKEN_LENGTH:]):
        text = text[: len(text) - len(end[0])].rstrip()
    before, closing, after = text.rpartition("</answer>")
    _, opening, inside = before.rpartition("<answer>")
    if not closing or not opening or last_filled_box(after) is not None:
        return text, False
    return inside.strip(), True


class Place(NamedTuple):
    """The location of an answer: the name of the place, and the text there."""

    name: str
    text: str


def find_answer(
    completion: str,
    truncated: bool,
    is_answer: Callable[[str], bool],
    *,
    several: bool = False,
) -> Place | None:
    """The answer of a completion; None if there is none, or if it is taken back.

    A box takes precedence, then `<answer>` tags, JSON (`"answer": …`), `#### …`. Without them: "the
    answer is …", a bold number at the end, or a last line that is only an answer (`is_answer`). The
    first of these that is an answer counts, else the statement. `several`: boxes with only commas
    between them are one answer.
    """
    text, tagged = final_text(completion)
    if boxes := filled_boxes(text):
        outer = outer_boxes(boxes)
        box = joined_boxes(text, outer)
        if not several and " or " not in box.content:
            box = outer[-1]
        before = text[max(0, box.start - CLAUSE) : box.start]
        after = text[box.end :]
        denied = _DENIED_AFTER.match(after) or _DENIED_BEFORE.search(before)
        if not denied and not (_TAKEN_BACK.search(after[:REACH]) and find_statement(after)):
            if "\\boxed" not in box.content or is_answer(box.content):
                return Place("boxed", box.content)
            return Place("boxed", max(boxes, key=lambda box: box.start).content)
    elif tagged:
        return Place("tagged", text)
    elif values := _JSON.findall(text[-JSON:]):
        return Place("json", (values[-1][0] or values[-1][1]).strip())
    elif (line := find_hash_line(text, truncated)) is not None:
        return Place("hash", line)
    first = None
    for place in _soft_places(text, truncated):
        first = first or place
        if is_answer(place.text):
            return place
    return first if first is not None and first.name == "stated" else None


def _soft_places(text: str, truncated: bool) -> Iterator[Place]:
    """Unmarked places, in order."""
    rest = find_statement(text)
    for statement in [] if rest is None else stated_answers(rest, truncated):
        if "\\boxed" in statement:  # one that is not closed
            return
        yield Place("stated", statement)
    if truncated:
        return
    if (span := find_bold(text)) is not None:
        yield Place("bold", span)
    line = _END.split(last_line(text).rstrip(".!"))[-1].strip()
    if rest is None and "\\boxed" not in line and not _PREMISE.search(line):
        yield Place("line", _ADVERB.sub("", line))
        formulas = list(_DELIMITED.finditer(line))
        prose = _DELIMITED.sub("", line)
        if len(formulas) == 1 and not (any(map(str.isdigit, prose)) or _BOUND.search(prose)):
            yield Place("line", formulas[0][1].strip())


def stated_answers(rest: str, truncated: bool) -> Iterator[str]:
    """The possible answers in a statement: its first sentence, or the LaTeX at its beginning."""
    rest = _ADVERB.sub("", rest)
    inside = _DELIMITED.match(rest)
    after = first_sentence(rest[inside.end() :] if inside else rest, truncated)
    if after is None:
        return
    sentence = (inside[0] if inside else "") + after
    for part in (
        sentence,
        _WHICH_IS.split(_REMARK.sub("", sentence))[-1],
        _CLAUSE.sub("", sentence),
    ):
        if stated := part.strip(" \t\n*._"):
            yield stated
    if inside and not _CONTINUES.match(after) and not _BOUND.search(after):
        yield inside[1].strip()


def find_statement(text: str) -> str | None:
    """The text after the last "answer is" or "answer:" that is not hypothetical, or None.

    Also None if the following text takes it back.
    """
    for match in reversed(deque(_STATEMENT.finditer(text), maxlen=STATEMENTS)):
        before = text[max(0, match.start() - CLAUSE) : match.start()]
        rest = text[match.end() : match.end() + REACH].lstrip(" \t\n*_")
        if rest and not _HYPOTHETICAL.search(before) and not _OF_THE_ANSWER.search(before):
            rest = _CODE.sub("", _TAG.sub("", rest))
            return None if _TAKEN_BACK.search(rest) else rest
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
    """The text after `####` in the last line; a Markdown heading has text below it."""
    match = _HASHES.fullmatch(last_line(text))
    return match[1].strip() if match else None


def find_bold(text: str) -> str | None:
    """The only bold span with a digit in the last line, if the line ends on it, or None."""
    line = last_line(text)
    spans = [span for span in _BOLD.finditer(line) if _DIGIT.search(span[1])]
    if len(spans) != 1 or not _UNIT_AFTER.fullmatch(line, spans[0].end()):
        return None
    return None if spans[0][1].endswith(":") else spans[0][1]  # "**Step 4:**" is a heading
