"""Locates the boxes of a text, whatever their content. Every function takes linear time."""

import re
from typing import NamedTuple

# A backslash before a command's own backslash does not belong to it: `\\boxed{1}` is a box.
_TOKEN = re.compile(r"\\[a-z]+\s*\{|\\\\(?![a-z])|\\[{}]|[{}]")
_OPENING = re.compile(r"\\([a-z]+)\s*\{")
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
# Between boxes that form one answer together.
_JOIN = re.compile(r"(?:[\s,;$]|\\(?:quad|qquad|text|mathrm|[,;:! ()\[\]])|[{}]|\b(?:and|or)\b)*")
_SEPARATOR = re.compile(r"[,;]|\b(?:and|or)\b")
JOIN = 60  # the most characters between two boxes of one answer


class Box(NamedTuple):
    """A closed box: its content, and where the box begins and ends."""

    content: str
    start: int
    end: int


def last_box(
    text: str, commands: tuple[str, ...] = ("boxed",), *, bare: bool = False
) -> str | None:
    r"""The content of the closed `\boxed{...}` that begins last, with matched braces, or None.

    `bare`: without a closed box, the content of `\boxed 5`.
    """
    start = text.rfind("\\boxed")
    if start >= 0 and text.startswith("{", start + 6) and commands == ("boxed",):
        end = text.find("}", start)
        inner = text[start + 7 : end]
        if end > 0 and "{" not in inner and "\\" not in inner:
            return inner.strip()
    boxes = find_boxes(text, commands) or (bare_boxes(text) if bare else [])
    return max(boxes, key=lambda box: box.start).content if boxes else None


def last_filled_box(text: str) -> str | None:
    r"""The content of the last closed box that is not empty, or None.

    An empty box usually repeats the instruction. `\fbox` and `\boxed 5` count if there is no
    `\boxed{}`.
    """
    boxes = filled_boxes(text)
    return max(boxes, key=lambda box: box.start).content if boxes else None


def filled_boxes(text: str) -> list[Box]:
    """The non-empty boxes, in the order of their ends; see `last_filled_box`."""
    for commands in (("boxed",), ("fbox",)):
        if "\\" + commands[0] in text:
            boxes = [box for box in find_boxes(text, commands) if box.content]
            if boxes:
                return boxes
    return bare_boxes(text)


def outer_boxes(boxes: list[Box]) -> list[Box]:
    """Boxes that are not inside another box."""
    outer: list[Box] = []
    for box in boxes:
        while outer and outer[-1].start > box.start:
            outer.pop()
        outer.append(box)
    return outer


def bare_boxes(text: str) -> list[Box]:
    r"""The content of `\boxed 5`."""
    return [Box(m[1].rstrip(".,;"), m.start(), m.end()) for m in _BARE_BOX.finditer(text)]


def find_boxes(text: str, commands: tuple[str, ...] = ("boxed",)) -> list[Box]:
    """The closed boxes, in the order of their ends; one pass with a stack of open braces."""
    stack: list[tuple[int, int]] = []  # where the content and the command of an open brace begin
    boxes: list[Box] = []
    for token in _TOKEN.finditer(text):
        shape = token[0]
        if shape == "}":
            start, command = stack.pop() if stack else (-1, -1)
            if start >= 0:
                boxes.append(Box(text[start : token.start()].strip(), command, token.end()))
        elif shape == "{":
            stack.append((-1, -1))
        elif shape[-1] == "{" and (opening := _OPENING.match(shape)):
            is_box = opening[1] in commands
            stack.append((token.end(), token.start()) if is_box else (-1, -1))
    return boxes


def joined_boxes(text: str, boxes: list[Box]) -> Box:
    """The last box, or the last boxes as a list if only a comma, "and" or "or" separates them."""
    group, conjunction = [boxes[-1]], ", "
    for box in reversed(boxes[:-1]):
        between = text[box.end : group[0].start]
        if len(between) > JOIN or not _JOIN.fullmatch(between) or not _SEPARATOR.search(between):
            break
        group.insert(0, box)
        conjunction = " or " if re.search(r"\bor\b", between) else conjunction
    contents = list(dict.fromkeys(box.content for box in group))
    return Box(conjunction.join(contents), group[0].start, group[-1].end)
